package tidemill_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/tidetest"
)

// mixed is a job of shuffles, a join, windows and persisted streams over two
// scripted sources. pause is called in every task.
type mixed struct {
	n       int // batches
	words   *tidetest.Capture[kv]
	windows *tidetest.Capture[kv]
	joined  *tidetest.Capture[tidemill.Pair[string, tidemill.Joined[int, int]]]
	spread  *tidetest.Capture[kv]
	pause   func()
}

func newMixed(n int, pause func()) *mixed {
	return &mixed{
		n: n, pause: pause, words: tidetest.NewCapture[kv](), windows: tidetest.NewCapture[kv](),
		joined: tidetest.NewCapture[tidemill.Pair[string, tidemill.Joined[int, int]]](), spread: tidetest.NewCapture[kv](),
	}
}

func (m *mixed) build(ssc *tidemill.StreamingContext) error {
	var left, right [][]string
	for i := range m.n {
		var a, b []string
		for j := range 12 {
			a = append(a, fmt.Sprintf("w%d", (i*j+j)%7))
			b = append(b, fmt.Sprintf("w%d", (i+j*j)%5))
		}
		left, right = append(left, a), append(right, b)
	}
	ones := func(d tidemill.DStream[string]) tidemill.DStream[kv] {
		return tidemill.MapPartitions(d, func(_ *tidemill.Task, in iter.Seq[string], emit func(kv) bool) error {
			m.pause()
			for w := range in {
				emit(tidemill.KV(w, 1))
			}
			return nil
		})
	}
	a := tidemill.ReduceByKey(ones(tidetest.Script(ssc, "left", left, 3)), add, tidemill.Partitions(3))
	b := tidemill.ReduceByKey(ones(tidetest.Script(ssc, "right", right, 2)), add, tidemill.Partitions(2))
	m.words.Of(a, "words")
	m.joined.Of(tidemill.Join(a, tidemill.Persist(b, tidemill.MemoryAndDisk), tidemill.Partitions(2)), "joined")
	m.windows.Of(tidemill.ReduceByKeyAndWindow(tidemill.Union(a, b), "win", add, nil, 4*time.Second, 2*time.Second), "windows")
	m.spread.Of(tidemill.Repartition(tidemill.MapValues(a, func(v int) int { m.pause(); return v }), 2), "spread")
	return nil
}

// results is all that the job has put out up to a batch.
func (m *mixed) results(until tidemill.BatchTime) []any {
	return []any{upTo(m.words, until), upTo(m.joined, until), upTo(m.windows, until), upTo(m.spread, until)}
}

func upTo[T any](c *tidetest.Capture[T], until tidemill.BatchTime) []tidetest.Captured[T] {
	return slices.DeleteFunc(c.Batches(), func(b tidetest.Captured[T]) bool { return b.Time > until })
}

// hashes keeps the content hash of every partition that was accepted, and
// whether two accepted attempts differed.
type hashes struct {
	mu   sync.Mutex
	of   map[string]uint64
	tell func(format string, args ...any)
	runs map[string]int
}

func newHashes(t *testing.T) *hashes {
	return &hashes{of: map[string]uint64{}, runs: map[string]int{}, tell: t.Errorf}
}

func (h *hashes) OnTaskCompleted(i driver.TaskInfo) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := fmt.Sprintf("%s %d", i.What, i.Partition)
	h.runs[key]++
	if old, ok := h.of[key]; ok && old != i.Hash {
		h.tell("two attempts at %s differ", key)
	}
	h.of[key] = i.Hash
}

