package plan

import (
	"time"

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
	Blocks  []Block // of a receiver; see SpreadBlocks
	// Recall is how long the source needs Data again when it starts anew; the
	// newest Data it gets in any case.
	Recall time.Duration
}

// Block is a received block as the plan names it.
type Block struct {
	ID       base.BlockID
	Key      string
	Records  int
	Bytes    int64
	Executor base.ExecutorID
	// Handle says where the block is in a write-ahead log, if it is in one.
	Handle base.Handle
	// Position is the source position after the block, if the source has positions.
	Position []byte
	// Lost blocks are read as empty: the policy allows it, and the log says so (Invariant 9).
	Lost bool
}

// SpreadBlocks spreads blocks over parts partitions, each of blocks that follow
// each other and of nearly equal bytes. It returns the end of each partition.
func SpreadBlocks(blocks []Block, parts int) (ends []int) {
	ends = make([]int, parts)
	if len(blocks) == parts {
		for i := range ends {
			ends[i] = i + 1
		}
		return ends
	}
	var total, before int64
	for _, b := range blocks {
		total += max(1, b.Bytes)
	}
	for i, b := range blocks {
		size := max(1, b.Bytes)
		part := int((2*before + size) * int64(parts) / (2 * total))
		ends[min(part, parts-1)] = i + 1
		before += size
	}
	for i := 1; i < parts; i++ {
		ends[i] = max(ends[i], ends[i-1])
	}
	return ends
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
