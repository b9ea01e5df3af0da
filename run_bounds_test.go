package tidemill_test

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/receiver"
	"github.com/tidemill/tidemill/tidetest"
)

// pendings watches how many batches are planned and not done.
type pendings struct {
	mu        sync.Mutex
	now, most int
	records   int64 // most of one batch
}

func (p *pendings) OnBatchSubmitted(i tidemill.BatchInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now++
	p.most = max(p.most, p.now)
	p.records = max(p.records, i.Records)
}

func (p *pendings) OnBatchCompleted(tidemill.BatchInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now--
}

// steady stores ten records a second.
func steady() tidemill.Receiver[string] {
	return receiver.Func[string](func(ctx context.Context, s *receiver.Sink[string]) error {
		for i := 0; ; i++ {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return nil
			}
			if err := s.Store(ctx, fmt.Sprint("word", i%17)); err != nil {
				return err
			}
		}
	})
}

// TestTwoHoursAreLikeOne: goroutines, memory, files and what is remembered don't
// grow, though batches are slow, some fail, and executors come and go.
func TestTwoHoursAreLikeOne(t *testing.T) {
	for _, dir := range []string{"", "/job"} {
		t.Run("in "+dir, func(t *testing.T) { anHour(t, dir) })
	}
}

func anHour(t *testing.T, dir string) {
	tidetest.Run(t, func(t *testing.T) {
		const interval = 10 * time.Second
		watch := &pendings{}
		mem := fsys.NewMem()
		job := tidetest.Start(t, tidetest.Job{
			FS: mem,
			Config: tidemill.Config{
				BatchInterval: interval, Executors: 2, MaxPendingBatches: 2, BlockInterval: 5 * time.Second,
				OnBatchFailure: "continue", OnLostBlocks: "skip", SegmentBytes: 16 << 10, SnapshotBytes: 32 << 10,
			},
			Listeners: []any{watch, quiet{}},
			Options:   []tidemill.ContextOption{tidemill.WithLogger(silent()), tidemill.WithDir(dir)},
			Build: func(ssc *tidemill.StreamingContext) error {
				in := tidemill.ReceiverStream(ssc, "recv", steady, tidemill.Level(tidemill.DiskOnly))
				words := tidemill.Map(in, func(s string) kv { return tidemill.KV(s, 1) })
				counts := tidemill.Persist(tidemill.ReduceByKey(words, add), tidemill.MemoryAndDisk)
				each := tidemill.Transform(counts, func(r tidemill.RDD[kv], tm tidemill.BatchTime) (tidemill.RDD[kv], error) {
					if tm.Time().Minute()%5 == 1 && tm.Time().Second() == 0 {
						return r, fmt.Errorf("not now")
					}
					return r, nil
				})
				win := tidemill.Window(tidemill.MapValues(each, func(v int) int {
					if v == 6 {
						panic("six")
					}
					return v
				}), 6*interval, 2*interval)
				tidemill.ForeachBatch(win, "win", func(ctx context.Context, b *tidemill.Batch[kv]) error {
					_, err := b.Collect(ctx)
					return err
				})
				totals := tidemill.UpdateStateByKey(words, "state", func(vs []int, s tidemill.Opt[int]) tidemill.Opt[int] { return tidemill.Some(s.Value + len(vs)) })
				tidemill.ForeachBatch(tidemill.Window(totals, 2*interval, interval), "totals", func(ctx context.Context, b *tidemill.Batch[kv]) error {
					_, err := b.Count(ctx)
					return err
				})
				n := 0
				tidemill.ForeachBatch(counts, "slow", func(ctx context.Context, b *tidemill.Batch[kv]) error {
					if n++; n%40 > 35 {
						sleep(25 * time.Second)
					}
					_, err := b.Count(ctx)
					return err
				})
				return nil
			},
		})
		type state struct {
			goroutines, held, files int
			heap                    uint64
			bytes                   int64 // on disk
		}
		look := func() (s state) {
			job.Advance(1) // the batch that runs ends
			for range 3 {
				runtime.GC()
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			s.heap, s.goroutines = m.HeapAlloc, runtime.NumGoroutine()
			for _, r := range job.Context().Remembered() {
				s.held += len(r.Held)
			}
			s.files = strings.Count(mem.String(), "\n")
			s.bytes = diskBytes(t, mem, "/")
			return s
		}
		killed := 2 // the first two live all the time
		pass := func(minutes int) {
			for range minutes / 5 {
				job.Advance(int(5 * time.Minute / interval))
				if err := job.Context().AddExecutor(); err != nil {
					t.Fatal(err)
				}
				job.Advance(1)
				job.Kill(killed)
				killed++
			}
		}
		pass(60)
		early := look()
		pass(60)
		late := look()
		if err := job.Err(); err != nil {
			t.Fatal(err)
		}
		t.Logf("after an hour %+v, after two %+v, at most %d batches pending", early, late, watch.most)
		if late.goroutines > early.goroutines+2 || late.held > early.held+8 || late.files > early.files+8 || late.heap > early.heap+192<<10 || late.bytes > early.bytes+192<<10 {
			t.Errorf("after an hour %+v, after two %+v", early, late)
		}
		if watch.most > 3 {
			t.Errorf("%d batches were pending", watch.most)
		}
	})
}

func diskBytes(t *testing.T, f fsys.FS, dir string) (n int64) {
	t.Helper()
	infos, err := f.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		n += i.Size
		if i.Dir {
			n += diskBytes(t, f, path.Join(dir, i.Name))
		}
	}
	return n
}

