package state

import (
	"encoding/binary"

	"github.com/tidemill/tidemill/internal/base"
)

// SetHash gives a new table another hash.
func (tb *Table[K, V]) SetHash(h func(K) uint64) { tb.hash = h }

// Slots returns the size of the table proper.
func (tb *Table[K, V]) Slots() int { return len(tb.slots) }

// Timers returns the number of buckets of the timer index and of the records in it.
func (m *Map[K, S]) Timers() (buckets, records int) {
	for _, b := range m.timers {
		records += len(b.recs)
	}
	return len(m.timers), records
}

// Panes returns the number of panes.
func (w *Window[K, V]) Panes() int { return len(w.panes) }

// Entry is one key of a state file.
type Entry struct {
	Seq  uint64
	At   base.BatchTime
	Dead bool
	Key  string // encoded
	Val  string
}

// Entries lists what is in a state file.
func Entries(b []byte) (t base.BatchTime, out []Entry, err error) {
	f, err := open(b)
	if err == nil {
		err = f.each(func(e entry) error {
			out = append(out, Entry{e.seq, e.at, e.dead, string(e.key), string(e.val)})
			return nil
		})
	}
	return f.t, out, err
}

// FileOf makes a state file of any entries.
func FileOf(t base.BatchTime, kind byte, entries ...Entry) []byte {
	return FileWith(Schema{Key: "string", Value: "[]string"}, t, kind, entries...)
}

// FileWith makes a state file of any schema and entries.
func FileWith(s Schema, t base.BatchTime, kind byte, entries ...Entry) []byte {
	w := newFile(t, fileKind(kind), s)
	for _, e := range entries {
		w.add(entry{seq: e.Seq, at: e.At, dead: e.Dead, key: []byte(e.Key), val: []byte(e.Val)})
	}
	b, err := w.finish()
	if err != nil {
		panic(err)
	}
	return b
}

// WindowFileOf makes a window file of one contribution.
func WindowFileOf(t, end base.BatchTime, count int, data string) []byte {
	return WindowFileWith(Schema{Key: "string", Value: "int64 over 3s every 2s"}, t, end, count, data)
}

// WindowFileWith makes a window file of any schema and one contribution.
func WindowFileWith(s Schema, t, end base.BatchTime, count int, data string) []byte {
	return windowFile(delta, s, t, emission{}, []contribution{{end, count, []byte(data)}}, nil)
}

// TotalsOf returns the state file in a window file.
func TotalsOf(b []byte) ([]byte, error) {
	p, err := openWindowFile(b)
	return p.totals, err
}

// Seal makes length and checksum of a damaged file of either format right.
func Seal(b []byte) {
	switch {
	case len(b) >= windowHead && string(b[:3]) == windowMagic:
		binary.LittleEndian.PutUint32(b[29:], windowCRC(b))
	case len(b) >= fileHead && string(b[:3]) == fileMagic:
		binary.LittleEndian.PutUint32(b[17:], uint32(len(b)-fileHead))
		binary.LittleEndian.PutUint32(b[21:], fileCRC(b))
	}
}

// Fits is what a state file's length must pass.
var Fits = fits

// OpenWindowFile checks a window file.
func OpenWindowFile(b []byte) error { _, err := openWindowFile(b); return err }
