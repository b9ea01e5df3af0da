package tidemill_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/receiver"
	"github.com/tidemill/tidemill/tidetest"
)

// TestFilesOverARestart: no file twice and none left out, whether it came before,
// during or after a pause, also one that is longer than files are remembered; and
// what is known of old files stays little (SPARK-21357).
func TestFilesOverARestart(t *testing.T) {
	for _, pause := range []time.Duration{0, 300 * time.Millisecond, 5 * time.Second, 3 * time.Minute} {
		for _, killed := range []bool{true, false} {
			t.Run(fmt.Sprint(pause, " killed=", killed), func(t *testing.T) {
				tidetest.Run(t, func(t *testing.T) {
					out := tidetest.NewCapture[string]()
					m := newMill(t, tidemill.Config{FileRemember: 20 * time.Second}, func(ssc *tidemill.StreamingContext) error {
						out.Of(tidemill.TextFileStream(ssc, "files", "/in"), "out")
						return nil
					})
					if err := m.disk.Mkdir("/in"); err != nil {
						t.Fatal(err)
					}
					var all []string
					file := func() {
						t.Helper()
						name := fmt.Sprint("line", len(all))
						all = append(all, name)
						if err := fsys.WriteFile(m.disk, "/in/"+name, []byte(name+"\n")); err != nil {
							t.Fatal(err)
						}
					}
					m.start()
					sleep(100 * time.Millisecond)
					for range 4 {
						for range 3 {
							file()
							m.run.Advance(1)
						}
						file() // seen by no batch before the end
						if killed {
							m.kill()
						} else {
							m.run.Stop(false)
						}
						for range 5 {
							sleep(pause / 5)
							file()
						}
						m.start()
						file()
					}
					m.run.Advance(3)
					eachOnce(t, out, all...)
					m.run.Advance(60)
					m.kill()
					if past := len(m.facts().Past("files")); past > 30 {
						t.Errorf("the log remembers the files of %d batches", past)
					}
				})
			})
		}
	}
}

// TestFilesThatWaitAreFoundAgain: a limit leaves files for later batches, over a
// restart.
func TestFilesThatWaitAreFoundAgain(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		out := tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{FileRemember: 3 * time.Second, MaxBatchBytes: 10}, func(ssc *tidemill.StreamingContext) error {
			out.Of(tidemill.TextFileStream(ssc, "files", "/in"), "out")
			return nil
		})
		if err := m.disk.Mkdir("/in"); err != nil {
			t.Fatal(err)
		}
		m.start()
		sleep(100 * time.Millisecond)
		var all []string
		for i := range 30 {
			name := fmt.Sprintf("line%02d", i)
			all = append(all, name)
			if err := fsys.WriteFile(m.disk, "/in/"+name, []byte(name+"\n")); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 { // far longer than files are remembered
			m.run.Advance(3)
			m.kill()
			sleep(2 * time.Second)
			m.start()
		}
		m.run.Advance(3)
		eachOnce(t, out, all...)
	})
}

// TestPlannedQueueEntriesRunAgain, once, with the same records, though the queue
// has them no more (SPARK-12122).
func TestPlannedQueueEntriesRunAgain(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		q, out := &tidemill.Queue[string]{}, tidetest.NewCapture[string]()
		var hold atomic.Bool
		hold.Store(true)
		m := newMill(t, tidemill.Config{MaxPendingBatches: 2}, func(ssc *tidemill.StreamingContext) error {
			in := tidemill.QueueStream(ssc, "queue", q)
			tidemill.ForeachBatch(in, "hold", func(ctx context.Context, _ *tidemill.Batch[string]) error {
				if hold.Load() {
					<-ctx.Done()
				}
				return ctx.Err()
			})
			out.Of(in, "out")
			return nil
		})
		for i := range 6 {
			q.Push(fmt.Sprint("a", i), fmt.Sprint("b", i))
		}
		m.start().Advance(5)
		if q.Len() != 3 {
			t.Fatalf("%d entries are left", q.Len())
		}
		planned := []tidemill.BatchTime{m.run.Time(1), m.run.Time(2), m.run.Time(3)}
		m.kill()
		hold.Store(false)
		m.start().Advance(4)
		var all []string
		for i := range 6 {
			all = append(all, fmt.Sprint("a", i), fmt.Sprint("b", i))
		}
		places := eachOnce(t, out, all...)
		for i, at := range planned {
			if got := places[fmt.Sprint("a", i)]; !slices.Equal(got, []tidemill.BatchTime{at}) {
				t.Errorf("entry %d came in %v, was planned for %s", i, got, at)
			}
		}
		ended := map[tidemill.BatchTime]int{}
		for _, b := range m.done.list() {
			if ended[b.Time]++; ended[b.Time] > 1 {
				t.Errorf("batch %s ended twice", b.Time)
			}
			if i := slices.Index(planned, b.Time); i >= 0 && b.Records != 2 { // the sizes of queued batches are real
				t.Errorf("batch %s is said to have %d records", b.Time, b.Records)
			}
		}
	})
}

