package block

import (
	"container/list"
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
)

// budget counts memory, keeps the order in which blocks leave it, and the
// queue of those who wait for it. It is part of the store, under its lock.
type budget struct {
	limit    int64
	blocks   int64 // bytes of blocks in memory
	reserved int64

	// movable lists the MemoryAndDisk blocks in memory, oldest first,
	// those on their way to disk included; movableBytes leaves those out.
	movable      list.List
	movableBytes int64

	// queue lists the MemoryOnly puts that want room, first come first.
	// Each is a channel that gets a token when it is first and something
	// has changed.
	queue list.List
}

// room is what is free. blocks+reserved never exceeds limit.
func (b *budget) room() int64 { return b.limit - b.blocks - b.reserved }

func (b *budget) String() string {
	return fmt.Sprintf("limit %d bytes, %d in blocks, %d reserved, %d put(s) waiting",
		b.limit, b.blocks, b.reserved, b.queue.Len())
}

// keep counts a block for which there is room.
func (b *budget) keep(e *entry) {
	b.blocks += e.size
	if e.level == base.MemoryAndDisk {
		e.place = b.movable.PushBack(e)
		b.movableBytes += e.size
		// Nobody to wake: what can be made free is what it was.
	}
}

// free is keep undone, for a block that was dropped or is on disk now.
func (b *budget) free(e *entry) {
	b.blocks -= e.size
	if e.place != nil {
		if !e.spilling {
			b.movableBytes -= e.size
		}
		b.movable.Remove(e.place)
		e.place = nil
	}
	b.wake()
}

// oldest returns the block that is to leave memory next, nil if there is none.
func (b *budget) oldest() *entry {
	for p := b.movable.Front(); p != nil; p = p.Next() {
		if e := p.Value.(*entry); !e.spilling {
			return e
		}
	}
	return nil
}

// spill marks a block as being on its way to disk.
func (b *budget) spill(e *entry) {
	e.spilling = true
	b.movableBytes -= e.size
}

// unspill puts a block that did not reach the disk back in its old place.
func (b *budget) unspill(e *entry) {
	e.spilling = false
	b.movableBytes += e.size
	b.wake()
}

func (b *budget) enqueue() *list.Element { return b.queue.PushBack(make(chan struct{}, 1)) }

func (b *budget) isFirst(turn *list.Element) bool { return b.queue.Front() == turn }

func (b *budget) leave(turn *list.Element) {
	b.queue.Remove(turn)
	b.wake()
}

// wake lets the first of the queue look again. The channel is buffered: a
// token that is there already says the same.
func (b *budget) wake() {
	if first := b.queue.Front(); first != nil {
		select {
		case first.Value.(chan struct{}) <- struct{}{}:
		default:
		}
	}
}

// makeRoom moves the oldest MemoryAndDisk blocks to disk until n bytes are
// free. It reports false, having moved nothing in vain, if even moving all of
// them would not do. It is called with mu held and lets go of it while it
// writes; the room is there until the caller unlocks.
func (s *Store) makeRoom(n int64) (bool, error) {
	for {
		room := s.budget.room()
		switch {
		case n <= room:
			return true, nil
		case s.closed:
			return false, base.ErrStopped
		case n-room > s.budget.movableBytes:
			return false, nil
		}
		if err := s.spillOldest(); err != nil {
			return false, fmt.Errorf("make room for %d bytes: %w", n, err)
		}
	}
}

// spillOldest moves one block to disk. Like makeRoom it lets go of mu.
func (s *Store) spillOldest() error {
	e := s.budget.oldest()
	s.budget.spill(e)
	data := e.data
	s.mu.Unlock()
	f, err := s.files.write(data)
	s.mu.Lock()
	if err != nil {
		s.spillFailed(err)
	}
	if e.dropped {
		// Its memory was freed by the drop, so room was made even if
		// the write failed.
		if err == nil {
			s.mu.Unlock()
			s.files.remove(f.name)
			s.mu.Lock()
		}
		return nil
	}
	if err != nil {
		s.budget.unspill(e)
		return fmt.Errorf("move block %q to disk: %w", e.key, err)
	}
	s.budget.free(e)
	e.data, e.file, e.spilling = nil, f, false
	s.stats.Spilled++
	s.stats.Evicted++
	s.stats.DiskBytes += e.size
	return nil
}

// spillFailed counts a failed write. Called with mu held.
func (s *Store) spillFailed(err error) {
	s.stats.SpillErrors++
	s.stats.LastSpillError = err
}

// Reserve takes n bytes of the budget for a user of memory other than blocks,
// and reports whether it could. It moves MemoryAndDisk blocks to disk, oldest
// first, if that makes the room; it never waits for room, and it does not
// queue behind puts that do, because what it serves is the work that frees
// their room. A disk error makes it report false and is in Stats.
func (s *Store) Reserve(n int64) bool {
	if n < 0 {
		panic(fmt.Sprintf("block: Reserve(%d): must not be negative", n))
	}
	if s.begin() != nil {
		return false
	}
	defer s.calls.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok, err := s.makeRoom(n); !ok || err != nil {
		return false
	}
	s.budget.reserved += n
	return true
}

// Release gives back n bytes that were reserved. It panics if fewer are.
func (s *Store) Release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 0 || n > s.budget.reserved {
		panic(fmt.Sprintf("block: Release(%d): must be between 0 and the %d bytes reserved", n, s.budget.reserved))
	}
	s.budget.reserved -= n
	s.budget.wake()
}
