package block

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// ErrNotFound is returned by Get for a key that is not in the store.
var ErrNotFound = errors.New("no such block")

// ErrNoMemory is returned by TryPut when there is no room in memory now, and
// by Put and TryPut for a MemoryOnly block that is larger than the limit and
// so will never have room.
var ErrNoMemory = errors.New("no room in memory")

// Config says where a store keeps its blocks. Dir and MemoryLimit must be set.
type Config struct {
	// FS is the file system of Dir; nil means fsys.Local().
	FS fsys.FS

	// Dir is the directory of the store's files. It is created with the
	// first file. Files of others in it are left alone.
	Dir string

	// MemoryLimit bounds, in bytes, the blocks in memory and what is
	// reserved together.
	MemoryLimit int64
}

// Validate names the field, value and rule that are wrong, if any.
func (c Config) Validate() error {
	switch {
	case c.Dir == "":
		return errors.New("block: Dir is empty: must name a directory for spilled blocks")
	case c.MemoryLimit <= 0:
		return fmt.Errorf("block: MemoryLimit is %d: must be positive", c.MemoryLimit)
	}
	return nil
}

// Store holds blocks. Make one with Open.
type Store struct {
	cfg   Config
	files files

	// stop is closed when Close begins; idle when it has ended.
	stop, idle chan struct{}
	calls      sync.WaitGroup // calls in progress; Add only under mu and before closed

	mu       sync.Mutex
	closed   bool
	closeErr error // valid once idle is closed
	blocks   map[string]*entry
	order    index
	budget   budget
	stats    Stats // counters and DiskBytes; the rest is filled in by Stats
}

// Stats describes a store at one moment.
type Stats struct {
	Blocks      int
	MemoryBytes int64 // of blocks in memory; a block being spilled counts until its file is complete
	DiskBytes   int64 // of blocks in files
	Reserved    int64 // given out by Reserve and not released
	MemoryLimit int64
	Waiting     int // MemoryOnly puts that wait for room or make it

	Spilled        int64 // blocks that memory had no room for and that went to disk, so far
	Evicted        int64 // those of Spilled that were in memory first
	SpillErrors    int64 // failed attempts to write a block to disk, DiskOnly included
	LastSpillError error // the latest of them, nil if there was none
}

// Open returns an empty store. It touches the disk only when the first block
// goes there.
func Open(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.FS == nil {
		cfg.FS = fsys.Local()
	}
	return &Store{
		cfg:    cfg,
		files:  files{fs: cfg.FS, dir: cfg.Dir},
		stop:   make(chan struct{}),
		idle:   make(chan struct{}),
		blocks: map[string]*entry{},
		budget: budget{limit: cfg.MemoryLimit},
	}, nil
}

// begin opens a call that Close waits for. Calls after Close are refused.
func (s *Store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return base.ErrStopped
	}
	s.calls.Add(1)
	return nil
}

// Put stores data, which the caller must not change afterwards, under key.
//
// A MemoryOnly block waits until there is room, ctx ends (the error is its
// cause) or the store is closed; one larger than the limit is refused at once with an error that is
// ErrNoMemory. A MemoryAndDisk block pushes the oldest of its kind to disk, or
// goes there itself if that would not make room or others already wait for
// room. A DiskOnly block is written before Put returns.
//
// A key that is there already with the same bytes is left as it is, whatever
// the level; with other bytes it is an error. On an error the block is not
// stored. A failed write to disk is such an error, also when it was another
// block's that had to make room; that one stays in memory.
//
// A Put that overlaps a Drop of its key may take effect after it.
func (s *Store) Put(ctx context.Context, key string, data []byte, level base.StorageLevel) error {
	return s.put(ctx, key, data, level, s.waitPut)
}

// TryPut is Put without the waiting: a MemoryOnly block for which there is no
// room, even with the MemoryAndDisk blocks on disk, or ahead of which others
// wait for room, is refused with ErrNoMemory. It is for what can be computed
// again. It may still write to disk.
func (s *Store) TryPut(ctx context.Context, key string, data []byte, level base.StorageLevel) error {
	return s.put(ctx, key, data, level, s.tryPut)
}

// putFunc stores a new block, or returns the block that has the key already.
type putFunc func(ctx context.Context, e *entry) (taken *entry, err error)

