package fsys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Router is an FS that sends each name to the file system that serves it: a
// local name to the local one, scheme://authority/path to that of the scheme
// and authority, as it is. Those are opened when the first name asks for them,
// and kept until Close; an open that failed is tried again by the next name.
//
// A Router has no abilities of its own: [For] leads to the file system that may.
type Router struct {
	local   FS
	schemes map[string]func(authority string) (FS, error)

	ended    chan struct{} // closed when closeErr is there
	closeErr error

	mu     sync.Mutex // not held while a file system is opened or closed
	mounts map[place]*mount
	closed bool
}

var _ FS = (*Router)(nil)

// place says where a file system is.
type place struct{ scheme, authority string }

// mount is a file system that is open or about to be.
type mount struct {
	done chan struct{} // closed when fs and err are there
	fs   FS
	err  error
}

// NewRouter returns a router over a local file system and the openers of others,
// by scheme. An opener must come to an end by itself.
func NewRouter(local FS, schemes map[string]func(authority string) (FS, error)) *Router {
	return &Router{local: local, schemes: maps.Clone(schemes), mounts: map[place]*mount{}, ended: make(chan struct{})}
}

// For returns the file system that serves a name, which may have abilities that
// f has not: f itself, unless it is a [Router].
func For(f FS, name string) (FS, error) {
	r, ok := f.(*Router)
	if !ok {
		return f, nil
	}
	served, err := r.of(name)
	if err != nil {
		return nil, fmt.Errorf("name %q: %w", name, err)
	}
	return served, nil
}

var errOpenPanicked = errors.New("it panicked")

// of finds the file system of a name. The error does not name the name.
func (r *Router) of(name string) (FS, error) {
	if err := badName(name); err != nil {
		return nil, err
	}
	scheme, authority, _ := SplitURL(name)
	if scheme == "" {
		return r.local, nil
	}
	open := r.schemes[scheme]
	if open == nil {
		return nil, r.unknown(scheme)
	}
	at := place{scheme, authority}
	r.mu.Lock()
	m, there := r.mounts[at]
	switch {
	case r.closed:
		r.mu.Unlock()
		return nil, fs.ErrClosed
	case !there:
		m = &mount{done: make(chan struct{}), err: errOpenPanicked}
		r.mounts[at] = m
	}
	r.mu.Unlock()
	if !there {
		r.open(at, m, open)
	}
	<-m.done
	if m.err != nil {
		// Not wrapped: a configuration file that does not exist must not read as
		// if the name itself did not.
		return nil, fmt.Errorf("open %s://%s: %v", scheme, authority, m.err) //nolint:errorlint // see above
	}
	return m.fs, nil
}

func (r *Router) open(at place, m *mount, open func(authority string) (FS, error)) {
	defer func() {
		if m.err != nil {
			r.mu.Lock()
			delete(r.mounts, at)
			r.mu.Unlock()
		}
		close(m.done)
	}()
	m.fs, m.err = open(at.authority)
}

func (r *Router) unknown(scheme string) error {
	if len(r.schemes) == 0 {
		return fmt.Errorf("unknown scheme %q: only local names are known", scheme)
	}
	return fmt.Errorf("unknown scheme %q: known are local names and %s://", scheme, strings.Join(slices.Sorted(maps.Keys(r.schemes)), "://, "))
}

// Close closes the file systems that the router has opened, and waits for those
// that it is opening. Names of theirs are refused with fs.ErrClosed from then on;
// the local file system is the caller's.
func (r *Router) Close() error {
	r.mu.Lock()
	first, mounts := !r.closed, r.mounts
	r.closed, r.mounts = true, nil
	r.mu.Unlock()
	if !first {
		<-r.ended
		return r.closeErr
	}
	var errs []error
	for at, m := range mounts {
		<-m.done
		if c, ok := m.fs.(io.Closer); ok && m.err == nil {
			if err := c.Close(); err != nil {
				errs = append(errs, fmt.Errorf("close %s://%s: %w", at.scheme, at.authority, err))
			}
		}
	}
	r.closeErr = errors.Join(errs...)
	close(r.ended)
	return r.closeErr
}

// Create implements FS.
func (r *Router) Create(name string) (File, error) {
	f, err := r.of(name)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	return f.Create(name)
}

// Open implements FS.
func (r *Router) Open(name string) (Reader, error) {
	f, err := r.of(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return f.Open(name)
}

// do runs an operation that returns nothing but an error.
func (r *Router) do(op, name string, do func(FS, string) error) error {
	f, err := r.of(name)
	if err != nil {
		return pathError(op, name, err)
	}
	return do(f, name)
}

// Mkdir implements FS.
func (r *Router) Mkdir(name string) error { return r.do("mkdir", name, FS.Mkdir) }

// MkdirAll implements FS.
func (r *Router) MkdirAll(name string) error { return r.do("mkdirall", name, FS.MkdirAll) }

// Rename implements FS. From one file system to another it fails with
// syscall.EXDEV.
func (r *Router) Rename(oldName, newName string) error {
	from, err := r.of(oldName)
	if err == nil {
		_, err = r.of(newName)
	}
	if err != nil {
		return linkError(oldName, newName, err)
	}
	oldScheme, oldAuthority, _ := SplitURL(oldName)
	newScheme, newAuthority, _ := SplitURL(newName)
	if oldScheme != newScheme || oldAuthority != newAuthority {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: syscall.EXDEV}
	}
	return from.Rename(oldName, newName)
}

// Remove implements FS.
func (r *Router) Remove(name string) error { return r.do("remove", name, FS.Remove) }

// RemoveAll implements FS.
func (r *Router) RemoveAll(name string) error { return r.do("removeall", name, FS.RemoveAll) }

// List implements FS.
func (r *Router) List(dir string) ([]Info, error) {
	f, err := r.of(dir)
	if err != nil {
		return nil, pathError("list", dir, err)
	}
	return f.List(dir)
}

// Stat implements FS.
func (r *Router) Stat(name string) (Info, error) {
	f, err := r.of(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return f.Stat(name)
}

// SyncDir implements FS.
func (r *Router) SyncDir(name string) error { return r.do("syncdir", name, FS.SyncDir) }
