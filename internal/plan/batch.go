package plan

import (
	"github.com/tidemill/tidemill/internal/base"
)

// Batch is the plan of one batch: data only, durable before any task of the
// batch starts (Invariant 3). Every run of the batch uses it.
type Batch struct {
	Time   base.BatchTime
	Inputs []Input
	Values []Value
}

// Input is what one source contributes to a batch.
type Input struct {
	UID base.UID
	// Absent means that the source has no data set for this batch, which is
	// not the same as an empty one.
	Absent  bool
	Records int64 // -1 if unknown
	Bytes   int64 // -1 if unknown
	Parts   int
	Data    []byte  // the source's own words
	Blocks  []Block // of a receiver, one per partition
}

// Block is a received block as the plan names it.
type Block struct {
	ID       base.BlockID
	Key      string
	Records  int
	Bytes    int64
	Executor base.ExecutorID
	// Lost blocks are read as empty: the policy allows it, and the log says so (Invariant 9).
	Lost bool
}

// Value is a broadcast value, made by the driver for this batch.
type Value struct {
	UID  base.UID
	Data []byte
}

// Input returns what source uid contributes.
func (b *Batch) Input(uid base.UID) (Input, bool) {
	for _, in := range b.Inputs {
		if in.UID == uid {
			return in, true
		}
	}
	return Input{}, false
}

// Records returns the number of records that the sources know of.
func (b *Batch) Records() int64 {
	var n int64
	for _, in := range b.Inputs {
		n += max(0, in.Records)
	}
	return n
}
