package block_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/block"
	"github.com/tidemill/tidemill/internal/fsys"
)

// holdWrites makes writes to disk wait until release is called.
func holdWrites(disk *fsys.Mem) (release func()) {
	gate := make(chan struct{})
	disk.FailWith(func(op, name string) error {
		if op == "write" {
			<-gate
		}
		return nil
	})
	return func() { disk.FailWith(nil); close(gate) }
}

func TestBlockBeingSpilledIsReadFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := newStore(t, 100)
		a := put(t, s, "a", 60, base.MemoryAndDisk)
		release := holdWrites(disk)
		done := make(chan error, 1)
		go func() { done <- s.Put(t.Context(), "b", bytesOf("b", 60), base.MemoryAndDisk) }()
		synctest.Wait()
		got, err := s.Get("a") // would deadlock if a lock were held
		noErr(t, err)
		if &got[0] != &a[0] {
			t.Error("not the slice in memory")
		}
		wantNoBlock(t, s, "b")
		wantStats(t, s, block.Stats{Blocks: 1, MemoryBytes: 60})
		noErr(t, s.Put(t.Context(), "a", a, base.DiskOnly)) // compared in memory
		if s.Reserve(50) {
			t.Error("Reserve counted on a block that is being moved already")
		}
		release()
		noErr(t, <-done)
		wantBlock(t, s, "a", a)
		wantStats(t, s, block.Stats{Blocks: 2, MemoryBytes: 60, DiskBytes: 60, Spilled: 1, Evicted: 1})
	})
}

func TestDropOfABlockBeingSpilled(t *testing.T) {
	for _, fail := range []error{nil, syscall.ENOSPC} {
		synctest.Test(t, func(t *testing.T) {
			s, disk := newStore(t, 100)
			put(t, s, "a", 60, base.MemoryAndDisk)
			gate := make(chan error)
			disk.FailWith(func(op, name string) error {
				if op == "write" {
					return <-gate
				}
				return nil
			})
			done := make(chan error, 1)
			go func() { done <- s.Put(t.Context(), "b", bytesOf("b", 60), base.MemoryAndDisk) }()
			synctest.Wait()
			s.Drop("a")
			wantNoBlock(t, s, "a")
			wantStats(t, s, block.Stats{})
			put(t, s, "a", 10, base.MemoryOnly) // a new life of the key
			gate <- fail
			noErr(t, <-done)
			wantBlock(t, s, "a", bytesOf("a", 10))
			wantBlock(t, s, "b", bytesOf("b", 60))
			want := block.Stats{Blocks: 2, MemoryBytes: 70}
			if fail != nil {
				want.SpillErrors = 1
			}
			wantStats(t, s, want)
			if got := filesIn(t, disk); len(got) != 0 {
				t.Errorf("files left: %v", got)
			}
		})
	}
}

func TestWaitingPutTakesRoomOfASpillInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := newStore(t, 100)
		put(t, s, "a", 100, base.MemoryAndDisk)
		release := holdWrites(disk)
		done := make(chan error, 2)
		for _, k := range []string{"b", "c"} {
			go func() { done <- s.Put(t.Context(), k, bytesOf(k, 50), base.MemoryOnly) }()
			synctest.Wait()
		}
		wantStats(t, s, block.Stats{Blocks: 1, MemoryBytes: 100, Waiting: 2})
		release()
		noErr(t, <-done)
		noErr(t, <-done)
		wantStats(t, s, block.Stats{Blocks: 3, MemoryBytes: 100, DiskBytes: 100, Spilled: 1, Evicted: 1})
	})
}

