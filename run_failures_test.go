package tidemill_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
	"github.com/tidemill/tidemill/tidetest"
)

// numbers is the job of most tests here: batch i has the records 10*i and 10*i+1.
func numbers(ssc *tidemill.StreamingContext, n int) tidemill.DStream[int] {
	var in [][]int
	for i := 1; i <= n; i++ {
		in = append(in, []int{10 * i, 10*i + 1})
	}
	return tidetest.Script(ssc, "in", in)
}

// TestUserFailuresAreNamed also shows that nothing but the job is hurt.
func TestUserFailuresAreNamed(t *testing.T) {
	boom := func(v int) int {
		if v == 21 {
			panic("boom")
		}
		return v
	}
	for name, c := range map[string]struct {
		build func(ssc *tidemill.StreamingContext)
		want  []string
	}{
		"panic in Map": {func(ssc *tidemill.StreamingContext) {
			tidemill.Print(tidemill.Map(numbers(ssc, 3), boom), "out", 5)
		}, []string{`output "out"`, `map "in.map"`, "00:00:02", "partition 1", "record 1", "(21)", "panic: boom", "4 attempts"}},
		"panic in ReduceByKey": {func(ssc *tidemill.StreamingContext) {
			pairs := tidemill.Map(numbers(ssc, 3), func(v int) tidemill.Pair[int, int] { return tidemill.KV(1, v) })
			tidemill.Print(tidemill.ReduceByKey(pairs, func(a, b int) int { return a + boom(b) }), "out", 5)
		}, []string{"reduceByKey", "00:00:02", "panic: boom", "21"}},
		"error of MapPartitions": {func(ssc *tidemill.StreamingContext) {
			tidemill.Print(tidemill.MapPartitions(numbers(ssc, 3), func(t *tidemill.Task, in iter.Seq[int], emit func(int) bool) error {
				for v := range in {
					if v == 21 {
						return errors.New("no 21 please")
					}
				}
				return nil
			}), "out", 5)
		}, []string{"mapPartitions", "00:00:02", "partition 1", "no 21 please"}},
		"error of ForeachPartition": {func(ssc *tidemill.StreamingContext) {
			tidemill.ForeachPartition(numbers(ssc, 3), "sink", func(t *tidemill.Task, in iter.Seq[int]) error {
				for v := range in {
					if v == 21 {
						return errors.New("sink is full")
					}
				}
				return nil
			})
		}, []string{`output "sink"`, "00:00:02", "partition 1", "sink is full"}},
		"Goexit in a task": {func(ssc *tidemill.StreamingContext) {
			tidemill.Print(tidemill.Map(numbers(ssc, 3), func(v int) int {
				if v == 21 {
					runtime.Goexit()
				}
				return v
			}), "out", 5)
		}, []string{`map "in.map"`, "00:00:02", "partition 1", "ended the goroutine"}},
		"error of ForeachBatch": {func(ssc *tidemill.StreamingContext) {
			tidemill.ForeachBatch(numbers(ssc, 3), "out", func(_ context.Context, b *tidemill.Batch[int]) error {
				if strings.Contains(b.Time().String(), "00:00:02") {
					return errors.New("no database")
				}
				return nil
			})
		}, []string{`output "out"`, "00:00:02", "no database"}},
		"panic in ForeachBatch": {func(ssc *tidemill.StreamingContext) {
			tidemill.ForeachBatch(numbers(ssc, 3), "out", func(_ context.Context, b *tidemill.Batch[int]) error {
				if strings.Contains(b.Time().String(), "00:00:02") {
					panic("no database")
				}
				return nil
			})
		}, []string{`foreachBatch "out"`, "00:00:02", "panic: no database"}},
		"Goexit in ForeachBatch": {func(ssc *tidemill.StreamingContext) {
			tidemill.ForeachBatch(numbers(ssc, 3), "out", func(_ context.Context, b *tidemill.Batch[int]) error {
				if strings.Contains(b.Time().String(), "00:00:02") {
					runtime.Goexit()
				}
				return nil
			})
		}, []string{`foreachBatch "out"`, "00:00:02", "ended the goroutine"}},
		"error of Transform": {func(ssc *tidemill.StreamingContext) {
			tidemill.Print(tidemill.Transform(numbers(ssc, 3), func(r tidemill.RDD[int], t tidemill.BatchTime) (tidemill.RDD[int], error) {
				if strings.Contains(t.String(), "00:00:02") {
					return r, errors.New("no dictionary")
				}
				return r, nil
			}), "out", 5)
		}, []string{"transform", "00:00:02", "no dictionary"}},
		"panic in Transform": {func(ssc *tidemill.StreamingContext) {
			tidemill.Print(tidemill.Transform(numbers(ssc, 3), func(r tidemill.RDD[int], t tidemill.BatchTime) (tidemill.RDD[int], error) {
				if strings.Contains(t.String(), "00:00:02") {
					panic("no dictionary")
				}
				return r, nil
			}), "out", 5)
		}, []string{"transform", "00:00:02", "panic: no dictionary"}},
		"Goexit in Transform": {func(ssc *tidemill.StreamingContext) {
			tidemill.Print(tidemill.Transform(numbers(ssc, 3), func(r tidemill.RDD[int], t tidemill.BatchTime) (tidemill.RDD[int], error) {
				if strings.Contains(t.String(), "00:00:02") {
					runtime.Goexit()
				}
				return r, nil
			}), "out", 5)
		}, []string{"00:00:02", "ended the goroutine"}},
		"error of BroadcastEach": {func(ssc *tidemill.StreamingContext) {
			tidemill.BroadcastEach(ssc, "rules", func(_ context.Context, t tidemill.BatchTime) (int, error) {
				if strings.Contains(t.String(), "00:00:02") {
					return 0, errors.New("no rules")
				}
				return 1, nil
			})
			tidemill.Print(numbers(ssc, 3), "out", 5)
		}, []string{`broadcast value "rules"`, "00:00:02", "no rules"}},
		"panic in BroadcastEach": {func(ssc *tidemill.StreamingContext) {
			tidemill.BroadcastEach(ssc, "rules", func(_ context.Context, t tidemill.BatchTime) (int, error) { panic("no rules") })
			tidemill.Print(numbers(ssc, 3), "out", 5)
		}, []string{`broadcast value "rules"`, "00:00:01", "panic: no rules"}},
		"Goexit in BroadcastEach": {func(ssc *tidemill.StreamingContext) {
			tidemill.BroadcastEach(ssc, "rules", func(_ context.Context, t tidemill.BatchTime) (int, error) { runtime.Goexit(); return 0, nil })
			tidemill.Print(numbers(ssc, 3), "out", 5)
		}, []string{`broadcast value "rules"`, "00:00:01", "ended the goroutine"}},
	} {
		t.Run(name, func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				log := &recLog{trace: &trace{}}
				job := tidetest.Start(t, tidetest.Job{
					Config:  tidemill.Config{Executors: 2, TaskSlots: 1},
					Build:   func(ssc *tidemill.StreamingContext) error { c.build(ssc); return nil },
					Options: []tidemill.ContextOption{tidemill.WithEventLog(log)},
				})
				job.Advance(5)
				wantErr(t, job, c.want...)
				if strings.Contains(strings.Join(c.want, " "), "00:00:01") {
					return
				}
				if log.index(fmt.Sprint("log BatchDone ", ms(job.Time(1)))) < 0 || log.index(fmt.Sprint("log BatchDone ", ms(job.Time(2)))) >= 0 {
					t.Errorf("%q", log.trace.all())
				}
			})
		})
	}
}

