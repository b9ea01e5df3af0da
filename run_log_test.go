package tidemill_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

// logged is a job with a receiver, a queue, a window and two outputs, whose
// user functions write into the log's trace.
func logged(log *recLog, f *feed, q *tidemill.Queue[string]) tidetest.Job {
	return tidetest.Job{
		Config: tidemill.Config{Executors: 2, Parallelism: 2},
		Build: func(ssc *tidemill.StreamingContext) error {
			in := tidemill.Union(tidemill.ReceiverStream(ssc, "recv", f.open), tidemill.QueueStream(ssc, "queue", q))
			seen := tidemill.MapPartitions(in, func(t *tidemill.Task, in iter.Seq[string], emit func(kv) bool) error {
				log.add("task map %d", t.Batch())
				for s := range in {
					emit(tidemill.KV(s, 1))
				}
				return nil
			})
			counts := tidemill.ReduceByKey(seen, add)
			tidemill.ForeachPartition(counts, "first", func(t *tidemill.Task, in iter.Seq[kv]) error {
				log.add("task first %d", t.Batch())
				for p := range in {
					log.add("got %s", p.Key)
				}
				return nil
			})
			tidemill.ForeachBatch(tidemill.Window(counts, 2*time.Second, time.Second), "second", func(ctx context.Context, b *tidemill.Batch[kv]) error {
				log.add("task second %d", b.Time())
				_, err := b.Collect(ctx)
				return err
			})
			return nil
		},
		Options: []tidemill.ContextOption{tidemill.WithEventLog(log)},
	}
}

// TestTheLogIsAheadOfEverything checks the order of what the log hears and what
// happens (Invariants 1, 3, 4, 5).
func TestTheLogIsAheadOfEverything(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		log := &recLog{trace: &trace{}}
		f, q := newFeed(), &tidemill.Queue[string]{}
		f.stored = func(records []string, err error) { log.add("stored %s %v", records[0], err) }
		job := tidetest.Start(t, logged(log, f, q))
		for i := range 4 {
			f.in <- []string{fmt.Sprintf("r%d", i), "x"}
			q.Push(fmt.Sprintf("q%d", i))
			job.Advance(1)
		}
		job.Stop(true)
		lines := log.trace.all()
		text := strings.Join(lines, "\n")
		before := func(first, then string) {
			t.Helper()
			a, b := log.index(first), log.index(then)
			if a < 0 || b < 0 || a > b {
				t.Errorf("%q (at %d) must come before %q (at %d)", first, a, then, b)
			}
		}
		for i := 1; i <= 4; i++ {
			T := ms(job.Time(i))
			before(fmt.Sprint("log BatchPlanned ", T), fmt.Sprint("task map ", T))
			before(fmt.Sprint("log BatchPlanned ", T), fmt.Sprint("task first ", T))
			before(fmt.Sprint("task first ", T), fmt.Sprintf("log OutputDone %d first", T))
			before(fmt.Sprintf("log OutputDone %d first", T), fmt.Sprintf("task second %d", T))
			before(fmt.Sprintf("log OutputDone %d first", T), fmt.Sprint("log BatchDone ", T))
			before(fmt.Sprintf("log OutputDone %d second", T), fmt.Sprint("log BatchDone ", T))
			before(fmt.Sprintf("log BlockAdded recv/1/%d", i), fmt.Sprintf("stored r%d <nil>", i-1))
			if i > 1 { // no output of a batch before the end of the one before it
				before(fmt.Sprint("log BatchDone ", ms(job.Time(i-1))), fmt.Sprint("task first ", T))
			}
			if i > 3 { // the window of two batches reaches back no farther
				before(fmt.Sprint("log BatchDone ", T), fmt.Sprintf("log Released [%v]", job.Time(i-3)))
			}
			if n := log.count(fmt.Sprintf("got r%d", i-1)); n != 1 {
				t.Errorf("record r%d came %d times", i-1, n)
			}
		}
		if t.Failed() {
			t.Log(text)
		}
	})
}

