package state

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
)

// Map is keyed state: per key a value and, if it is timed, the time of its
// last update. Entries are changed between Begin and Commit or Rollback only.
type Map[K comparable, S any] struct {
	kc *codec.Codec[K]
	sc *codec.Codec[S]
	tb *Table[K, cell[S]]

	live    int
	lastSeq uint64
	timed   bool
	timers  timers // of the version: the running batch changes nothing in it
	version base.BatchTime

	// the running batch
	running   base.BatchTime
	appended  int    // records at Begin: later ones need no undo but to be cut off
	seqBegin  uint64 // lastSeq at Begin
	undo      []undo[S]
	saved     []uint64       // a bit per record: its undo is taken
	old       []byte         // encoded old values, in the order of undo
	cutoff    base.BatchTime // the latest that Expired was asked for
	schema    Schema
	from      []Migration[S]
	deltaSize int // a guess at the next one, from the last
	buf       []byte
}

// cell is what a key has.
type cell[S any] struct {
	val S
	at  base.BatchTime // of the last update; of the first if the map is not timed
	seq uint64         // position among all comings of keys
}

// gone is the last update of a removed entry.
const gone base.BatchTime = math.MinInt64

// undo restores an entry that was there at Begin.
type undo[S any] struct {
	rec int
	at  base.BatchTime
	val S   // if it can't change behind our back
	end int // else its encoding in Map.old, which begins where the one before ends
}

// NewMap returns empty state. A timed map keeps the time of each entry's last
// update and finds entries by it; updates of another that don't change the
// value are none.
func NewMap[K comparable, S any](kc *codec.Codec[K], sc *codec.Codec[S], timed bool) *Map[K, S] {
	return &Map[K, S]{kc: kc, sc: sc, tb: NewTable[K, cell[S]](0), timed: timed, cutoff: gone, schema: Schema{Key: kc.ID, Value: sc.ID}}
}

// Len returns the number of keys.
func (m *Map[K, S]) Len() int { return m.live }

// Version returns the time of the last finished batch.
func (m *Map[K, S]) Version() base.BatchTime { return m.version }

// Begin starts the batch t. A batch that was begun and not finished is rolled
// back first: applying twice equals once (Invariant 6).
func (m *Map[K, S]) Begin(t base.BatchTime) {
	m.Rollback()
	m.running = t
	m.appended, m.seqBegin = len(m.tb.Recs), m.lastSeq
	if words := (m.appended + 63) / 64; words > len(m.saved) {
		m.saved = append(m.saved, make([]uint64, words-len(m.saved))...)
	}
}

// Running returns the time of the running batch, 0 if none runs.
func (m *Map[K, S]) Running() base.BatchTime { return m.running }

// Find returns the entry of k.
func (m *Map[K, S]) Find(k K) (rec int, ok bool) {
	i, _ := m.tb.Find(k)
	return i, i >= 0
}

// Key returns the key of an entry.
func (m *Map[K, S]) Key(rec int) K { return m.tb.Recs[rec].Key }

// UpdatedAt returns when an entry of a timed map was last updated.
func (m *Map[K, S]) UpdatedAt(rec int) base.BatchTime { return m.tb.Recs[rec].Value.at }

// Records returns the number of entries, removed ones included: entries are
// numbered from 0 in the order of their keys' first coming.
func (m *Map[K, S]) Records() int { return len(m.tb.Recs) }

// Live reports whether an entry has not been removed.
func (m *Map[K, S]) Live(rec int) bool { return m.tb.Recs[rec].Value.at != gone }

// Peek returns the value of an entry for reading.
func (m *Map[K, S]) Peek(rec int) S { return m.tb.Recs[rec].Value.val }

// Open returns the value of an entry to user code, which may change it through
// references: its undo is taken first.
func (m *Map[K, S]) Open(rec int) S {
	m.save(rec)
	return m.tb.Recs[rec].Value.val
}

