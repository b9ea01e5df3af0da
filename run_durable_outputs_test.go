package tidemill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/receiver"
	"github.com/tidemill/tidemill/tidetest"
)

// TestB20AFailedBatchIsNotDone: the second of two outputs fails at T3 and the job
// ends. After a restart T3 has the same input, and only what was not done is done;
// also with snapshots at every moment (SPARK-18905).
func TestB20AFailedBatchIsNotDone(t *testing.T) {
	for _, snapshotBytes := range []int64{0, 1} {
		for _, how := range []string{"error", "panic"} {
			t.Run(fmt.Sprintf("%s snapshotBytes=%d", how, snapshotBytes), func(t *testing.T) {
				tidetest.Run(t, func(t *testing.T) {
					f, out, first := newFeed(), tidetest.NewCapture[string](), tidetest.NewCapture[string]()
					var bad atomic.Int64
					m := newMill(t, tidemill.Config{SnapshotBytes: snapshotBytes}, func(ssc *tidemill.StreamingContext) error {
						in := tidemill.ReceiverStream(ssc, "in", f.open)
						first.Of(in, "first")
						tidemill.ForeachBatch(in, "second", func(_ context.Context, b *tidemill.Batch[string]) error {
							if ms(b.Time()) != bad.Load() {
								return nil
							}
							if how == "panic" {
								panic("the second output broke")
							}
							return errors.New("the second output broke")
						})
						out.Of(in, "third")
						return nil
					})
					m.start()
					t3 := m.run.Time(3)
					bad.Store(ms(t3))
					for i := range 3 {
						f.in <- []string{fmt.Sprint("x", i), fmt.Sprint("y", i)}
						m.run.Advance(1)
					}
					wantErr(t, m.run, t3.String(), `"second"`, "the second output broke")
					if n := len(m.done.list()); n != 2 {
						t.Errorf("%d batches are said to be done", n)
					}
					m.kill()
					facts := m.facts()
					if len(facts.Pending) != 1 || facts.Pending[0].Batch.Time != t3 || !slices.Equal(facts.Pending[0].Outputs, []base.UID{"first"}) || facts.Failed != 0 {
						t.Fatalf("pending %+v, %d failed", facts.Pending, facts.Failed)
					}
					planned := facts.Pending[0].Batch.Inputs[0].Blocks
					bad.Store(0)
					m.start()
					if r := m.run.Context().Recovered(); !slices.Equal(r.Pending, []tidemill.BatchTime{t3}) {
						t.Errorf("pending %v", r.Pending)
					}
					m.run.Advance(1)
					eachOnce(t, out, "x0", "y0", "x1", "y1", "x2", "y2")
					if at := eachOnce(t, first, "x0", "y0", "x1", "y1", "x2", "y2"); at["x2"][0] != t3 {
						t.Errorf("x2 came in %v", at["x2"])
					}
					n := 0
					for _, b := range first.Batches() {
						if b.Time == t3 {
							n++
						}
					}
					if n != 1 {
						t.Errorf("the output that was done ran %d times", n)
					}
					again := m.done.list()[0]
					if again.Time != t3 || again.Err != nil || again.Records != 2 || len(again.Outputs) != 2 {
						t.Errorf("batch %+v", again)
					}
					if len(planned) != 1 {
						t.Errorf("%d blocks were planned", len(planned))
					}
				})
			})
		}
	}
}

// TestAFailedBatchThatTheJobGoesOnFromIsNotRepeated: with on-batch-failure=continue
// a failed batch has ended. Its listeners see one of two outputs failed, and the
// state of a later restart is that of the operators that applied it.
func TestAFailedBatchThatTheJobGoesOnFromIsNotRepeated(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		q, sums := &tidemill.Queue[string]{}, tidetest.NewCapture[kv]()
		var batch, runs atomic.Int32
		m := newMill(t, tidemill.Config{OnBatchFailure: "continue", MaxTaskFailures: 1}, func(ssc *tidemill.StreamingContext) error {
			ones := tidemill.Map(tidemill.QueueStream(ssc, "queue", q), func(s string) kv { return tidemill.KV(s, 1) })
			good := tidemill.UpdateStateByKey(ones, "good", sumUpdate)
			broken := tidemill.UpdateStateByKey(ones, "broken", func(v []int, old tidemill.Opt[int]) tidemill.Opt[int] {
				if batch.Load() == 2 {
					panic("no flour")
				}
				return sumUpdate(v, old)
			})
			tidemill.ForeachBatch(good, "one", func(context.Context, *tidemill.Batch[kv]) error { runs.Add(1); return nil })
			sums.Of(tidemill.Union(tidemill.Map(good, named("good-")), tidemill.Map(broken, named("broken-"))), "two")
			return nil
		})
		m.start()
		for i := range 3 {
			batch.Store(int32(i + 1))
			q.Push([][]string{{"a"}, {"a", "b"}, {"a"}}[i]...)
			m.run.Advance(1)
		}
		done := m.done.list()
		failed := 0
		for _, o := range done[1].Outputs {
			if o.Err != nil {
				failed++
			}
		}
		if len(done) != 3 || done[1].Err == nil || failed != 1 || len(done[1].Outputs) != 2 {
			t.Errorf("%d batches, the second failed with %v in %d of %d outputs", len(done), done[1].Err, failed, len(done[1].Outputs))
		}
		m.kill()
		if f := m.facts(); f.Failed != 1 || f.Done != 3 || len(f.Pending) != 0 {
			t.Errorf("%d failed, %d done, pending %v", f.Failed, f.Done, f.Pending)
		}
		m.start()
		q.Push("a")
		m.run.Advance(1)
		last := map[string]int{} // b came in the failed batch only
		all := sums.Records()
		for _, p := range all[len(all)-1] {
			last[p.Key] = p.Value
		}
		if diff := cmp.Diff(map[string]int{"good-a": 4, "good-b": 1, "broken-a": 3}, last); diff != "" {
			t.Error(diff)
		}
		if runs.Load() != 4 {
			t.Errorf("the output that works ran %d times in 4 batches", runs.Load())
		}
	})
}

