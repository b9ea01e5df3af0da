package wal

import (
	"container/list"
	"errors"
	"fmt"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// openFiles is how many segments a store keeps open for reading.
const openFiles = 16

// fileCache reads records by handle and keeps the files used last open.
type fileCache struct {
	fs  fsys.FS
	dir string

	mu     sync.Mutex
	closed bool
	files  map[segmentKey]*cachedFile
	recent list.List // of *cachedFile, the one used last in front
}

// cachedFile is closed when it is out of the cache and nobody reads it.
type cachedFile struct {
	key   segmentKey
	file  string
	r     fsys.Reader
	users int
	out   bool
	place *list.Element
}

func newFileCache(fs fsys.FS, dir string) *fileCache {
	return &fileCache{fs: fs, dir: dir, files: map[segmentKey]*cachedFile{}}
}

// read returns the payload of a record.
func (c *fileCache) read(h base.Handle) ([]byte, error) {
	if h.Offset < headerLength(h.Log) || h.Length < 0 || h.Length > mostRecord {
		return nil, fmt.Errorf("%w: no record can be there", base.ErrCorrupt)
	}
	f, err := c.use(keyOf(h))
	if err != nil {
		return nil, err
	}
	if h.Offset+recordHeader+h.Length > f.r.Size() {
		// It may have grown since it was opened.
		c.forget(f.key)
		c.done(f)
		if f, err = c.use(keyOf(h)); err != nil {
			return nil, err
		}
	}
	defer c.done(f)
	return readRecord(f.r, f.file, h)
}

// readRecord reads exactly what the handle says, within what the file has
// (Invariant 8).
func readRecord(r fsys.Reader, file string, h base.Handle) ([]byte, error) {
	size := recordHeader + h.Length
	if left := r.Size() - h.Offset; h.Offset < 0 || h.Length < 0 || h.Length > mostRecord || size > left {
		return nil, fmt.Errorf("segment %q: %w: %d bytes at %d of a file of %d", file, base.ErrCorrupt, size, h.Offset, r.Size())
	}
	b := make([]byte, size)
	if err := readAt(r, b, h.Offset); err != nil {
		return nil, fmt.Errorf("segment %q: %w", file, err)
	}
	f, payload, _, ok := checkRecord(b)
	switch {
	case int64(f.length) != h.Length:
		return nil, fmt.Errorf("segment %q at %d: %w: the record has %d bytes, not %d", file, h.Offset, base.ErrCorrupt, f.length, h.Length)
	case !ok:
		return nil, fmt.Errorf("segment %q at %d: %w: the record fails its checksum", file, h.Offset, base.ErrCorrupt)
	}
	return payload, nil
}

// epochDir is the directory of an epoch that is not sealed.
func (c *fileCache) epochDir(key epochKey) (string, error) {
	name, err := escape(key.log)
	return join(join(c.dir, name), epochDir(key.epoch)), err
}

// use returns an open file, which done gives back.
func (c *fileCache) use(key segmentKey) (*cachedFile, error) {
	c.mu.Lock()
	if f := c.files[key]; f != nil {
		f.users++
		c.recent.MoveToFront(f.place)
		c.mu.Unlock()
		return f, nil
	}
	c.mu.Unlock()
	f, err := c.open(key)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	f.users = 1
	if c.closed || c.files[key] != nil {
		f.out = true // done closes it
		c.mu.Unlock()
		return f, nil
	}
	c.files[key] = f
	f.place = c.recent.PushFront(f)
	var old *cachedFile
	if c.recent.Len() > openFiles {
		old = c.recent.Back().Value.(*cachedFile)
		c.drop(old)
	}
	c.mu.Unlock()
	if old != nil {
		c.closeUnused(old)
	}
	return f, nil
}

// open finds the segment whether its epoch is sealed or not. A rename between
// the two looks goes from the first to the second.
func (c *fileCache) open(key segmentKey) (*cachedFile, error) {
	dir, err := c.epochDir(key.epochKey)
	if err != nil {
		return nil, err
	}
	file := join(dir, segmentFile(key.number))
	r, err := c.fs.Open(file)
	if gone(err) {
		file = join(dir+sealedSuffix, segmentFile(key.number))
		r, err = c.fs.Open(file)
	}
	if err != nil {
		return nil, fmt.Errorf("segment %q: %w", file, err)
	}
	if err := checkHeader(r, key); err != nil {
		return nil, errors.Join(fmt.Errorf("segment %q: %w", file, err), r.Close())
	}
	return &cachedFile{key: key, file: file, r: r}, nil
}

func checkHeader(r fsys.Reader, key segmentKey) error {
	b := make([]byte, min(r.Size(), headerLength(key.log)))
	if err := readAt(r, b, 0); err != nil {
		return err
	}
	h, ok, err := parseHeader(b)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%w: the header is not whole", base.ErrCorrupt)
	case h.log != key.log || h.epoch != key.epoch || h.number != key.number:
		return fmt.Errorf("%w: the header is that of %q, epoch %s, segment %d", base.ErrCorrupt, h.log, h.epoch, h.number)
	}
	return nil
}

// drop takes a file out of the cache. Mu is held.
func (c *fileCache) drop(f *cachedFile) {
	delete(c.files, f.key)
	c.recent.Remove(f.place)
	f.out = true
}

// forget takes a file out of the cache, if it is there.
func (c *fileCache) forget(key segmentKey) {
	c.mu.Lock()
	f := c.files[key]
	if f != nil {
		c.drop(f)
	}
	c.mu.Unlock()
	if f != nil {
		c.closeUnused(f)
	}
}

func (c *fileCache) done(f *cachedFile) {
	c.mu.Lock()
	f.users--
	c.mu.Unlock()
	c.closeUnused(f)
}

// closeUnused closes a file that is out of the cache when its last user is done.
// An error of closing what was only read says nothing.
func (c *fileCache) closeUnused(f *cachedFile) {
	c.mu.Lock()
	last := f.out && f.users == 0
	if last {
		f.users = -1 // nobody else closes it
	}
	c.mu.Unlock()
	if last {
		f.r.Close()
	}
}

func (c *fileCache) close() {
	c.mu.Lock()
	c.closed = true
	var all []*cachedFile
	for _, f := range c.files {
		c.drop(f)
		all = append(all, f)
	}
	c.mu.Unlock()
	for _, f := range all {
		c.closeUnused(f)
	}
}
