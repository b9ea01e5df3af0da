package tidemill_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

// Nothing that batches read, and no state file, is removed while the driver's
// log can't be brought to disk, nor a snapshot of it: after a loss of power the
// log might still name it (Invariant 5).
func TestNothingIsRemovedThatTheDiskMayStillName(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		disk := fsys.NewMem()
		job := tidetest.Job{
			FS:      disk,
			Config:  tidemill.Config{SegmentBytes: 2000, SnapshotBytes: 3000},
			Options: []tidemill.ContextOption{tidemill.WithDir("/job"), tidemill.WithLogger(silent())},
			Build: func(ssc *tidemill.StreamingContext) error {
				in := tidemill.ReceiverStream(ssc, "in", steady)
				words := tidemill.FlatMap(in, func(s string) iter.Seq[kv] {
					return func(yield func(kv) bool) {
						for i := range 20 { // state that is soon worth merging
							if !yield(tidemill.KV(fmt.Sprint(s, i), 1)) {
								return
							}
						}
					}
				})
				totals := tidemill.UpdateStateByKey(words, "state", func(vs []int, s tidemill.Opt[int]) tidemill.Opt[int] { return tidemill.Some(s.Value + len(vs)) })
				tidemill.ForeachBatch(totals, "out", func(ctx context.Context, b *tidemill.Batch[kv]) error {
					_, err := b.Count(ctx)
					return err
				})
				return nil
			},
		}
		r := tidetest.Start(t, job)
		var mu sync.Mutex
		removed := map[string]int{}
		failing := false
		disk.FailWith(func(op, name string) error {
			mu.Lock()
			defer mu.Unlock()
			for _, dir := range []string{"blocks", "state"} {
				if op == "remove" && strings.HasPrefix(name, "/job/"+dir+"/") {
					removed[dir]++
				}
			}
			if failing && op == "sync" && strings.HasPrefix(name, "/job/log/") {
				return syscall.EIO
			}
			return nil
		})
		pass := func(d time.Duration, fail bool) map[string]int {
			mu.Lock()
			clear(removed)
			failing = fail
			mu.Unlock()
			sleep(d)
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(removed)
		}
		if got := pass(4*time.Minute, false); got["blocks"] < 10 || got["state"] < 1 {
			t.Fatalf("removed %v in four minutes: that is too little to tell anything", got)
		}
		pass(10*time.Second, true) // what was under way
		if got := pass(4*time.Minute, true); len(got) > 0 {
			t.Errorf("removed %v though the log can't be synced", got)
		}
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		if got := pass(4*time.Minute, false); got["blocks"] < 10 || got["state"] < 1 {
			t.Errorf("removed %v in the four minutes after", got)
		}
	})
}

// Without a log of received blocks, what is worked off is not missed: a graceful
// stop leaves nothing that the next start would need.
func TestWithoutAReceiverLogAGracefulStopLeavesNothingToMiss(t *testing.T) {
	for _, window := range []bool{false, true} {
		tidetest.Run(t, func(t *testing.T) {
			disk := fsys.NewMem()
			job := tidetest.Job{
				FS: disk, Config: tidemill.Config{ReceiverWAL: "off"},
				Options: []tidemill.ContextOption{tidemill.WithDir("/job"), tidemill.WithLogger(silent())},
				Build: func(ssc *tidemill.StreamingContext) error {
					in := tidemill.ReceiverStream(ssc, "in", steady)
					if window {
						in = tidemill.Window(in, 10*time.Second, time.Second)
					}
					tidemill.ForeachBatch(in, "out", func(ctx context.Context, b *tidemill.Batch[string]) error {
						_, err := b.Count(ctx)
						return err
					})
					return nil
				},
			}
			r := tidetest.Start(t, job)
			sleep(5 * time.Second)
			report, err := r.Context().Stop(context.Background(), true)
			if err != nil || report.Blocks > 0 || len(report.Pending) > 0 {
				t.Fatal(report, err)
			}
			ssc, err := tidetest.New(t, job)
			if err != nil {
				t.Fatal(err)
			}
			err = ssc.Start(t.Context())
			if window { // it reaches back to blocks that are gone
				if err == nil || !strings.Contains(err.Error(), "on-lost-blocks=skip") {
					t.Errorf("the next start: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ssc.Stop(context.Background(), true); err != nil {
				t.Error(err)
			}
		})
	}
}

// A log of few records begins a new file when the old one is of age, so that
// this can go.
func TestFilesOfALogThatSaysLittleGoAtTheirAge(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		disk := fsys.NewMem()
		tidetest.Start(t, tidetest.Job{
			FS: disk, Config: tidemill.Config{SegmentAge: 10 * time.Second},
			Options: []tidemill.ContextOption{tidemill.WithDir("/job"), tidemill.WithLogger(silent())},
			Build: func(ssc *tidemill.StreamingContext) error {
				tidemill.Print(tidemill.Count(tidemill.ReceiverStream(ssc, "in", steady)), "print", 1)
				return nil
			},
		})
		sleep(time.Minute)
		files, err := fsys.Glob(disk, "/job/blocks/in/*/*.wal")
		if err != nil || len(files) == 0 || len(files) > 2 || strings.HasSuffix(files[0], "/0000000000000001.wal") {
			t.Errorf("files after a minute: %v, %v", files, err)
		}
	})
}

