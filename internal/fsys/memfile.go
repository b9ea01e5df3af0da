package fsys

import (
	"errors"
	"io"
	"io/fs"
	"time"
)

type memFile struct {
	m      *Mem
	n      *memNode
	name   string
	closed bool
}

// open is an operation on the file that fails once it is closed.
func (f *memFile) open(do func(n *memNode, p []byte)) func(*memTree, []byte) error {
	return func(t *memTree, p []byte) error {
		if f.closed {
			return fs.ErrClosed
		}
		do(t.at(f.n), p)
		return nil
	}
}

func (f *memFile) Write(p []byte) (int, error) {
	return f.m.run(memOp{op: "write", name: f.name, p: p, do: f.open(func(n *memNode, p []byte) {
		n.data = append(n.data, p...)
		n.mod = time.Now()
	})})
}

func (f *memFile) Flush() error {
	return f.m.do(memOp{op: "flush", name: f.name, looks: true, do: f.open(func(*memNode, []byte) {})})
}

func (f *memFile) Sync() error {
	return f.m.do(memOp{
		op: "sync", name: f.name,
		do: f.open(func(n *memNode, _ []byte) {
			if !n.failed {
				n.synced = len(n.data)
			}
		}),
		// The kernel has dropped what it could not write: a later Sync
		// that succeeds says nothing about it.
		refused: func() { f.n.failed = true },
	})
}

func (f *memFile) Close() error {
	return f.m.do(memOp{op: "close", name: f.name, looks: true, do: f.open(func(*memNode, []byte) { f.closed = true })})
}

type memReader struct {
	m      *Mem
	n      *memNode
	name   string
	size   int64
	off    int64
	closed bool
}

func (r *memReader) Size() int64 { return r.size }

func (r *memReader) Read(p []byte) (n int, err error) {
	err = r.m.look("read", r.name, func(*memTree) error {
		n, err = r.readAt(p, r.off)
		r.off += int64(n)
		if n > 0 {
			return nil
		}
		return err
	})
	return n, bareEOF(err)
}

func (r *memReader) ReadAt(p []byte, off int64) (n int, err error) {
	err = r.m.look("read", r.name, func(*memTree) error {
		n, err = r.readAt(p, off)
		return err
	})
	return n, bareEOF(err)
}

// readAt is called with the lock held.
func (r *memReader) readAt(p []byte, off int64) (int, error) {
	switch {
	case r.closed:
		return 0, fs.ErrClosed
	case off < 0:
		return 0, errors.New("negative offset")
	case len(p) == 0:
		return 0, nil
	case off >= int64(len(r.n.data)):
		return 0, io.EOF
	}
	n := copy(p, r.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// bareEOF takes the path off io.EOF, which readers compare with ==.
func bareEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return err
}

func (r *memReader) Close() error {
	return r.m.look("close", r.name, func(*memTree) error {
		if r.closed {
			return fs.ErrClosed
		}
		r.closed = true
		return nil
	})
}

type memLock struct {
	m    *Mem
	name string
}

// Lock implements Locker. A lock ends with its file system: AfterKill and
// AfterPowerLoss give one without locks.
func (m *Mem) Lock(name string) (io.Closer, error) {
	l := &memLock{m: m, name: name}
	fresh := &memNode{mod: time.Now()}
	err := m.do(memOp{op: "lock", name: name, do: func(t *memTree, _ []byte) error {
		return t.lock(name, fresh, l)
	}})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Close gives the lock back. Once it has succeeded, more calls do nothing.
func (l *memLock) Close() error {
	return l.m.look("close", l.name, func(t *memTree) error {
		for n, holder := range t.locks {
			if holder == l {
				delete(t.locks, n)
			}
		}
		return nil
	})
}
