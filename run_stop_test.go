package tidemill_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/tidetest"
)

// slowJob has a receiver, a queue and tasks of the given length.
func slowJob(f *feed, q *tidemill.Queue[string], out *tidetest.Capture[string], d time.Duration) tidetest.Job {
	return tidetest.Job{
		Config: tidemill.Config{MaxPendingBatches: 1, StopTimeout: time.Minute},
		Build: func(ssc *tidemill.StreamingContext) error {
			in := tidemill.Union(tidemill.ReceiverStream(ssc, "recv", f.open), tidemill.QueueStream(ssc, "q", q, tidemill.InputPartitions(1)))
			out.Of(tidemill.MapPartitions(in, func(task *tidemill.Task, in iter.Seq[string], emit func(string) bool) error {
				for s := range in {
					if d > 0 {
						select {
						case <-time.After(d):
						case <-task.Context().Done():
							return context.Cause(task.Context())
						}
					}
					emit(s)
				}
				return nil
			}), "out")
			return nil
		},
	}
}

func flat(c *tidetest.Capture[string]) (all []string) {
	for _, r := range c.Records() {
		all = append(all, r...)
	}
	return all
}

// TestGracefulStopAccountsForEverything in every state of the job.
func TestGracefulStopAccountsForEverything(t *testing.T) {
	for name, c := range map[string]struct {
		task time.Duration
		feed func(job *tidetest.Running, f *feed)
		want int
	}{
		"at once": {0, func(*tidetest.Running, *feed) {}, 0},
		"records just stored": {0, func(_ *tidetest.Running, f *feed) {
			f.in <- []string{"a"}
			f.in <- []string{"b"}
			f.in <- []string{"c", "d"}
		}, 4},
		"unflushed records": {0, func(job *tidetest.Running, f *feed) {
			job.Advance(2)
			sleep(10 * time.Millisecond)
			f.in <- []string{"a"}
			f.in <- []string{"b"}
			sleep(10 * time.Millisecond)
		}, 2},
		"in the middle of a batch": {300 * time.Millisecond, func(job *tidetest.Running, f *feed) {
			f.in <- []string{"a", "b", "c", "d"}
			sleep(1500 * time.Millisecond)
			f.in <- []string{"e", "f"}
		}, 6},
		"queue full": {4 * time.Second, func(job *tidetest.Running, f *feed) {
			for i := range 8 {
				f.in <- []string{fmt.Sprint(i)}
				job.Advance(1)
			}
			f.in <- []string{"last", "one"}
		}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				f, out := newFeed(), tidetest.NewCapture[string]()
				job := tidetest.Start(t, slowJob(f, &tidemill.Queue[string]{}, out, c.task))
				c.feed(job, f)
				settle(time.Millisecond) // the receiver takes it
				report := job.Stop(true)
				if err := job.Err(); err != nil {
					t.Fatal(err)
				}
				if got := flat(out); len(got) != c.want {
					t.Errorf("%d records %q, want %d", len(got), got, c.want)
				}
				if !report.Graceful || report.Blocks != 0 || len(report.Pending) != 0 || !strings.Contains(report.String(), "stopped gracefully") || !strings.HasSuffix(report.String(), "nothing left") {
					t.Errorf("%s", report)
				}
				again, err := job.Context().Stop(t.Context(), false)
				if err != nil || cmp.Diff(report, again) != "" {
					t.Errorf("stopped twice: %v, %v", again, err)
				}
			})
		})
	}
}

