package state

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/tidemill/tidemill/internal/base"
)

// A state file is a header and entries:
//
//	offset  bytes  what
//	0       4      magic "TMS" and the format version, 1
//	4       1      kind: 1 snapshot, 2 delta
//	5       8      batch time, milliseconds, little endian
//	13      4      entry count, little endian
//	17      4      length of the rest in bytes, little endian
//	21      4      CRC32C of everything but itself, little endian
//	25      ...    schema, then entries
//
// The schema is: length (uvarint) and codec id of the keys, the same of the
// values, and the user's version (varint).
//
// An entry is: sequence number (uvarint), flags (1 byte: 1 = removed),
// last-update time (varint, absent if removed), key length (uvarint), key,
// value length (uvarint) and value (absent if removed).
const (
	fileMagic   = "TMS"
	fileVersion = 1
	fileHead    = 25
	maxFile     = 1 << 31
	maxSeq      = 1 << 62
)

type fileKind byte

const (
	snapshot fileKind = 1
	delta    fileKind = 2
)

func (k fileKind) String() string {
	switch k {
	case snapshot:
		return "snapshot"
	case delta:
		return "delta"
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// order checks the kinds and times of the files of one partition, whose
// headers are known to be good: a snapshot or none, then deltas.
type order struct {
	n    int
	kind fileKind
	last base.BatchTime
}

func (o *order) next(f []byte) error {
	kind, t := fileKind(f[4]), base.BatchTime(binary.LittleEndian.Uint64(f[5:])) // in both formats
	if o.n > 0 && (kind != delta || t <= o.last) {
		return fmt.Errorf("state files are out of order: a %s of %s comes after a %s of %s", kind, t, o.kind, o.last)
	}
	o.n, o.kind, o.last = o.n+1, kind, t
	return nil
}

const flagDead = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry is one key in a file.
type entry struct {
	seq      uint64
	at       base.BatchTime
	dead     bool
	key, val []byte
	raw      []byte // all of it, as read
}

type fileWriter struct {
	buf      []byte
	count    uint32
	key, val []byte // scratch of the caller
}

func newFile(t base.BatchTime, kind fileKind, s Schema) *fileWriter {
	w := &fileWriter{buf: make([]byte, fileHead, 256)}
	copy(w.buf, fileMagic)
	w.buf[3] = fileVersion
	w.buf[4] = byte(kind)
	binary.LittleEndian.PutUint64(w.buf[5:], uint64(t))
	w.buf = s.appendTo(w.buf)
	return w
}

func (w *fileWriter) add(e entry) {
	w.buf = binary.AppendUvarint(w.buf, e.seq)
	if e.dead {
		w.buf = append(w.buf, flagDead)
	} else {
		w.buf = append(w.buf, 0)
		w.buf = binary.AppendVarint(w.buf, int64(e.at))
	}
	w.buf = binary.AppendUvarint(w.buf, uint64(len(e.key)))
	w.buf = append(w.buf, e.key...)
	if !e.dead {
		w.buf = binary.AppendUvarint(w.buf, uint64(len(e.val)))
		w.buf = append(w.buf, e.val...)
	}
	w.count++
}

// addRaw adds a live entry that was read from another file.
func (w *fileWriter) addRaw(e change) {
	if !e.dead {
		w.buf = append(w.buf, e.raw...)
		w.count++
	}
}

func (w *fileWriter) finish() ([]byte, error) {
	b := w.buf
	if err := fits(len(b) - fileHead); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(b[13:], w.count)
	binary.LittleEndian.PutUint32(b[17:], uint32(len(b)-fileHead))
	binary.LittleEndian.PutUint32(b[21:], fileCRC(b))
	if cap(b) > len(b)+len(b)/4 {
		b = slices.Clone(b) // what is kept should not pin more than it says
	}
	return b, nil
}

// fits refuses to write what could not be read.
func fits(size int) error {
	if size > maxFile {
		return fmt.Errorf("state of a partition takes %d bytes, a state file holds %d: use more partitions", size, maxFile)
	}
	return nil
}

func fileCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:21], castagnoli), castagnoli, b[fileHead:])
}

// opened is a state file whose header and checksum are right.
type opened struct {
	kind   fileKind
	t      base.BatchTime
	schema Schema
	count  uint32
	body   []byte // entries
}

// open checks all of a file but its entries (Invariants 8 and 12).
func open(b []byte) (f opened, err error) {
	if len(b) < fileHead || string(b[:3]) != fileMagic {
		return f, fmt.Errorf("state file: %w: no header", base.ErrCorrupt)
	}
	if b[3] != fileVersion {
		return f, fmt.Errorf("state file has format version %d, this program reads %d", b[3], fileVersion)
	}
	size := binary.LittleEndian.Uint32(b[17:])
	if size > maxFile || int(size) != len(b)-fileHead {
		return f, fmt.Errorf("state file: %w: it says %d bytes of schema and entries, there are %d", base.ErrCorrupt, size, len(b)-fileHead)
	}
	if got, want := fileCRC(b), binary.LittleEndian.Uint32(b[21:]); got != want {
		return f, fmt.Errorf("state file: %w: checksum is %08x, its header says %08x", base.ErrCorrupt, got, want)
	}
	f = opened{kind: fileKind(b[4]), t: base.BatchTime(binary.LittleEndian.Uint64(b[5:])), count: binary.LittleEndian.Uint32(b[13:])}
	if f.kind != snapshot && f.kind != delta {
		return f, fmt.Errorf("state file: %w: it is of %s", base.ErrCorrupt, f.kind)
	}
	r := reader{b: b[fileHead:]}
	f.schema = r.schema()
	if r.bad {
		return f, fmt.Errorf("state file: %w: its schema ends early", base.ErrCorrupt)
	}
	f.body = r.b
	return f, nil
}

