package tidemill_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/tidetest"
)

// teller writes what it hears into a trace.
type teller struct{ *trace }

func (l teller) OnStreamingStarted(time.Time)          { l.add("streaming started") }
func (l teller) OnBatchSubmitted(i tidemill.BatchInfo) { l.add("%s submitted", sec(i.Time)) }
func (l teller) OnBatchStarted(i tidemill.BatchInfo)   { l.add("%s started", sec(i.Time)) }
func (l teller) OnOutputStarted(i tidemill.OutputInfo) {
	l.add("%s output %d %s started", sec(i.Time), i.Index, i.Output)
}

func (l teller) OnReceiverStarted(i tidemill.ReceiverInfo) { l.add("receiver %s started", i.Stream) }

func (l teller) OnReceiverStopped(i tidemill.ReceiverInfo) { l.add("receiver %s stopped", i.Stream) }

func (l teller) OnReceiverError(i tidemill.ReceiverInfo) {
	l.add("receiver %s: %s", i.Stream, strings.SplitN(i.Message, "\n", 2)[0])
}

func (l teller) OnOutputCompleted(i tidemill.OutputInfo) {
	l.add("%s output %d %s done in %v", sec(i.Time), i.Index, i.Output, i.End.Sub(i.Start))
}

func (l teller) OnBatchCompleted(i tidemill.BatchInfo) {
	l.add("%s completed: %d records, waited %v, ran %v, in all %v, outputs %d", sec(i.Time), i.Records, i.SchedulingDelay(), i.ProcessingDelay(), i.TotalDelay(), len(i.Outputs))
}

func sec(t tidemill.BatchTime) string { return fmt.Sprint("batch ", t.Time().Second()) }

// TestListenersHearInOrder: events, delays and records of batches of which the
// first is slow.
func TestListenersHearInOrder(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		tr := &trace{}
		f := newFeed()
		var q tidemill.Queue[string]
		q.Push("a", "b", "c")
		job := tidetest.Start(t, tidetest.Job{
			Listeners: []any{teller{tr}},
			Build: func(ssc *tidemill.StreamingContext) error {
				in := tidemill.Union(tidemill.QueueStream(ssc, "queue", &q), tidemill.ReceiverStream(ssc, "recv", f.open))
				tidemill.ForeachBatch(in, "first", func(_ context.Context, b *tidemill.Batch[string]) error {
					if b.Time().Time().Second() == 1 {
						sleep(1200 * time.Millisecond)
					}
					return nil
				})
				tidemill.Print(tidemill.Window(in, 2*time.Second, 2*time.Second), "second", 1)
				return nil
			},
		})
		f.in <- []string{"x", "y"}
		sleep(3500 * time.Millisecond)
		job.Stop(true)
		want := []string{
			"streaming started",
			"receiver recv started",
			"batch 1 submitted",
			"batch 1 started",
			"batch 1 output 0 first started",
			"batch 2 submitted",
			"batch 1 output 0 first done in 1.2s",
			"batch 1 completed: 5 records, waited 0s, ran 1.2s, in all 1.2s, outputs 1",
			"batch 2 started",
			"batch 2 output 0 first started",
			"batch 2 output 0 first done in 0s",
			"batch 2 output 1 second started",
			"batch 2 output 1 second done in 0s",
			"batch 2 completed: 0 records, waited 200ms, ran 0s, in all 200ms, outputs 2",
			"batch 3 submitted",
			"batch 3 started",
			"batch 3 output 0 first started",
			"batch 3 output 0 first done in 0s",
			"batch 3 completed: 0 records, waited 0s, ran 0s, in all 0s, outputs 1",
			"receiver recv stopped",
		}
		if diff := cmp.Diff(want, tr.all()); diff != "" {
			t.Error(diff)
		}
	})
}