// TestTaskThatFailsTwiceCountsOnce retries, and takes in one attempt's counters.
func TestTaskThatFailsTwiceCountsOnce(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		out := tidetest.NewCapture[kv]()
		heard := &batches{}
		var tries sync.Map
		job := tidetest.Start(t, tidetest.Job{
			Config:    tidemill.Config{Executors: 2},
			Listeners: []any{heard},
			Build: func(ssc *tidemill.StreamingContext) error {
				m := tidemill.MapPartitions(numbers(ssc, 2), func(task *tidemill.Task, in iter.Seq[int], emit func(kv) bool) error {
					task.Count("tries", 1)
					for v := range in {
						task.Count("records", 1)
						emit(tidemill.KV("sum", v))
					}
					n, _ := tries.LoadOrStore(task.Batch(), new(atomic.Int64))
					if task.Partition() == 0 && n.(*atomic.Int64).Add(1) <= 2 {
						return fmt.Errorf("not yet, attempt %d", task.Attempt())
					}
					return nil
				})
				out.Of(tidemill.ReduceByKey(m, add), "out")
				return nil
			},
		})
		job.Advance(2)
		if diff := cmp.Diff([][]kv{{tidemill.KV("sum", 21)}, {tidemill.KV("sum", 41)}}, out.Records()); diff != "" {
			t.Error(diff)
		}
		job.Stop(true)
		if diff := cmp.Diff(map[string]int64{"tries": 4, "records": 4}, job.Context().Counters()); diff != "" {
			t.Error(diff)
		}
		for _, b := range heard.list() {
			if diff := cmp.Diff(map[string]int64{"tries": 2, "records": 2}, b.Counters); diff != "" {
				t.Errorf("batch %v: %s", b.Time, diff)
			}
		}
	})
}