// each checks the entries and hands them out. They are views of the file.
func (f opened) each(visit func(entry) error) error {
	r := reader{b: f.body}
	last := uint64(0)
	for range f.count {
		start := r.b
		e := entry{seq: r.uvarint()}
		flags := r.byte()
		e.dead = flags&flagDead != 0
		if !e.dead {
			e.at = base.BatchTime(r.varint())
		}
		e.key = r.bytes()
		if !e.dead {
			e.val = r.bytes()
		}
		if r.bad {
			return fmt.Errorf("state file: %w: an entry ends early", base.ErrCorrupt)
		}
		if flags&^flagDead != 0 || e.seq == 0 || e.seq > maxSeq || e.at == gone ||
			f.kind == snapshot && (e.dead || e.seq <= last) {
			return fmt.Errorf("state file: %w: entry %d of a %s after %d, with flags %d", base.ErrCorrupt, e.seq, f.kind, last, flags)
		}
		last = e.seq
		e.raw = start[:len(start)-len(r.b)]
		if err := visit(e); err != nil {
			return err
		}
	}
	if len(r.b) > 0 {
		return fmt.Errorf("state file: %w: %d bytes after the last entry", base.ErrCorrupt, len(r.b))
	}
	return nil
}

type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.skip(n)
	return v
}

func (r *reader) skip(n int) {
	if n <= 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return
	}
	r.b = r.b[n:]
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// Merge makes one snapshot of a snapshot, or none, and the deltas after it,
// without knowing the types: of the entries with one sequence number, which
// are those of one coming of a key, the newest counts.
func Merge(files [][]byte) ([]byte, error) {
	if len(files) == 0 {
		return nil, errors.New("state: there are no files to merge")
	}
	var o order
	var c changes
	var first opened
	size := fileHead
	for i, b := range files {
		f, err := open(b)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first = f
		} else if f.schema != first.schema {
			return nil, &SchemaError{File: first.schema, Program: f.schema}
		}
		if err := o.next(b); err != nil {
			return nil, err
		}
		if f.kind == snapshot {
			size += len(b)
			continue // its entries are written with those of the deltas
		}
		if err := f.each(func(e entry) error { c.add(change{e.seq, e.raw, e.dead}); return nil }); err != nil {
			return nil, err
		}
	}
	c.sort()
	w := newFile(o.last, snapshot, first.schema)
	w.buf = slices.Grow(w.buf, size)
	if first.kind == snapshot {
		err := first.each(func(e entry) error {
			c.writeBelow(w, e.seq)
			if !c.has(e.seq) {
				w.addRaw(change{raw: e.raw})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	c.writeBelow(w, math.MaxUint64)
	return w.finish()
}

// change is what a merge has to know of an entry.
type change struct {
	seq  uint64
	raw  []byte
	dead bool
}

// changes holds the newest entry of every sequence number of some deltas.
type changes struct {
	newest []change
	// at is 1 + the place in newest of every number, as long as numbers are
	// dense; then there is nothing to sort.
	at     []int32
	sparse bool
	next   int // the first not written: a place in at, or in newest if sparse
}

// denseEnough is how many places of the index one entry may cost.
const denseEnough = 16

func (c *changes) add(e change) {
	if !c.sparse && e.seq >= uint64(len(c.at)) {
		if want := e.seq + 1; want > denseEnough*uint64(len(c.newest)+1<<16) {
			c.sparse = true
		} else {
			c.at = append(c.at, make([]int32, int(want)-len(c.at))...)
		}
	}
	if !c.sparse && c.at[e.seq] != 0 {
		c.newest[c.at[e.seq]-1] = e
		return
	}
	c.newest = append(c.newest, e)
	if !c.sparse {
		c.at[e.seq] = int32(len(c.newest))
	}
}

// sort orders the entries if the index can't.
func (c *changes) sort() {
	if !c.sparse {
		return
	}
	slices.SortStableFunc(c.newest, func(a, b change) int { return cmp.Compare(a.seq, b.seq) })
	n := 0
	for i, e := range c.newest {
		if i+1 == len(c.newest) || c.newest[i+1].seq != e.seq {
			c.newest[n] = e
			n++
		}
	}
	c.newest = c.newest[:n]
}

// writeBelow writes the entries below seq that are not written yet.
func (c *changes) writeBelow(w *fileWriter, seq uint64) {
	if c.sparse {
		for ; c.next < len(c.newest) && c.newest[c.next].seq < seq; c.next++ {
			w.addRaw(c.newest[c.next])
		}
		return
	}
	for ; c.next < len(c.at) && uint64(c.next) < seq; c.next++ {
		if i := c.at[c.next]; i > 0 {
			w.addRaw(c.newest[i-1])
		}
	}
}

// has reports whether there is an entry of seq; all below are written.
func (c *changes) has(seq uint64) bool {
	if c.sparse {
		return c.next < len(c.newest) && c.newest[c.next].seq == seq
	}
	return seq < uint64(len(c.at)) && c.at[seq] != 0
}
