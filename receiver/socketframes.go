package receiver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// FrameSocket receives frames of bytes from a TCP server: a length of four
// bytes, big endian, and that many bytes, which are the record as they are. A
// length of zero is an empty record.
//
//   - A length over MaxFrame is an error that names both, and the connection is
//     made anew: what follows such a length can't be told from noise.
//   - A frame that the connection ends in the middle of is dropped and reported,
//     with the number of its bytes; so is what was read and not stored at a stop.
//
// The connection is made anew, after the receiver's back-off, when it ends. As
// with [TextSocket] what was sent can't be asked for again.
type FrameSocket struct {
	Addr        string        // host:port
	MaxFrame    int           // bytes of a frame without its length; 0 means 16 MiB
	DialTimeout time.Duration // 0 means 10s
}

// SocketFrames returns the opener of a [FrameSocket] with default limits.
func SocketFrames(addr string) func() Receiver[[]byte] {
	return func() Receiver[[]byte] { return &FrameSocket{Addr: addr} }
}

// Receive connects and stores frames until the connection or ctx ends.
func (f *FrameSocket) Receive(ctx context.Context, s *Sink[[]byte]) error {
	d := net.Dialer{Timeout: f.DialTimeout}
	orDefault(&d.Timeout, 10*time.Second)
	conn, err := d.DialContext(ctx, "tcp", f.Addr)
	if err != nil {
		return fmt.Errorf("socket frames from %s: %w", f.Addr, err)
	}
	defer conn.Close()
	// A deadline in the past ends a blocked Read but keeps what was read.
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	s.Ready()

	c := frameConn{in: conn, buf: make([]byte, chunk), max: f.MaxFrame}
	orDefault(&c.max, 16<<20)
	return c.receive(ctx, s, f.Addr)
}

// frameConn is one connection of a FrameSocket.
type frameConn struct {
	in         io.Reader
	max        int
	buf        []byte
	start, end int // of what is read and not stored
}

func (c *frameConn) receive(ctx context.Context, s *Sink[[]byte], addr string) error {
	for n := int64(1); ; n++ {
		rec, err := c.next()
		if err == nil {
			if err = s.Store(ctx, rec); err == nil {
				c.start += frameHead + len(rec)
				continue
			}
		}
		tooLong := errors.As(err, new(*frameTooLong))
		if left := c.end - c.start; left > 0 && !tooLong {
			// Invariant 9: what is not stored is told.
			s.ReportError(fmt.Errorf("socket frames from %s: cut off, %d bytes of frame %d and after are dropped", addr, left, n))
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil && !tooLong:
			return fmt.Errorf("socket frames from %s: %w", addr, ErrStopped)
		}
		return fmt.Errorf("socket frames from %s: frame %d: %w", addr, n, err)
	}
}

const frameHead = 4

// frameTooLong refuses a length.
type frameTooLong struct {
	length uint32
	limit  int
}

func (e *frameTooLong) Error() string {
	return fmt.Sprintf("its length is %d bytes, the limit is %d", e.length, e.limit)
}

// next returns the next frame, a view of the buffer that begins at c.start.
func (c *frameConn) next() ([]byte, error) {
	if err := c.fill(frameHead); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(c.buf[c.start:])
	if uint64(n) > uint64(c.max) { // Invariant 8: before anything is made of that size
		return nil, &frameTooLong{length: n, limit: c.max}
	}
	whole := frameHead + int(n)
	if err := c.fill(whole); err != nil {
		return nil, err
	}
	return c.buf[c.start+frameHead : c.start+whole], nil
}

// fill reads until n bytes are there. The buffer grows with what arrives, not
// with what a length promises.
func (c *frameConn) fill(n int) error {
	for c.end-c.start < n {
		if c.start > 0 {
			c.end = copy(c.buf, c.buf[c.start:c.end])
			c.start = 0
		}
		if c.end == len(c.buf) {
			c.buf = slices.Grow(c.buf, len(c.buf))
			c.buf = c.buf[:min(cap(c.buf), max(n, chunk))]
		}
		m, err := c.in.Read(c.buf[c.end:])
		c.end += m
		if m == 0 && err != nil {
			return err
		}
	}
	return nil
}
