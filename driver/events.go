package driver

import (
	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/wal"
)

// Event is a fact that the driver must not forget.
type Event interface{ event() }

// Events of the log, in the words of the design. Fields may be added: what an
// older log does not have is zero.
type (
	// DriverStarted opens an epoch.
	DriverStarted struct {
		Epoch base.Epoch
		Run   string
		At    base.BatchTime
		Job   checkpoint.Job
		// Accepted is what counts of each older epoch's log: whatever a fenced
		// driver adds later is ignored (Invariant 7).
		Accepted []Accepted
		// Dropped names operators whose state, and sources whose data in no plan, is
		// forgotten, as the user asked.
		Dropped []base.UID
	}
	// StateRepacked puts the state of an operator, as it is at Version, into
	// another number of partitions.
	StateRepacked struct {
		Op      base.UID
		Version base.BatchTime
		Files   []base.Handle // by partition
	}
	// ReceiverRegistered precedes the start of a receiver, which goes on from a
	// source position.
	ReceiverRegistered struct {
		Stream base.UID
		Epoch  base.Epoch
		From   []byte
	}
	// BlockAdded makes a received block part of the stream.
	BlockAdded struct{ Block plan.Block }
	// BlocksLost gives up blocks that nobody can read any more.
	BlocksLost struct {
		Blocks  []base.BlockID
		Records int64
		Reason  string
	}
	// RateUpdated is the newest word on how fast a receiver may be.
	RateUpdated struct {
		Stream base.UID
		Rate   float64 // records per second
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
		Time      base.BatchTime
		States    []StateDelta
		Emissions []rpc.EmissionAt // that later batches may read
		Begun     []base.UID       // stateful operators that had their first input
	}
	// BatchFailed ends a batch that went on without some of its outputs.
	BatchFailed struct {
		Time      base.BatchTime
		Sets      []base.DataSet
		Outputs   []base.UID
		Reason    string
		States    []StateDelta // of the operators that applied the batch
		Emissions []rpc.EmissionAt
		Begun     []base.UID
	}
	// Released precedes every deletion of what finished batches read.
	Released struct {
		Done      base.BatchTime
		Batches   []base.BatchTime
		Forgotten []Forgotten
	}
	// StateMerged puts one file in the place of the oldest ones of a partition.
	StateMerged struct {
		Op       base.UID
		Part     int
		Replaced int
		File     base.Handle
	}
	// SnapshotDone says that a snapshot holds all facts up to a sequence number.
	SnapshotDone struct{ Seq uint64 }
)

// Accepted is what counts of an older epoch's log.
type Accepted struct {
	Epoch  base.Epoch
	Limits wal.Limits
}

// Forgotten is the newest time whose data set of an operator is gone.
type Forgotten struct {
	Op   base.UID
	Time base.BatchTime
}

// StateDelta names the file that holds what a batch changed in a state
// partition. Deltas that no event names do not exist.
type StateDelta struct {
	Op   base.UID
	Part int
	File base.Handle
	// Full means that the file is the whole state: those before it are void.
	Full bool
}

func (DriverStarted) event()      {}
func (StateRepacked) event()      {}
func (ReceiverRegistered) event() {}
func (BlockAdded) event()         {}
func (BlocksLost) event()         {}
func (RateUpdated) event()        {}
func (BatchPlanned) event()       {}
func (OutputDone) event()         {}
func (BatchDone) event()          {}
func (BatchFailed) event()        {}
func (Released) event()           {}
func (StateMerged) event()        {}
func (SnapshotDone) event()       {}
