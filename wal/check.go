package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

const (
	chunkBytes = 512 << 10
	// sector is what a disk writes as a whole: after a loss of power a hole of
	// zeros begins or ends at a multiple of it.
	sector = 512
)

// record is one that passed its checks. Its payload lies in the piece's buffer.
type record struct {
	seq     uint64
	offset  int64
	payload []byte
	sum     uint32 // of the payload
}

// check reads one segment and finds out where it ends and why. What it finds is
// good for one call of run.
type check struct {
	r      fsys.Reader
	number uint64 // from the file's name
	size   int64  // bytes to look at

	header  header
	named   bool // the header is whole
	sealed  bool
	seal    seal
	next    uint64 // sequence due at offset
	records int64
	bytes   int64
	offset  int64 // after the last good record, or the seal
	last    int64 // size of the last record
	pool    *buffers
	// damage says why what is at offset can't be the end of a write that was
	// cut short; nil if it can be that, or if there is nothing.
	damage error
}

// torn is the number of bytes that are there but count for nothing.
func (c *check) torn() int64 { return c.size - c.offset }

// run reads the segment and gives its records away in pieces. An error is one
// of reading, of emit, or a version that is not known; damage is not.
func (c *check) run(begin func(), emit func(*buffer) error) error {
	if err := c.findSeal(); err != nil {
		return err
	}
	if err := c.readHeader(); err != nil || !c.named {
		return err
	}
	begin()
	end := c.size
	if c.sealed {
		end -= sealLength
	}
	good, err := c.readRecords(end, emit)
	switch {
	case err != nil || c.damage != nil:
		return err
	case !good && c.sealed:
		c.damage = errors.New("a record of a sealed segment fails its checksum")
		return nil
	case !good:
		return c.judgeTail()
	case !c.sealed:
		return nil
	}
	if want := c.sealHere(); c.seal != want {
		c.damage = fmt.Errorf("the seal speaks of %d records up to %d, there are %d up to %d", c.seal.count, c.seal.last, want.count, want.last)
		return nil
	}
	c.offset = c.size
	return nil
}

// findSeal looks for a valid seal at the end.
func (c *check) findSeal() error {
	at := c.size - sealLength
	if at < headerFixed {
		return nil
	}
	var b [sealLength]byte
	if err := readAt(c.r, b[:], at); err != nil {
		return err
	}
	c.seal, c.sealed = parseSeal(b[:])
	c.sealed = c.sealed && c.seal.length == at
	return nil
}

// sealHere is the seal that belongs at offset.
func (c *check) sealHere() seal {
	return seal{count: uint64(c.records), last: c.next - 1, length: c.offset}
}

func (c *check) readHeader() error {
	b := make([]byte, min(c.size, headerFixed+maxName))
	if err := readAt(c.r, b, 0); err != nil {
		return err
	}
	h, ok, err := parseHeader(b)
	switch {
	case err != nil:
		return err
	case ok && h.number != c.number:
		c.damage = fmt.Errorf("the header is that of segment %d", h.number)
	case ok:
		c.header, c.named, c.next, c.offset = h, true, h.first, headerLength(h.log)
	case c.sealed:
		c.damage = errors.New("the header of a sealed segment fails its checksum")
	default:
		rest, err := c.rest()
		if err != nil {
			return err
		}
		if acknowledgedAnywhere(rest) {
			c.damage = errors.New("the header fails its checksum, acknowledged records follow")
		}
	}
	return nil
}

// readRecords reads up to end in pieces, which it gives away. It is false if it
// met something at c.offset that is no record.
func (c *check) readRecords(end int64, emit func(*buffer) error) (good bool, err error) {
	var tail []byte // bytes at c.offset that were read
	for c.offset < end {
		need := int64(recordHeader)
		if len(tail) >= recordHeader {
			need += int64(parseFields(tail).length)
		}
		// The length is believed only as far as the file reaches (Invariant 8).
		if need > end-c.offset {
			return false, nil
		}
		size := min(max(need, c.chunk(len(tail))), end-c.offset)
		b := c.pool.get(int(size))
		got := copy(b.bytes, tail)
		if err := readAt(c.r, b.bytes[got:], c.offset+int64(got)); err != nil {
			return false, err
		}
		var rest []byte
		rest, good = c.parse(b)
		tail = append(tail[:0], rest...) // whoever gets b may give it back at once
		if len(b.records) > 0 {
			if err := emit(b); err != nil {
				return false, err
			}
		} else {
			c.pool.put(b)
		}
		if !good {
			return false, nil
		}
	}
	return true, nil
}

// chunk is how much to read at once: as many records like the last one as go
// into chunkBytes, so that records of one size are not cut.
func (c *check) chunk(tail int) int64 {
	switch {
	case tail > 0 || c.last == 0:
		return chunkBytes
	case c.last >= chunkBytes:
		return min(c.last, keptBuffer)
	}
	return chunkBytes / c.last * c.last
}

