package block_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/block"
)

// Invariant 9: received blocks are held back, not dropped.
func TestMemoryOnlyPutWaitsForRoom(t *testing.T) {
	for name, makeRoom := range map[string]func(*block.Store){
		"Drop":       func(s *block.Store) { s.Drop("old/1") },
		"DropPrefix": func(s *block.Store) { s.DropPrefix("old/") },
		"Release":    func(s *block.Store) { s.Release(40) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newStore(t, 100)
				put(t, s, "old/1", 60, base.MemoryOnly)
				if !s.Reserve(40) {
					t.Fatal("Reserve failed")
				}
				done := make(chan error, 1)
				go func() { done <- s.Put(t.Context(), "new", bytesOf("new", 40), base.MemoryOnly) }()
				synctest.Wait()
				select {
				case err := <-done:
					t.Fatalf("Put did not wait: %v", err)
				default:
				}
				wantStats(t, s, block.Stats{Blocks: 1, MemoryBytes: 60, Reserved: 40, Waiting: 1})
				// Nobody gets in front of it, and there is no waiting for TryPut.
				wantError(t, s.TryPut(t.Context(), "try", nil, base.MemoryOnly), block.ErrNoMemory)
				makeRoom(s)
				noErr(t, <-done)
				wantBlock(t, s, "new", bytesOf("new", 40))
			})
		})
	}
}

func TestMemoryOnlyPutSpillsOthersForRoom(t *testing.T) {
	s, _ := newStore(t, 100)
	a := put(t, s, "a", 60, base.MemoryAndDisk)
	put(t, s, "m", 60, base.MemoryOnly)
	wantBlock(t, s, "a", a)
	wantStats(t, s, block.Stats{Blocks: 2, MemoryBytes: 60, DiskBytes: 60, Spilled: 1, Evicted: 1})
}

func TestWaitingPutsAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore(t, 100)
		put(t, s, "old", 50, base.MemoryOnly)
		if !s.Reserve(50) {
			t.Fatal("Reserve failed")
		}
		var served []string
		var n atomic.Int32
		for _, p := range []struct {
			key  string
			size int
		}{{"large", 80}, {"small", 10}, {"middle", 20}} {
			go func() {
				if err := s.Put(t.Context(), p.key, bytesOf(p.key, p.size), base.MemoryOnly); err != nil {
					t.Error(err)
				}
				n.Add(1)
			}()
			synctest.Wait()
		}
		s.Release(50)
		synctest.Wait()
		if n.Load() != 0 {
			t.Error("a small put overtook the large one that waits")
		}
		// What can go to disk does, rather than take the room.
		put(t, s, "md", 5, base.MemoryAndDisk)
		wantStats(t, s, block.Stats{Blocks: 2, MemoryBytes: 50, DiskBytes: 5, Spilled: 1, Waiting: 3})
		s.Drop("old")
		synctest.Wait()
		for _, k := range []string{"large", "small", "middle"} {
			if s.Has(k) {
				served = append(served, k)
			}
		}
		if diff := cmp.Diff([]string{"large", "small"}, served); diff != "" {
			t.Errorf("served (-want +got):\n%s", diff)
		}
		s.Drop("large")
		synctest.Wait()
		wantBlock(t, s, "middle", bytesOf("middle", 20))
	})
}

func TestWaitingPutEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore(t, 100)
		put(t, s, "old", 90, base.MemoryOnly)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		next := make(chan error, 1)
		go func() {
			time.Sleep(time.Second)
			next <- s.Put(t.Context(), "next", bytesOf("next", 10), base.MemoryOnly)
		}()
		err := s.Put(ctx, "k", make([]byte, 20), base.MemoryOnly)
		wantError(t, err, context.DeadlineExceeded, `"k"`, "20", "limit 100", "90 in blocks")
		noErr(t, <-next) // the one behind fits and goes on
		wantNoBlock(t, s, "k")
		wantError(t, s.Put(ctx, "late", nil, base.MemoryOnly), context.DeadlineExceeded, `"late"`)
	})
}

func TestSameKeyPutTwiceWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore(t, 100)
		put(t, s, "old", 100, base.MemoryOnly)
		done := make(chan error, 3)
		for _, data := range []string{"first", "first", "other"} {
			go func() { done <- s.Put(t.Context(), "k", []byte(data), base.MemoryOnly) }()
			synctest.Wait()
		}
		s.Drop("old")
		noErr(t, <-done)
		noErr(t, <-done)
		wantError(t, <-done, nil, `"k"`, "other bytes")
		wantStats(t, s, block.Stats{Blocks: 1, MemoryBytes: 5})
	})
}

func TestCloseEndsWaitingPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore(t, 100)
		put(t, s, "old", 100, base.MemoryOnly)
		done := make(chan error, 2)
		for _, k := range []string{"a", "b"} {
			go func() { done <- s.Put(t.Context(), k, []byte("x"), base.MemoryOnly) }()
		}
		synctest.Wait()
		noErr(t, s.Close())
		wantError(t, <-done, base.ErrStopped)
		wantError(t, <-done, base.ErrStopped)
	})
}