// TestCatchUpOverAPause of ten batches.
func TestCatchUpOverAPause(t *testing.T) {
	for _, c := range []struct {
		policy  string
		batches int // from the kill to two batches after the restart
		skipped int64
	}{
		{"merged", 3, 9},
		{"all", 12, 0},
	} {
		t.Run(c.policy, func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				f, out := newFeed(), tidetest.NewCapture[string]()
				m := newMill(t, tidemill.Config{CatchUp: c.policy}, received(f, out))
				m.start()
				f.in <- []string{"a", "b"}
				m.run.Advance(3)
				last := m.run.Time(3)
				f.in <- []string{"c", "d"}
				settle(500 * time.Millisecond)
				m.kill()
				before := len(out.Batches())
				sleep(9*time.Second + 700*time.Millisecond)
				m.start()
				f.in <- []string{"e", "f"}
				settle(2 * time.Second)
				eachOnce(t, out, "a", "b", "c", "d", "e", "f")
				got := out.Batches()[before:]
				if len(got) != c.batches {
					t.Errorf("%d batches after the restart, want %d", len(got), c.batches)
				}
				for i, b := range got {
					if b.Time <= last || i > 0 && b.Time <= got[i-1].Time || int64(b.Time)%1000 != 0 {
						t.Errorf("batch %d after the restart is %s, the last before %s", i, b.Time, last)
					}
				}
				if report := m.run.Stop(false); report.Skipped != c.skipped {
					t.Errorf("%d ticks were skipped, want %d", report.Skipped, c.skipped)
				}
			})
		})
	}
}

// TestSlidesMissedDuringAPause are made up for: no window that holds data is left
// out.
func TestSlidesMissedDuringAPause(t *testing.T) {
	for pause := 1; pause <= 12; pause++ {
		tidetest.Run(t, func(t *testing.T) {
			q, wins := &tidemill.Queue[string]{}, tidetest.NewCapture[kv]()
			m := newMill(t, tidemill.Config{}, func(ssc *tidemill.StreamingContext) error {
				ones := tidemill.Map(tidemill.QueueStream(ssc, "queue", q), func(s string) kv { return tidemill.KV(s, 1) })
				wins.Of(tidemill.ReduceByKeyAndWindow(ones, "window", add, nil, 4*time.Second, 4*time.Second), "wins")
				return nil
			})
			for i := range 20 {
				q.Push(fmt.Sprint("k", i))
			}
			m.start().Advance(2)
			m.kill()
			sleep(time.Duration(pause) * time.Second)
			m.start().Advance(30)
			count := map[string]int{}
			for _, b := range wins.Batches() {
				if int64(b.Time)%4000 != 0 {
					t.Errorf("a window ends at %s", b.Time)
				}
				for _, p := range b.Records() {
					count[p.Key] += p.Value
				}
			}
			for i := range 20 {
				if n := count[fmt.Sprint("k", i)]; n != 1 {
					t.Errorf("after a pause of %d s record %d is in %d windows", pause, i, n)
				}
			}
		})
	}
}

