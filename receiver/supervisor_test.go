package receiver_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/receiver"
)

func TestRestartsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var at []time.Duration
		began := time.Now()
		j := runFunc(w, receiver.Config{RestartDelayMax: time.Second}, func(ctx context.Context, s *receiver.Sink[int]) error {
			at = append(at, time.Since(began).Round(time.Millisecond))
			s.Ready()
			switch len(at) {
			case 7: // a start that stored something begins anew
				return s.Store(ctx, 1)
			case 9: // so does one that lasted
				time.Sleep(time.Second)
				return errFlaky
			case 11:
				<-ctx.Done()
				return ctx.Err()
			}
			return errFlaky
		})
		time.Sleep(time.Minute)
		mustEnd(t, j)
		want := []time.Duration{0, 100, 300, 700, 1500, 2500, 3500, 3600, 3800, 4900, 5100}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if !slices.Equal(at, want) {
			t.Errorf("starts at %v, want %v", at, want)
		}
		if e := w.last(receiver.Restarting); e.Starts != 10 || !strings.Contains(e.Message, "next start in 200ms: flaky") {
			t.Errorf("event %+v", e)
		}
	})
}

func TestSourceNeverReachedIsFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := runFunc(w, receiver.Config{StartAttempts: 4}, func(context.Context, *receiver.Sink[int]) error { return errFlaky })
		err := <-j.done
		var f *receiver.FailedError
		if !errors.As(err, &f) || !f.Fatal || !errors.Is(err, errFlaky) ||
			!strings.Contains(err.Error(), `receiver "lines": source not reached in 4 attempts: flaky`) {
			t.Errorf("Run returned %v", err)
		}
		if got := w.kinds(); got != "restarting restarting restarting failed" {
			t.Errorf("events: %s", got)
		}
		if e := w.last(receiver.Failed); !e.Fatal || e.Message != err.Error() || e.Starts != 4 {
			t.Errorf("event %+v", e)
		}
	})
}

func TestSourceReachedOnceIsTriedForEver(t *testing.T) {
	for name, reach := range map[string]func(context.Context, *receiver.Sink[int]) error{
		"Ready": func(_ context.Context, s *receiver.Sink[int]) error { s.Ready(); return errFlaky },
		"Store": func(ctx context.Context, s *receiver.Sink[int]) error { return errors.Join(s.Store(ctx, 1), errFlaky) },
		"StoreMany": func(ctx context.Context, s *receiver.Sink[int]) error {
			return errors.Join(s.StoreMany(ctx, ints(1)), errFlaky)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				starts := 0
				j := runFunc(w, receiver.Config{}, func(ctx context.Context, s *receiver.Sink[int]) error {
					if starts++; starts == 2 {
						return reach(ctx, s)
					}
					return errFlaky
				})
				time.Sleep(time.Hour)
				mustEnd(t, j)
				if starts < 100 {
					t.Errorf("%d starts", starts)
				}
			})
		})
	}
}

func TestStopDuringTheBackOffEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := runFunc(w, receiver.Config{}, func(context.Context, *receiver.Sink[int]) error { return nil })
		time.Sleep(20 * time.Second)
		began := time.Now()
		mustEnd(t, j)
		if d := time.Since(began); d != 0 {
			t.Errorf("took %v", d)
		}
	})
}

func TestPanicIsReportedWithItsStackAndRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		opened := 0
		j := run(w, receiver.Config{}, func() receiver.Receiver[int] {
			switch opened++; opened {
			case 1:
				panic("in open")
			case 2:
				return receiver.Func[int](explode)
			case 3:
				return receiver.Func[int](func(_ context.Context, s *receiver.Sink[int]) error { s.Ready(); runtime.Goexit(); return nil })
			}
			return idle(func(ctx context.Context, s *receiver.Sink[int]) error { return s.Store(ctx, 1) })
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		var messages []string
		for _, e := range w.events {
			if e.Kind == receiver.Restarting {
				messages = append(messages, e.Message)
			}
		}
		if len(messages) != 3 || !strings.Contains(messages[0], "panic: in open") ||
			!strings.Contains(messages[1], "panic: boom 42") || !strings.Contains(messages[1], "receiver_test.explode") ||
			!strings.Contains(messages[2], "ended its goroutine") {
			t.Errorf("messages: %s", strings.Join(messages, "\n"))
		}
		mustEnd(t, j)
		if got := records[int](w); len(got) != 1 {
			t.Errorf("records %v", got)
		}
	})
}

