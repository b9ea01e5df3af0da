package rpc

import (
	"context"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
)

// ToExecutor is a message from the driver to an executor.
type ToExecutor interface{ toExecutor() }

// Plan hands an executor the plan of a batch before any of its tasks.
type Plan struct {
	Batch plan.Batch
	// Failed lists data sets of remembered batches that readers take as empty.
	Failed []base.DataSet
	// Started lists the stateful operators that had input before this batch.
	Started []base.UID
	// Hash is the driver's lineage hash of the batch, 0 for plans of earlier
	// batches that an executor gets when it joins (Invariant 11).
	Hash uint64
}

// TaskKind says what to do with a computed partition.
type TaskKind uint8

// Task kinds.
const (
	MapTask     TaskKind = iota // spread it over the buckets of a shuffle
	CountTask                   // count it
	CollectTask                 // send it, or its first records, to the driver
	OutputTask                  // hand it to an output of the graph
	AdvanceTask                 // advance a stateful operator by the batch
)

// StageTasks are tasks of one stage.
type StageTasks struct {
	Batch   base.BatchTime
	Job     base.JobID
	Stage   base.StageID
	Kind    TaskKind
	Node    plan.ID      // the node to compute
	Shuffle string       // MapTask: what to write
	Reader  base.DataSet // MapTask: the data set that reads the shuffle
	Limit   int          // CollectTask: records per partition, negative for all
	Output  base.UID     // OutputTask: the output; AdvanceTask: the operator
	Tasks   []TaskRef
	// Inputs says where the shuffles are that the tasks read, by map partition.
	Inputs []ShuffleAt
	// Kept says where kept partitions are that the tasks may use.
	Kept []KeptAt
	// Emissions says where what stateful operators put aside is stored, if it is.
	Emissions []EmissionAt
	// States, of AdvanceTask, says which version of each partition to advance.
	States []StateAt
}

// StatePart names a partition of a stateful operator.
type StatePart struct {
	Op   base.UID
	Part int
}

// StateAt names a version of a state partition, and the files that make it for
// an executor that does not hold it.
type StateAt struct {
	Part    int
	Version base.BatchTime
	Restore []base.Handle
}

// EmissionAt says where something that was put aside is stored.
type EmissionAt struct {
	Key  plan.CacheKey
	File base.Handle
}

// EndBatch ends a batch for the state partitions of an executor: those of
// Commit take it as their version, those of Keep go back to the version before,
// and others live elsewhere by now.
type EndBatch struct {
	Time   base.BatchTime
	Commit []StatePart
	Keep   []StatePart
}

// TaskRef names a partition and the attempt at it.
type TaskRef struct {
	Part    int
	Attempt base.Attempt
}

// ShuffleAt says which executor holds each map partition of a shuffle.
type ShuffleAt struct {
	Shuffle string
	At      []base.ExecutorID
}

// KeptAt says where a kept partition is.
type KeptAt struct {
	Key plan.CacheKey
	At  base.ExecutorID
}

// CancelTask asks that an attempt be given up.
type CancelTask struct {
	Job   base.JobID
	Stage base.StageID
	Task  TaskRef
}

// Release tells what no task will need any more.
type Release struct {
	Done    base.BatchTime
	Blocks  []string // keys of received blocks
	Batches []base.BatchTime
}

// BlocksLost names received blocks that are gone and are read as empty.
type BlocksLost struct{ Blocks []base.BlockID }

// StartReceiver asks an executor to host the receiver of a stream.
type StartReceiver struct {
	Stream base.UID
	Epoch  base.Epoch
	// From is the source's position after the contiguous prefix of added blocks;
	// empty if there is none.
	From []byte
}

// StopReceiver asks for a graceful end: what was accepted is still stored and
// added.
type StopReceiver struct {
	Stream base.UID
	Epoch  base.Epoch
}

// RateLimit gives the receiver of a stream a new limit in records per second,
// below its configured one. A rate that is not a positive number changes
// nothing; +Inf leaves the configured one alone.
type RateLimit struct {
	Stream base.UID
	Rate   float64
}

