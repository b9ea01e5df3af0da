package fsys

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory, for tests. It answers as Local does, errors
// included; the same test suite runs against both. Files that are removed or
// renamed while open stay usable, as on Unix.
//
// It knows what is durable: the bytes that Sync covered and the entries that
// SyncDir did. [Mem.CrashAt] crashes it at any operation, and [Mem.AfterKill]
// and [Mem.AfterPowerLoss] give the file system that is found then.
// [Mem.FailWith] makes operations fail and [Mem.Slow] makes them late.
//
// Modification times come from time.Now, so a testing/synctest bubble sees
// its own clock.
type Mem struct {
	mu   sync.RWMutex
	tree *memTree
	hook func(op, name string) error
	slow func(op, name string) time.Duration

	ops     int64  // begun
	crashAt int64  // the count at which it crashes, 0: none
	crashed bool   // nothing happens any more
	hit     *memOp // what the crash found under way, if it changes anything
}

var (
	_ FS     = (*Mem)(nil)
	_ Locker = (*Mem)(nil)
)

// NewMem returns an empty file system that has only its root.
func NewMem() *Mem { return &Mem{tree: newMemTree()} }

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	f := &memFile{m: m, n: &memNode{mod: time.Now()}, name: name}
	err := m.do(memOp{op: "create", name: name, do: func(t *memTree, _ []byte) error {
		return t.add(name, t.at(f.n))
	}})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (Reader, error) {
	r := &memReader{m: m, name: name}
	err := m.look("open", name, func(t *memTree) error {
		n, err := t.node(name)
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

// change runs an operation that has only an effect.
func (m *Mem) change(op, name string, do func(*memTree) error) error {
	return m.do(memOp{op: op, name: name, do: func(t *memTree, _ []byte) error { return do(t) }})
}

// Mkdir implements FS.
func (m *Mem) Mkdir(name string) error {
	return m.change("mkdir", name, func(t *memTree) error { return t.add(name, newMemDir()) })
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string) error {
	return m.change("mkdirall", name, func(t *memTree) error { return t.mkdirAll(name) })
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	err := m.change("rename", oldName, func(t *memTree) error { return t.rename(oldName, newName) })
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	errors.As(err, &pe)
	return linkError(oldName, newName, pe.Err)
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	return m.change("remove", name, func(t *memTree) error { return t.remove(name) })
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	return m.change("removeall", name, func(t *memTree) error {
		parent, last, err := t.slot(name, syscall.EBUSY)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case parent.entries[last] != nil:
			t.removeAll(parent, last)
		}
		return nil
	})
}

// List implements FS.
func (m *Mem) List(dir string) ([]Info, error) {
	var infos []Info
	err := m.look("list", dir, func(t *memTree) error {
		n, err := t.directory(dir)
		if err != nil {
			return err
		}
		infos = make([]Info, 0, len(n.entries))
		for _, name := range n.names() {
			infos = append(infos, n.entries[name].info(name))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return infos, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	var in Info
	err := m.look("stat", name, func(t *memTree) error {
		n, err := t.node(name)
		if err != nil {
			return err
		}
		in = n.info(path.Base(name))
		return nil
	})
	if err != nil {
		return Info{}, err
	}
	return in, nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(name string) error {
	return m.change("syncdir", name, func(t *memTree) error {
		n, err := t.directory(name)
		if err == nil {
			n.syncDir()
		}
		return err
	})
}

// SetModTime sets the modification time of a file or directory.
func (m *Mem) SetModTime(name string, mod time.Time) error {
	return m.change("setmodtime", name, func(t *memTree) error {
		n, err := t.node(name)
		if err == nil {
			n.mod = mod
		}
		return err
	})
}

// String lists all files and directories, one a line, for test failures.
func (m *Mem) String() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var b bytes.Buffer
	m.tree.root.describe(&b, "/")
	return b.String()
}
