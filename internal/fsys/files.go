package fsys

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"syscall"
)

// ReadFile returns the whole contents of a file.
func ReadFile(f FS, name string) ([]byte, error) {
	r, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	// bytes.MinRead more than the size, so that reading up to the end of
	// a file that does not grow never moves the buffer.
	b.Grow(int(r.Size()) + bytes.MinRead)
	_, err = b.ReadFrom(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// WriteFile creates a file with data and syncs it. If it fails after the
// creation it removes the file, so that the call can be repeated. It does not
// sync the directory.
func WriteFile(f FS, name string, data []byte) error {
	w, err := f.Create(name)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	if err == nil {
		err = w.Sync()
	}
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return errors.Join(err, f.Remove(name))
	}
	return nil
}

// MakeDirs makes a directory and the parents it lacks, and makes their names
// durable.
func MakeDirs(f FS, dir string) error {
	err := f.Mkdir(dir)
	switch {
	case err == nil:
		return f.SyncDir(path.Dir(dir))
	case errors.Is(err, fs.ErrExist):
		info, err := f.Stat(dir)
		if err == nil && !info.Dir {
			err = pathError("mkdir", dir, syscall.ENOTDIR)
		}
		return err
	case !errors.Is(err, fs.ErrNotExist) || path.Dir(dir) == dir:
		return err
	}
	if err := MakeDirs(f, path.Dir(dir)); err != nil {
		return err
	}
	err = f.Mkdir(dir)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.SyncDir(path.Dir(dir))
}