// TestTheClockJumpsBackOverARestart: no batch starts until it has caught up, the
// operator is told, nothing is lost, and times only grow.
func TestTheClockJumpsBackOverARestart(t *testing.T) {
	disk, out := fsys.NewMem(), tidetest.NewCapture[string]()
	var last tidemill.BatchTime
	tidetest.Run(t, func(t *testing.T) {
		f := newFeed()
		m := newMill(t, tidemill.Config{}, received(f, out))
		m.disk = disk
		m.start()
		f.in <- []string{"a", "b"}
		m.run.Advance(30)
		last = m.run.Time(30)
		f.in <- []string{"c", "d"}
		settle(500 * time.Millisecond)
		m.kill()
		disk = m.disk
	})
	tidetest.Run(t, func(t *testing.T) { // its clock begins 30 s earlier
		f := newFeed()
		m := newMill(t, tidemill.Config{}, received(f, out))
		m.disk = disk
		before := len(out.Batches())
		m.start()
		f.in <- []string{"e", "f"}
		m.run.Advance(20)
		if n := len(out.Batches()) - before; n != 0 {
			t.Errorf("%d batches while the clock is behind", n)
		}
		if c := m.alarms.of("clock"); len(c) != 1 || !strings.Contains(c[0].Message, last.String()) {
			t.Errorf("alarms %v", m.alarms.all)
		}
		m.run.Advance(15)
		eachOnce(t, out, "a", "b", "c", "d", "e", "f")
		for _, b := range out.Batches()[before:] {
			if b.Time <= last {
				t.Errorf("batch %s after batch %s", b.Time, last)
			}
		}
	})
}

// burst is a source that is silent until it is told to pour.
func burst(pour *atomic.Bool, stored *atomic.Int64) func() tidemill.Receiver[string] {
	return func() tidemill.Receiver[string] {
		return receiver.Func[string](func(ctx context.Context, s *receiver.Sink[string]) error {
			s.Ready()
			for ctx.Err() == nil {
				time.Sleep(time.Millisecond)
				for range 10 {
					if !pour.Load() {
						break
					}
					if err := s.Store(ctx, "r"); err != nil {
						return err
					}
					stored.Add(1)
				}
			}
			return nil
		})
	}
}

// TestB40aRateControlOverEmptyBatchesABurstAndARestart: empty batches say nothing
// about what the job can do; a burst is read; and what was learned is not
// forgotten with the process (SPARK-9966, SPARK-18371).
func TestB40aRateControlOverEmptyBatchesABurstAndARestart(t *testing.T) {
	const capacity = 200 // records per second
	tidetest.Run(t, func(t *testing.T) {
		var pour atomic.Bool
		var stored atomic.Int64
		m := newMill(t, tidemill.Config{RateControl: true, RateInitial: 1000, RateMin: 10, StopTimeout: time.Hour}, func(ssc *tidemill.StreamingContext) error {
			in := tidemill.ReceiverStream(ssc, "in", burst(&pour, &stored))
			tidemill.ForeachBatch(in, "out", func(ctx context.Context, b *tidemill.Batch[string]) error {
				n, err := b.Count(ctx)
				time.Sleep(50*time.Millisecond + time.Duration(n)*time.Second/capacity)
				return err
			})
			return nil
		})
		m.start().Advance(60)
		if r := m.facts().Stream("in").Rate; r != 0 {
			t.Errorf("empty batches gave the rate %v", r)
		}
		pour.Store(true)
		m.run.Advance(1)
		if n := stored.Load(); n < 900 || n > 1300 {
			t.Errorf("%d records in the first second of the burst, at an initial rate of 1000/s", n)
		}
		m.run.Advance(120)
		m.kill()
		learned := m.facts().Stream("in").Rate
		if learned < capacity/2 || learned > 2*capacity {
			t.Fatalf("the rate is %v, the job can do %d", learned, capacity)
		}
		stored.Store(0)
		m.start()
		settle(time.Second)
		if n := float64(stored.Load()); n > 1.5*learned+20 || n < learned/2 {
			t.Errorf("%v records in the first second after the restart, at a rate of %v", n, learned)
		}
		m.run.Advance(30)
		m.kill()
		if r := m.facts().Stream("in").Rate; r < capacity/2 || r > 2*capacity {
			t.Errorf("the rate is %v after the restart", r)
		}
	})
}