// save takes the undo of an entry, once per batch.
func (m *Map[K, S]) save(rec int) {
	if rec >= m.appended || m.saved[rec>>6]>>(rec&63)&1 != 0 {
		return
	}
	c := &m.tb.Recs[rec].Value
	u := undo[S]{rec: rec, at: c.at}
	if m.sc.Immutable {
		u.val = c.val
	} else {
		b, err := m.sc.Append(m.old, c.val)
		if err != nil {
			panic(err.Error()) // contained as a task failure
		}
		m.old, u.end = b, len(b)
	}
	m.saved[rec>>6] |= 1 << (rec & 63)
	m.undo = append(m.undo, u)
}

// Set gives an entry a new value, which is cloned (Invariant 15), and the time
// of the running batch.
func (m *Map[K, S]) Set(rec int, v S) {
	if m.sc.Plain {
		if !m.timed && sameBytes(&m.tb.Recs[rec].Value.val, &v) {
			return
		}
	} else {
		v = m.sc.Clone(v)
	}
	m.replace(rec, v)
}

// replace is Set of a value that nobody else has.
func (m *Map[K, S]) replace(rec int, v S) {
	m.save(rec)
	c := &m.tb.Recs[rec].Value
	c.val = v
	if m.timed {
		c.at = m.running
	}
}

// Refresh gives an entry of a timed map the time of the running batch and
// keeps its value.
func (m *Map[K, S]) Refresh(rec int) {
	if c := &m.tb.Recs[rec].Value; m.timed && c.at != m.running {
		m.save(rec)
		c.at = m.running
	}
}

// errNaN refuses keys that no table finds again.
const errNaN = "a key that holds NaN equals nothing, not even itself: replace it before it becomes a key"

// Insert adds a key that has no entry; key and value are cloned (Invariant 15).
func (m *Map[K, S]) Insert(k K, v S) int {
	i, slot := m.tb.Find(k)
	if i >= 0 {
		panic(fmt.Sprintf("state: key %v has an entry already", k))
	}
	if k != k { //nolint:staticcheck // true for keys that hold a NaN
		panic("state: " + errNaN) // contained as a task failure
	}
	if !m.sc.Plain {
		v = m.sc.Clone(v)
	}
	rec := len(m.tb.Recs)
	m.tb.Add(slot, m.kc.Clone(k), cell[S]{val: v, at: m.running, seq: m.lastSeq + 1})
	m.lastSeq++
	m.live++
	return rec
}

// Remove drops an entry.
func (m *Map[K, S]) Remove(rec int) {
	m.save(rec)
	m.unlink(rec)
}

func (m *Map[K, S]) unlink(rec int) {
	m.tb.Unlink(rec)
	m.tb.Recs[rec].Value.at = gone
	m.live--
}

// Each visits all entries in the order of their keys' first coming, those
// included that visit adds, until it returns false.
func (m *Map[K, S]) Each(visit func(rec int) bool) {
	for i := 0; i < len(m.tb.Recs); i++ {
		if m.Live(i) && !visit(i) {
			return
		}
	}
}

// Expired lists the entries of a timed map whose last update is strictly
// before cutoff, which is not after the running batch: the oldest first, of
// equally old ones the one that came first.
func (m *Map[K, S]) Expired(cutoff base.BatchTime) []int {
	m.cutoff = max(m.cutoff, cutoff)
	var out []int
	for _, b := range m.timers.due(cutoff) {
		for _, rec := range b.recs {
			if c := &m.tb.Recs[rec].Value; c.at != gone && c.at < cutoff {
				out = append(out, int(rec))
			}
		}
	}
	slices.SortFunc(out, func(a, b int) int {
		if c := cmp.Compare(m.UpdatedAt(a), m.UpdatedAt(b)); c != 0 {
			return c
		}
		return a - b
	})
	return out
}