// TestContinueFailsOnlyWhatDepends has four outputs, of which two depend on
// what fails in batch 2, and windows that read over the hole.
func TestContinueFailsOnlyWhatDepends(t *testing.T) {
	for _, where := range []string{"task", "transform"} {
		t.Run(where, func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				good, bad, dep, win := tidetest.NewCapture[int](), tidetest.NewCapture[int](), tidetest.NewCapture[int](), tidetest.NewCapture[int]()
				log, told, heard := &recLog{trace: &trace{}}, &alarms{}, &batches{}
				job := tidetest.Start(t, tidetest.Job{
					Config:    tidemill.Config{OnBatchFailure: "continue", Executors: 2},
					Listeners: []any{told, heard},
					Options:   []tidemill.ContextOption{tidemill.WithEventLog(log)},
					Build: func(ssc *tidemill.StreamingContext) error {
						in := numbers(ssc, 5)
						var mayFail tidemill.DStream[int]
						if where == "task" {
							mayFail = tidemill.Map(in, func(v int) int {
								if v == 21 {
									panic("boom")
								}
								return v
							})
						} else {
							mayFail = tidemill.Transform(in, func(r tidemill.RDD[int], tm tidemill.BatchTime) (tidemill.RDD[int], error) {
								if strings.Contains(tm.String(), "00:00:02") {
									return r, errors.New("boom")
								}
								return rdd.Map(r, func(v int) int { return v }), nil
							})
						}
						bad.Of(mayFail, "bad")
						dep.Of(tidemill.Map(mayFail, func(v int) int { return -v }), "dep")
						good.Of(in, "good")
						win.Of(tidemill.Window(mayFail, 3*time.Second, time.Second), "win")
						return nil
					},
				})
				job.Advance(5)
				job.Stop(true)
				if err := job.Err(); err != nil {
					t.Fatal(err)
				}
				all := [][]int{{10, 11}, {20, 21}, {30, 31}, {40, 41}, {50, 51}}
				if diff := cmp.Diff(all, good.Records()); diff != "" {
					t.Error("good:", diff)
				}
				if diff := cmp.Diff([][]int{{10, 11}, {30, 31}, {40, 41}, {50, 51}}, bad.Records()); diff != "" {
					t.Error("bad:", diff)
				}
				if diff := cmp.Diff([][]int{{-10, -11}, {-30, -31}, {-40, -41}, {-50, -51}}, dep.Records()); diff != "" {
					t.Error("dep:", diff)
				}
				if diff := cmp.Diff([][]int{{10, 11}, {10, 11, 30, 31}, {30, 31, 40, 41}, {30, 31, 40, 41, 50, 51}}, win.Records()); diff != "" {
					t.Error("win:", diff)
				}
				if n := len(told.of("batch-failed")); n != 3 {
					t.Errorf("%d alarms", n)
				}
				T := ms(job.Time(2))
				if log.count("log BatchFailed") != 1 || log.index(fmt.Sprint("log BatchFailed ", T)) < 0 || log.index(fmt.Sprint("log BatchDone ", T)) >= 0 {
					t.Errorf("%q", log.trace.all())
				}
				for _, b := range heard.list() {
					if failed := b.Time == job.Time(2); (b.Err != nil) != failed || len(b.Outputs) != 4 {
						t.Errorf("%+v", b)
					}
				}
				if r := job.Stop(true); r.Completed < 5 || r.Failed != 1 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// TestFailureOfAnOldBatchFailsWhatReadsIt: a window computes a data set of an
// earlier batch for the first time, and that fails. Windows of that window
// must not stumble over it again and again.
func TestFailureOfAnOldBatchFailsWhatReadsIt(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		win, outer := tidetest.NewCapture[int](), tidetest.NewCapture[int]()
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{OnBatchFailure: "continue", Executors: 2},
			Build: func(ssc *tidemill.StreamingContext) error {
				mayFail := tidemill.Map(numbers(ssc, 8), func(v int) int {
					if v == 11 {
						panic("boom")
					}
					return v
				})
				inner := tidemill.Window(mayFail, 2*time.Second, 2*time.Second)
				win.Of(inner, "inner")
				outer.Of(tidemill.Window(inner, 4*time.Second, 2*time.Second), "outer")
				return nil
			},
		})
		job.Advance(8)
		job.Stop(true)
		if err := job.Err(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]int{{30, 31, 40, 41}, {50, 51, 60, 61}, {70, 71, 80, 81}}, win.Records()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([][]int{{30, 31, 40, 41}, {30, 31, 40, 41, 50, 51, 60, 61}, {50, 51, 60, 61, 70, 71, 80, 81}}, outer.Records()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestAnOutputsOwnFailureIsNoFaultOfItsInput: what ForeachBatch reads is read
// by others.
func TestAnOutputsOwnFailureIsNoFaultOfItsInput(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		after, win := tidetest.NewCapture[int](), tidetest.NewCapture[int]()
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{OnBatchFailure: "continue"},
			Build: func(ssc *tidemill.StreamingContext) error {
				in := tidemill.Map(numbers(ssc, 2), func(v int) int { return v })
				tidemill.ForeachBatch(in, "broken", func(ctx context.Context, b *tidemill.Batch[int]) error {
					_, err := b.Collect(ctx)
					if err == nil {
						err = errors.New("no database")
					}
					return err
				})
				tidemill.ForeachPartition(in, "sink", func(*tidemill.Task, iter.Seq[int]) error { return errors.New("sink is full") })
				after.Of(in, "after")
				win.Of(tidemill.Window(in, 2*time.Second, time.Second), "win")
				return nil
			},
		})
		job.Advance(2)
		job.Stop(true)
		if diff := cmp.Diff([][]int{{10, 11}, {20, 21}}, after.Records()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([][]int{{10, 11}, {10, 11, 20, 21}}, win.Records()); diff != "" {
			t.Error(diff)
		}
	})
}

