package state

import (
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
	rebased   bool // the files before the next one can't be followed by a delta
	deltaSize int  // a guess at the next one, from the last
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
	m.version, m.rebased = m.running, false
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