func explode(context.Context, *receiver.Sink[int]) error { panic(fmt.Sprintf("boom %d", 42)) }

func TestDoneSourceIsDrainedAndNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := runFunc(w, receiver.Config{}, func(ctx context.Context, s *receiver.Sink[int]) error {
			if err := storeInts(ctx, s, 0, 37); err != nil {
				return err
			}
			return fmt.Errorf("end of file: %w", receiver.ErrDone)
		})
		if err := <-j.done; err != nil {
			t.Error(err)
		}
		if got := records[int](w); !slices.Equal(got, ints(37)) {
			t.Errorf("records %v", got)
		}
		if e := w.last(receiver.Stopped); !strings.Contains(e.Message, "source has ended") || e.Lost != 0 {
			t.Errorf("event %+v", e)
		}
	})
}

func TestReceiveThatIgnoresTheStopIsReportedAndItsRecordsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		release := make(chan struct{})
		j := runFunc(w, receiver.Config{StopTimeout: 10 * time.Second}, func(ctx context.Context, s *receiver.Sink[int]) error {
			err := storeInts(ctx, s, 0, 3)
			<-release
			s.ReportError(errFlaky) // too late
			return err
		})
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		err := j.end()
		if err == nil || !strings.Contains(err.Error(), "Receive has not returned") {
			t.Errorf("Run returned %v", err)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("took %v", d)
		}
		close(release)
		synctest.Wait()
		if got := records[int](w); !slices.Equal(got, ints(3)) {
			t.Errorf("records %v", got)
		}
		if got := w.kinds(); got != "started failed" {
			t.Errorf("events: %s", got)
		}
	})
}

func TestRunnerAndSinkTellWhoTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		open := func() receiver.Receiver[int] {
			return receiver.Func[int](func(_ context.Context, s *receiver.Sink[int]) error {
				if s.Stream() != "in" || s.Epoch() != 9 || s.Executor() != "x" {
					t.Errorf("sink of %s, %s, %s", s.Stream(), s.Epoch(), s.Executor())
				}
				return receiver.ErrDone
			})
		}
		r := receiver.NewRunner("in", open, codec.For[int](), receiver.Options{Level: base.DiskOnly, PreferredHost: "h"})
		if r.Name() != "in" || r.Level() != base.DiskOnly || r.PreferredHost() != "h" {
			t.Errorf("runner %s, %s, %s", r.Name(), r.Level(), r.PreferredHost())
		}
		if err := r.Run(t.Context(), receiver.Env{Stream: "in", Epoch: 9, Executor: "x", Blocks: w, Driver: w}); err != nil {
			t.Error(err)
		}
		bad := receiver.Env{Stream: "in", Blocks: w, Driver: w, Config: receiver.Config{MaxRate: -1}}
		var f *receiver.FailedError
		if err := r.Run(t.Context(), bad); !errors.As(err, &f) || !f.Fatal || !strings.Contains(err.Error(), "MaxRate is -1") {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestConfigNamesFieldValueAndRule(t *testing.T) {
	if err := (receiver.Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	for want, c := range map[string]receiver.Config{
		"BlockInterval is -1s: must be":                     {BlockInterval: -time.Second},
		"StopTimeout is 5ns: must be":                       {StopTimeout: 5},
		"QueueSize is -1: must not be negative":             {QueueSize: -1},
		"MaxBlockBytes is -1: must be between":              {MaxBlockBytes: -1},
		"MaxByteRate is -0.5: must be 0 (no limit) or a po": {MaxByteRate: -0.5},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