// TestKilledExecutorChangesNothing kills and adds executors at random moments;
// replayable sources are computed again and the outputs are the same
// (Invariant 13).
func TestKilledExecutorChangesNothing(t *testing.T) {
	const n = 3
	play := func(t *testing.T, seed uint64) (results []any, of map[string]uint64) {
		tidetest.Run(t, func(t *testing.T) {
			r, tasks := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			var mu sync.Mutex
			m := newMixed(n, func() {
				mu.Lock()
				d := time.Duration(tasks.IntN(120)) * time.Millisecond
				mu.Unlock()
				sleep(d)
			})
			h := newHashes(t)
			job := tidetest.Start(t, tidetest.Job{
				Config:    tidemill.Config{Executors: 3, TaskSlots: 2, CatchUp: "all", MaxTaskFailures: 100},
				Build:     m.build,
				Listeners: []any{h},
			})
			if seed > 0 {
				live := []int{0, 1, 2}
				started := 3
				for at := time.Duration(0); at < n*time.Second; {
					d := time.Duration(100+r.IntN(1500)) * time.Millisecond
					sleep(d)
					at += d
					if len(live) > 1 && r.IntN(3) > 0 {
						i := r.IntN(len(live))
						job.Kill(live[i])
						live = slices.Delete(live, i, i+1)
					} else if err := job.Context().AddExecutor(); err != nil {
						t.Error(err)
						return
					} else {
						live = append(live, started)
						started++
					}
				}
			}
			until := job.Time(n + 3)
			for i := 0; i < 50 && (len(upTo(m.spread, until)) < n+3 || len(upTo(m.windows, until)) < (n+3)/2); i++ {
				job.Advance(1)
			}
			job.Stop(false)
			if err := job.Err(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			results, of = m.results(until), h.of
		})
		return results, of
	}
	want, wantHashes := play(t, 0)
	if len(wantHashes) == 0 || len(want[2].([]tidetest.Captured[kv])) != (n+3)/2 {
		t.Fatal(len(wantHashes), want)
	}
	seeds := 200
	if testing.Short() {
		seeds = 20
	}
	for seed := 1; seed <= seeds && !t.Failed(); seed++ {
		got, gotHashes := play(t, uint64(seed))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
		for key, h := range gotHashes {
			if w, ok := wantHashes[key]; ok && w != h {
				t.Errorf("seed %d: %s has another content", seed, key)
			}
		}
	}
}

// TestLostShuffleRunsOnlyLostMaps kills an executor between map and reduce and
// counts the runs of the map tasks.
func TestLostShuffleRunsOnlyLostMaps(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		var mu sync.Mutex
		maps := map[int]int{}
		where := map[int]string{}
		reduces := atomic.Int64{}
		out := tidetest.NewCapture[kv]()
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{Executors: 3, TaskSlots: 2},
			Build: func(ssc *tidemill.StreamingContext) error {
				in := tidetest.Script(ssc, "in", [][]int{{0, 1, 2, 3, 4, 5}}, 6)
				m := tidemill.MapPartitions(in, func(task *tidemill.Task, in iter.Seq[int], emit func(kv) bool) error {
					if task.Batch().Time().Second() == 1 {
						mu.Lock()
						maps[task.Partition()]++
						where[task.Partition()] = task.Executor()
						mu.Unlock()
						sleep(100 * time.Millisecond)
					}
					for v := range in {
						emit(tidemill.KV(fmt.Sprint(v), v))
					}
					return nil
				})
				out.Of(tidemill.MapPartitions(tidemill.ReduceByKey(m, add, tidemill.Partitions(6)), func(task *tidemill.Task, in iter.Seq[kv], emit func(kv) bool) error {
					if task.Batch().Time().Second() == 1 {
						reduces.Add(1)
						sleep(100 * time.Millisecond) // before it reads
					}
					for p := range in {
						emit(p)
					}
					return nil
				}), "out")
				return nil
			},
		})
		sleep(1150 * time.Millisecond) // maps are done, reduces sleep
		mu.Lock()
		lost := map[int]bool{}
		for part, at := range where {
			if at == "exec-2" {
				lost[part] = true
			}
		}
		mu.Unlock()
		if len(lost) != 2 {
			t.Fatalf("%d map outputs are at exec-2: %v", len(lost), where)
		}
		job.Kill(1)
		job.Advance(2)
		if len(out.Records()) == 0 || len(out.Records()[0]) != 6 {
			t.Error(out.Records())
		}
		for part, n := range maps {
			want := 1
			if lost[part] {
				want = 2
			}
			if n != want {
				t.Errorf("map partition %d ran %d times, want %d", part, n, want)
			}
		}
	})
}

