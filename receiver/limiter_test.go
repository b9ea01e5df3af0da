package receiver_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/receiver"
)

// stores are the ways into a block; each stores about n records of 100 bytes.
var stores = map[string]func(ctx context.Context, s *receiver.Sink[string], n int) error{
	"Store": func(ctx context.Context, s *receiver.Sink[string], n int) error {
		for range n {
			if err := s.Store(ctx, line99); err != nil {
				return err
			}
		}
		return nil
	},
	"StoreMany": func(ctx context.Context, s *receiver.Sink[string], n int) error {
		return s.StoreMany(ctx, slices.Repeat([]string{line99}, n))
	},
	"StoreAt": func(ctx context.Context, s *receiver.Sink[string], n int) error {
		for range n {
			if err := s.StoreAt(ctx, line99, at(n)); err != nil {
				return err
			}
		}
		return nil
	},
	"StoreManyAt": func(ctx context.Context, s *receiver.Sink[string], n int) error {
		return s.StoreManyAt(ctx, slices.Repeat([]string{line99}, n), at(n))
	},
	"StoreSeq": func(ctx context.Context, s *receiver.Sink[string], n int) error {
		return s.StoreSeq(ctx, slices.Values(slices.Repeat([]string{line99}, n)))
	},
}

var line99 = strings.Repeat("x", 99) // 100 bytes encoded

func TestRateLimitHoldsForAllStorePaths(t *testing.T) {
	for name, store := range stores {
		for what, cfg := range map[string]receiver.Config{
			"records": {MaxRate: 1000},
			"bytes":   {MaxByteRate: 100_000},
			"both":    {MaxRate: 1000, MaxByteRate: 200_000},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					var took time.Duration
					j := runFunc(w, cfg, idle(func(ctx context.Context, s *receiver.Sink[string]) error {
						began := time.Now()
						for range 20 {
							if err := store(ctx, s, 500); err != nil {
								return err
							}
						}
						took = time.Since(began)
						return nil
					}))
					time.Sleep(time.Minute)
					mustEnd(t, j)
					if took < 9900*time.Millisecond || took > 10100*time.Millisecond {
						t.Errorf("10000 records at 1000/s took %v", took)
					}
				})
			})
		}
	}
}

func TestBatchLargerThanAnyBurstWaitsInProportion(t *testing.T) {
	for _, path := range []string{"StoreMany", "StoreSeq"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			began := time.Now()
			var took time.Duration
			j := runFunc(w, receiver.Config{MaxRate: 10}, idle(func(ctx context.Context, s *receiver.Sink[string]) error {
				err := stores[path](ctx, s, 100_001)
				took = time.Since(began)
				return err
			}))
			time.Sleep(4 * time.Hour)
			mustEnd(t, j)
			if took.Round(time.Second) != 10_000*time.Second || len(records[string](w)) != 100_001 {
				t.Errorf("%s took %v, %d records", path, took, len(records[string](w)))
			}
		})
	}
}

func TestRateChangesWhileStoring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var n atomic.Int64
		j := runFunc(w, receiver.Config{MaxRate: 1000}, func(ctx context.Context, s *receiver.Sink[int]) error {
			for {
				if err := s.Store(ctx, 1); err != nil {
					return err
				}
				n.Add(1)
			}
		})
		rate := func(what string, want int64) {
			t.Helper()
			before := n.Load()
			time.Sleep(10 * time.Second)
			if got := n.Load() - before; got < want-1 || got > want+1 {
				t.Errorf("%s: %d records in 10s, want %d", what, got, want)
			}
		}
		rate("as configured", 10_000)
		j.rate <- 20
		rate("20/s", 200)
		j.rate <- -5
		j.rate <- 0
		j.rate <- math.NaN()
		rate("values that are not positive are ignored", 200)
		j.rate <- 0.001 // the next record is due in a quarter of an hour
		time.Sleep(time.Minute)
		j.rate <- 100
		rate("a waiting Store sees the new rate", 1000)
		j.rate <- 1e9
		rate("not above the configured", 10_000)
		j.rate <- math.Inf(1)
		rate("nor without limit", 10_000)
		close(j.rate)
		rate("after the channel is closed", 10_000)
		mustEnd(t, j)
		if got := int64(len(records[int](w))); got != n.Load() {
			t.Errorf("%d records, %d accepted", got, n.Load())
		}
	})
}

func TestStopEndsALimitedWait(t *testing.T) {
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var err error
				j := runFunc(w, receiver.Config{MaxRate: 0.001}, func(_ context.Context, s *receiver.Sink[string]) error {
					err = store(context.Background(), s, 50) // doesn't look at Receive's context
					return err
				})
				time.Sleep(time.Second)
				began := time.Now()
				mustEnd(t, j)
				if d := time.Since(began); d != 0 || !errors.Is(err, receiver.ErrStopped) {
					t.Errorf("took %v, store returned %v", d, err)
				}
			})
		})
	}
}

func TestIdleTimeGivesOnlyAShortBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := receiver.NewLimiter(1000, 0)
		time.Sleep(24 * time.Hour)
		began := time.Now()
		for range 1100 {
			if err := l.Wait(t.Context(), 1, 0); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began).Round(time.Millisecond); d != time.Second {
			t.Errorf("1100 records after a day took %v, want 1s and 100 from before", d)
		}
	})
}

func TestGivenUpWaitCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := receiver.NewLimiter(10, 1000)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Wait(ctx, 10_000, 1_000_000); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		began := time.Now()
		if err := l.Wait(t.Context(), 11, 100); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("the next one waited %v", d)
		}
	})
}

func TestLimitCanBeginAndEndWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := receiver.NewLimiter(0, 0)
		took := func(n int64) time.Duration {
			began := time.Now()
			if err := l.Wait(t.Context(), n, 0); err != nil {
				t.Fatal(err)
			}
			return time.Since(began).Round(time.Millisecond)
		}
		if d := took(1 << 40); d != 0 {
			t.Errorf("without limit: %v", d)
		}
		l.SetRate(100)
		if d := took(101); d != time.Second {
			t.Errorf("at 100/s: %v", d)
		}
		l.SetRate(math.Inf(1))
		if d := took(1 << 40); d != 0 {
			t.Errorf("without limit again: %v", d)
		}
	})
}
