package driver

import (
	"context"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
)

// Log is the driver's log. Append returns when the event is as durable as the
// log makes it; an error means that the job can't go on (Invariant 14).
// Append may be called by several goroutines.
type Log interface {
	Append(ctx context.Context, e Event) error
}

// Event is a fact that the driver must not forget.
type Event interface{ event() }

// Events of the log, in the words of the design.
type (
	// DriverStarted opens an epoch.
	DriverStarted struct {
		Epoch  base.Epoch
		Run    string
		Digest uint64 // of the graph
	}
	// ReceiverRegistered precedes the start of a receiver.
	ReceiverRegistered struct {
		Stream base.UID
		Epoch  base.Epoch
	}
	// BlockAdded makes a received block part of the stream.
	BlockAdded struct{ Block plan.Block }
	// BlocksLost gives up blocks that died with an executor.
	BlocksLost struct {
		Blocks  []base.BlockID
		Records int64
		Reason  string
	}
	// BatchPlanned precedes every task of a batch.
	BatchPlanned struct{ Batch plan.Batch }
	// OutputDone says that an output of a batch needs no further run.
	OutputDone struct {
		Time   base.BatchTime
		Output base.UID
	}
	// BatchDone ends a batch well.
	BatchDone struct {
		Time   base.BatchTime
		States []StateDelta
	}
	// BatchFailed ends a batch that went on without some of its outputs.
	BatchFailed struct {
		Time    base.BatchTime
		Sets    []base.DataSet
		Outputs []base.UID
		Reason  string
		States  []StateDelta // of the operators that applied the batch
	}
	// Released precedes every deletion.
	Released struct {
		Done    base.BatchTime
		Batches []base.BatchTime
	}
)

// StateDelta names the file that holds what a batch changed in a state
// partition. Deltas that no event names do not exist.
type StateDelta struct {
	Op   base.UID
	Part int
	File state.Handle
}

func (DriverStarted) event()      {}
func (ReceiverRegistered) event() {}
func (BlockAdded) event()         {}
func (BlocksLost) event()         {}
func (BatchPlanned) event()       {}
func (OutputDone) event()         {}
func (BatchDone) event()          {}
func (BatchFailed) event()        {}
func (Released) event()           {}

// MemLog is a log in memory, for jobs that keep nothing across a restart. It
// remembers the newest events only.
type MemLog struct {
	mu     sync.Mutex
	recent []Event
	total  int64
}

// memLogKeeps is the number of events that a MemLog remembers.
const memLogKeeps = 256

// Append implements [Log].
func (l *MemLog) Append(ctx context.Context, e Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.recent) == memLogKeeps {
		copy(l.recent, l.recent[1:])
		l.recent = l.recent[:memLogKeeps-1]
	}
	l.recent = append(l.recent, e)
	l.total++
	return nil
}

// Recent returns the remembered events, oldest first, and how many there ever were.
func (l *MemLog) Recent() ([]Event, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Event(nil), l.recent...), l.total
}