func named(prefix string) func(kv) kv {
	return func(p kv) kv { return tidemill.KV(prefix+p.Key, p.Value) }
}

// TestB41StopInTheFirstMoments: the stop ends in its limit whenever it comes, and
// leaves a directory that the next start goes on with.
func TestB41StopInTheFirstMoments(t *testing.T) {
	for i := range 100 {
		tidetest.Run(t, func(t *testing.T) {
			f, out := newFeed(), tidetest.NewCapture[string]()
			m := newMill(t, tidemill.Config{Executors: 2}, received(f, out))
			m.start()
			f.in <- []string{"a", "b"}
			sleep(time.Duration(m.rng.IntN(500)+i/10) * time.Millisecond)
			began := time.Now()
			report := m.run.Stop(i%2 == 0)
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("the stop took %v", d)
			}
			if i%2 == 0 && (report.Blocks > 0 || len(report.Pending) > 0) {
				t.Errorf("left: %s", report)
			}
			f.in <- []string{"c", "d"}
			m.start().Advance(3)
			places := placesOf(t, out)
			for _, r := range []string{"a", "c"} {
				// A receiver that was stopped before it could store did not take it.
				if n := len(places[r]); n > 1 || n == 0 && r == "c" {
					t.Errorf("stop %d: record %q came %d times", i, r, n)
				}
			}
			if t.Failed() {
				return
			}
		})
	}
}

// TestB41StopAfterAFailedFirstBatch does not wait for it.
func TestB41StopAfterAFailedFirstBatch(t *testing.T) {
	for _, policy := range []string{"stop", "continue"} {
		tidetest.Run(t, func(t *testing.T) {
			f, out := newFeed(), tidetest.NewCapture[string]()
			var good atomic.Bool
			m := newMill(t, tidemill.Config{OnBatchFailure: policy}, func(ssc *tidemill.StreamingContext) error {
				in := tidemill.ReceiverStream(ssc, "in", f.open)
				tidemill.ForeachBatch(in, "bad", func(context.Context, *tidemill.Batch[string]) error {
					if good.Load() {
						return nil
					}
					return errors.New("bad grain")
				})
				out.Of(in, "out")
				return nil
			})
			m.start()
			f.in <- []string{"a", "b"}
			settle(1100 * time.Millisecond)
			good.Store(true)
			began := time.Now()
			m.run.Stop(true)
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("%s: the stop took %v", policy, d)
			}
			m.start().Advance(1)
			eachOnce(t, out, "a", "b")
		})
	}
}

// TestB41AReceiverThatIgnoresTheStop is left behind in time, and what it had
// stored comes after the restart.
func TestB41AReceiverThatIgnoresTheStop(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		release, out := make(chan struct{}), tidetest.NewCapture[string]()
		open := deafReceiver(release)
		m := newMill(t, tidemill.Config{StopTimeout: 15 * time.Second}, func(ssc *tidemill.StreamingContext) error {
			out.Of(tidemill.ReceiverStream(ssc, "in", func() tidemill.Receiver[string] { return open() }), "out")
			return nil
		})
		m.start().Advance(1)
		began := time.Now()
		_, _ = m.run.Context().Stop(t.Context(), true)
		if d := time.Since(began); d > 40*time.Second {
			t.Errorf("the stop took %v", d)
		}
		close(release)
		settle(time.Minute)
		open = func() tidemill.Receiver[string] {
			return receiver.Func[string](func(ctx context.Context, s *receiver.Sink[string]) error {
				return errors.Join(s.Store(ctx, "b"), receiver.ErrDone)
			})
		}
		m.start().Advance(2)
		eachOnce(t, out, "a", "b")
	})
}

