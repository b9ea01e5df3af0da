package receiver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/receiver"
)

// idle stores what f stores, then waits for the stop.
func idle[T any](f func(ctx context.Context, s *receiver.Sink[T]) error) receiver.Func[T] {
	return func(ctx context.Context, s *receiver.Sink[T]) error {
		if err := f(ctx, s); err != nil {
			s.ReportError(fmt.Errorf("in Receive: %w", err))
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

func storeInts(ctx context.Context, s *receiver.Sink[int], from, to int) error {
	for i := from; i < to; i++ {
		if err := s.Store(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func ints(to int) (out []int) {
	for i := range to {
		out = append(out, i)
	}
	return out
}

func TestBlocksAreCutByTimeAndEmptyOnesSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		began := time.Now()
		j := runFunc(w, receiver.Config{}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			for i := range 10 { // at 10, 110, ... 910 ms
				time.Sleep(10 * time.Millisecond)
				if err := s.Store(ctx, i); err != nil {
					return err
				}
				time.Sleep(90 * time.Millisecond)
			}
			return nil
		}))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := w.sizes(); !slices.Equal(got, []int{2, 2, 2, 2, 2}) {
			t.Errorf("block sizes %v", got)
		}
		for i, at := range w.at {
			if got, want := at.Sub(began), time.Duration(i+1)*200*time.Millisecond; got != want {
				t.Errorf("block %d added after %v, want %v", i, got, want)
			}
		}
		b := w.log[1]
		want := receiver.Block{
			ID:  base.BlockID{Stream: "lines", Epoch: 7, Counter: 2},
			Key: "recv/lines/7/2", Records: 2, Bytes: b.Bytes, Executor: "ex-1", Level: base.MemoryAndDisk,
		}
		if d := cmp.Diff(want, b); d != "" {
			t.Error(d)
		}
		mustEnd(t, j)
		if got := records[int](w); !slices.Equal(got, ints(10)) {
			t.Errorf("records %v", got)
		}
		if got := w.kinds(); got != "started stopped" {
			t.Errorf("events: %s", got)
		}
	})
}

func TestBlocksAreCutByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := runFunc(w, receiver.Config{MaxBlockBytes: 1000}, idle(func(ctx context.Context, s *receiver.Sink[string]) error {
			for range 25 {
				if err := s.Store(ctx, strings.Repeat("x", 99)); err != nil { // 100 bytes encoded
					return err
				}
			}
			return s.Store(ctx, strings.Repeat("y", 5000))
		}))
		synctest.Wait() // no time has passed
		if got := w.sizes(); !slices.Equal(got, []int{10, 10, 6}) {
			t.Errorf("block sizes %v", got)
		}
		mustEnd(t, j)
	})
}

func TestFullQueueMakesStoreWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hold = make(chan struct{})
		var stored atomic.Int64
		j := runFunc(w, receiver.Config{MaxBlockBytes: 10, QueueSize: 3}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			for i := range 200 {
				if err := s.Store(ctx, i); err != nil {
					return err
				}
				stored.Add(1)
				synctestYield()
			}
			return nil
		}))
		time.Sleep(time.Minute)
		// One block of ten bytes in the pusher, three in the queue, one open (each holds up to 10 one-byte ints).
		if got := stored.Load(); got != 50 {
			t.Errorf("%d records accepted while nothing is stored, want 50", got)
		}
		close(w.hold)
		time.Sleep(time.Second)
		mustEnd(t, j)
		if got := records[int](w); !slices.Equal(got, ints(200)) {
			t.Errorf("records %v", got)
		}
	})
}

// synctestYield lets the pusher take its block before the next record.
func synctestYield() { time.Sleep(time.Microsecond) }

func TestBlockThatWasDueIsCutAsSoonAsThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hold = make(chan struct{})
		began := time.Now()
		j := runFunc(w, receiver.Config{BlockInterval: time.Second, QueueSize: 1}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			for i := range 3 { // to the pusher, to the queue, stays
				if err := s.Store(ctx, i); err != nil {
					return err
				}
				time.Sleep(time.Second + time.Millisecond)
			}
			return nil
		}))
		time.Sleep(3500 * time.Millisecond)
		close(w.hold)
		time.Sleep(time.Second)
		mustEnd(t, j)
		if got := w.sizes(); !slices.Equal(got, []int{1, 1, 1}) {
			t.Fatalf("block sizes %v", got)
		}
		if d := w.at[2].Sub(began); d != 3500*time.Millisecond {
			t.Errorf("the last block was added after %v", d)
		}
	})
}

func TestStopWhileTheQueueIsFullEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hold = make(chan struct{}) // never closed
		var last error
		j := runFunc(w, receiver.Config{MaxBlockBytes: 10, QueueSize: 2, StopTimeout: 4 * time.Second},
			func(ctx context.Context, s *receiver.Sink[int]) error {
				for {
					if last = s.Store(ctx, 1); last != nil {
						return last
					}
					synctestYield()
				}
			})
		time.Sleep(time.Second)
		began := time.Now()
		err := j.end()
		if !errors.Is(last, receiver.ErrStopped) {
			t.Errorf("the waiting Store got %v", last)
		}
		var f *receiver.FailedError
		if !errors.As(err, &f) || f.Lost != 40 || !strings.Contains(err.Error(), "stop timeout of 4s") {
			t.Errorf("Run returned %v", err)
		}
		if d := time.Since(began); d != 4*time.Second {
			t.Errorf("stopped after %v", d)
		}
		if e := w.last(receiver.Failed); e.Lost != 40 || e.Fatal {
			t.Errorf("event %+v", e)
		}
	})
}

func TestCancelEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hold = make(chan struct{})
		var many error
		j := runFunc(w, receiver.Config{}, func(ctx context.Context, s *receiver.Sink[int]) error {
			if err := storeInts(ctx, s, 0, 5); err != nil {
				return err
			}
			many = s.StoreMany(ctx, ints(3))
			return many
		})
		time.Sleep(time.Second)
		began := time.Now()
		j.cancel()
		if err := <-j.done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		if !errors.Is(many, context.Canceled) {
			t.Errorf("StoreMany returned %v", many)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("took %v", d)
		}
		if e := w.last(receiver.Stopped); e.Lost != 5 {
			t.Errorf("event %+v", e)
		}
	})
}

func TestStoreAfterStopOrRestartIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var old []*receiver.Sink[int]
		check := func() {
			for _, s := range old {
				ctx := context.Background()
				for name, err := range map[string]error{
					"Store":     s.Store(ctx, 1),
					"StoreMany": s.StoreMany(ctx, ints(2)),
					"StoreSeq":  s.StoreSeq(ctx, slices.Values(ints(2))),
				} {
					if !errors.Is(err, receiver.ErrStopped) {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
		}
		j := runFunc(w, receiver.Config{}, func(ctx context.Context, s *receiver.Sink[int]) error {
			check()
			old = append(old, s)
			if len(old) == 1 {
				return nil
			}
			<-ctx.Done()
			return nil
		})
		time.Sleep(time.Second)
		mustEnd(t, j)
		check()
		if len(old) != 2 || len(records[int](w)) != 0 {
			t.Errorf("%d starts, records %v", len(old), records[int](w))
		}
	})
}

// Invariant 1, and the order of all store paths.
func TestStoreManyReturnsAfterTheLogHasTheBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := runFunc(w, receiver.Config{MaxBlockBytes: 30}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			if err := storeInts(ctx, s, 0, 5); err != nil {
				return err
			}
			if err := s.StoreMany(ctx, ints(64)); err != nil { // one block, larger than the limit
				return err
			}
			if got := w.sizes(); !slices.Equal(got, []int{5, 64}) {
				t.Errorf("block sizes %v after StoreMany", got)
			}
			if err := s.StoreSeq(ctx, slices.Values(ints(64))); err != nil { // cut by bytes
				return err
			}
			if got := w.sizes(); !slices.Equal(got, []int{5, 64, 30, 30, 4}) {
				t.Errorf("block sizes %v after StoreSeq", got)
			}
			return errors.Join(s.StoreMany(ctx, nil), s.StoreSeq(ctx, slices.Values([]int{})))
		}))
		time.Sleep(time.Second)
		mustEnd(t, j)
		if got, want := records[int](w), slices.Concat(ints(5), ints(64), ints(64)); !slices.Equal(got, want) {
			t.Errorf("records %v", got)
		}
		if got := w.kinds(); got != "started stopped" {
			t.Errorf("events: %s", got)
		}
	})
}

func TestStoreManyGetsItsAnswerDuringAGracefulStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hold = make(chan struct{})
		answer := errors.New("not called")
		j := runFunc(w, receiver.Config{}, func(ctx context.Context, s *receiver.Sink[int]) error {
			answer = s.StoreMany(ctx, ints(3))
			return answer
		})
		time.Sleep(time.Second)
		close(j.stop)
		time.Sleep(time.Second)
		close(w.hold)
		if err := <-j.done; err != nil || answer != nil {
			t.Errorf("Run: %v, StoreMany: %v", err, answer)
		}
	})
}

func TestStoreManyGivesUpAtItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hold = make(chan struct{})
		var answer error
		j := runFunc(w, receiver.Config{}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			answer = s.StoreMany(ctx, ints(3))
			return nil
		}))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !errors.Is(answer, context.DeadlineExceeded) || !strings.Contains(answer.Error(), "not known") {
			t.Errorf("StoreMany: %v", answer)
		}
		close(w.hold)
		mustEnd(t, j)
	})
}

func TestFailedStoreIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		tries := 0
		w.put = func(string) error {
			if tries++; tries <= 4 {
				return errFlaky
			}
			return nil
		}
		began := time.Now()
		j := runFunc(w, receiver.Config{}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			return s.StoreMany(ctx, ints(3))
		}))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got, want := w.at[0].Sub(began), (100+200+400+800)*time.Millisecond; got != want {
			t.Errorf("stored after %v, want %v", got, want)
		}
		mustEnd(t, j)
		if got := w.kinds(); got != "started error error error error stopped" {
			t.Errorf("events: %s", got)
		}
		if m := w.last(receiver.Error).Message; !strings.Contains(m, "store block recv/lines/7/1, attempt 4 of 10: flaky") {
			t.Errorf("message %q", m)
		}
	})
}

// Spark's pushing thread ended at the first failure and the buffer grew for ever.
func TestStoreThatKeepsFailingFailsTheReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put = func(string) error { return errFlaky }
		var single, many error
		j := runFunc(w, receiver.Config{PushAttempts: 3}, func(ctx context.Context, s *receiver.Sink[int]) error {
			if err := storeInts(ctx, s, 0, 5); err != nil {
				return err
			}
			many = s.StoreMany(ctx, ints(9))
			single = s.Store(ctx, 1)
			return many
		})
		err := <-j.done
		var f *receiver.FailedError
		if !errors.As(err, &f) || f.Fatal || f.Lost != 5 || !errors.Is(err, errFlaky) {
			t.Errorf("Run returned %v", err)
		}
		if !errors.Is(many, errFlaky) || !errors.Is(single, receiver.ErrStopped) {
			t.Errorf("StoreMany: %v, Store: %v", many, single)
		}
		if e := w.last(receiver.Failed); e.Lost != 5 || e.Fatal || !strings.Contains(e.Message, "attempt 3 of 3: flaky; up to 5 accepted records are lost") {
			t.Errorf("event %+v", e)
		}
		if !slices.Equal(w.dropped, []string{"recv/lines/7/1"}) || len(w.log) != 0 {
			t.Errorf("dropped %v, log %v", w.dropped, w.log)
		}
	})
}

// Invariant 2.
func TestUnknownAddBlockIsResentWithTheSameID(t *testing.T) {
	for _, logged := range []bool{false, true} {
		t.Run(fmt.Sprintf("logged=%v", logged), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var sent []uint64
				w.add = func(b receiver.Block) (bool, error) {
					if sent = append(sent, b.ID.Counter); len(sent) < 20 { // more than PushAttempts
						return logged, errFlaky
					}
					return true, nil
				}
				j := runFunc(w, receiver.Config{}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
					return errors.Join(s.StoreMany(ctx, ints(3)), s.StoreMany(ctx, ints(4)))
				}))
				time.Sleep(5 * time.Minute)
				mustEnd(t, j)
				if want := append(slices.Repeat([]uint64{1}, 20), 2); !slices.Equal(sent, want) {
					t.Errorf("sent %v", sent)
				}
				if got := w.sizes(); !slices.Equal(got, []int{3, 4}) {
					t.Errorf("block sizes %v", got)
				}
			})
		})
	}
}

// Invariant 7; a block that the log may have is not dropped.
func TestFencedReceiverEnds(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		t.Run(fmt.Sprintf("unknown=%v", unknown), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				first := true
				w.add = func(receiver.Block) (bool, error) {
					if first && unknown {
						first = false
						return true, errFlaky
					}
					return false, receiver.ErrFenced
				}
				var answer error
				j := runFunc(w, receiver.Config{}, func(ctx context.Context, s *receiver.Sink[int]) error {
					answer = s.StoreMany(ctx, ints(3))
					return answer
				})
				if err := <-j.done; !errors.Is(err, receiver.ErrFenced) {
					t.Errorf("Run returned %v", err)
				}
				if !errors.Is(answer, receiver.ErrFenced) {
					t.Errorf("StoreMany returned %v", answer)
				}
				if got := len(w.dropped) == 0; got != unknown {
					t.Errorf("dropped %v", w.dropped)
				}
				if e := w.last(receiver.Failed); e.Fatal {
					t.Errorf("event %+v", e)
				}
			})
		})
	}
}

