package hdfstest

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// connBuffer is how many bytes of each direction a connection holds that
// nobody has read, as the kernel's socket buffers would.
const connBuffer = 256 << 10

// pipe returns the two ends of a connection in memory. Everything that blocks
// on one waits for a condition variable, so that fake time can pass.
func pipe(client, server addr, latency time.Duration) (*conn, *conn) {
	mu := new(sync.Mutex)
	up, down := newHalf(mu, latency), newHalf(mu, latency)
	return &conn{in: down, out: up, local: client, remote: server}, &conn{in: up, out: down, local: server, remote: client}
}

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }

func (a addr) host() string {
	host, _, _ := net.SplitHostPort(string(a))
	return host
}

func (a addr) port() string {
	_, port, _ := net.SplitHostPort(string(a))
	return port
}

// number is the port as messages have it.
func (a addr) number() int64 {
	n, _ := strconv.ParseInt(a.port(), 10, 64)
	return n
}

// A half carries the bytes of one direction. Both of a connection share mu.
type half struct {
	latency time.Duration

	mu      *sync.Mutex
	changed *sync.Cond
	chunks  []chunk
	size    int

	sent  bool // the writing end was closed: end of file after the rest
	gone  bool // the reading end was closed: nobody will read any more
	lost  bool // one write went to the gone end and was answered by a reset
	reset bool // the writing end's process died

	reading, writing deadline
}

// A chunk is what one Write sent, readable from its time on.
type chunk struct {
	data []byte
	at   time.Time
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) set(t time.Time, wake func()) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, wake)
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newHalf(mu *sync.Mutex, latency time.Duration) *half {
	return &half{latency: latency, mu: mu, changed: sync.NewCond(mu)}
}

// wake lets those who wait look again.
func (h *half) wake() {
	h.mu.Lock()
	h.changed.Broadcast()
	h.mu.Unlock()
}

func (h *half) read(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.gone:
			return 0, net.ErrClosed
		case h.reading.passed():
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case len(h.chunks) > 0 && !time.Now().Before(h.chunks[0].at):
			return h.take(b), nil
		case len(h.chunks) > 0:
		case h.reset:
			return 0, os.NewSyscallError("read", syscall.ECONNRESET)
		case h.sent:
			return 0, io.EOF
		}
		h.changed.Wait()
	}
}

func (h *half) take(b []byte) int {
	n := copy(b, h.chunks[0].data)
	if h.chunks[0].data = h.chunks[0].data[n:]; len(h.chunks[0].data) == 0 {
		h.chunks = h.chunks[1:]
	}
	h.size -= n
	h.changed.Broadcast()
	return n
}

func (h *half) write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for {
		switch {
		case h.sent:
			return n, net.ErrClosed
		case h.writing.passed():
			return n, os.ErrDeadlineExceeded
		case n == len(b):
			return n, nil
		case h.gone && h.lost:
			return n, os.NewSyscallError("write", syscall.EPIPE)
		case h.gone:
			// The kernel takes one more write before it hears that nobody reads.
			h.lost = true
			return len(b), nil
		case h.size < connBuffer:
			part := b[n:min(len(b), n+connBuffer-h.size)]
			h.chunks = append(h.chunks, chunk{slices.Clone(part), time.Now().Add(h.latency)})
			h.size += len(part)
			n += len(part)
			if h.latency > 0 {
				time.AfterFunc(h.latency, h.wake)
			}
			h.changed.Broadcast()
			continue
		}
		h.changed.Wait()
	}
}

// A conn is one end of a connection in memory.
type conn struct {
	in, out       *half
	local, remote addr
	// sink makes writes succeed, into nothing, once the connection has failed.
	sink bool
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = c.fault("read", err)
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	if err != nil && c.sink {
		return len(b), nil
	}
	if err != nil {
		err = c.fault("write", err)
	}
	return n, err
}

func (c *conn) fault(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// Close ends both directions: the other end reads what was sent, then the end
// of the file, and its writes fail from the second on.
func (c *conn) Close() error {
	c.end(func(in, out *half) { in.gone, out.sent = true, true })
	return nil
}

// abort is the end of the process that holds this end.
func (c *conn) abort() {
	c.end(func(in, out *half) { in.gone, out.sent, out.reset = true, true, true })
}

func (c *conn) end(mark func(in, out *half)) {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	mark(c.in, c.out)
	c.in.chunks, c.in.size = nil, 0
	c.in.reading.set(time.Time{}, nil)
	c.out.writing.set(time.Time{}, nil)
	c.in.changed.Broadcast()
	c.out.changed.Broadcast()
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error { return c.in.setDeadline(&c.in.reading, t) }

func (c *conn) SetWriteDeadline(t time.Time) error { return c.out.setDeadline(&c.out.writing, t) }

func (h *half) setDeadline(d *deadline, t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.set(t, h.wake)
	h.changed.Broadcast()
	return nil
}
