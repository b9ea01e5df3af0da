package tidemill_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/tidetest"
)

// TestEveryRecordIsAccountedFor: two receivers, executors that come and go, and
// a stop of either kind at a random moment. What a store call has confirmed is
// in an output exactly once, or counted as lost, or reported as left
// (Invariants 1, 2, 9).
func TestEveryRecordIsAccountedFor(t *testing.T) {
	for seed := range uint64(60) {
		tidetest.Run(t, func(t *testing.T) { account(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func account(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	var mu sync.Mutex
	confirmed, unknown := map[string]bool{}, map[string]bool{}
	note := func(records []string, err error) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range records {
			if err == nil {
				confirmed[s] = true
			} else {
				unknown[s] = true
			}
		}
	}
	feeds := []*feed{newFeed(), newFeed()}
	for _, f := range feeds {
		f.stored = note
	}
	out := tidetest.NewCapture[kv]()
	log := &recLog{trace: &trace{}}
	ssc, err := tidetest.New(t, tidetest.Job{
		Config: tidemill.Config{
			Executors: 3, TaskSlots: 2, OnLostBlocks: "skip", MaxTaskFailures: 50, MaxPendingBatches: 1 + r.IntN(2),
			MaxBatchRecords: int64(r.IntN(2) * 10), CatchUp: []string{"merged", "all"}[r.IntN(2)], StopTimeout: time.Hour,
		},
		Options: []tidemill.ContextOption{tidemill.WithEventLog(log), tidemill.WithLogger(silent())},
		Build: func(ssc *tidemill.StreamingContext) error {
			in := tidemill.Union(tidemill.ReceiverStream(ssc, "a", feeds[0].open), tidemill.ReceiverStream(ssc, "b", feeds[1].open))
			ones := tidemill.MapPartitions(in, func(task *tidemill.Task, in iter.Seq[string], emit func(kv) bool) error {
				select {
				case <-time.After(150 * time.Millisecond):
				case <-task.Context().Done():
				}
				for s := range in {
					emit(tidemill.KV(s, 1))
				}
				return nil
			})
			out.Of(tidemill.ReduceByKey(ones, add), "out")
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := ssc.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	live, started, n := []int{0, 1, 2}, 3, 0
	for range 40 {
		sleep(time.Duration(r.IntN(250)) * time.Millisecond)
		switch r.IntN(8) {
		case 0:
			if len(live) > 1 {
				i := r.IntN(len(live))
				if err := ssc.KillExecutor(live[i]); err != nil {
					t.Error(err)
				}
				live = slices.Delete(live, i, i+1)
			}
		case 1:
			if err := ssc.AddExecutor(); err != nil {
				t.Error(err)
			}
			live = append(live, started)
			started++
		default:
			f := feeds[r.IntN(2)]
			var records []string
			for range 2 + r.IntN(4) { // two at least: they are stored by StoreMany
				records = append(records, fmt.Sprintf("r%d", n))
				n++
			}
			f.in <- records
		}
	}
	report, err := ssc.Stop(context.Background(), r.IntN(2) == 0)
	if err != nil {
		t.Error(err)
	}
	if err := ssc.AwaitTermination(context.Background()); err != nil {
		t.Error(err)
	}
	seen := map[string]int{}
	for _, b := range out.Records() {
		for _, p := range b {
			seen[p.Key] += p.Value
		}
	}
	for s, times := range seen {
		if times != 1 || !confirmed[s] && !unknown[s] {
			t.Errorf("record %s came %d times", s, times)
		}
	}
	// The log knows every block, the report what is left.
	var added, planned, left, done int64
	finished := map[tidemill.BatchTime]bool{}
	for _, e := range log.all() {
		if e, ok := e.(driver.BatchDone); ok {
			finished[e.Time] = true
		}
	}
	for _, e := range log.all() {
		switch e := e.(type) {
		case driver.BlockAdded:
			added += int64(e.Block.Records)
		case driver.BatchPlanned:
			planned += e.Batch.Records()
			if !finished[e.Batch.Time] {
				left += e.Batch.Records()
				if !slices.Contains(report.Pending, e.Batch.Time) {
					t.Errorf("batch %v is not reported as pending: %v", e.Batch.Time, report.Pending)
				}
			} else {
				done += e.Batch.Records()
			}
		}
	}
	lost := ssc.Counters()[driver.CounterLostRecords]
	if added < int64(len(confirmed)) || added > int64(len(confirmed)+len(unknown)) {
		t.Errorf("%d records in the log, %d confirmed, %d unknown", added, len(confirmed), len(unknown))
	}
	// Lost ones may have waited, or been in a batch that is done or pending.
	if total := int64(len(seen)) + lost + left + report.Records; total < added || int64(len(seen)) > done || planned+report.Records > added {
		t.Errorf("%d records seen, %d lost, %d in pending batches, %d in blocks; %d in the log, %d in batches that are done: %s",
			len(seen), lost, left, report.Records, added, done, report)
	}
	if report.Graceful && int64(len(seen))+lost != added {
		t.Errorf("a graceful stop: %d seen, %d lost, %d in the log: %s", len(seen), lost, added, report)
	}
}