// What the user gives up is given back at once, not at some later start.
func TestDroppedStateGivesItsFilesBack(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		disk := fsys.NewMem()
		job := tidetest.Job{FS: disk, Build: func(ssc *tidemill.StreamingContext) error {
			words := tidemill.Map(tidemill.ConstantStream(ssc, "in", []string{"a", "b"}), func(s string) kv { return tidemill.KV(s, 1) })
			tidemill.Print(tidemill.UpdateStateByKey(words, "sums", sumUpdate), "print", 1)
			return nil
		}}
		const old = "/job/state/state/e-000001*/*.wal"
		for _, drop := range []string{"", "sums"} {
			job.Options = []tidemill.ContextOption{tidemill.WithDir("/job"), tidemill.WithLogger(silent())}
			if drop != "" {
				job.Options = append(job.Options, tidemill.WithRestart(tidemill.Restart{DropState: []string{drop}}))
			}
			r := tidetest.Start(t, job)
			r.Advance(3)
			files, err := fsys.Glob(disk, old)
			if err != nil || (len(files) > 0) != (drop == "") {
				t.Errorf("dropped %q: files of the first run %v, %v", drop, files, err)
			}
			if _, err := r.Context().Stop(context.Background(), false); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// batchesTold lists the batches that a listener hears of.
type batchesTold struct {
	mu              sync.Mutex
	submitted, done []tidemill.BatchTime
}

func (b *batchesTold) OnBatchSubmitted(i tidemill.BatchInfo) { b.add(&b.submitted, i.Time) }
func (b *batchesTold) OnBatchCompleted(i tidemill.BatchInfo) { b.add(&b.done, i.Time) }

func (b *batchesTold) add(to *[]tidemill.BatchTime, at tidemill.BatchTime) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*to = append(*to, at)
}

// Batches that a restart finds pending are shown as such (B54).
func TestB54PendingBatchesAreShownAfterARestart(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		disk := fsys.NewMem()
		stuck := make(chan struct{})
		job := tidetest.Job{
			FS: disk, Options: []tidemill.ContextOption{tidemill.WithDir("/job"), tidemill.WithLogger(silent())},
			Build: func(ssc *tidemill.StreamingContext) error {
				tidemill.ForeachBatch(tidemill.ConstantStream(ssc, "in", []string{"a"}), "out", func(ctx context.Context, _ *tidemill.Batch[string]) error {
					select {
					case <-stuck:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				return nil
			},
		}
		r := tidetest.Start(t, job)
		r.Advance(5)
		report, err := r.Context().Stop(context.Background(), false)
		if err != nil || len(report.Pending) < 2 {
			t.Fatal(report, err)
		}
		close(stuck)
		told := &batchesTold{}
		job.Listeners = []any{told}
		r = tidetest.Start(t, job)
		r.Advance(3)
		told.mu.Lock()
		defer told.mu.Unlock()
		n := len(report.Pending)
		if len(told.submitted) < n || !slices.Equal(told.submitted[:n], report.Pending) || !slices.Equal(told.done, told.submitted[:len(told.done)]) || len(told.done) <= n {
			t.Errorf("pending %v, submitted %v, completed %v", report.Pending, told.submitted, told.done)
		}
	})
}