// Commit makes the running batch the version and forgets its undo.
func (m *Map[K, S]) Commit() {
	if m.running == 0 {
		return
	}
	if m.timed {
		for _, b := range m.timers.take(m.cutoff) { // what was due is so no more, or gone
			for _, rec := range b.recs {
				m.addTimer(int(rec))
			}
		}
		for rec := m.appended; rec < len(m.tb.Recs); rec++ {
			m.addTimer(rec)
		}
	}
	m.version = m.running
	m.endBatch()
	if dead := len(m.tb.Recs) - m.live; dead > 1024 && dead > m.live {
		m.compact()
	}
}

func (m *Map[K, S]) addTimer(rec int) {
	if at := m.UpdatedAt(rec); at != gone {
		m.timers.add(at, rec)
	}
}

// Rollback restores the version before the running batch.
func (m *Map[K, S]) Rollback() {
	if m.running == 0 {
		return
	}
	for rec := m.appended; rec < len(m.tb.Recs); rec++ {
		if m.Live(rec) {
			m.unlink(rec)
		}
	}
	clear(m.tb.Recs[m.appended:])
	m.tb.Recs = m.tb.Recs[:m.appended]
	m.lastSeq = m.seqBegin
	from := 0
	for i := range m.undo {
		u := &m.undo[i]
		c := &m.tb.Recs[u.rec].Value
		if c.at == gone {
			m.tb.Link(u.rec)
			m.live++
		}
		c.at = u.at
		if m.sc.Immutable {
			c.val = u.val
			continue
		}
		v, _, err := m.sc.Read(slices.Clone(m.old[from:u.end]))
		if err != nil {
			panic(err.Error()) // it was encoded by the same codec
		}
		c.val, from = v, u.end
	}
	m.endBatch()
}

func (m *Map[K, S]) endBatch() {
	for i := range m.undo {
		rec := m.undo[i].rec
		m.saved[rec>>6] &^= 1 << (rec & 63)
	}
	clear(m.undo)
	m.undo, m.old = emptied(m.undo), emptied(m.old)
	m.running = 0
}

// emptied returns s without its elements, and without its memory if they took
// little of it: one large batch is not paid for for ever.
func emptied[T any](s []T) []T {
	if cap(s) > 4*len(s)+1024 {
		return nil
	}
	return s[:0]
}

func (m *Map[K, S]) compact() {
	m.tb.Compact(func(c *cell[S]) bool { return c.at != gone })
	m.timers = nil
	if m.timed {
		for rec := range m.tb.Recs {
			m.addTimer(rec)
		}
	}
}

// sameBytes compares two values without references. Padding may make equal
// ones differ, which costs a record in the delta and nothing else.
func sameBytes[S any](a, b *S) bool {
	n := unsafe.Sizeof(*a)
	return string(unsafe.Slice((*byte)(unsafe.Pointer(a)), n)) == string(unsafe.Slice((*byte)(unsafe.Pointer(b)), n))
}

// Delta encodes what the running batch changed.
func (m *Map[K, S]) Delta() ([]byte, error) {
	w := newFile(m.running, delta, m.schema)
	w.buf = slices.Grow(w.buf, m.deltaSize)
	from := 0
	for i := range m.undo {
		u := &m.undo[i]
		r := &m.tb.Recs[u.rec]
		var was []byte // the encoded old value, if only that can tell what changed
		switch c := &r.Value; {
		case m.sc.Plain:
			if c.at == u.at && sameBytes(&c.val, &u.val) {
				continue
			}
		case !m.sc.Immutable:
			if c.at == u.at {
				was = m.old[from:u.end]
			}
			from = u.end
		case c.at == u.at:
			var err error
			if was, err = m.sc.Append(m.buf[:0], u.val); err != nil {
				return nil, err
			}
			m.buf = was
		}
		if err := m.put(w, r, was); err != nil {
			return nil, err
		}
	}
	for i := m.appended; i < len(m.tb.Recs); i++ {
		if m.Live(i) { // else it came and went in the same batch
			if err := m.put(w, &m.tb.Recs[i], nil); err != nil {
				return nil, err
			}
		}
	}
	m.deltaSize = len(w.buf) + len(w.buf)/8
	return w.finish()
}

