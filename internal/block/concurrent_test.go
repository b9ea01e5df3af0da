package block_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/block"
	"github.com/tidemill/tidemill/internal/fsys"
)

// TestConcurrentUse has producers put batches of blocks, readers read them,
// others reserve, on a disk that fails now and then, and a dropper that makes
// room. A deadlock shows as the deadline.
func TestConcurrentUse(t *testing.T) {
	const (
		limit     = 2000
		producers = 4
		batches   = 60
		perBatch  = 8
	)
	s, disk := newStore(t, limit)
	var ops atomic.Int64
	disk.FailWith(func(op, name string) error {
		if op == "write" && ops.Add(1)%17 == 0 {
			return syscall.ENOSPC
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()

	// done carries the finished batches to the dropper; at most two are
	// kept per producer, so that memory-only ones always get room in the end.
	done := make(chan string, 2)
	var makers, others sync.WaitGroup
	for p := range producers {
		makers.Go(func() {
			for b := range batches {
				prefix := fmt.Sprintf("p%d@%d:", p, b)
				for i := range perBatch {
					key := prefix + fmt.Sprint(i)
					data := bytesOf(key, 1+rand.IntN(150))
					level := base.StorageLevel(1 + rand.IntN(3))
					put := s.Put
					if i%4 == 3 {
						put = s.TryPut
					}
					err := put(ctx, key, data, level)
					for errors.Is(err, syscall.ENOSPC) {
						err = put(ctx, key, data, level)
					}
					if i%4 == 3 && errors.Is(err, block.ErrNoMemory) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					// Nobody drops it before the batch is done.
					if got, err := s.Get(key); err != nil || !bytes.Equal(got, data) {
						t.Errorf("Get(%q): %v", key, err)
					}
				}
				done <- prefix
			}
		})
	}
	stop := make(chan struct{})
	others.Go(func() { // dropper
		for prefix := range done {
			if n := s.DropPrefix(prefix); n < perBatch*3/4 {
				t.Errorf("DropPrefix(%q) dropped %d, want at least %d", prefix, n, perBatch*3/4)
			}
		}
	})
	for range 2 {
		others.Go(func() { // reader of what may or may not be there
			for {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("p%d@%d:%d", rand.IntN(producers), rand.IntN(batches), rand.IntN(perBatch))
				got, err := s.Get(key)
				if errors.Is(err, block.ErrNotFound) {
					continue
				}
				if err != nil || !bytes.Equal(got, bytesOf(key, len(got))) {
					t.Errorf("Get(%q): %v", key, err)
				}
			}
		})
		others.Go(func() { // other user of memory
			for {
				select {
				case <-stop:
					return
				default:
				}
				if n := rand.Int64N(limit / 8); s.Reserve(n) {
					if st := s.Stats(); st.MemoryBytes+st.Reserved > limit {
						t.Errorf("over the limit: %+v", st)
					}
					s.Release(n)
				}
			}
		})
	}
	makers.Wait()
	close(done)
	close(stop)
	others.Wait()

	st := s.Stats()
	if st.Blocks != 0 || st.MemoryBytes != 0 || st.DiskBytes != 0 || st.Reserved != 0 || st.Waiting != 0 {
		t.Errorf("after all is dropped: %+v", st)
	}
	if st.Evicted == 0 || st.SpillErrors == 0 {
		t.Errorf("nothing was moved, or no write failed: %+v", st)
	}
	if got := filesIn(t, disk); len(got) != 0 {
		t.Errorf("files left: %v", got)
	}
}

func TestCloseAmidUse(t *testing.T) {
	for round := range int64(20) {
		s, disk := newStore(t, 500)
		var wg sync.WaitGroup
		var puts atomic.Int64
		now := make(chan struct{})
		for g := range 6 {
			wg.Go(func() {
				for i := 0; ; i++ {
					key := fmt.Sprint(g, "/", i)
					err := s.Put(t.Context(), key, bytesOf(key, 50), base.StorageLevel(1+g%3))
					if errors.Is(err, base.ErrStopped) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if puts.Add(1) == 1+5*round {
						close(now)
					}
				}
			})
		}
		<-now
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if got := disk.String(); got != "/\n/scratch/\n" {
			t.Errorf("left behind:\n%s", got)
		}
	}
}

// BenchmarkDropPrefix drops one batch of ten blocks among many others.
func BenchmarkDropPrefix(b *testing.B) {
	for _, others := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			s, err := block.Open(block.Config{FS: fsys.NewMem(), Dir: dir, MemoryLimit: 1 << 30})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			data := make([]byte, 10)
			for i := range others {
				if err := s.Put(b.Context(), fmt.Sprintf("in@%08d", i), data, base.MemoryAndDisk); err != nil {
					b.Fatal(err)
				}
			}
			keys := make([]string, 10)
			for i := range keys {
				keys[i] = fmt.Sprintf("in@00000050/%d", i)
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, k := range keys {
					if err := s.Put(b.Context(), k, data, base.MemoryAndDisk); err != nil {
						b.Fatal(err)
					}
				}
				if n := s.DropPrefix("in@00000050/"); n != 10 {
					b.Fatalf("dropped %d", n)
				}
			}
		})
	}
}
