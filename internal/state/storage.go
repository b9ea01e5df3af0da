package state

import (
	"context"
	"fmt"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
)

// Storage keeps state files where every executor of the job can read them; a
// handle names one. All methods are safe for concurrent use.
type Storage interface {
	// Put stores a file, which nobody changes any more, and returns once it is
	// as durable as the storage makes it.
	Put(ctx context.Context, data []byte) (base.Handle, error)
	Get(ctx context.Context, h base.Handle) ([]byte, error)
	// Drop forgets files that nothing names any more.
	Drop(hs ...base.Handle)
}

// MemStorage is a storage in the memory of the process: state survives an
// executor, not the process.
type MemStorage struct {
	mu    sync.Mutex
	next  uint64
	files map[uint64][]byte
	bytes int64
}

// NewMemStorage returns an empty storage.
func NewMemStorage() *MemStorage { return &MemStorage{files: map[uint64][]byte{}} }

// Put implements [Storage].
func (s *MemStorage) Put(ctx context.Context, data []byte) (base.Handle, error) {
	if err := ctx.Err(); err != nil {
		return base.Handle{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.files[s.next] = data
	s.bytes += int64(len(data))
	return base.Handle{Log: "memory", Segment: s.next, Length: int64(len(data))}, nil
}

// Get implements [Storage].
func (s *MemStorage) Get(_ context.Context, h base.Handle) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data, ok := s.files[h.Segment]; ok {
		return data, nil
	}
	return nil, fmt.Errorf("state file %d is gone", h.Segment)
}

// Drop implements [Storage].
func (s *MemStorage) Drop(hs ...base.Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range hs {
		s.bytes -= int64(len(s.files[h.Segment]))
		delete(s.files, h.Segment)
	}
}

// Size returns the number of files and their bytes.
func (s *MemStorage) Size() (files int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files), s.bytes
}

// MergeFiles makes one snapshot of a Part's snapshot and the deltas after it.
func MergeFiles(files [][]byte) ([]byte, error) {
	if len(files) > 0 && len(files[0]) > 3 && string(files[0][:3]) == windowMagic {
		return MergeWindows(files)
	}
	return Merge(files)
}
