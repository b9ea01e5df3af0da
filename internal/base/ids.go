package base

import (
	"fmt"
	"strconv"
)

// UID is the stable name of an operator of the graph. Sources, outputs and
// whatever is durable get it from the user; others from parent, kind and
// ordinal.
type UID string

// Epoch fences: what carries a lower epoch than the current one is refused
// (Invariant 7).
type Epoch uint64

func (e Epoch) String() string { return strconv.FormatUint(uint64(e), 10) }

// ExecutorID names one incarnation of an executor.
type ExecutorID string

// StageID numbers the stages of one job; the result stage has the highest.
type StageID int

// JobID numbers jobs within one driver.
type JobID int64

// Attempt counts the tries of one task from 0.
type Attempt int

// DataSet names what an operator produced at a batch time.
type DataSet struct {
	UID  UID
	Time BatchTime
}

func (d DataSet) String() string { return fmt.Sprintf("%s@%s", d.UID, d.Time) }

// BlockID names a received block. The counter is given when the store of the
// block has succeeded, so accepted counters have no gaps (Invariant 2).
type BlockID struct {
	Stream  UID
	Epoch   Epoch
	Counter uint64
}

func (b BlockID) String() string {
	return fmt.Sprintf("%s/%d/%d", b.Stream, b.Epoch, b.Counter)
}

// StorageLevel says where the engine keeps blocks or cached partitions.
type StorageLevel uint8

// Storage levels. Everything kept is encoded, so there is no separate
// serialised form as in Spark.
const (
	// StorageNone keeps nothing.
	StorageNone StorageLevel = iota
	// MemoryOnly keeps blocks in memory; what does not fit is not kept.
	MemoryOnly
	// MemoryAndDisk keeps blocks in memory and moves them to disk when memory is short.
	MemoryAndDisk
	// DiskOnly keeps blocks on local disk.
	DiskOnly
)

var levelNames = [...]string{"none", "memory", "memory-and-disk", "disk"}

func (l StorageLevel) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return "storage-level-" + strconv.Itoa(int(l))
}

// Valid reports whether l is one of the named levels.
func (l StorageLevel) Valid() bool { return int(l) < len(levelNames) }
