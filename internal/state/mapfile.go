package state

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
)

// Delta encodes what the running batch changed. After a migration, or entries
// were numbered anew, it is a snapshot of the running batch instead, full, which
// takes the place of all files before: a delta can't be merged with those.
func (m *Map[K, S]) Delta() (data []byte, full bool, err error) {
	if m.rebased {
		data, err = m.all(m.running)
	} else {
		data, err = m.changes()
	}
	return data, m.rebased, err
}

func (m *Map[K, S]) changes() ([]byte, error) {
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
func (m *Map[K, S]) Snapshot() ([]byte, error) { return m.all(m.version) }

// all encodes all entries as a snapshot of t.
func (m *Map[K, S]) all(t base.BatchTime) ([]byte, error) {
	w := newFile(t, snapshot, m.schema)
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
	m.rebased = m.rebased || f.schema != m.schema
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
// put together from several partitions' files, whose numbers mean nothing here.
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
		m.lastSeq, m.rebased = last, true
	}
	return nil
}
