package fsys

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory, for tests. It answers as Local does, errors
// included; the same test suite runs against both. Files that are removed or
// renamed while open stay usable, as on Unix.
//
// Modification times come from time.Now, so a testing/synctest bubble sees
// its own clock. Sync and SyncDir do nothing but call the fault hook.
type Mem struct {
	mu   sync.RWMutex
	root *memNode
	hook func(op, name string) error
}

var _ FS = (*Mem)(nil)

// memNode is a file, or a directory if entries is not nil.
type memNode struct {
	entries map[string]*memNode
	data    []byte
	mod     time.Time
}

func newMemDir() *memNode {
	return &memNode{entries: map[string]*memNode{}, mod: time.Now()}
}

func (n *memNode) dir() bool { return n.entries != nil }

// put and drop change a directory, whose modification time follows.
func (n *memNode) put(name string, child *memNode) { n.entries[name] = child; n.mod = time.Now() }
func (n *memNode) drop(name string)                { delete(n.entries, name); n.mod = time.Now() }

// NewMem returns an empty file system that has only its root.
func NewMem() *Mem { return &Mem{root: newMemDir()} }

// FailWith sets a hook that is asked before every operation; nil takes it
// away. An error from it is the operation's result, wrapped with operation and
// name, and the operation has no effect. The operations are those of the
// package doc; name is what the caller passed to the FS, for a rename the old
// name. The hook runs on the caller's goroutine without a lock, so it may
// block, panic, or use the file system (which asks the hook again).
func (m *Mem) FailWith(hook func(op, name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = hook
}

// fault asks the hook.
func (m *Mem) fault(op, name string) error {
	m.mu.RLock()
	hook := m.hook
	m.mu.RUnlock()
	if hook == nil {
		return nil
	}
	return hook(op, name)
}

// do runs one operation: the hook, then f with the lock held.
func (m *Mem) do(op, name string, f func() error) error {
	err := m.fault(op, name)
	if err == nil {
		m.mu.Lock()
		err = f()
		m.mu.Unlock()
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// split returns the elements of a name from the root.
func split(name string) []string {
	clean := path.Clean("/" + name)[1:]
	if clean == "" {
		return nil
	}
	return strings.Split(clean, "/")
}

// walk follows elements from the root.
func (m *Mem) walk(elems []string) (*memNode, error) {
	n := m.root
	for _, e := range elems {
		if !n.dir() {
			return nil, syscall.ENOTDIR
		}
		if n = n.entries[e]; n == nil {
			return nil, syscall.ENOENT
		}
	}
	return n, nil
}

func (m *Mem) node(name string) (*memNode, error) {
	if name == "" {
		return nil, syscall.ENOENT
	}
	return m.walk(split(name))
}

// slot finds where a name is or would be: its parent directory and its last
// element. The root, which has no parent, is refused with atRoot.
func (m *Mem) slot(name string, atRoot error) (parent *memNode, last string, err error) {
	if name == "" {
		return nil, "", syscall.ENOENT
	}
	elems := split(name)
	if len(elems) == 0 {
		return nil, "", atRoot
	}
	n := len(elems) - 1
	parent, err = m.walk(elems[:n])
	if err == nil && !parent.dir() {
		err = syscall.ENOTDIR
	}
	return parent, elems[n], err
}

// add puts a new node at a name that must be free.
func (m *Mem) add(name string, n *memNode) error {
	parent, last, err := m.slot(name, syscall.EEXIST)
	if err != nil {
		return err
	}
	if parent.entries[last] != nil {
		return syscall.EEXIST
	}
	parent.put(last, n)
	return nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	n := &memNode{mod: time.Now()}
	if err := m.do("create", name, func() error { return m.add(name, n) }); err != nil {
		return nil, err
	}
	return &memFile{m: m, n: n, name: name}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (Reader, error) {
	r := &memReader{m: m, name: name}
	err := m.do("open", name, func() error {
		n, err := m.node(name)
		if err != nil {
			return err
		}
		if n.dir() {
			return syscall.EISDIR
		}
		r.n, r.size = n, int64(len(n.data))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Mkdir implements FS.
func (m *Mem) Mkdir(name string) error {
	return m.do("mkdir", name, func() error { return m.add(name, newMemDir()) })
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string) error {
	return m.do("mkdirall", name, func() error {
		if name == "" {
			return syscall.ENOENT
		}
		n := m.root
		for _, e := range split(name) {
			next := n.entries[e]
			switch {
			case next == nil:
				next = newMemDir()
				n.put(e, next)
			case !next.dir():
				return syscall.ENOTDIR
			}
			n = next
		}
		return nil
	})
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	err := m.do("rename", oldName, func() error { return m.rename(oldName, newName) })
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	errors.As(err, &pe)
	return linkError(oldName, newName, pe.Err)
}

func (m *Mem) rename(oldName, newName string) error {
	from, oldLast, err := m.slot(oldName, syscall.EBUSY)
	if err != nil {
		return err
	}
	to, newLast, err := m.slot(newName, syscall.EEXIST)
	if err != nil {
		return err
	}
	n := from.entries[oldLast]
	switch {
	case n == nil:
		return syscall.ENOENT
	case to.entries[newLast] != nil:
		return syscall.EEXIST
	}
	oldElems, newElems := split(oldName), split(newName)
	if len(newElems) > len(oldElems) && slices.Equal(oldElems, newElems[:len(oldElems)]) {
		return syscall.EINVAL // a directory cannot move below itself
	}
	from.drop(oldLast)
	to.put(newLast, n)
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	return m.do("remove", name, func() error {
		parent, last, err := m.slot(name, syscall.EBUSY)
		if err != nil {
			return err
		}
		n := parent.entries[last]
		switch {
		case n == nil:
			return syscall.ENOENT
		case len(n.entries) > 0:
			return syscall.ENOTEMPTY
		}
		parent.drop(last)
		return nil
	})
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	return m.do("removeall", name, func() error {
		parent, last, err := m.slot(name, syscall.EBUSY)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case parent.entries[last] != nil:
			parent.drop(last)
		}
		return nil
	})
}

// List implements FS.
func (m *Mem) List(dir string) ([]Info, error) {
	var infos []Info
	err := m.do("list", dir, func() error {
		n, err := m.node(dir)
		if err != nil {
			return err
		}
		if !n.dir() {
			return syscall.ENOTDIR
		}
		infos = make([]Info, 0, len(n.entries))
		for _, name := range slices.Sorted(maps.Keys(n.entries)) {
			infos = append(infos, n.entries[name].info(name))
		}
		return nil
	})
	return infos, err
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	var in Info
	err := m.do("stat", name, func() error {
		n, err := m.node(name)
		if err != nil {
			return err
		}
		in = n.info(path.Base(name))
		return nil
	})
	return in, err
}

func (n *memNode) info(name string) Info {
	return Info{Name: name, Size: int64(len(n.data)), ModTime: n.mod, Dir: n.dir()}
}

// SyncDir implements FS.
func (m *Mem) SyncDir(name string) error {
	return m.do("syncdir", name, func() error {
		n, err := m.node(name)
		if err == nil && !n.dir() {
			err = syscall.ENOTDIR
		}
		return err
	})
}

// SetModTime sets the modification time of a file or directory.
func (m *Mem) SetModTime(name string, t time.Time) error {
	return m.do("setmodtime", name, func() error {
		n, err := m.node(name)
		if err == nil {
			n.mod = t
		}
		return err
	})
}

type memFile struct {
	m      *Mem
	n      *memNode
	name   string
	closed bool
}

func (f *memFile) do(op string, do func()) error {
	return f.m.do(op, f.name, func() error {
		if f.closed {
			return fs.ErrClosed
		}
		do()
		return nil
	})
}

func (f *memFile) Write(p []byte) (int, error) {
	err := f.do("write", func() {
		f.n.data = append(f.n.data, p...)
		f.n.mod = time.Now()
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *memFile) Flush() error { return f.do("flush", func() {}) }
func (f *memFile) Sync() error  { return f.do("sync", func() {}) }
func (f *memFile) Close() error { return f.do("close", func() { f.closed = true }) }

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
	err = r.m.do("read", r.name, func() error {
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
	err = r.m.do("read", r.name, func() error {
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
	return r.m.do("close", r.name, func() error {
		if r.closed {
			return fs.ErrClosed
		}
		r.closed = true
		return nil
	})
}

// String lists all files and directories, one a line, for test failures.
func (m *Mem) String() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var b bytes.Buffer
	m.root.describe(&b, "/")
	return b.String()
}

func (n *memNode) describe(b *bytes.Buffer, name string) {
	b.WriteString(name + "\n")
	for _, e := range slices.Sorted(maps.Keys(n.entries)) {
		child := n.entries[e]
		if child.dir() {
			e += "/"
		}
		child.describe(b, name+e)
	}
}