func (s *Store) put(ctx context.Context, key string, data []byte, level base.StorageLevel, memoryOnly putFunc) error {
	if err := s.begin(); err != nil {
		return fmt.Errorf("block: put %q: %w", key, err)
	}
	defer s.calls.Done()
	var put putFunc
	size := int64(len(data))
	switch {
	case level == base.MemoryOnly && size > s.cfg.MemoryLimit:
		return fmt.Errorf("block: put %q: %w: a block of %d bytes can not be kept with a memory limit of %d bytes",
			key, ErrNoMemory, size, s.cfg.MemoryLimit)
	case level == base.MemoryOnly:
		put = memoryOnly
	case level == base.MemoryAndDisk:
		put = s.putMemoryOrDisk
	case level == base.DiskOnly:
		put = s.putDisk
	default:
		return fmt.Errorf("block: put %q: storage level is %s: must be %s, %s or %s",
			key, level, base.MemoryOnly, base.MemoryAndDisk, base.DiskOnly)
	}
	for {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("block: put %q: %w", key, err)
		}
		taken, err := put(ctx, &entry{key: key, size: size, level: level, data: data})
		if err != nil {
			return fmt.Errorf("block: put %q: %w", key, err)
		}
		if taken == nil {
			return nil
		}
		same, err := s.holds(taken, data)
		switch {
		case errors.Is(err, ErrNotFound):
			// Dropped since. The key is free again.
		case err != nil:
			return fmt.Errorf("block: put %q, which exists: compare: %w", key, err)
		case !same:
			return fmt.Errorf("block: put %q: the key exists with other bytes (%d bytes stored, %d bytes put): a block is written once",
				key, taken.size, size)
		default:
			return nil
		}
	}
}

// holds reports whether a stored block has exactly these bytes.
func (s *Store) holds(e *entry, data []byte) (bool, error) {
	if e.size != int64(len(data)) {
		return false, nil
	}
	stored, err := s.read(e)
	return err == nil && bytes.Equal(stored, data), err
}

// tryPut keeps a block in memory if there is room.
func (s *Store) tryPut(_ context.Context, e *entry) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := false
	if s.blocks[e.key] == nil && s.budget.queue.Len() == 0 {
		var err error
		if ok, err = s.makeRoom(e.size); err != nil {
			return nil, err
		}
	}
	// makeRoom may have let go of the lock.
	if taken := s.blocks[e.key]; taken != nil {
		return taken, nil
	}
	if !ok {
		return nil, fmt.Errorf("%w for %d bytes: %s", ErrNoMemory, e.size, s.budget.String())
	}
	s.insertInMemory(e)
	return nil, nil
}

// waitPut keeps a block in memory as soon as there is room and nobody waits
// ahead.
func (s *Store) waitPut(ctx context.Context, e *entry) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn := s.budget.enqueue()
	defer s.budget.leave(turn)
	for {
		if taken := s.blocks[e.key]; taken != nil {
			return taken, nil
		}
		if s.budget.isFirst(turn) {
			ok, err := s.makeRoom(e.size)
			if err != nil {
				return nil, err
			}
			if taken := s.blocks[e.key]; taken != nil {
				return taken, nil
			}
			if ok {
				s.insertInMemory(e)
				return nil, nil
			}
		}
		why := s.budget.String()
		s.mu.Unlock()
		var err error
		select {
		case <-turn.Value.(chan struct{}):
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-s.stop:
			err = base.ErrStopped
		}
		s.mu.Lock()
		if err != nil {
			return nil, fmt.Errorf("wait for %d bytes of memory (%s): %w", e.size, why, err)
		}
	}
}

// putMemoryOrDisk keeps a block in memory if there is or can be room, else on
// disk.
func (s *Store) putMemoryOrDisk(ctx context.Context, e *entry) (*entry, error) {
	s.mu.Lock()
	ok := false
	if s.blocks[e.key] == nil && s.budget.queue.Len() == 0 {
		var err error
		if ok, err = s.makeRoom(e.size); err != nil {
			s.mu.Unlock()
			return nil, err
		}
	}
	taken := s.blocks[e.key]
	if taken == nil && ok {
		s.insertInMemory(e)
	}
	s.mu.Unlock()
	if taken != nil || ok {
		return taken, nil
	}
	return s.putDisk(ctx, e)
}

// putDisk writes a block to a file.
func (s *Store) putDisk(_ context.Context, e *entry) (*entry, error) {
	s.mu.Lock()
	taken := s.blocks[e.key]
	s.mu.Unlock()
	if taken != nil {
		return taken, nil
	}
	f, err := s.files.write(e.data)
	s.mu.Lock()
	if err != nil {
		s.spillFailed(err)
		s.mu.Unlock()
		return nil, err
	}
	if taken = s.blocks[e.key]; taken == nil {
		e.data, e.file = nil, f
		if e.level == base.MemoryAndDisk {
			s.stats.Spilled++
		}
		s.stats.DiskBytes += e.size
		s.insert(e)
	}
	s.mu.Unlock()
	if taken != nil {
		s.files.remove(f.name) // someone was faster
	}
	return taken, nil
}