// TestLostKeptPartitionIsComputedAgain, the others are not.
func TestLostKeptPartitionIsComputedAgain(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		var mu sync.Mutex
		runs := map[string]int{}
		out := tidetest.NewCapture[int]()
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{Executors: 3, TaskSlots: 1},
			Build: func(ssc *tidemill.StreamingContext) error {
				in := tidetest.Script(ssc, "in", [][]int{{0, 1, 2}, {}, {}, {}}, 3)
				m := tidemill.Map(in, func(v int) int {
					mu.Lock()
					runs[fmt.Sprint(v)]++
					mu.Unlock()
					return v
				})
				out.Of(tidemill.Window(tidemill.Persist(m, tidemill.MemoryOnly), 4*time.Second, time.Second), "out")
				return nil
			},
		})
		job.Advance(2)
		if diff := cmp.Diff(map[string]int{"0": 1, "1": 1, "2": 1}, runs); diff != "" {
			t.Fatal(diff)
		}
		job.Kill(0)
		job.Advance(2)
		if diff := cmp.Diff([][]int{{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2}}, out.Records()); diff != "" {
			t.Error(diff)
		}
		again := 0
		for _, n := range runs {
			again += n - 1
		}
		if again != 1 {
			t.Errorf("%d partitions were computed again: %v", again, runs)
		}
	})
}

// TestLostBlocksFailTheJob by default, which says which.
func TestLostBlocksFailTheJob(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f := newFeed()
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{Executors: 2},
			Build: func(ssc *tidemill.StreamingContext) error {
				tidemill.Print(tidemill.ReceiverStream(ssc, "recv", f.open), "out", 1)
				return nil
			},
		})
		f.in <- []string{"a", "b"}
		f.in <- []string{"c", "d"}
		sleep(500 * time.Millisecond)
		job.Kill(0)
		job.Advance(2)
		wantErr(t, job, `output "out"`, "recv/1/", "gone", "on-lost-blocks=skip")
	})
}

// TestLostBlocksAreSkipped: before they are in a batch, in a planned one, and
// in a batch that a window still reads. Each loss is logged, counted and shown
// once, and the job goes on, with executors that joined later too.
func TestLostBlocksAreSkipped(t *testing.T) {
	for _, failures := range []int{2, 4} {
		t.Run(fmt.Sprint("MaxTaskFailures ", failures), func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				f := newFeed()
				log, told := &recLog{trace: &trace{}}, &alarms{}
				out, twice, win := tidetest.NewCapture[string](), tidetest.NewCapture[string](), tidetest.NewCapture[string]()
				job := tidetest.Start(t, tidetest.Job{
					Config:    tidemill.Config{Executors: 2, TaskSlots: 1, OnLostBlocks: "skip", MaxTaskFailures: failures},
					Listeners: []any{told},
					Options:   []tidemill.ContextOption{tidemill.WithEventLog(log)},
					Build: func(ssc *tidemill.StreamingContext) error {
						in := tidemill.ReceiverStream(ssc, "recv", f.open)
						slow := tidemill.MapPartitions(in, func(_ *tidemill.Task, in iter.Seq[string], emit func(string) bool) error {
							sleep(300 * time.Millisecond)
							for s := range in {
								emit(s)
							}
							return nil
						})
						out.Of(slow, "out")
						twice.Of(tidemill.Union(in, in), "twice")
						win.Of(tidemill.Window(in, 3*time.Second, time.Second), "win")
						return nil
					},
				})
				feed := func(words ...string) {
					for _, w := range words {
						f.in <- []string{w, w + "'"}
					}
				}
				job.Advance(1)
				feed("a", "b", "c", "d") // of batch 2
				sleep(1100 * time.Millisecond)
				feed("e") // waits when the executor dies; the first tasks of batch 2 run
				sleep(10 * time.Millisecond)
				job.Kill(0)
				if err := job.Context().AddExecutor(); err != nil {
					t.Fatal(err)
				}
				sleep(1900 * time.Millisecond)
				feed("f")
				job.Advance(4)
				job.Stop(true)
				if err := job.Err(); err != nil {
					t.Fatal(err)
				}
				all := func(c *tidetest.Capture[string]) string {
					var s []string
					for _, r := range c.Records() {
						s = append(s, strings.Join(r, ""))
					}
					return strings.Join(s, "|")
				}
				if got := all(out); !strings.Contains(got, "ff'") || strings.Contains(got, "e") {
					t.Errorf("out: %q", got)
				}
				if got := all(twice); !strings.Contains(got, "ff'ff'") {
					t.Errorf("twice: %q", got)
				}
				if got := all(win); strings.Count(got, "ff'") != 3 {
					t.Errorf("win: %q", got)
				}
				lost := map[string]int{}
				var records int64
				for _, e := range log.all() {
					if e, ok := e.(driver.BlocksLost); ok {
						records += e.Records
						for _, b := range e.Blocks {
							lost[b.String()]++
						}
					}
				}
				for b, n := range lost {
					if n != 1 {
						t.Errorf("block %s was lost %d times", b, n)
					}
				}
				if len(lost) != 5 || records != 10 || job.Context().Counters()[driver.CounterLostRecords] != records {
					t.Errorf("lost %v, %d records, counted %v", lost, records, job.Context().Counters())
				}
				if len(told.of("blocks-lost")) == 0 || len(told.of("executor")) != 1 {
					t.Errorf("%+v", told.all)
				}
			})
		})
	}
}

