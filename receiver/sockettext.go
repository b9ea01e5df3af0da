package receiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
	"unicode/utf8"
	"unsafe"
)

// TextSocket receives lines of UTF-8 text from a TCP server; each line is a
// record without its end.
//
//   - A line ends with \n; one \r before it belongs to the end. Any other \r is
//     part of the line (Spark ends a line there too). Empty lines are records.
//   - When the server closes the connection a last line without \n is a record.
//     When the connection breaks in the middle of a line, that part of it is
//     dropped and reported; so is what was read and not stored at a stop.
//   - A line longer than MaxLine is skipped and reported with its length.
//   - Bytes that are not UTF-8 become U+FFFD, one for each ill-formed sequence
//     as Java decodes them. Each connection reports its first such line, and
//     their number at the end.
//
// The connection is made anew, after the receiver's back-off, when it ends
// either way. TCP text can't be asked for again: what the server had sent and
// the executor had not stored when it died is lost.
type TextSocket struct {
	Addr        string        // host:port
	MaxLine     int           // bytes of a line without its end; 0 means 1 MiB
	DialTimeout time.Duration // 0 means 10s
}

// SocketText returns the opener of a [TextSocket] with default limits.
func SocketText(addr string) func() Receiver[string] {
	return func() Receiver[string] { return &TextSocket{Addr: addr} }
}

// chunk is how much is read at once.
const chunk = 256 << 10

// Receive connects and stores lines until the connection or ctx ends.
func (t *TextSocket) Receive(ctx context.Context, s *Sink[string]) error {
	d := net.Dialer{Timeout: t.DialTimeout}
	orDefault(&d.Timeout, 10*time.Second)
	conn, err := d.DialContext(ctx, "tcp", t.Addr)
	if err != nil {
		return fmt.Errorf("socket text from %s: %w", t.Addr, err)
	}
	defer conn.Close()
	// A deadline in the past ends a blocked Read but keeps what was read.
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	s.Ready()

	c := textConn{ctx: ctx, sink: s, addr: t.Addr}
	c.lines.max = t.MaxLine
	orDefault(&c.lines.max, 1<<20)
	c.lines.emit, c.lines.tooLong = c.store, c.reportLong
	err = c.read(conn)
	if c.invalid > 1 {
		s.ReportError(fmt.Errorf("socket text from %s: %d lines of this connection were not UTF-8", t.Addr, c.invalid))
	}
	return err
}

// textConn is one connection of a TextSocket.
type textConn struct {
	ctx     context.Context
	sink    *Sink[string]
	addr    string
	lines   lineCutter
	number  int64 // of the last line that was stored or skipped
	invalid int64 // lines that were not UTF-8
	long    int64 // lines that were too long
	fixed   []byte
}

func (c *textConn) read(conn io.Reader) error {
	buf := make([]byte, chunk)
	for {
		n, err := conn.Read(buf)
		left, storeErr := c.lines.feed(buf[:n])
		switch {
		case storeErr != nil:
			return c.cut(left, storeErr)
		case errors.Is(err, io.EOF):
			left = c.lines.pending()
			if err := c.lines.end(); err != nil {
				return c.cut(left, err)
			}
			return nil
		case err != nil && c.ctx.Err() != nil:
			return c.cut(c.lines.pending(), ErrStopped)
		case err != nil:
			return c.cut(c.lines.pending(), err)
		}
	}
}

// cut makes the error of a connection that ends with bytes read and not stored.
func (c *textConn) cut(left int64, err error) error {
	if left == 0 {
		return fmt.Errorf("socket text from %s: %w", c.addr, err)
	}
	err = fmt.Errorf("socket text from %s: cut off, %d bytes after line %d are dropped: %w", c.addr, left, c.number, err)
	if c.ctx.Err() != nil { // what Receive returns to a stop is not looked at
		c.sink.ReportError(err)
	}
	return err
}

// store stores a line. The string is a view of the read buffer: it is encoded
// before Store returns.
func (c *textConn) store(line []byte) error {
	if !utf8.Valid(line) {
		if c.invalid++; c.invalid == 1 {
			c.sink.ReportError(fmt.Errorf("socket text from %s: line %d is not UTF-8, the bad bytes are replaced by U+FFFD; "+
				"more such lines of this connection are only counted", c.addr, c.number+1))
		}
		c.fixed = appendValid(c.fixed[:0], line)
		line = c.fixed
	}
	if err := c.sink.Store(c.ctx, unsafe.String(unsafe.SliceData(line), len(line))); err != nil {
		return err
	}
	c.number++
	return nil
}

func (c *textConn) reportLong(n int64) {
	c.number++
	c.long++
	c.sink.ReportError(fmt.Errorf("socket text from %s: line %d has %d bytes, the limit is %d: skipped (%d skipped on this connection)",
		c.addr, c.number, n, c.lines.max, c.long))
}
