package hdfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"time"

	lib "github.com/colinmarc/hdfs/v2"

	"github.com/tidemill/tidemill/internal/fsys"
)

const (
	// mostStreams is how many connections to datanodes a Reader keeps for
	// positions it may go on from.
	mostStreams = 4
	// readFor bounds how long a read is tried again while all replicas of a block
	// are out of reach.
	readFor = 30 * time.Second
	// shortWay is how far a stream is read on rather than sought, in bytes. As far
	// as that the library's Seek skips, and forgets that it did: when the datanode
	// is lost it goes on at the place from before.
	shortWay = 64 << 10
)

// ErrWriting says that another is still writing a file, and that no datanode tells
// how much of it there is.
var ErrWriting = errors.New("the file is still being written")

// Reader is a file being read. It may be used concurrently, but for Read.
type Reader struct {
	fs     *FS
	name   string
	path   string
	size   int64
	offset int64 // of Read
	own    bool  // this FS was writing it when it was opened

	mu     sync.Mutex
	closed bool
	idle   []*readStream
}

// readStream is a reader of the library, for one goroutine at a time.
type readStream struct {
	*lib.FileReader
	at int64
}

// Open implements fsys.FS. A file that is being written, or was when its writer
// died, gives what was flushed before: by this FS, or by another if a datanode
// tells how much of it there is. If none does, Open fails with [ErrWriting]: the
// namenode would say 0.
func (f *FS) Open(name string) (fsys.Reader, error) {
	p := pathOf(name)
	f.settled(p)
	r := &Reader{fs: f, name: name, path: p}
	own, n, err := f.tellLength(p)
	if err == nil {
		err = f.do("open", p, func(c *client, _ bool) error {
			s, err := c.Open(p)
			if err != nil {
				return c.why(p, err)
			}
			if s.Stat().IsDir() {
				return syscall.EISDIR
			}
			if !own {
				x, err := f.extentOf(c, p, blockSize(s))
				if err == nil {
					err = x.show(s)
				}
				if err != nil {
					return err
				}
			}
			r.own, r.size = own, s.Stat().Size()
			r.idle = []*readStream{{FileReader: s}}
			return nil
		})
	}
	switch {
	case err != nil:
	case own && r.size < n: // its stream failed at the begin of a block
		err = ErrWriting
	case own:
		r.size = n
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return r, nil
}

// tellLength has the namenode know how long a file is that is being written here:
// at least n. It can only be told of the last block; the others it knows.
func (f *FS) tellLength(p string) (own bool, n int64, err error) {
	f.mu.Lock()
	file := f.open[p]
	f.mu.Unlock()
	if file == nil {
		return false, 0, nil
	}
	file.block <- struct{}{}
	defer func() { <-file.block }()
	w, size := file.writer(), file.layout.blockSize
	n = file.flushed.Load()
	if w == nil || n == 0 || (n-1)/size < file.last {
		return true, n, nil
	}
	return true, n, f.do("fsync", p, func(c *client, _ bool) error {
		_, err := c.call("fsync", arg{"src", p}, arg{"client", w.client.Name()}, arg{"lastBlockLength", (n-1)%size + 1})
		return err
	})
}

// Size implements fsys.Reader.
func (r *Reader) Size() int64 { return r.size }

// Read implements io.Reader.
func (r *Reader) Read(b []byte) (int, error) {
	n, err := r.readAt(b, r.offset, false)
	r.offset += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// ReadAt implements io.ReaderAt.
func (r *Reader) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, pathError("read", r.name, fmt.Errorf("offset %d: %w", off, fs.ErrInvalid))
	}
	return r.readAt(b, off, true)
}

// readAt reads what there is up to the end, or, unless all is asked for, what
// comes with the first answer.
func (r *Reader) readAt(b []byte, off int64, all bool) (n int, err error) {
	if r.isClosed() {
		return 0, pathError("read", r.name, fs.ErrClosed)
	}
	if len(b) == 0 {
		return 0, nil
	}
	if off >= r.size {
		return 0, io.EOF
	}
	short := int64(len(b)) > r.size-off
	if short {
		b = b[:r.size-off]
	}
	var began time.Time
	for n < len(b) && (all || n == 0) {
		k, err := r.readSome(b[n:], off+int64(n))
		n += k
		if err == nil {
			continue
		}
		if began.IsZero() {
			began = time.Now()
		}
		if answered(err) || time.Since(began) > readFor || !r.fs.pause(100*time.Millisecond) {
			return n, pathError("read", r.name, err)
		}
	}
	if n == len(b) && short && all {
		return n, io.EOF
	}
	return n, nil
}

// readSome reads once, at a place where a stream is if there is one.
func (r *Reader) readSome(b []byte, off int64) (int, error) {
	s, err := r.stream(off)
	if err != nil {
		return 0, err
	}
	n, err := s.Read(b)
	s.at += int64(n)
	if n > 0 || err == nil {
		r.keep(s)
		return n, nil
	}
	_ = s.Close() // the error says more
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return 0, interpret(err)
}

// stream takes the stream that is at an offset, or moves another one there, or
// opens one.
func (r *Reader) stream(off int64) (*readStream, error) {
	r.mu.Lock()
	take := -1
	for i, s := range r.idle {
		if s.at == off {
			take = i
			break
		}
		if s.at < off && (take < 0 || s.at > r.idle[take].at) {
			take = i // the nearest one
		}
	}
	if take < 0 && len(r.idle) > 0 {
		take = 0
	}
	var s *readStream
	if take >= 0 {
		s = r.idle[take]
		r.idle = append(r.idle[:take], r.idle[take+1:]...)
	}
	r.mu.Unlock()
	if s == nil {
		opened, err := r.reopen()
		if err != nil {
			return nil, err
		}
		s = opened
	}
	if d := off - s.at; d > 0 && d <= shortWay {
		n, err := io.CopyN(io.Discard, s, d)
		s.at += n
		if err != nil {
			_ = s.Close() // the error says more
			return nil, interpret(err)
		}
	}
	if s.at != off {
		if _, err := s.Seek(off, io.SeekStart); err != nil {
			_ = s.Close() // the error says more
			return nil, fmt.Errorf("%w: seek: %w", errDefinite, err)
		}
		s.at = off
	}
	return s, nil
}

func (r *Reader) reopen() (s *readStream, err error) {
	err = r.fs.do("open", r.path, func(c *client, _ bool) error {
		in, err := c.Open(r.path)
		if err != nil || r.own {
			s = &readStream{FileReader: in}
			return err
		}
		x, err := r.fs.extentOf(c, r.path, blockSize(in))
		if err == nil {
			err = x.show(in)
		}
		s = &readStream{FileReader: in}
		return err
	})
	return s, err
}

// keep makes a stream available to the next read.
func (r *Reader) keep(s *readStream) {
	r.mu.Lock()
	over := r.closed || len(r.idle) >= mostStreams
	if !over {
		r.idle = append(r.idle, s)
	}
	r.mu.Unlock()
	if over {
		_ = s.Close() // nothing was written
	}
}

func (r *Reader) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Close implements io.Closer.
func (r *Reader) Close() error {
	r.mu.Lock()
	closed := r.closed
	idle := r.idle
	r.closed, r.idle = true, nil
	r.mu.Unlock()
	if closed {
		return pathError("close", r.name, fs.ErrClosed)
	}
	for _, s := range idle {
		_ = s.Close() // nothing was written
	}
	return nil
}