// The failed spill was not the waiting put's own, but its block can be moved
// again, which nobody else would say.
func TestWaitingPutTriesAfterTheFailedSpillOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := newStore(t, 100)
		put(t, s, "a", 100, base.MemoryAndDisk)
		gate := make(chan error)
		disk.FailWith(func(op, name string) error {
			if op == "write" {
				return <-gate
			}
			return nil
		})
		reserved, done := make(chan bool, 1), make(chan error, 1)
		go func() { reserved <- s.Reserve(50) }()
		synctest.Wait()
		go func() { done <- s.Put(t.Context(), "b", bytesOf("b", 50), base.MemoryOnly) }()
		synctest.Wait()
		gate <- syscall.ENOSPC
		if <-reserved {
			t.Error("Reserve succeeded though the disk was full")
		}
		synctest.Wait()
		select {
		case gate <- nil:
		default:
			t.Fatal("the waiting put does not try")
		}
		noErr(t, <-done)
		wantBlock(t, s, "a", bytesOf("a", 100))
		wantBlock(t, s, "b", bytesOf("b", 50))
	})
}

func TestKeyTakenWhileRoomIsMade(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(s *block.Store, ctx context.Context, key string, data []byte, level base.StorageLevel) error
		base.StorageLevel
	}{
		{"Put memory", (*block.Store).Put, base.MemoryOnly},
		{"Put memory and disk", (*block.Store).Put, base.MemoryAndDisk},
		{"TryPut memory", (*block.Store).TryPut, base.MemoryOnly},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, disk := newStore(t, 100)
				put(t, s, "a", 100, base.MemoryAndDisk)
				release := holdWrites(disk)
				done := make(chan error, 1)
				go func() { done <- c.put(s, t.Context(), "k", []byte("slow"), c.StorageLevel) }()
				synctest.Wait()
				disk.FailWith(nil)
				noErr(t, s.Put(t.Context(), "k", []byte("fast"), base.DiskOnly))
				release()
				wantError(t, <-done, nil, `"k"`, "other bytes")
				wantBlock(t, s, "k", []byte("fast"))
				wantStats(t, s, block.Stats{Blocks: 2, DiskBytes: 104, Spilled: 1, Evicted: 1})
			})
		})
	}
}

func TestPutWhoseDropOverlapsTheComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := newStore(t, 100)
		put(t, s, "k", 10, base.DiskOnly)
		gate := make(chan struct{})
		disk.FailWith(func(op, name string) error {
			if op == "open" {
				<-gate
			}
			return nil
		})
		put2, get := make(chan error, 1), make(chan error, 1)
		go func() { put2 <- s.Put(t.Context(), "k", bytesOf("K", 10), base.MemoryOnly) }()
		go func() { _, err := s.Get("k"); get <- err }()
		synctest.Wait()
		s.Drop("k")
		close(gate)
		noErr(t, <-put2)
		wantError(t, <-get, block.ErrNotFound)
		wantBlock(t, s, "k", bytesOf("K", 10))
	})
}

func TestSlowerOfTwoDiskPutsLeavesNoFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := newStore(t, 100)
		release := holdWrites(disk)
		done := make(chan error, 3)
		for _, key := range []string{"k", "k", "K"} {
			go func() { done <- s.Put(t.Context(), "k", bytesOf(key, 10), base.DiskOnly) }()
		}
		synctest.Wait()
		release()
		failed := 0
		for range 3 {
			if err := <-done; err != nil {
				wantError(t, err, nil, "other bytes")
				failed++
			}
		}
		if failed == 0 || failed > 2 {
			t.Errorf("%d puts failed, want the ones with other bytes than the first", failed)
		}
		if got := filesIn(t, disk); len(got) != 1 {
			t.Errorf("files %v, want one", got)
		}
		wantStats(t, s, block.Stats{Blocks: 1, DiskBytes: 10})
	})
}

func TestCloseWaitsForSpills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := newStore(t, 100)
		release := holdWrites(disk)
		done := make(chan error, 3)
		go func() { done <- s.Put(t.Context(), "a", bytesOf("a", 10), base.DiskOnly) }()
		synctest.Wait()
		for range 2 {
			go func() { done <- s.Close() }()
		}
		synctest.Wait()
		if len(done) != 0 {
			t.Error("Close did not wait for a write in progress")
		}
		release()
		for range 3 {
			noErr(t, <-done)
		}
		if got := disk.String(); got != "/\n/scratch/\n" {
			t.Errorf("left behind:\n%s", got)
		}
	})
}
