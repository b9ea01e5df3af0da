package conformance

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/receiver"
	"github.com/tidemill/tidemill/tidetest"
)

// checkpointed is what a start would find.
type checkpointed struct {
	TimeMS  int64   `json:"time_ms"`
	Pending []int64 `json:"pending_times_ms"`
}

func (o outcome) checkpointed(x checkpointed) {
	o.add("last_checkpoint", "%d pending %s", x.TimeMS, text(append([]int64{}, x.Pending...)))
}

// nonEmpty adds the entries of an output that hold records.
func (o outcome) nonEmpty(c *golden, es []entry) {
	for _, e := range es {
		if len(e.Records) > 0 {
			o.add("nonempty_output", "%d %s partitions=%s", e.TimeMS, text(ordered(c, e.Records)), text(e.Count))
		}
	}
}

func sparkGracefulStop(c *golden) outcome {
	o := outcome{}
	o.outputs("output", c, c.Output)
	var state string
	if c.get("context_state_after", &state) {
		o.add("state", "%s", state)
	}
	var last checkpointed
	if c.get("last_checkpoint", &last) {
		o.checkpointed(last)
	}
	var nonEmpty []entry
	c.get("nonempty_output", &nonEmpty)
	o.nonEmpty(c, nonEmpty)
	var processed int64
	if c.get("records_processed", &processed) {
		o.add("processed", "%d", processed)
	}
	return o
}

func runGracefulStop(t *testing.T, c *golden) outcome {
	if c.Op == "receiver_graceful_stop" {
		return stopReceiving(t, c)
	}
	o := outcome{}
	tidetest.Run(t, func(t *testing.T) {
		fs, r := fsys.NewMem(), newRecorder(c)
		j := tidetest.Job{FS: fs, Config: durably(c), Build: func(ssc *tidemill.StreamingContext) error {
			watch(r, replayed[int64](ssc, c), "output")
			return nil
		}}
		if c.durable() {
			j.Options = append(j.Options, tidemill.WithDir(jobDir))
		}
		run := tidetest.Start(t, j)
		run.Advance(int(c.num("batches_before_stop", 0)))
		time.Sleep(millis(c.num("clock_after_last_batch_ms", 0)))
		if report := run.Stop(true); !report.Graceful {
			t.Errorf("the stop was not graceful: %s", report)
		}
		time.Sleep(3 * millis(c.BatchMS)) // nothing must come any more
		o.outputs("output", c, r.of("output"))
		o.add("state", "%s", run.Context().State())
		if c.durable() {
			facts := factsOf(t, fs)
			last := checkpointed{}
			if facts.Last > 0 {
				last.TimeMS = caseTime(facts.Last)
			}
			for _, p := range facts.Pending {
				last.Pending = append(last.Pending, caseTime(p.Batch.Time))
			}
			o.checkpointed(last)
		}
	})
	return o
}

// durable reports whether the case has a checkpoint directory.
func (c *golden) durable() bool {
	var yes bool
	return c.get("checkpoint_dir", &yes) && yes
}

// stopReceiving stores all blocks of a case before the first batch, then stops.
func stopReceiving(t *testing.T, c *golden) outcome {
	o := outcome{}
	blocks, size := c.num("blocks", 0), c.num("records_per_block", 0)
	tidetest.Run(t, func(t *testing.T) {
		var stored atomic.Int64
		r, l := newRecorder(c), &listener{}
		open := func() tidemill.Receiver[int64] {
			return receiver.Func[int64](func(ctx context.Context, s *receiver.Sink[int64]) error {
				s.Ready()
				for i := range blocks {
					var records []int64
					for k := range size {
						records = append(records, i*size+k)
					}
					if err := s.StoreMany(ctx, records); err != nil {
						return err
					}
					stored.Add(1)
				}
				<-ctx.Done()
				return nil
			})
		}
		cfg := durably(c)
		cfg.Parallelism = 8 // beyond four times as many, blocks share partitions
		run := tidetest.Start(t, tidetest.Job{Config: cfg, Listeners: []any{l}, Build: func(ssc *tidemill.StreamingContext) error {
			watch(r, tidemill.ReceiverStream(ssc, "in", open), "output")
			return nil
		}})
		synctest.Wait()
		if stored.Load() != blocks || len(r.of("output")) > 0 {
			t.Fatalf("%d of %d blocks are stored, %d batches have run", stored.Load(), blocks, len(r.of("output")))
		}
		run.Stop(c.Params["graceful"] == true)
		o.nonEmpty(c, r.of("output"))
		var processed int64
		for _, b := range l.done() {
			processed += b.Records
		}
		o.add("processed", "%d", processed)
	})
	return o
}

// stoppedWithoutTicks is what we do: what had been due when stop was called is
// all. Spark makes two more batches.
func stoppedWithoutTicks(c *golden) outcome {
	o := sparkGracefulStop(c)
	last := c.num("batches_before_stop", 0) * c.BatchMS
	delete(o, "output")
	o.outputs("output", c, slices.DeleteFunc(slices.Clone(c.Output), func(e entry) bool { return e.TimeMS > last }))
	if c.durable() {
		delete(o, "last_checkpoint")
		o.checkpointed(checkpointed{TimeMS: last})
	}
	return o
}