// TestALogThatFailsEndsTheJob fails the k-th append, for every k.
func TestALogThatFailsEndsTheJob(t *testing.T) {
	ended := false
	for k := 1; !ended; k++ {
		if k > 100 {
			t.Fatal("the job does not come to its end")
		}
		tidetest.Run(t, func(t *testing.T) {
			log := &recLog{trace: &trace{}, failAt: k}
			f, q := newFeed(), &tidemill.Queue[string]{}
			f.stored = func(records []string, err error) { log.add("stored %s %v", records[0], err) }
			for i := range 4 {
				q.Push(fmt.Sprintf("q%d", i))
			}
			f.in <- []string{"r0", "r1"}
			ssc, err := tidetest.New(t, logged(log, f, q))
			if err != nil {
				t.Fatal(err)
			}
			err = ssc.Start(t.Context())
			if err == nil {
				sleep(2200 * time.Millisecond)
				f.in <- []string{"r2", "r3"}
				sleep(1800 * time.Millisecond)
				_, _ = ssc.Stop(context.Background(), true)
				err = ssc.AwaitTermination(context.Background())
			}
			failed := log.index("log fails: ")
			if failed < 0 {
				if err != nil {
					t.Errorf("k=%d: %v", k, err)
				}
				ended = true
				return
			}
			lines := log.trace.all()
			what := strings.Fields(strings.TrimPrefix(lines[failed], "log fails: "))
			holds(t, err, "driver."+what[0], "log", errDisk.Error())
			if ssc.State() != tidemill.Stopped {
				t.Errorf("k=%d: the job is %v", k, ssc.State())
			}
			// Nothing goes on from what the log does not have.
			for _, l := range lines[failed+1:] {
				if strings.HasPrefix(l, "log ") && !strings.HasPrefix(l, "log fails") {
					t.Errorf("k=%d: %q after %q", k, l, lines[failed])
				}
			}
			planned := map[string]bool{}
			added := 0
			for _, l := range lines {
				w := strings.Fields(l)
				switch {
				case strings.HasPrefix(l, "log BatchPlanned"):
					planned[w[2]] = true
				case w[0] == "task" && !planned[w[2]]:
					t.Errorf("k=%d: %q without a plan in the log", k, l)
				case strings.HasPrefix(l, "log BlockAdded"):
					added++
				case w[0] == "stored" && strings.HasSuffix(l, "<nil>"):
					added--
				}
			}
			if added < 0 {
				t.Errorf("k=%d: the receiver was told of more blocks than the log has: %q", k, lines)
			}
			// Sources keep their positions: one entry of the queue per logged plan.
			if want := 4 - len(planned); q.Len() != max(0, want) {
				t.Errorf("k=%d: %d entries left in the queue after %d logged plans", k, q.Len(), len(planned))
			}
		})
	}
}

// TestNothingIsReleasedBeforeTheLogHasIt holds the log's Released back and
// looks at what the executors hold meanwhile (Invariant 5).
func TestNothingIsReleasedBeforeTheLogHasIt(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		log := &recLog{trace: &trace{}}
		hold := make(chan struct{})
		log.before = func(e driver.Event) {
			if _, ok := e.(driver.Released); ok {
				<-hold
			}
		}
		f, q := newFeed(), &tidemill.Queue[string]{}
		mem := fsys.NewMem()
		j := logged(log, f, q)
		j.FS = mem
		j.Build = func(ssc *tidemill.StreamingContext) error {
			tidemill.Print(tidemill.ReceiverStream(ssc, "recv", f.open, tidemill.Level(tidemill.DiskOnly)), "out", 1)
			return nil
		}
		files := func() (n int) {
			for name := range strings.Lines(mem.String()) {
				if strings.HasPrefix(name, "/scratch/exec-") && !strings.HasSuffix(name, "/\n") {
					n++
				}
			}
			return n
		}
		job := tidetest.Start(t, j)
		f.in <- []string{"a", "b"}
		job.Advance(2)
		if log.index("log BatchDone") < 0 || log.index("log Released") >= 0 {
			t.Fatal(log.trace.all())
		}
		if n := files(); n == 0 {
			t.Error("the block is gone before the log says so")
		}
		close(hold)
		job.Advance(3)
		if n := files(); n != 0 {
			t.Errorf("%d files are left:\n%s", n, mem)
		}
	})
}

// TestALostPlanIsNotRun stops the log in the middle of an append: the stop
// ends, and nothing of the batch has run.
func TestALostPlanIsNotRun(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		log := &recLog{trace: &trace{}}
		f, q := newFeed(), &tidemill.Queue[string]{}
		hold := make(chan struct{})
		log.before = func(e driver.Event) {
			if _, ok := e.(driver.BatchPlanned); ok {
				<-hold
			}
		}
		job := tidetest.Start(t, logged(log, f, q))
		job.Advance(1)
		time.AfterFunc(5*time.Second, func() { close(hold) }) // the log comes back with an error: its context has ended
		report := job.Stop(false)
		if i := slices.IndexFunc(log.trace.all(), func(l string) bool { return strings.HasPrefix(l, "task") }); i >= 0 || len(report.Pending) != 0 {
			t.Errorf("%v, pending %v", log.trace.all(), report.Pending)
		}
		if err := job.Err(); err != nil {
			t.Error(err)
		}
	})
}
