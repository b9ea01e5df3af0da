package fsys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// LocalFS is the operating system's file system. Its zero value works.
type LocalFS struct {
	// checkedRename makes Rename do without the kernel's help, as it must
	// on file systems that lack it.
	checkedRename bool
}

var (
	_ FS     = LocalFS{}
	_ Locker = LocalFS{}
)

// Local returns the operating system's file system. Names are used as given.
//
// Rename is one atomic step on Linux where kernel and file system know
// RENAME_NOREPLACE. Elsewhere it looks for the target first, and a target
// that appears between the look and the rename may be replaced: two processes
// must not race for one name there.
func Local() LocalFS { return LocalFS{} }

// Create implements FS.
func (LocalFS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	return &localFile{File: f}, nil
}

type localFile struct {
	*os.File
	closed atomic.Bool
}

// Flush implements File: what was written is the system's, which outlives the process.
func (f *localFile) Flush() error {
	if f.closed.Load() {
		return pathError("flush", f.Name(), fs.ErrClosed)
	}
	return nil
}

// Close implements File.
func (f *localFile) Close() error {
	f.closed.Store(true)
	return f.File.Close()
}

type localReader struct {
	*os.File
	size int64
}

func (r localReader) Size() int64 { return r.size }

// Open implements FS.
func (LocalFS) Open(name string) (Reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = syscall.EISDIR
	}
	if err != nil {
		f.Close()
		return nil, pathError("open", name, err)
	}
	return localReader{File: f, size: st.Size()}, nil
}

// Mkdir implements FS.
func (LocalFS) Mkdir(name string) error { return pathError("mkdir", name, os.Mkdir(name, 0o777)) }

// MkdirAll implements FS.
func (LocalFS) MkdirAll(name string) error {
	return pathError("mkdirall", name, os.MkdirAll(name, 0o777))
}

// Rename implements FS.
func (l LocalFS) Rename(oldName, newName string) error {
	rename := renameNoReplace
	if l.checkedRename {
		rename = renameChecked
	}
	return linkError(oldName, newName, rename(oldName, newName))
}

// renameChecked is a rename that looks for the target first. It is for systems
// on which look and rename cannot be one step.
func renameChecked(oldName, newName string) error {
	// A missing source is reported as such even if the target exists, as
	// the kernel does.
	if _, err := os.Lstat(oldName); err != nil {
		return err
	}
	switch _, err := os.Lstat(newName); {
	case err == nil:
		return syscall.EEXIST
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return os.Rename(oldName, newName)
}

// Remove implements FS.
func (LocalFS) Remove(name string) error { return pathError("remove", name, os.Remove(name)) }

// RemoveAll implements FS.
func (LocalFS) RemoveAll(name string) error { return pathError("removeall", name, os.RemoveAll(name)) }

// List implements FS. Symbolic links are followed, as in Stat; one that leads
// nowhere is left out.
func (LocalFS) List(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, pathError("list", dir, err)
	}
	infos := make([]Info, 0, len(entries))
	for _, e := range entries {
		st, err := e.Info()
		if err == nil && st.Mode()&fs.ModeSymlink != 0 {
			st, err = os.Stat(filepath.Join(dir, e.Name()))
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, pathError("list", dir, err)
		}
		infos = append(infos, infoOf(e.Name(), st))
	}
	return infos, nil
}

// Stat implements FS. Symbolic links are followed.
func (LocalFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return infoOf(st.Name(), st), nil
}

func infoOf(name string, st fs.FileInfo) Info {
	in := Info{Name: name, Size: st.Size(), ModTime: st.ModTime(), Dir: st.IsDir()}
	if in.Dir {
		in.Size = 0
	}
	return in
}

// SyncDir implements FS. Where directories cannot be synced it does nothing:
// on Windows, and on file systems that answer EINVAL.
func (LocalFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return pathError("syncdir", name, err)
	}
	defer d.Close()
	st, err := d.Stat()
	switch {
	case err != nil:
		return pathError("syncdir", name, err)
	case !st.IsDir():
		return pathError("syncdir", name, syscall.ENOTDIR)
	case runtime.GOOS == "windows":
		return nil
	}
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return pathError("syncdir", name, err)
	}
	return nil
}

// SetModTime sets the modification time of a file or directory.
func (LocalFS) SetModTime(name string, t time.Time) error {
	return pathError("setmodtime", name, os.Chtimes(name, time.Time{}, t))
}

// pathError names the operation and the path as the caller knows them, with
// the bare cause of err. It is nil if err is nil.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: cause(op, name, err)}
}

// linkError is pathError for Rename.
func linkError(oldName, newName string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: cause("rename", "", err)}
}

// cause strips os's own wrapping. What is about another path than name, such
// as a directory below it, keeps its wrapping, since that says where.
func cause(op, name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) && (pe.Path == name || op == "rename") {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	var se *os.SyscallError
	if errors.As(err, &se) {
		return se.Err
	}
	return err
}
