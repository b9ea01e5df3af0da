package receiver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/tidemill/tidemill/receiver"
)

func TestBlockIsInTheLogAndInTheStoreAndNotCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := withDiary(w)
		j := runFunc(w, receiver.Config{}, idle(func(ctx context.Context, s *receiver.Sink[string]) error {
			return errors.Join(s.Store(ctx, line99), s.StoreMany(ctx, []string{"a", "b"}))
		}))
		time.Sleep(time.Second)
		mustEnd(t, j)
		if got := records[string](w); !slices.Equal(got, []string{line99, "a", "b"}) || len(w.log) != 2 {
			t.Errorf("records %q in %d blocks", got, len(w.log))
		}
		for _, b := range w.log {
			logged, stored := d.read(b.Handle), w.blocks[b.Key]
			if len(stored) == 0 || unsafe.SliceData(logged) != unsafe.SliceData(stored) {
				t.Errorf("block %s: %d bytes in the log, %d in the store, not the same memory", b.ID, len(logged), len(stored))
			}
		}
		if _, freed := d.handles(); len(freed) > 0 || !d.isClosed() {
			t.Errorf("freed %v, closed %v", freed, d.isClosed())
		}
	})
}

// Invariant 1: the log alone is enough.
func TestBlockThatTheStoreDoesNotTakeIsReadFromTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		withDiary(w)
		full := true
		w.put = func(string) error {
			if full {
				return errFlaky
			}
			return nil
		}
		var took []time.Duration
		j := runFunc(w, receiver.Config{}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			for i := range 6 {
				if i == 3 {
					w.mu.Lock()
					full = false
					w.mu.Unlock()
				}
				began := time.Now()
				if err := s.StoreMany(ctx, []int{i}); err != nil {
					return err
				}
				took = append(took, time.Since(began))
			}
			return nil
		}))
		time.Sleep(time.Second)
		mustEnd(t, j)
		if got := records[int](w); !slices.Equal(got, ints(6)) {
			t.Errorf("records %v", got)
		}
		if len(w.blocks) != 3 || len(w.dropped) != 3 || slices.Max(took) != 0 {
			t.Errorf("%d blocks in the store, %d dropped, took %v", len(w.blocks), len(w.dropped), took)
		}
		if got := w.kinds(); got != "started error stopped" && got != "error started stopped" {
			t.Errorf("events: %s", got)
		}
		if e := w.last(receiver.Error); !strings.Contains(e.Message, "read from the log: flaky") {
			t.Errorf("event %+v", e)
		}
	})
}

func TestStoreThatHangsHoldsTheSourceBackForABlockIntervalOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		withDiary(w)
		w.hold = make(chan struct{})
		var took time.Duration
		j := runFunc(w, receiver.Config{BlockInterval: 50 * time.Millisecond}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			began := time.Now()
			for i := range 10 {
				if err := s.StoreMany(ctx, []int{i}); err != nil {
					return err
				}
			}
			took = time.Since(began)
			return nil
		}))
		time.Sleep(time.Minute)
		mustEnd(t, j)
		if got := records[int](w); !slices.Equal(got, ints(10)) || took != 500*time.Millisecond {
			t.Errorf("records %v took %v", got, took)
		}
	})
}

// Invariants 1 and 14: there is no way past a log that does not answer, and no
// second append of a block.
func TestStoreWaitsForTheLogHoweverLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := withDiary(w)
		d.hold = make(chan struct{})
		answered := false
		j := runFunc(w, receiver.Config{PushTimeout: 10 * time.Second}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			err := s.StoreMany(ctx, []int{0})
			answered = true
			return err
		}))
		time.Sleep(45 * time.Second)
		synctest.Wait()
		if n := strings.Count(w.kinds(), "error"); answered || n != 4 || len(w.log) != 0 {
			t.Errorf("answered %v, %d reports, %d blocks added", answered, n, len(w.log))
		}
		if e := w.last(receiver.Error); !strings.Contains(e.Message, "no answer for 40s") {
			t.Errorf("event %+v", e)
		}
		close(d.hold)
		time.Sleep(time.Second)
		mustEnd(t, j)
		if all, freed := d.handles(); !answered || len(all) != 1 || len(freed) != 0 || len(w.log) != 1 {
			t.Errorf("answered %v, %d appends, %d freed, %d blocks added", answered, len(all), len(freed), len(w.log))
		}
	})
}