// TestReceiverMovesAndTheOldOneIsFenced kills the host of a receiver. The next
// start has a higher epoch, elsewhere; blocks of the old one are refused.
func TestReceiverMovesAndTheOldOneIsFenced(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f := newFeed()
		log := &recLog{trace: &trace{}}
		out := tidetest.NewCapture[string]()
		started := &receivers{}
		job := tidetest.Start(t, tidetest.Job{
			Config:    tidemill.Config{Executors: 3, OnLostBlocks: "skip"},
			Options:   []tidemill.ContextOption{tidemill.WithEventLog(log)},
			Listeners: []any{started},
			Build: func(ssc *tidemill.StreamingContext) error {
				out.Of(tidemill.ReceiverStream(ssc, "recv", f.open), "out")
				return nil
			},
		})
		job.Advance(1)
		for i := range 2 {
			job.Kill(i)
			f.in <- []string{fmt.Sprint("a", i), "x"}
			job.Advance(1)
		}
		f.in <- []string{"last", "x"}
		job.Advance(1)
		job.Stop(true)
		if err := job.Err(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range out.Records() {
			got = append(got, r...)
		}
		if diff := cmp.Diff([]string{"a0", "x", "a1", "x", "last", "x"}, got); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"1 exec-1", "2 exec-2", "3 exec-3"}, started.list()); diff != "" {
			t.Error(diff)
		}
		for _, e := range []int{1, 2, 3} {
			if log.index(fmt.Sprint("log ReceiverRegistered recv/", e)) < 0 {
				t.Errorf("epoch %d was not registered", e)
			}
		}
	})
}

type receivers struct {
	mu  sync.Mutex
	all []string
}

func (r *receivers) OnReceiverStarted(i tidemill.ReceiverInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprintf("%d %s", i.Epoch, i.Executor))
}

func (r *receivers) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// TestAddedExecutorGetsWork that only it can do: the other one is killed.
func TestAddedExecutorGetsWork(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		out := tidetest.NewCapture[int]()
		job := tidetest.Start(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
			doubled := tidemill.Map(numbers(ssc, 3), func(v int) int { return 2 * v })
			out.Of(tidemill.Window(doubled, 3*time.Second, time.Second), "out")
			return nil
		}})
		job.Advance(2)
		for range 3 {
			go func() { _ = job.Context().AddExecutor() }()
		}
		job.Advance(0)
		job.Kill(0)
		job.Advance(1)
		if diff := cmp.Diff([][]int{{20, 22}, {20, 22, 40, 42}, {20, 22, 40, 42, 60, 62}}, out.Records()); diff != "" {
			t.Error(diff)
		}
		ids := job.Context().ExecutorIDs()
		slices.Sort(ids)
		if diff := cmp.Diff([]string{"exec-1", "exec-2", "exec-3", "exec-4"}, ids); diff != "" {
			t.Error(diff)
		}
		job.Stop(true)
		if err := job.Context().AddExecutor(); err == nil || !strings.Contains(err.Error(), "STOPPED") {
			t.Error(err)
		}
	})
}

func TestLossOfAllExecutorsEndsTheJob(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f := newFeed()
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{Executors: 2},
			Build: func(ssc *tidemill.StreamingContext) error {
				tidemill.Print(tidemill.Union(tidemill.ReceiverStream(ssc, "recv", f.open), tidemill.QueueStream(ssc, "q", &tidemill.Queue[string]{})), "out", 1)
				return nil
			},
		})
		job.Advance(1)
		go job.Kill(0)
		job.Kill(1)
		job.Advance(1)
		wantErr(t, job, "all executors are lost")
	})
}