type badListener struct{ calls atomic.Int64 }

func (b *badListener) OnBatchCompleted(tidemill.BatchInfo) { b.calls.Add(1); panic("listener") }
func (b *badListener) OnBatchStarted(tidemill.BatchInfo)   { b.calls.Add(1); runtime.Goexit() }

// TestListenerThatPanicsHurtsNobody also ends its goroutine.
func TestListenerThatPanicsHurtsNobody(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		bad, good := &badListener{}, &batches{}
		job := tidetest.Start(t, tidetest.Job{
			Listeners: []any{bad, good},
			Build: func(ssc *tidemill.StreamingContext) error {
				tidemill.Print(numbers(ssc, 3), "out", 1)
				return nil
			},
		})
		job.Advance(3)
		job.Stop(true)
		if err := job.Err(); err != nil || bad.calls.Load() != 6 || len(good.list()) != 3 {
			t.Errorf("%v; the bad one was called %d times, the good one %d", err, bad.calls.Load(), len(good.list()))
		}
	})
}

// moody is a source that can't plan when it does not want to.
type moody struct {
	at      int
	mood    func(t tidemill.BatchTime) error
	planned []int
}

func (m *moody) Open(context.Context, tidemill.BatchTime) error { return nil }
func (m *moody) Close() error                                   { return nil }
func (m *moody) Plan(_ context.Context, t tidemill.BatchTime, _ graph.Limit) (plan.Input, error) {
	if err := m.mood(t); err != nil {
		return plan.Input{}, err
	}
	return plan.Input{Records: 1, Parts: 1, Data: []byte{byte(m.at)}}, nil
}