func TestLogThatRefusesEndsTheReceiver(t *testing.T) {
	for _, refusal := range []error{fmt.Errorf("roll: %w", receiver.ErrFenced), errFlaky} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			d := withDiary(w)
			d.fail = func(n int) error {
				if n == 2 {
					return refusal
				}
				return nil
			}
			var answer error
			j := runFunc(w, receiver.Config{}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
				answer = errors.Join(s.StoreMany(ctx, []int{0}), s.Store(ctx, 1), s.Store(ctx, 2), s.StoreMany(ctx, []int{3}))
				return answer
			}))
			err := <-j.done
			var f *receiver.FailedError
			if !errors.As(err, &f) || !errors.Is(err, refusal) || f.Lost != 2 || f.Fatal || !strings.Contains(err.Error(), "to the log") {
				t.Errorf("Run returned %v", err)
			}
			if !errors.Is(answer, refusal) {
				t.Errorf("the store call returned %v", answer)
			}
			if got := records[int](w); !slices.Equal(got, ints(1)) || d.begun != 2 || len(w.blocks) != 1 || !d.isClosed() {
				t.Errorf("records %v, %d appends, %d blocks in the store", got, d.begun, len(w.blocks))
			}
		})
	}
}

func TestRecordThatNoBlockNamesIsReleased(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(w *world, d *diary, j *job)
		add  func(receiver.Block) (bool, error)
		hold bool
		want int
	}{
		"refused": {
			add:  func(receiver.Block) (bool, error) { return false, receiver.ErrFenced },
			want: 1,
		},
		"cut off while it is appended": {
			hold: true,
			end:  func(_ *world, _ *diary, j *job) { j.cancel() },
			want: 1,
		},
		// The driver's log may have it: it is for the driver to release.
		"cut off while it is added": {
			add: func(receiver.Block) (bool, error) { return true, errFlaky },
			end: func(_ *world, _ *diary, j *job) { j.cancel() },
		},
		"refused after an unknown outcome": {
			add: func() func(receiver.Block) (bool, error) {
				n := 0
				return func(receiver.Block) (bool, error) {
					if n++; n == 1 {
						return true, errFlaky
					}
					return false, receiver.ErrFenced
				}
			}(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				d := withDiary(w)
				w.add = test.add
				if test.hold {
					d.hold = make(chan struct{})
				}
				j := runFunc(w, receiver.Config{}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
					return s.StoreMany(ctx, []int{0})
				}))
				time.Sleep(time.Second)
				if test.end != nil {
					test.end(w, d, j)
				}
				if err := <-j.done; err == nil {
					t.Error("Run returned nil")
				}
				all, freed := d.handles()
				if len(all) != 1 || !slices.Equal(all[:test.want], freed) {
					t.Errorf("appended %v, released %v", all, freed)
				}
				if kept := len(w.blocks); kept != 1-test.want {
					t.Errorf("%d blocks left in the store", kept)
				}
			})
		})
	}
}

// The log is open until the last records are in it, also those that only the
// stop cuts.
func TestGracefulStopLogsWhatStoreAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := withDiary(w)
		d.hold = make(chan struct{})
		j := runFunc(w, receiver.Config{BlockInterval: time.Hour}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			return storeInts(ctx, s, 0, 37)
		}))
		synctest.Wait()
		close(j.stop)
		time.Sleep(time.Second)
		if d.isClosed() || len(w.log) != 0 {
			t.Errorf("closed %v with %d blocks added", d.isClosed(), len(w.log))
		}
		close(d.hold)
		if err := <-j.done; err != nil {
			t.Error(err)
		}
		if got := records[int](w); !slices.Equal(got, ints(37)) || !d.isClosed() {
			t.Errorf("records %v, closed %v", got, d.isClosed())
		}
	})
}

func TestLogThatCannotBeOpened(t *testing.T) {
	nothing := func() receiver.Receiver[int] {
		return idle(func(context.Context, *receiver.Sink[int]) error { return nil })
	}
	t.Run("fails the receiver", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			j := runIn(w, receiver.Env{OpenLog: func(context.Context) (receiver.Log, error) { return nil, errFlaky }}, nothing)
			var f *receiver.FailedError
			if err := <-j.done; !errors.As(err, &f) || f.Fatal || !strings.Contains(err.Error(), "open the log: flaky") {
				t.Errorf("Run returned %v", err)
			}
			if got := w.kinds(); got != "failed" {
				t.Errorf("events: %s", got)
			}
		})
	})
	t.Run("is given up at a stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			j := runIn(w, receiver.Env{OpenLog: func(ctx context.Context) (receiver.Log, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}}, nothing)
			time.Sleep(time.Second)
			mustEnd(t, j)
			if got := w.kinds(); got != "stopped" {
				t.Errorf("events: %s", got)
			}
		})
	})
}