// TestBatchLimitsHoldForEverySource: queue, files, receiver.
func TestBatchLimitsHoldForEverySource(t *testing.T) {
	for _, c := range []struct {
		limit   tidemill.Config
		most    int // records of a batch
		batches int // with records
	}{
		{tidemill.Config{}, 60, 1},
		{tidemill.Config{MaxBatchRecords: 60}, 20, 3}, // over three sources
		{tidemill.Config{MaxBatchBytes: 90}, 20, 3},
		{tidemill.Config{MaxBatchRecords: 1}, 10, 6}, // a piece of five is the least that each source gives
	} {
		t.Run(fmt.Sprint(c.limit.MaxBatchRecords, "records", c.limit.MaxBatchBytes, "bytes"), func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				var q tidemill.Queue[string]
				f, mem := newFeed(), fsys.NewMem()
				if err := mem.MkdirAll("/in"); err != nil {
					t.Fatal(err)
				}
				heard := &batches{}
				out := map[string]*tidetest.Capture[string]{"queue": tidetest.NewCapture[string](), "files": tidetest.NewCapture[string](), "recv": tidetest.NewCapture[string]()}
				c.limit.StopTimeout = time.Hour
				job := tidetest.Start(t, tidetest.Job{
					FS: mem, Config: c.limit, Listeners: []any{heard},
					Build: func(ssc *tidemill.StreamingContext) error {
						out["queue"].Of(tidemill.QueueStream(ssc, "queue", &q, tidemill.AllQueued()), "queue-out")
						out["files"].Of(tidemill.TextFileStream(ssc, "files", "/in"), "files-out")
						out["recv"].Of(tidemill.ReceiverStream(ssc, "recv", f.open), "recv-out")
						return nil
					},
				})
				sleep(10 * time.Millisecond) // files that are older than the start are not seen
				var want []string
				for i := range 12 {
					var piece []string
					for j := range 5 {
						piece = append(piece, fmt.Sprintf("%c%c", 'a'+i, 'a'+j))
					}
					want = append(want, piece...)
					q.Push(piece...)
					f.in <- piece
					if err := fsys.WriteFile(mem, fmt.Sprintf("/in/f%02d", i), []byte(strings.Join(piece, "\n")+"\n")); err != nil {
						t.Fatal(err)
					}
				}
				job.Advance(20)
				job.Stop(true)
				if err := job.Err(); err != nil {
					t.Fatal(err)
				}
				for name, capture := range out {
					if diff := cmp.Diff(want, flat(capture)); diff != "" {
						t.Errorf("%s: %s", name, diff)
					}
					full := 0
					for _, r := range capture.Records() {
						if len(r) > 0 {
							full++
						}
						if len(r) > c.most {
							t.Errorf("%s: a batch of %d records", name, len(r))
						}
					}
					if full < c.batches {
						t.Errorf("%s came in %d batches, want at least %d", name, full, c.batches)
					}
				}
			})
		})
	}
}

// TestOneQueueFeedsOneStream: two would each lose what the other takes.
func TestOneQueueFeedsOneStream(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		var q tidemill.Queue[int]
		build := func(names ...string) func(*tidemill.StreamingContext) error {
			return func(ssc *tidemill.StreamingContext) error {
				for _, name := range names {
					tidemill.Print(tidemill.QueueStream(ssc, name, &q), name+"-out", 1)
				}
				return nil
			}
		}
		ssc, err := tidetest.New(t, tidetest.Job{Build: build("a", "b")})
		if err != nil {
			t.Fatal(err)
		}
		holds(t, ssc.Start(t.Context()), `queue "b"`, `already feeds stream "a"`)
		job := tidetest.Start(t, tidetest.Job{Build: build("c")})
		job.Stop(true)
		tidetest.Start(t, tidetest.Job{Build: build("d")})
	})
}

// TestSlowListenerHoldsTheJobBack and hears everything.
func TestSlowListenerHoldsTheJobBack(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		slow := &sluggish{}
		job := tidetest.Start(t, tidetest.Job{
			Config:    tidemill.Config{StopTimeout: 24 * time.Hour},
			Listeners: []any{slow},
			Build: func(ssc *tidemill.StreamingContext) error {
				tidemill.Print(tidemill.ConstantStream(ssc, "in", []int{1, 2, 3}, tidemill.InputPartitions(4)), "out", 10)
				return nil
			},
		})
		job.Advance(3600)
		done := slow.completed.Load()
		report := job.Stop(true)
		// Eight events a batch, each two seconds long, and a thousand that may wait:
		// far fewer than 3600 batches.
		if done == 0 || done > 400 {
			t.Errorf("the listener had heard of %d batches when an hour had passed", done)
		}
		if n := report.Completed; n > 800 || slow.submitted.Load() != n || slow.started.Load() != n || slow.completed.Load() != n || slow.outputs.Load() != 2*n || slow.tasks.Load() < n {
			t.Errorf("it heard of %d submitted, %d started, %d completed of %d batches, %d tasks", slow.submitted.Load(), slow.started.Load(), slow.completed.Load(), n, slow.tasks.Load())
		}
	})
}