// TestImmediateStopSaysWhatItLeft in the states of the test above.
func TestImmediateStopSaysWhatItLeft(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f, q, out := newFeed(), &tidemill.Queue[string]{}, tidetest.NewCapture[string]()
		for range 10 {
			q.Push("x")
		}
		job := tidetest.Start(t, slowJob(f, q, out, 10*time.Second))
		f.in <- []string{"a", "b"}
		job.Advance(2)
		f.in <- []string{"c", "d"}
		f.in <- []string{"e", "f"}
		sleep(100 * time.Millisecond)
		began := time.Now()
		report := job.Stop(false)
		if d := time.Since(began); d > time.Second {
			t.Errorf("it took %v", d)
		}
		want := tidemill.StopReport{Pending: []tidemill.BatchTime{job.Time(1), job.Time(2)}, Blocks: 2, Records: 4}
		if diff := cmp.Diff(want, report); diff != "" {
			t.Error(diff)
		}
		if s := report.String(); s != "stopped at once: 0 batches done; left: 2 planned batches, 4 received records in 2 blocks" {
			t.Error(s)
		}
		// A graceful stop after it changes nothing.
		if again := job.Stop(true); cmp.Diff(report, again) != "" {
			t.Error(again)
		}
		if err := job.Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	for _, graceful := range []bool{true, false} {
		tidetest.Run(t, func(t *testing.T) {
			ssc, err := tidetest.New(t, slowJob(newFeed(), &tidemill.Queue[string]{}, tidetest.NewCapture[string](), 0))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := ssc.Stop(t.Context(), graceful); err != nil || ssc.State() != tidemill.Stopped {
					t.Error(err, ssc.State())
				}
			}
			holds(t, ssc.Start(t.Context()), "already been stopped", "make a new one")
			if err := ssc.AwaitTermination(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStopFromAllSides: many stops of both kinds, and starts, at once.
func TestStopFromAllSides(t *testing.T) {
	for n := range 20 {
		tidetest.Run(t, func(t *testing.T) {
			f, out := newFeed(), tidetest.NewCapture[string]()
			ssc, err := tidetest.New(t, slowJob(f, &tidemill.Queue[string]{}, out, 100*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			f.in <- []string{"a", "b", "c"}
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					sleep(time.Duration(n*i) * 100 * time.Millisecond)
					switch {
					case i < 3:
						_ = ssc.Start(t.Context())
					case n%2 == 0 && i == 4:
						_ = ssc.AddExecutor()
					default:
						if _, err := ssc.Stop(t.Context(), i%2 == 0); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if _, err := ssc.Stop(t.Context(), false); err != nil || ssc.State() != tidemill.Stopped {
				t.Error(err, ssc.State())
			}
		})
	}
}

type stopping struct {
	ssc *tidemill.StreamingContext
	err error
}

func (s *stopping) OnBatchCompleted(tidemill.BatchInfo) {
	_, s.err = s.ssc.Stop(context.Background(), true)
}

func TestStopFromAListenerIsAnError(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		ssc, err := tidetest.New(t, slowJob(newFeed(), &tidemill.Queue[string]{}, tidetest.NewCapture[string](), 0))
		if err != nil {
			t.Fatal(err)
		}
		l := &stopping{ssc: ssc}
		ssc.AddListener(l)
		if err := ssc.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		sleep(1500 * time.Millisecond)
		if s := ssc.State(); s != tidemill.Active {
			t.Error(s)
		}
		if _, err := ssc.Stop(t.Context(), true); err != nil {
			t.Error(err)
		}
		holds(t, l.err, "within a listener", "another goroutine")
	})
}

// TestGracefulStopThatTakesTooLong becomes an immediate one: after the stop
// timeout, when its context ends, when another stop wants it at once.
func TestGracefulStopThatTakesTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		ctx  func() (context.Context, context.CancelFunc)
		now  bool
		took time.Duration
		want string
	}{
		"timeout": {func() (context.Context, context.CancelFunc) { return context.Background(), func() {} }, false, time.Minute, "stop timeout of 1m0s"},
		"context": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(context.Background(), 5*time.Second, errors.New("the user lost patience"))
		}, false, 5 * time.Second, "the user lost patience"},
		"at once": {func() (context.Context, context.CancelFunc) { return context.Background(), func() {} }, true, 3 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				f, out := newFeed(), tidetest.NewCapture[string]()
				j := slowJob(f, &tidemill.Queue[string]{}, out, time.Hour)
				job := tidetest.Start(t, j)
				f.in <- []string{"a", "b"}
				job.Advance(1)
				f.in <- []string{"c", "d"}
				ctx, cancel := c.ctx()
				defer cancel()
				if c.now {
					time.AfterFunc(3*time.Second, func() { job.Stop(false) })
				}
				began := time.Now()
				report, err := job.Context().Stop(ctx, true)
				if d := time.Since(began); d != c.took {
					t.Errorf("it took %v", d)
				}
				if c.want == "" {
					if err != nil {
						t.Error(err)
					}
				} else {
					holds(t, err, c.want, "left: 2 planned batches")
				}
				if report.Graceful || len(report.Pending) != 2 {
					t.Errorf("%+v", report)
				}
			})
		})
	}
}