// TestB43StopFromInside an output function, from two goroutines, twice, before
// the start: it ends in time, and a graceful one leaves a last snapshot
// (SPARK-11104, SPARK-12021, SPARK-14701).
func TestB43StopFromInside(t *testing.T) {
	t.Run("output function", func(t *testing.T) {
		for _, graceful := range []bool{true, false} {
			tidetest.Run(t, func(t *testing.T) {
				f, out := newFeed(), tidetest.NewCapture[string]()
				var ssc *tidemill.StreamingContext
				var stops atomic.Int32
				m := newMill(t, tidemill.Config{StopTimeout: 20 * time.Second}, func(c *tidemill.StreamingContext) error {
					in := tidemill.ReceiverStream(c, "in", f.open)
					out.Of(in, "out")
					tidemill.ForeachBatch(in, "stop", func(ctx context.Context, b *tidemill.Batch[string]) error {
						if stops.Add(1) == 1 {
							_, _ = ssc.Stop(ctx, graceful)
						}
						return nil
					})
					return nil
				})
				m.start()
				ssc = m.run.Context()
				f.in <- []string{"a", "b"}
				m.run.Advance(1)
				sleep(40 * time.Second)
				if s := ssc.State(); s != tidemill.Stopped {
					t.Errorf("graceful=%t: the context is %v", graceful, s)
				}
				m.run.Stop(true)
				f.in <- []string{"c", "d"}
				m.start().Advance(2)
				eachOnce(t, out, "a", "b", "c", "d")
			})
		}
	})
	t.Run("two goroutines and twice", func(t *testing.T) {
		tidetest.Run(t, func(t *testing.T) {
			f, out := newFeed(), tidetest.NewCapture[string]()
			m := newMill(t, tidemill.Config{}, received(f, out))
			m.start()
			f.in <- []string{"a", "b"}
			m.run.Advance(1)
			f.in <- []string{"c", "d"}
			settle(300 * time.Millisecond)
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { m.run.Stop(true) })
			}
			wg.Wait()
			if report := m.run.Stop(true); !report.Graceful || report.Blocks > 0 {
				t.Errorf("%s", report)
			}
			if n := len(m.alarms.of("snapshot")) + len(m.alarms.of("log")); n != 0 {
				t.Errorf("alarms %v", m.alarms.all)
			}
			eachOnce(t, out, "a", "b", "c", "d")
			m.start()
			// Nothing is replayed but that there was a snapshot.
			if r := m.run.Context().Recovered(); !r.Recovered || r.Events > 1 {
				t.Errorf("%+v: the last snapshot was not written", r)
			}
		})
	})
	t.Run("before the start", func(t *testing.T) {
		tidetest.Run(t, func(t *testing.T) {
			m := newMill(t, tidemill.Config{}, received(newFeed(), tidetest.NewCapture[string]()))
			ssc, err := tidetest.New(t, m.job())
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := ssc.Stop(t.Context(), true); err != nil {
					t.Error(err)
				}
			}
			if _, err := m.disk.Stat(millDir); err == nil {
				t.Error("a job that never started has made its directory")
			}
		})
	})
	t.Run("while it starts", func(t *testing.T) {
		tidetest.Run(t, func(t *testing.T) {
			m := newMill(t, tidemill.Config{}, received(newFeed(), tidetest.NewCapture[string]()))
			m.disk.Slow(func(string, string) time.Duration { return 10 * time.Millisecond })
			ssc, err := tidetest.New(t, m.job())
			if err != nil {
				t.Fatal(err)
			}
			started := make(chan error, 1)
			go func() { started <- ssc.Start(t.Context()) }()
			settle(25 * time.Millisecond)
			if _, err := ssc.Stop(t.Context(), true); err != nil {
				t.Error(err)
			}
			<-started // with an error or without one
			if s := ssc.State(); s != tidemill.Stopped {
				t.Errorf("the context is %v", s)
			}
			m.start().Advance(1)
		})
	})
}

// TestWhatFailedStaysFailedOverARestart: a window takes a data set that failed as
// empty, before and after, and the batch of the failure is not tried again.
func TestWhatFailedStaysFailedOverARestart(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		q, out := &tidemill.Queue[string]{}, tidetest.NewCapture[string]()
		var fixed atomic.Bool
		m := newMill(t, tidemill.Config{OnBatchFailure: "continue", MaxTaskFailures: 1}, func(ssc *tidemill.StreamingContext) error {
			ground := tidemill.Map(tidemill.QueueStream(ssc, "queue", q), func(s string) string {
				if s == "stone" && !fixed.Load() {
					panic("the mill can't grind it")
				}
				return s
			})
			tidemill.Print(ground, "print", 1)
			out.Of(tidemill.Window(ground, 3*time.Second, time.Second), "out")
			return nil
		})
		for _, s := range []string{"rye", "stone", "oat", "wheat", "spelt"} {
			q.Push(s)
		}
		m.start().Advance(3)
		m.kill()
		fixed.Store(true)
		m.start().Advance(2)
		want := [][]string{{"rye"}, {"rye", "oat"}, {"oat", "wheat"}, {"oat", "wheat", "spelt"}}
		got := out.Records()
		// The window of the batch in which it failed has no more than the batch before.
		got = slices.DeleteFunc(got, func(r []string) bool { return len(r) == 0 })
		if len(got) == 5 && slices.Equal(got[1], []string{"rye"}) {
			got = slices.Delete(got, 1, 2)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
