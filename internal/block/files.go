package block

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// file is a complete file. Length and checksum live here and not on disk.
type file struct {
	name string
	size int64
	sum  uint32 // CRC32C
}

// files writes, reads and removes block files. Its lock guards the fields
// below it and is held across nothing. Keys hold characters that file names
// should not, so files are numbered.
type files struct {
	fs  fsys.FS
	dir string

	mu       sync.Mutex
	dirKnown bool // dir exists
	dirOurs  bool // and did not before
	last     uint64
	stuck    map[string]error // files that could not be removed
}

// write writes data to a new file. What it leaves behind on an error is
// removed.
func (f *files) write(data []byte) (*file, error) {
	if err := f.mkdir(); err != nil {
		return nil, err
	}
	w, name, err := f.create()
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	// No sync: the file is of no use to anyone after this process.
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		f.remove(name)
		return nil, fmt.Errorf("write %d bytes: %w", len(data), err)
	}
	return &file{name: name, size: int64(len(data)), sum: crc32.Checksum(data, castagnoli)}, nil
}

func (f *files) mkdir() error {
	f.mu.Lock()
	known := f.dirKnown
	f.mu.Unlock()
	if known {
		return nil
	}
	// Two first writers may both get here, and both find nothing: fine.
	_, err := f.fs.Stat(f.dir)
	ours := errors.Is(err, fs.ErrNotExist)
	if err := f.fs.MkdirAll(f.dir); err != nil {
		return err
	}
	f.mu.Lock()
	f.dirKnown = true
	f.dirOurs = f.dirOurs || ours
	f.mu.Unlock()
	return nil
}

// create creates the next file, stepping over those that an earlier process
// left behind.
func (f *files) create() (fsys.File, string, error) {
	for {
		f.mu.Lock()
		f.last++
		name := fsys.Join(f.dir, fmt.Sprintf("block-%08d", f.last))
		f.mu.Unlock()
		w, err := f.fs.Create(name)
		if !errors.Is(err, fs.ErrExist) {
			return w, name, err
		}
	}
}

// read returns the contents of a file if they are what was written.
func (f *files) read(b *file) ([]byte, error) {
	r, err := f.fs.Open(b.name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// Invariant 8.
	if r.Size() != b.size {
		return nil, fmt.Errorf("file %q has %d bytes, %d were written: %w", b.name, r.Size(), b.size, base.ErrCorrupt)
	}
	data := make([]byte, b.size)
	n, err := io.ReadFull(r, data)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("file %q ends after %d of %d bytes: %w", b.name, n, b.size, base.ErrCorrupt)
	case err != nil:
		return nil, err
	}
	if sum := crc32.Checksum(data, castagnoli); sum != b.sum {
		return nil, fmt.Errorf("file %q has CRC32C %08x, %08x was written: %w", b.name, sum, b.sum, base.ErrCorrupt)
	}
	return data, nil
}

// remove removes a file, or notes it for close.
func (f *files) remove(name string) {
	err := f.fs.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stuck == nil {
		f.stuck = map[string]error{}
	}
	f.stuck[name] = err
}

// close tries again to remove what is left, and the directory if it is ours
// and empty. It is called when nothing else runs.
func (f *files) close() error {
	f.mu.Lock()
	again := slices.Sorted(maps.Keys(f.stuck))
	f.stuck = nil
	ours := f.dirOurs
	f.mu.Unlock()
	for _, name := range again {
		f.remove(name)
	}
	if ours {
		// ErrExist is how a directory says that it is not empty.
		if err := f.fs.Remove(f.dir); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("block: close: %w", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.stuck {
		return fmt.Errorf("block: close: %d spill file(s) are left behind: %w", len(f.stuck), err)
	}
	return nil
}
