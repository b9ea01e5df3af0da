package fsys

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"
)

// ShortWrite is what the hook of [Mem.FailWith] returns for a write that puts
// down only the first N bytes and then fails with Err, by default
// io.ErrShortWrite. For other operations it is an error like any.
type ShortWrite struct {
	N   int
	Err error
}

func (e *ShortWrite) Error() string {
	return fmt.Sprintf("short write of %d bytes: %v", e.N, e.Unwrap())
}
func (e *ShortWrite) Unwrap() error { return cmp.Or(e.Err, io.ErrShortWrite) }

// AppliedError is what the hook of [Mem.FailWith] returns for an operation that
// takes effect and then fails with Err, by default EIO.
type AppliedError struct{ Err error }

func (e *AppliedError) Error() string { return "failed when done: " + e.Unwrap().Error() }
func (e *AppliedError) Unwrap() error { return cmp.Or[error](e.Err, syscall.EIO) }

// UnappliedSuccess is what the hook of [Mem.FailWith] returns for an operation
// that reports success though nothing has happened. A file created so has no
// name, and a lock is not held. Operations that change nothing ("open", "read",
// "list", "stat", "flush", "close") are done as without it.
type UnappliedSuccess struct{}

func (*UnappliedSuccess) Error() string { return "success without effect" }

// FailWith sets a hook that is asked before every operation; nil takes it
// away. An error from it is the operation's result, wrapped with operation and
// name, and the operation has no effect; [ShortWrite], [AppliedError],
// [UnappliedSuccess] and [ErrCrashed] mean what they say, the last that the
// file system crashes at this operation. After a "sync" that failed, later ones
// make no more bytes of that file durable, though they return nil.
//
// The operations are those of the package doc; name is what the caller passed
// to the FS, for a rename the old name. The hook runs on the caller's goroutine
// without a lock, so it may block, panic, or use the file system (which asks
// the hook again).
func (m *Mem) FailWith(hook func(op, name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = hook
}

// Slow sets a hook that says how long each operation sleeps before it begins
// (before the hook of FailWith is asked); nil takes it away. It is called as
// that of FailWith is.
func (m *Mem) Slow(hook func(op, name string) time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slow = hook
}

// memOp is one operation.
type memOp struct {
	op, name string
	p        []byte // what a write writes

	// do is called with the lock held, and again, on a copy of the tree, by
	// AfterKill and AfterPowerLoss; unless it only looks.
	do    func(t *memTree, p []byte) error
	looks bool

	refused func() // if not nil, the hook has refused the operation
}

// look runs an operation that does not change the tree.
func (m *Mem) look(op, name string, do func(*memTree) error) error {
	return m.do(memOp{op: op, name: name, looks: true, do: func(t *memTree, _ []byte) error { return do(t) }})
}

func (m *Mem) do(o memOp) error { _, err := m.run(o); return err }

// run returns how many bytes were written, and an error with operation and name.
func (m *Mem) run(o memOp) (int, error) {
	n, err := m.perform(o)
	if err != nil {
		err = &fs.PathError{Op: o.op, Path: o.name, Err: err}
	}
	return n, err
}

func (m *Mem) perform(o memOp) (int, error) {
	slow, hook, err := m.begin(o)
	if err != nil {
		return 0, err
	}
	var fault error
	if slow != nil {
		time.Sleep(slow(o.op, o.name))
	}
	if hook != nil {
		fault = hook(o.op, o.name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.crashed:
		return 0, ErrCrashed
	case errors.Is(fault, ErrCrashed):
		return 0, m.crash(o)
	}
	return o.finish(m.tree, fault)
}

// begin counts the operation and lets it run into a crash.
func (m *Mem) begin(o memOp) (slow func(op, name string) time.Duration, hook func(op, name string) error, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed {
		return nil, nil, ErrCrashed
	}
	m.ops++
	if m.ops == m.crashAt {
		return nil, nil, m.crash(o)
	}
	return m.slow, m.hook, nil
}

// crash ends everything, with an operation that may or may not be done.
func (m *Mem) crash(o memOp) error {
	m.crashed = true
	if !o.looks {
		o.p = bytes.Clone(o.p) // the caller's again once it has the error
		m.hit = &o
	}
	return ErrCrashed
}

// finish does an operation as far as the hook's answer allows.
func (o memOp) finish(t *memTree, fault error) (int, error) {
	var (
		short     *ShortWrite
		applied   *AppliedError
		unapplied *UnappliedSuccess
	)
	p, result := o.p, error(nil)
	switch {
	case o.op == "write" && errors.As(fault, &short):
		p, result = p[:min(max(short.N, 0), len(p))], short.Unwrap()
	case errors.As(fault, &applied):
		result = applied.Unwrap()
	case errors.As(fault, &unapplied):
		if !o.looks {
			return len(p), nil
		}
	case fault != nil:
		if o.refused != nil {
			o.refused()
		}
		return 0, fault
	}
	if err := o.do(t, p); err != nil {
		return 0, err
	}
	return len(p), result
}