// parse finds whole records at the begin of a buffer. It is false if it met
// something that is not one.
func (c *check) parse(into *buffer) (rest []byte, good bool) {
	b := into.bytes
	for len(b) >= recordHeader {
		if int64(parseFields(b).length) > int64(len(b)-recordHeader) {
			return b, true
		}
		f, payload, sum, ok := checkRecord(b)
		if !ok {
			return b, false
		}
		if f.seq != c.next {
			c.damage = fmt.Errorf("sequence %d where %d is due", f.seq, c.next)
			return b, false
		}
		into.records = append(into.records, record{seq: f.seq, offset: c.offset, payload: payload, sum: sum})
		size := recordHeader + len(payload)
		c.last = int64(size)
		b = b[size:]
		c.offset += int64(size)
		c.next++
		c.records++
		c.bytes += int64(len(payload))
	}
	return b, true
}

// buffer is what was read at once, and the records in it.
type buffer struct {
	bytes   []byte
	records []record
}

// buffers are those that are not in use, for reading the next piece into.
type buffers struct {
	mu   sync.Mutex
	free []*buffer
}

// keptBuffer is the largest buffer that is kept for another piece.
const keptBuffer = 4 << 20

func (p *buffers) get(size int) *buffer {
	p.mu.Lock()
	b := &buffer{}
	if n := len(p.free); n > 0 {
		b = p.free[n-1]
		p.free = p.free[:n-1]
	}
	p.mu.Unlock()
	if cap(b.bytes) < size {
		b.bytes = make([]byte, max(size, chunkBytes))
	}
	b.bytes, b.records = b.bytes[:size], b.records[:0]
	return b
}

// put gives back a buffer that nobody looks at any more.
func (p *buffers) put(b *buffer) {
	if cap(b.bytes) > keptBuffer {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, b)
}

// judgeTail looks at what is at the end of a segment without a valid seal. Only
// here the rest of a file is read as a whole.
func (c *check) judgeTail() error {
	rest, err := c.rest()
	if err != nil {
		return err
	}
	want := c.sealHere().append(nil)
	switch {
	case len(rest) > sealLength && bytes.Equal(rest[:sealLength], want):
		c.damage = errors.New("bytes follow the seal")
	case len(rest) == sealLength && damagedSeal(rest, want, c.offset):
		c.damage = errors.New("the seal fails its checksum")
	case acknowledgedAfter(rest, c.next):
		c.damage = fmt.Errorf("record %d fails its checksum, it was acknowledged before a later one was written", c.next)
	}
	return nil
}

// rest reads what is after offset.
func (c *check) rest() ([]byte, error) {
	b := make([]byte, c.torn())
	return b, readAt(c.r, b, c.offset)
}

// damagedSeal tells a seal with a bad byte from one whose write was cut short by
// a loss of power, which leaves whole sectors as zeros.
func damagedSeal(b, want []byte, offset int64) bool {
	const mostBad = 8
	bad := 0
	for i := range b {
		if b[i] != want[i] {
			bad++
		}
	}
	if bad > mostBad {
		return false
	}
	cut := int(sector - offset%sector)
	if cut >= len(b) {
		return !isZero(b)
	}
	head := bytes.Equal(b[:cut], want[:cut]) || isZero(b[:cut])
	tail := bytes.Equal(b[cut:], want[cut:]) || isZero(b[cut:])
	return !head || !tail
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// acknowledgedAfter looks, after the bad record at the begin of b, for a valid
// later one which says that sequence bad had been acknowledged when it was
// written.
func acknowledgedAfter(b []byte, bad uint64) bool {
	most := uint64(len(b)/recordHeader) + 1
	return findRecord(b, func(f fields) bool { return f.seq > bad && f.seq-bad <= most }, func(f fields) bool { return f.acked > bad })
}

// acknowledgedAnywhere is acknowledgedAfter where no header says which sequence
// is due: it looks for two records, of which the later knows of the earlier.
func acknowledgedAnywhere(b []byte) bool {
	first, seen := uint64(0), false
	return findRecord(b, func(f fields) bool { return f.acked > 0 }, func(f fields) bool {
		if !seen {
			first, seen = f.seq, true
		}
		return f.acked > first
	})
}

// findRecord looks at every offset of b for a valid record that is plausible,
// until found says that it is what was wanted. The work is bounded for hostile
// bytes too: past the bound the answer is the careful one.
func findRecord(b []byte, plausible, found func(fields) bool) bool {
	budget := 16*int64(len(b)) + chunkBytes
	for len(b) >= recordHeader {
		length := binary.LittleEndian.Uint32(b)
		if int64(length) > int64(len(b)-recordHeader) || !plausible(parseFields(b)) {
			b = b[1:]
			continue
		}
		if budget -= int64(length) + recordHeader; budget < 0 {
			return true
		}
		f, payload, _, ok := checkRecord(b)
		if !ok {
			b = b[1:]
			continue
		}
		if found(f) {
			return true
		}
		b = b[recordHeader+len(payload):]
	}
	return false
}

// readAt fills b. A file that ends early has been cut since it was opened.
func readAt(r io.ReaderAt, b []byte, off int64) error {
	if len(b) == 0 {
		return nil
	}
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%d of %d bytes at %d: %w", n, len(b), off, io.ErrUnexpectedEOF)
	}
	return err
}

// corrupt is the error for damage that stops the job (Invariant 8).
func corrupt(dir, file string, offset int64, why error) error {
	return fmt.Errorf("wal: segment %q at %d: %w: %w; to see more: tidemill wal verify %s", file, offset, base.ErrCorrupt, why, dir)
}