// TestNondeterministicFunctionIsFound: a task that runs again gives other
// records (Invariant 13).
func TestNondeterministicFunctionIsFound(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		var n atomic.Int64
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{Executors: 2, TaskSlots: 1},
			Build: func(ssc *tidemill.StreamingContext) error {
				counted := tidemill.Map(numbers(ssc, 3), func(v int) kv { return tidemill.KV(fmt.Sprint(v), int(n.Add(1))) })
				slow := tidemill.MapPartitions(tidemill.ReduceByKey(counted, add), func(_ *tidemill.Task, in iter.Seq[kv], emit func(kv) bool) error {
					sleep(100 * time.Millisecond)
					for p := range in {
						emit(p)
					}
					return nil
				})
				tidemill.Print(slow, "out", 10)
				return nil
			},
		})
		sleep(1050 * time.Millisecond)
		job.Kill(0)
		job.Advance(1)
		wantErr(t, job, "two attempts at partition", "map", "different records", "deterministic", "00:00:01")
	})
}

// TestBuildMustGiveOneGraph refuses a job whose Build depends on a counter
// (Invariant 11).
func TestBuildMustGiveOneGraph(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		for _, executors := range []int{1, 2} {
			builds := 0
			ssc, err := tidetest.New(t, tidetest.Job{
				Config: tidemill.Config{Executors: executors},
				Build: func(ssc *tidemill.StreamingContext) error {
					builds++
					in := numbers(ssc, 1)
					if builds > executors {
						in = tidemill.Filter(in, func(int) bool { return true })
					}
					tidemill.Print(in, "out", 1)
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			holds(t, ssc.Start(t.Context()), `job "test"`, "another graph", "+ op in.filter kind=filter", "- output out kind=print from=in\n", "+ output out kind=print from=in.filter")
			if ssc.State() != tidemill.Stopped {
				t.Error(ssc.State())
			}
			if r, err := ssc.Stop(context.Background(), true); err != nil || r.Completed != 0 {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}

// TestTransformMustBuildOnePlan compares driver and executors per batch
// (Invariant 11).
func TestTransformMustBuildOnePlan(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		var calls atomic.Int64
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{Executors: 2},
			Build: func(ssc *tidemill.StreamingContext) error {
				tidemill.Print(tidemill.Transform(numbers(ssc, 3), func(r tidemill.RDD[int], tm tidemill.BatchTime) (tidemill.RDD[int], error) {
					if tm.Time().Second() == 2 && calls.Add(1) == 3 {
						return rddFilter(r), nil
					}
					return r, nil
				}), "out", 1)
				return nil
			},
		})
		job.Advance(3)
		wantErr(t, job, "00:00:02", "executor exec-", "lineage", "deterministic")
	})
}

// TestSkippedBlocksAreNotTakenForNondeterminism: a map task runs again after
// its executor died with the block that it had read.
func TestSkippedBlocksAreNotTakenForNondeterminism(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f, out := newFeed(), tidetest.NewCapture[kv]()
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{Executors: 2, TaskSlots: 1, OnLostBlocks: "skip"},
			Build: func(ssc *tidemill.StreamingContext) error {
				ones := tidemill.Map(tidemill.ReceiverStream(ssc, "recv", f.open), func(s string) kv { return tidemill.KV(s, 1) })
				out.Of(tidemill.MapPartitions(tidemill.ReduceByKey(ones, add), func(_ *tidemill.Task, in iter.Seq[kv], emit func(kv) bool) error {
					sleep(100 * time.Millisecond)
					for p := range in {
						emit(p)
					}
					return nil
				}), "out")
				return nil
			},
		})
		f.in <- []string{"a", "b"}
		f.in <- []string{"c", "d"}
		sleep(1050 * time.Millisecond) // the maps are done
		job.Kill(0)
		job.Advance(1)
		f.in <- []string{"e", "f"}
		job.Advance(2)
		job.Stop(true)
		if err := job.Err(); err != nil {
			t.Fatal(err)
		}
		lost := job.Context().Counters()[driver.CounterLostRecords]
		var got int64
		for _, r := range out.Records() {
			got += int64(len(r))
		}
		if lost == 0 || got+lost != 6 {
			t.Errorf("%d lost, got %v", lost, out.Records())
		}
	})
}