// insertInMemory and insert are called with mu held and the key free.
func (s *Store) insertInMemory(e *entry) {
	s.budget.keep(e)
	s.insert(e)
}

func (s *Store) insert(e *entry) {
	s.blocks[e.key] = e
	s.order.insert(e)
}

// Get returns a block. From memory it is the slice that was put. From disk it
// is a new one whose length and checksum hold; if they do not, the error is
// base.ErrCorrupt and names the file. The error is ErrNotFound for a key that
// is not there. The slice must not be changed.
func (s *Store) Get(key string) ([]byte, error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("block: get %q: %w", key, err)
	}
	defer s.calls.Done()
	s.mu.Lock()
	e := s.blocks[key]
	s.mu.Unlock()
	err := ErrNotFound
	if e != nil {
		var data []byte
		if data, err = s.read(e); err == nil {
			return data, nil
		}
	}
	return nil, fmt.Errorf("block: get %q: %w", key, err)
}

// read returns the bytes of an entry, or ErrNotFound if it was dropped.
func (s *Store) read(e *entry) ([]byte, error) {
	s.mu.Lock()
	data, f, dropped := e.data, e.file, e.dropped
	s.mu.Unlock()
	switch {
	case dropped:
		return nil, ErrNotFound
	case f == nil:
		return data, nil
	}
	data, err := s.files.read(f)
	if err != nil {
		s.mu.Lock()
		dropped = e.dropped
		s.mu.Unlock()
		if dropped {
			return nil, ErrNotFound // its file was removed under the read
		}
		return nil, err
	}
	return data, nil
}

// Has reports whether a block is in the store, without looking at its file.
func (s *Store) Has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocks[key] != nil
}

// Drop removes a block, if it is there. A file that can not be removed is
// tried again by Close.
func (s *Store) Drop(key string) {
	s.drop(func() []*entry {
		if e := s.blocks[key]; e != nil {
			return []*entry{e}
		}
		return nil
	})
}

// DropPrefix removes all blocks whose key begins with prefix and returns how
// many there were. Its cost grows with that number and only with the logarithm
// of the number of blocks that stay.
func (s *Store) DropPrefix(prefix string) int {
	return s.drop(func() []*entry { return s.order.withPrefix(prefix) })
}

// drop removes the entries that pick, called with mu held, chooses.
func (s *Store) drop(pick func() []*entry) int {
	if s.begin() != nil {
		return 0 // Close drops everything
	}
	defer s.calls.Done()
	s.mu.Lock()
	picked := pick()
	var names []string
	for _, e := range picked {
		delete(s.blocks, e.key)
		s.order.remove(e.key)
		e.dropped = true
		if e.file != nil {
			s.stats.DiskBytes -= e.size
			names = append(names, e.file.name)
			continue
		}
		// A spill of it that is in progress sees dropped, and removes
		// its file itself.
		s.budget.free(e)
	}
	s.mu.Unlock()
	for _, n := range names {
		s.files.remove(n)
	}
	return len(picked)
}

// Stats returns the store's figures.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Blocks = len(s.blocks)
	st.MemoryBytes = s.budget.blocks
	st.Reserved = s.budget.reserved
	st.MemoryLimit = s.budget.limit
	st.Waiting = s.budget.queue.Len()
	return st
}

// Close ends waiting puts with base.ErrStopped, waits for calls in progress,
// and removes the store's files, and its directory if the store created it and
// nothing else is in it. Every call returns the same error, which is about
// files that could not be removed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.idle
		return s.closeErr
	}
	s.closed = true
	close(s.stop)
	s.mu.Unlock()
	s.calls.Wait()

	s.mu.Lock()
	var names []string
	for _, e := range s.blocks {
		e.dropped = true
		if e.file != nil {
			names = append(names, e.file.name)
		} else {
			s.budget.free(e)
		}
	}
	s.stats.DiskBytes = 0
	s.blocks, s.order = nil, index{}
	s.mu.Unlock()

	for _, n := range names {
		s.files.remove(n)
	}
	s.closeErr = s.files.close()
	close(s.idle)
	return s.closeErr
}