// TestStopLeavesDeafUserCodeBehind: functions that ignore their context don't
// hold the stop for ever, and are counted.
func TestStopLeavesDeafUserCodeBehind(t *testing.T) {
	for name, build := range map[string]func(ssc *tidemill.StreamingContext, in tidemill.DStream[int], deaf func()){
		"task": func(_ *tidemill.StreamingContext, in tidemill.DStream[int], deaf func()) {
			tidemill.Print(tidemill.Map(in, func(v int) int { deaf(); return v }), "out", 10)
		},
		"ForeachBatch": func(_ *tidemill.StreamingContext, in tidemill.DStream[int], deaf func()) {
			tidemill.ForeachBatch(in, "out", func(context.Context, *tidemill.Batch[int]) error { deaf(); deaf(); return nil })
		},
		"job of its own": func(_ *tidemill.StreamingContext, in tidemill.DStream[int], deaf func()) {
			slow := tidemill.Map(in, func(v int) int { deaf(); return v })
			tidemill.ForeachBatch(slow, "out", func(_ context.Context, b *tidemill.Batch[int]) error {
				_, err := b.Collect(context.Background()) // not the context it was given
				return err
			})
		},
		"Transform": func(_ *tidemill.StreamingContext, in tidemill.DStream[int], deaf func()) {
			tidemill.Print(tidemill.Transform(in, func(r tidemill.RDD[int], _ tidemill.BatchTime) (tidemill.RDD[int], error) { deaf(); return r, nil }), "out", 10)
		},
		"BroadcastEach": func(ssc *tidemill.StreamingContext, in tidemill.DStream[int], deaf func()) {
			tidemill.BroadcastEach(ssc, "b", func(context.Context, tidemill.BatchTime) (int, error) { deaf(); return 1, nil })
			tidemill.Print(in, "out", 1)
		},
		"Resource": func(ssc *tidemill.StreamingContext, in tidemill.DStream[int], deaf func()) {
			res := tidemill.Resource(ssc, "r", func(context.Context) (int, error) { deaf(); return 1, nil }, func(int) error { return nil })
			tidemill.ForeachPartition(in, "out", func(task *tidemill.Task, _ iter.Seq[int]) error {
				_, err := res.Get(task.Context())
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				release := make(chan struct{})
				var inside atomic.Int64
				deaf := func() { inside.Add(1); <-release; inside.Add(-1) }
				ssc, err := tidetest.New(t, tidetest.Job{
					Config: tidemill.Config{Executors: 2, TaskSlots: 1, StopTimeout: 20 * time.Second},
					Build: func(ssc *tidemill.StreamingContext) error {
						build(ssc, tidetest.Script(ssc, "in", [][]int{{1, 2}}, 2), deaf)
						return nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := ssc.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				sleep(2500 * time.Millisecond)
				stuck := int(inside.Load())
				began := time.Now()
				report, err := ssc.Stop(t.Context(), false)
				if err != nil {
					t.Error(err)
				}
				if d := time.Since(began); d > 21*time.Second {
					t.Errorf("it took %v", d)
				}
				if report.Running != stuck || stuck == 0 || !strings.Contains(report.String(), fmt.Sprintf("%d calls of user code have not returned", stuck)) {
					t.Errorf("%d calls are stuck: %s", stuck, report)
				}
				close(release)
				sleep(time.Second)
			})
		})
	}
}

// TestReceiverThatIgnoresItsContext does not hold the stop either.
func TestReceiverThatIgnoresItsContext(t *testing.T) {
	for _, graceful := range []bool{true, false} {
		tidetest.Run(t, func(t *testing.T) {
			release := make(chan struct{})
			ssc, err := tidetest.New(t, tidetest.Job{
				Config: tidemill.Config{StopTimeout: 40 * time.Second},
				Build: func(ssc *tidemill.StreamingContext) error {
					tidemill.Print(tidemill.ReceiverStream(ssc, "recv", deafReceiver(release)), "out", 1)
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := ssc.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			sleep(2 * time.Second)
			began := time.Now()
			report, _ := ssc.Stop(t.Context(), graceful)
			if d := time.Since(began); d > 41*time.Second || report.Records != 0 {
				t.Errorf("it took %v: %v", d, report)
			}
			close(release)
			sleep(time.Minute)
		})
	}
}
