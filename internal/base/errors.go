package base

import (
	"errors"
	"fmt"
	"strings"
)

// ErrStopped is returned by calls on something that has been stopped.
var ErrStopped = errors.New("stopped")

// ErrCorrupt marks bytes that fail their length bound or checksum (Invariant 8).
var ErrCorrupt = errors.New("corrupt data")

// TaskError is the failure of user code, or of the engine on its behalf, in
// one task (Invariant 10). It names where it happened; Record is a short
// preview of the record the operator was working on, if there was one.
type TaskError struct {
	Set       DataSet // the data set whose computation failed
	Operator  string  // kind and name, as people read them
	Partition int     // negative if the data set was not made yet
	Record    int64   // 1-based number of the record in the operator's input, 0 if unknown
	Preview   string
	Panic     bool
	Message   string
	Stack     string
}

func (e *TaskError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: batch %s", e.Operator, e.Set.Time)
	if e.Partition >= 0 {
		fmt.Fprintf(&b, ", partition %d", e.Partition)
	}
	if e.Record > 0 {
		fmt.Fprintf(&b, ", record %d", e.Record)
		if e.Preview != "" {
			fmt.Fprintf(&b, " (%s)", e.Preview)
		}
	}
	b.WriteString(": ")
	if e.Panic {
		b.WriteString("panic: ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// LostBlocksError says which received blocks of a batch are gone. It is final:
// no retry brings them back.
type LostBlocksError struct {
	Batch  BatchTime
	Blocks []BlockID
	Reason string
}

func (e *LostBlocksError) Error() string {
	const most = 3
	names := make([]string, 0, most)
	for _, b := range e.Blocks[:min(most, len(e.Blocks))] {
		names = append(names, b.String())
	}
	more := ""
	if n := len(e.Blocks) - most; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("batch %s: %d received block(s) are gone (%s%s): %s; set on-lost-blocks=skip to go on without them",
		e.Batch, len(e.Blocks), strings.Join(names, ", "), more, e.Reason)
}

// FetchError says that a shuffle output or a block could not be read from the
// executor that should hold it. The scheduler answers by running the map task
// again.
type FetchError struct {
	Shuffle string
	MapPart int
	From    ExecutorID
	Reason  string
}

func (e *FetchError) Error() string {
	return fmt.Sprintf("fetch shuffle %s, map partition %d from %q: %s", e.Shuffle, e.MapPart, e.From, e.Reason)
}

// LostEmissionError says that what a stateful operator put aside is gone with
// the executor that held it. The driver answers by advancing the partition
// again.
type LostEmissionError struct {
	Set    DataSet
	Part   int
	Reason string
}

func (e *LostEmissionError) Error() string {
	return fmt.Sprintf("what %s emitted in partition %d is gone: %s", e.Set, e.Part, e.Reason)
}
