package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/tidemill/tidemill/internal/base"
)

// A frame is a header and encoded records:
//
//	offset  bytes  what
//	0       4      magic "TMF" and the format version, 1
//	4       1      length n of the codec id
//	5       n      codec id
//	5+n     4      record count, little endian
//	9+n     4      length of the records in bytes, little endian
//	13+n    4      CRC32C of everything but itself, little endian
//	17+n    ...    records
const (
	frameMagic   = "TMF"
	frameVersion = 1
	frameFixed   = 17
	// MaxFrame bounds the record bytes of one frame.
	MaxFrame = 1 << 30
	maxID    = 255
	// MaxHeader bounds the bytes before the records.
	MaxHeader = frameFixed + maxID
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FrameWriter packs records into one frame.
type FrameWriter[T any] struct {
	c     *Codec[T]
	buf   []byte
	head  int
	count int
	last  int // bytes of the frame before, a guess at the next one
}

// NewFrameWriter returns a writer for an empty frame.
func NewFrameWriter[T any](c *Codec[T]) *FrameWriter[T] {
	w := &FrameWriter[T]{c: c}
	w.reset(nil)
	return w
}

func (w *FrameWriter[T]) reset(buf []byte) {
	id := frameID(w.c.ID)
	w.buf = append(buf[:0], frameMagic...)
	w.buf = append(w.buf, frameVersion, byte(len(id)))
	w.buf = append(w.buf, id...)
	w.buf = append(w.buf, make([]byte, 12)...)
	w.head = len(w.buf)
	w.count = 0
}

// frameID is a codec id as frames hold it: one that is too long ends in its
// hash, so that ids that begin alike stay apart.
func frameID(id string) string {
	if len(id) <= maxID {
		return id
	}
	const tail = 1 + 16
	return fmt.Sprintf("%s#%016x", id[:maxID-tail], xxhash.Sum64String(id))
}

// Append adds one record. After an error the frame holds what it held before.
func (w *FrameWriter[T]) Append(v T) error {
	if w.count == 0 {
		w.buf = slices.Grow(w.buf, max(0, w.last-len(w.buf)))
	}
	buf, err := w.c.Append(w.buf, v)
	if err != nil {
		return err
	}
	if len(buf)-w.head > MaxFrame {
		return fmt.Errorf("codec: a frame holds at most %d bytes of records", MaxFrame)
	}
	w.buf = buf
	w.count++
	return nil
}

// Count returns the number of records so far.
func (w *FrameWriter[T]) Count() int { return w.count }

// Size returns the bytes of the records so far.
func (w *FrameWriter[T]) Size() int { return len(w.buf) - w.head }

// Finish seals the frame, returns it, and starts a new one with its own buffer.
func (w *FrameWriter[T]) Finish() []byte {
	out := w.buf
	at := w.head - 12
	binary.LittleEndian.PutUint32(out[at:], uint32(w.count))
	binary.LittleEndian.PutUint32(out[at+4:], uint32(len(out)-w.head))
	binary.LittleEndian.PutUint32(out[at+8:], frameCRC(out, w.head))
	w.last = len(out)
	if cap(out) > 2*len(out) {
		out = bytes.Clone(out) // what is kept should not pin more than it says
	}
	w.reset(nil) // the finished buffer may be viewed from now on (Invariant 15)
	return out
}

func frameCRC(frame []byte, head int) uint32 {
	return crc32.Update(crc32.Checksum(frame[:head-4], castagnoli), castagnoli, frame[head:])
}

// Frame is an opened frame.
type Frame struct {
	ID    string
	Count int
	Body  []byte
}

// OpenFrame checks magic, version, bounds and checksum (Invariants 8 and 12)
// and returns the parts, which are views of b.
func OpenFrame(b []byte) (Frame, error) {
	f, head, err := parseFrame(b)
	if err != nil {
		return Frame{}, err
	}
	if got, want := frameCRC(b, head), binary.LittleEndian.Uint32(b[head-4:]); got != want {
		return Frame{}, fmt.Errorf("%w: frame checksum is %08x, its header says %08x", base.ErrCorrupt, got, want)
	}
	return f, nil
}

// TrustFrame is OpenFrame without the checksum, for frames that never left
// this process's memory since they were made.
func TrustFrame(b []byte) (Frame, error) {
	f, _, err := parseFrame(b)
	return f, err
}

func parseFrame(b []byte) (Frame, int, error) {
	if len(b) < frameFixed || string(b[:3]) != frameMagic {
		return Frame{}, 0, fmt.Errorf("%w: no frame header", base.ErrCorrupt)
	}
	if b[3] != frameVersion {
		return Frame{}, 0, fmt.Errorf("frame has format version %d, this program reads %d", b[3], frameVersion)
	}
	n := int(b[4])
	head := frameFixed + n
	if len(b) < head {
		return Frame{}, 0, fmt.Errorf("%w: frame header ends early", base.ErrCorrupt)
	}
	count := binary.LittleEndian.Uint32(b[head-12:])
	size := binary.LittleEndian.Uint32(b[head-8:])
	if size > MaxFrame || int(size) != len(b)-head {
		return Frame{}, 0, fmt.Errorf("%w: frame says %d bytes of records, there are %d", base.ErrCorrupt, size, len(b)-head)
	}
	// No record takes less than a byte.
	if count > size {
		return Frame{}, 0, fmt.Errorf("%w: frame says %d records in %d bytes", base.ErrCorrupt, count, size)
	}
	return Frame{ID: string(b[5 : 5+n]), Count: int(count), Body: b[head:]}, head, nil
}

// EachInFrame checks that f holds records of c and hands them to yield.
func EachInFrame[T any](c *Codec[T], f Frame, yield func(T) bool) (stopped bool, err error) {
	if f.ID != frameID(c.ID) {
		return false, fmt.Errorf("frame holds records of codec %q, wanted %q", f.ID, c.ID)
	}
	return EachRecord(c, f.Body, f.Count, yield)
}
