package tidemill_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
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
		removed := map[string]int{}
		failing := false
		disk.FailWith(func(op, name string) error {
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
		sleep(4 * time.Minute)
		if removed["blocks"] < 10 || removed["state"] < 1 {
			t.Fatalf("removed %v in four minutes: that is too little to tell anything", removed)
		}
		failing = true
		sleep(10 * time.Second) // what was under way
		clear(removed)
		sleep(4 * time.Minute)
		if len(removed) > 0 {
			t.Errorf("removed %v though the log can't be synced", removed)
		}
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		failing = false
		sleep(4 * time.Minute)
		if removed["blocks"] < 10 || removed["state"] < 1 {
			t.Errorf("removed %v in the four minutes after", removed)
		}
	})
}