func TestCountersHaveNoGapsUnderRandomFailures(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// The outer test fails through rt: world reports gaps to t, which rapid can't shrink.
		puts := rapid.SliceOfN(rapid.Bool(), 1, 40).Draw(rt, "put fails")
		adds := rapid.SliceOfN(rapid.IntRange(0, 2), 1, 40).Draw(rt, "add outcome")
		steps := rapid.SliceOfN(rapid.IntRange(0, 30), 1, 12).Draw(rt, "steps")
		queue := rapid.IntRange(1, 4).Draw(rt, "queue size")
		var stored []int
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			next := func(n *int, of int) int { *n++; return (*n - 1) % of }
			var np, na, failed int
			w.put = func(string) error {
				if puts[next(&np, len(puts))] && failed < 8 {
					failed++
					return errFlaky
				}
				failed = 0
				return nil
			}
			tries := 0
			w.add = func(receiver.Block) (bool, error) {
				o := adds[next(&na, len(adds))]
				if tries++; o == 0 || tries > 5 {
					tries = 0
					return true, nil
				}
				return o == 1, errFlaky
			}
			j := runFunc(w, receiver.Config{MaxBlockBytes: 20, QueueSize: queue, StopTimeout: time.Hour},
				idle(func(ctx context.Context, s *receiver.Sink[int]) error {
					n := 0
					for i, step := range steps {
						part := make([]int, step)
						for k := range part {
							part[k] = n
							n++
						}
						var err error
						switch i % 3 {
						case 0:
							for _, v := range part {
								err = errors.Join(err, s.Store(ctx, v))
							}
						case 1:
							err = s.StoreMany(ctx, part)
						case 2:
							err = s.StoreSeq(ctx, slices.Values(part))
						}
						if err != nil {
							return err
						}
						stored = append(stored, part...)
						time.Sleep(time.Duration(step) * 10 * time.Millisecond)
					}
					return nil
				}))
			time.Sleep(time.Hour)
			mustEnd(t, j)
			if got := records[int](w); !slices.Equal(got, stored) {
				t.Errorf("records %v, stored %v", got, stored)
			}
			for i, b := range w.log {
				if b.ID.Counter != uint64(i+1) {
					t.Errorf("block %d has id %v", i, b.ID)
				}
			}
		})
		if t.Failed() {
			rt.FailNow()
		}
	})
}

func TestRecordThatCannotBeEncodedLeavesTheBlockWhole(t *testing.T) {
	bad := errors.New("bad record")
	c := *codec.For[int]()
	c.Append = func(dst []byte, v int) ([]byte, error) {
		switch {
		case v < -1:
			panic("no such record")
		case v < 0:
			return dst, bad
		}
		return codec.For[int]().Append(dst, v)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		starts := 0
		r := receiver.NewRunner("lines", func() receiver.Receiver[int] {
			return receiver.Func[int](func(ctx context.Context, s *receiver.Sink[int]) error {
				starts++
				for name, err := range map[string]error{
					"Store":     s.Store(ctx, -1),
					"StoreMany": s.StoreMany(ctx, []int{1, -1}),
					"StoreSeq":  s.StoreSeq(ctx, slices.Values([]int{1, -1})),
				} {
					if !errors.Is(err, bad) {
						t.Errorf("%s: %v", name, err)
					}
				}
				if err := s.Store(ctx, starts); err != nil {
					return err
				}
				if starts == 1 {
					return s.Store(ctx, -2) // panics with the buffer locked
				}
				return receiver.ErrDone
			})
		}, &c, receiver.Options{})
		if err := r.Run(t.Context(), receiver.Env{Stream: "lines", Blocks: w, Driver: w}); err != nil {
			t.Error(err)
		}
		if got := records[int](w); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("records %v", got)
		}
	})
}

func TestBlockAndEventAreDataForTheWire(t *testing.T) {
	b := receiver.Block{
		ID:  base.BlockID{Stream: "s", Epoch: 3, Counter: 9},
		Key: "k", Records: 4, Bytes: 1 << 40, Executor: "e", Level: base.DiskOnly,
		Handle: base.Handle{Log: "s", Epoch: 3, Segment: 2, Offset: 5, Length: 6}, Position: []byte{1, 0xff},
	}
	e := receiver.Event{Stream: "s", Epoch: 3, Executor: "e", Kind: receiver.Failed, Message: "m", Starts: 2, Lost: 7, Fatal: true}
	roundTrip(t, b)
	roundTrip(t, e)
}

func roundTrip[T any](t *testing.T, v T) {
	t.Helper()
	if err := codec.Check[T](); err != nil {
		t.Fatal(err)
	}
	c := codec.For[T]()
	enc, err := c.Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := c.Read(enc)
	if d := cmp.Diff(v, got); d != "" || err != nil {
		t.Error(d, err)
	}
}
