package tidemill_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
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