func (Plan) toExecutor()          {}
func (StageTasks) toExecutor()    {}
func (CancelTask) toExecutor()    {}
func (Release) toExecutor()       {}
func (EndBatch) toExecutor()      {}
func (BlocksLost) toExecutor()    {}
func (StartReceiver) toExecutor() {}
func (StopReceiver) toExecutor()  {}
func (RateLimit) toExecutor()     {}

// TaskDone is the outcome of one attempt.
type TaskDone struct {
	Executor base.ExecutorID
	Job      base.JobID
	Stage    base.StageID
	Task     TaskRef
	Result   []byte
	Count    int64
	Hash     uint64 // content hash, in checked mode
	Counters map[string]int64
	Kept     []plan.CacheKey // partitions that are now kept at this executor
	// State, of AdvanceTask, is the stored delta; Emissions is what was stored
	// beside it.
	State     *base.Handle
	Emissions []EmissionAt
	// StateFull says that State is a snapshot of the task's batch, which takes the
	// place of all files of the partition before it, and can't be merged with them.
	StateFull bool
	Failure   *Failure
}

// FailureKind sorts failures by what the driver does about them.
type FailureKind uint8

// Failure kinds.
const (
	// UserFailure may pass at another attempt.
	UserFailure FailureKind = iota
	// FetchFailure means that a shuffle output is gone.
	FetchFailure
	// LostFailure means that received blocks are gone.
	LostFailure
	// EmissionFailure means that what a stateful operator put aside is gone.
	EmissionFailure
	// FinalFailure can't pass at another attempt.
	FinalFailure
	// CancelledFailure answers CancelTask.
	CancelledFailure
)

// Failure says why an attempt failed.
type Failure struct {
	Kind    FailureKind
	Message string
	Task    *base.TaskError
	Fetch   *base.FetchError
	Lost    *base.LostBlocksError
	Emitted *base.LostEmissionError
}

// AddBlock reports a stored block of a receiver.
type AddBlock struct {
	Block plan.Block
}

// ReceiverEvent reports what a receiver is doing.
type ReceiverEvent struct {
	Stream   base.UID
	Epoch    base.Epoch
	Executor base.ExecutorID
	Kind     string
	Message  string
	// Fatal means that the receiver gave up for good and the job can't go on.
	Fatal bool
	// Ended means that the receiver has returned.
	Ended bool
	// Lost counts accepted records that may be in no added block.
	Lost int64
}

// Driver is the driver as an executor sees it. Calls may come from any
// goroutine.
type Driver interface {
	TaskDone(TaskDone)
	// AddBlock returns nil once the driver's log has the block. It may be
	// repeated with the same id (Invariant 2).
	AddBlock(ctx context.Context, m AddBlock) error
	ReceiverEvent(ReceiverEvent)
	// Mismatch says that an executor computes another lineage than the driver
	// for a batch (Invariant 11).
	Mismatch(executor base.ExecutorID, t base.BatchTime, message string)
}

// Executor is an executor as the driver sees it.
type Executor interface {
	ID() base.ExecutorID
	// Host is the name of the machine that it runs on, "" if that is unknown.
	Host() string
	// Slots is the number of tasks that it runs at a time.
	Slots() int
	// Send queues a message. It fails only when the executor is gone.
	Send(m ToExecutor) error
	// Gone is closed when the executor is lost or has been closed.
	Gone() <-chan struct{}
	// Close ends the executor and waits for it.
	Close() error
}

// Peer serves one executor's data to the others.
type Peer interface {
	// Bucket returns a shuffle output, typed or encoded.
	Bucket(shuffle string, mapPart, part int) (typed any, frame []byte, err error)
	// Stored returns a received block or a kept partition.
	Stored(key string) ([]byte, error)
}

// Peers finds other executors.
type Peers interface {
	Peer(id base.ExecutorID) (Peer, error)
}
