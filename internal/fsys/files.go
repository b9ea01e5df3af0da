package fsys

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
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
// durable, also that of a directory whose maker may have died before that.
func MakeDirs(f FS, dir string) error {
	dir = Clean(dir)
	var missing []string
	for d := dir; ; d = Dir(d) {
		info, err := f.Stat(d)
		if err == nil && !info.Dir {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		if err == nil || d == Dir(d) {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, d)
	}
	if len(missing) == 0 {
		if err := f.SyncDir(Dir(dir)); !errors.Is(err, fs.ErrPermission) {
			return err
		}
		return nil // it is another user's, who has to see to it
	}
	if err := f.MkdirAll(dir); err != nil {
		return err
	}
	for _, d := range slices.Backward(missing) {
		if err := f.SyncDir(Dir(d)); err != nil {
			return err
		}
	}
	return nil
}