func (m *moody) Planned(_ tidemill.BatchTime, in plan.Input) {
	m.planned = append(m.planned, int(in.Data[0]))
	m.at++
}

func (m *moody) Data(b *plan.Builder, in plan.Input) (tidemill.RDD[int], error) {
	return rdd.FromSlices(b.Scope, "moody", [][]int{{int(in.Data[0])}}), nil
}

// TestSourceThatCannotPlanKeepsItsPosition: the batch goes on without it.
func TestSourceThatCannotPlanKeepsItsPosition(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		out, other, told := tidetest.NewCapture[int](), tidetest.NewCapture[int](), &alarms{}
		n := 0
		src := &moody{mood: func(tidemill.BatchTime) error {
			n++
			switch n {
			case 2:
				return errors.New("leader not available")
			case 3:
				panic("no metadata")
			case 4:
				runtime.Goexit()
			}
			return nil
		}}
		job := tidetest.Start(t, tidetest.Job{
			Listeners: []any{told},
			Build: func(ssc *tidemill.StreamingContext) error {
				out.Of(tidemill.FromSource(ssc, "moody", "moody", tidemill.Source[int](src)), "out")
				other.Of(numbers(ssc, 5), "other")
				return nil
			},
		})
		job.Advance(5)
		job.Stop(true)
		if err := job.Err(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]int{{0}, {1}}, out.Records()); diff != "" {
			t.Error(diff)
		}
		if len(other.Records()) != 5 {
			t.Error(other.Records())
		}
		got := told.of("source")
		if len(got) != 3 {
			t.Fatalf("%+v", got)
		}
		for i, want := range []string{"leader not available", "panic: no metadata", "ended the goroutine"} {
			if !strings.Contains(got[i].Message, want) || got[i].Subject != "moody" || got[i].Batch != job.Time(i+2) {
				t.Errorf("%+v, want %q", got[i], want)
			}
		}
	})
}

// TestResourceOpensAgainAndClosesOnce: open fails, then works; every executor
// closes what it opened, once.
func TestResourceOpensAgainAndClosesOnce(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		var opens, opened, closed atomic.Int64
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{Executors: 3, TaskSlots: 2},
			Build: func(ssc *tidemill.StreamingContext) error {
				res := tidemill.Resource(ssc, "db", func(context.Context) (string, error) {
					if opens.Add(1) <= 2 {
						return "", errors.New("connection refused")
					}
					opened.Add(1)
					return "db", nil
				}, func(string) error { closed.Add(1); return nil })
				in := tidetest.Script(ssc, "in", [][]int{{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}}, 6)
				tidemill.ForeachPartition(in, "out", func(task *tidemill.Task, in iter.Seq[int]) error {
					_, err := res.Get(task.Context())
					sleep(10 * time.Millisecond)
					return err
				})
				return nil
			},
		})
		job.Advance(2)
		if opened.Load() != 3 || closed.Load() != 0 {
			t.Errorf("%d opened, %d closed", opened.Load(), closed.Load())
		}
		job.Kill(1)
		if closed.Load() != 1 {
			t.Errorf("%d closed", closed.Load())
		}
		job.Stop(true)
		if err := job.Err(); err != nil || opened.Load() != 3 || closed.Load() != 3 {
			t.Errorf("%v: %d opened, %d closed", err, opened.Load(), closed.Load())
		}
	})
}

// TestResourceErrors: a failing open fails the task with the name, a failing
// close is the job's error.
func TestResourceErrors(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		job := tidetest.Start(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
			res := tidemill.Resource(ssc, "db", func(context.Context) (int, error) { return 1, nil }, func(int) error { return errors.New("still in use") })
			tidemill.ForeachPartition(numbers(ssc, 1), "out", func(task *tidemill.Task, in iter.Seq[int]) error {
				_, err := res.Get(task.Context())
				return err
			})
			return nil
		}})
		job.Advance(1)
		job.Stop(true)
		wantErr(t, job, `resource "db"`, "close", "still in use")
	})
}

var _ driver.AlarmListener = (*alarms)(nil)