// TestAnOutputDirectoryThatIsThereIsDone: the process dies between the rename that
// makes an output visible and the word of it in the log (SPARK-4835).
func TestAnOutputDirectoryThatIsThereIsDone(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		q := &tidemill.Queue[string]{}
		m := newMill(t, tidemill.Config{}, func(ssc *tidemill.StreamingContext) error {
			tidemill.SaveAsTextFiles(tidemill.QueueStream(ssc, "queue", q), "lines", "/out", func(s string) string { return s })
			return nil
		})
		var renamed atomic.Bool
		m.disk.FailWith(func(op, name string) error {
			if renamed.Load() {
				return fsys.ErrCrashed
			}
			if op == "rename" && strings.HasSuffix(name, "/out") {
				renamed.Store(true)
			}
			return nil
		})
		q.Push("a", "b")
		m.start().Advance(1)
		first := m.run.Time(1)
		m.kill()
		before := m.files("/out")
		if f := m.facts(); len(f.Pending) != 1 || len(f.Pending[0].Outputs) != 0 || !renamed.Load() {
			t.Fatalf("pending %+v, renamed %t", f.Pending, renamed.Load())
		}
		q.Push("c")
		m.start().Advance(2)
		if err := m.run.Err(); err != nil {
			t.Error(err)
		}
		after := m.files("/out")
		var lines []string
		for name, data := range after {
			if was, there := before[name]; there && was != data {
				t.Errorf("%s was written again", name)
			}
			if !strings.HasSuffix(name, "_SUCCESS") {
				lines = append(lines, strings.Fields(data)...)
			}
		}
		slices.Sort(lines)
		if diff := cmp.Diff([]string{"a", "b", "c"}, lines); diff != "" {
			t.Errorf("batch %s: %s", first, diff)
		}
	})
}

// TestNothingIsForgottenBeforeTheLogHasIt: while the log hangs with the word that
// a batch may be forgotten, the batch is still given by Slice (Invariant 5).
func TestNothingIsForgottenBeforeTheLogHasIt(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		log := &recLog{trace: &trace{}}
		hold := make(chan struct{})
		log.before = func(e driver.Event) {
			if _, ok := e.(driver.Released); ok {
				<-hold
			}
		}
		f := newFeed()
		var in tidemill.DStream[string]
		job := tidetest.Start(t, tidetest.Job{
			Build: func(ssc *tidemill.StreamingContext) error {
				d := tidemill.ReceiverStream(ssc, "in", f.open)
				if in == (tidemill.DStream[string]{}) {
					in = d
				}
				tidemill.Print(d, "out", 1)
				return nil
			},
			Options: []tidemill.ContextOption{tidemill.WithEventLog(log)},
		})
		f.in <- []string{"a", "b"}
		job.Advance(2)
		if log.index("log BatchDone") < 0 || log.index("log Released") >= 0 {
			t.Fatal(log.trace.all())
		}
		var got []string
		var err error
		sliced := make(chan struct{})
		go func() {
			defer close(sliced)
			var sets []*tidemill.Batch[string]
			if sets, err = tidemill.Slice(in, job.Time(1), job.Time(1)); err != nil {
				return
			}
			for _, s := range sets {
				var records []string
				if records, err = s.Collect(context.Background()); err != nil {
					return
				}
				got = append(got, records...)
			}
		}()
		synctest.Wait()
		select {
		case <-sliced:
			if !slices.Equal(got, []string{"a", "b"}) || err != nil {
				t.Errorf("the slice has %q, %v", got, err)
			}
		default:
			t.Error("Slice waits for the log")
		}
		close(hold)
		<-sliced
		job.Advance(2)
		_, err = tidemill.Slice(in, job.Time(1), job.Time(1))
		holds(t, err, "forgotten")
	})
}

// TestAFollowedDirectoryOverRestarts: the position of the source is that of the
// blocks that the log has, so every line comes once (Invariants 1 and 2).
func TestAFollowedDirectoryOverRestarts(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		out := tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{SnapshotBytes: 300}, func(ssc *tidemill.StreamingContext) error {
			out.Of(tidemill.TailDir(ssc, "logs", "/logs"), "out")
			return nil
		})
		if err := m.disk.Mkdir("/logs"); err != nil {
			t.Fatal(err)
		}
		var all []string
		for i := range 12 {
			if err := fsys.WriteFile(m.disk, fmt.Sprintf("/logs/app-%02d.log", i), []byte(fmt.Sprintf("x%d\ny%d\nz%d\n", i, i, i))); err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint("x", i), fmt.Sprint("y", i), fmt.Sprint("z", i))
			m.start()
			sleep(time.Duration(m.rng.IntN(1500)) * time.Millisecond)
			if i%3 == 2 {
				m.run.Stop(i%2 == 0)
			} else {
				m.kill()
			}
		}
		m.start().Advance(3)
		eachOnce(t, out, all...)
	})
}