// Snapshot encodes all entries.
func (m *Map[K, S]) Snapshot() ([]byte, error) {
	w := newFile(m.version, snapshot, m.schema)
	for i := range m.tb.Recs {
		if m.Live(i) {
			if err := m.put(w, &m.tb.Recs[i], nil); err != nil {
				return nil, err
			}
		}
	}
	return w.finish()
}

// put adds an entry to a file, unless its encoded value is was.
func (m *Map[K, S]) put(w *fileWriter, r *Record[K, cell[S]], was []byte) error {
	c := &r.Value
	e := entry{seq: c.seq, at: c.at, dead: c.at == gone}
	var err error
	if !e.dead {
		if w.val, err = m.sc.Append(w.val[:0], c.val); err != nil {
			return err
		}
		if was != nil && bytes.Equal(was, w.val) {
			return nil
		}
		e.val = w.val
	}
	if w.key, err = m.kc.Append(w.key[:0], r.Key); err != nil {
		return err
	}
	e.key = w.key
	w.add(e)
	return nil
}

// Load takes in a snapshot or a delta; files of a partition come in the order
// they were made. keep, if not nil, says which keys belong here. After an
// error the map is good for nothing.
func (m *Map[K, S]) Load(data []byte, keep func(K) bool) error {
	f, err := open(data)
	if err != nil {
		return err
	}
	read, err := m.reading(f.schema)
	if err != nil {
		return err
	}
	err = f.each(func(e entry) error {
		k, err := readAll(m.kc, e.key)
		if err != nil {
			return err
		}
		if k != k { //nolint:staticcheck // true for keys that hold a NaN
			return fmt.Errorf("state file: %w: %s", base.ErrCorrupt, errNaN)
		}
		if keep != nil && !keep(k) {
			return nil
		}
		i, slot := m.tb.Find(k)
		if i >= 0 && m.tb.Recs[i].Value.seq != e.seq {
			return fmt.Errorf("state file: %w: key %v has entries %d and %d", base.ErrCorrupt, k, m.tb.Recs[i].Value.seq, e.seq)
		}
		if e.dead {
			if i >= 0 {
				m.unlink(i)
			}
			return nil
		}
		val := e.val
		if !m.sc.Plain {
			val = slices.Clone(val) // what is read may be views of it
		}
		v, err := read(val)
		if err != nil {
			return err
		}
		if i >= 0 {
			c := &m.tb.Recs[i].Value
			c.val, c.at = v, e.at
			return nil
		}
		m.tb.Add(slot, m.kc.Clone(k), cell[S]{val: v, at: e.at, seq: e.seq})
		m.lastSeq = max(m.lastSeq, e.seq)
		m.live++
		return nil
	})
	if err != nil {
		return err
	}
	m.version = max(m.version, f.t)
	return nil
}

// readAll decodes the one record that b must be.
func readAll[T any](c *codec.Codec[T], b []byte) (T, error) {
	v, n, err := c.Read(b)
	if err == nil && n != len(b) {
		err = fmt.Errorf("state file: %w: %s takes %d bytes of %d", base.ErrCorrupt, c.ID, n, len(b))
	}
	return v, err
}

// Loaded is called when all files were loaded. renumber is for state that was
// put together from several partitions' files, whose numbers mean nothing here:
// the next file that is stored must be a snapshot.
func (m *Map[K, S]) Loaded(renumber bool) error {
	m.compact()
	last := uint64(0)
	for i := range m.tb.Recs {
		c := &m.tb.Recs[i].Value
		if renumber {
			c.seq = last + 1
		}
		if c.seq <= last {
			return fmt.Errorf("state file: %w: entry %d comes after %d", base.ErrCorrupt, c.seq, last)
		}
		last = c.seq
	}
	if renumber {
		m.lastSeq = last
	}
	return nil
}
