// Package executor runs tasks and holds what they make: shuffle outputs, kept
// partitions and received blocks. It hosts receivers, whose blocks go to a
// [BlockLogs] if there is one, and state partitions, whose deltas go to the
// [StateLog] that the executors of a process share. A block that no executor
// has is read from its log.
//
// An executor builds the graph for itself and gets only data from the driver:
// the plan of a batch, and tasks that name what to compute. It computes the
// same lineage hash as the driver and reports a mismatch (Invariant 11). User
// panics become task failures (Invariant 10). Nothing is dropped before the
// driver releases it (Invariant 5). A task's delta is in the state log before
// its outcome names it, and does not exist until an event does (Invariant 4).
//
// One goroutine, the inbox, takes messages in order and owns the lineage;
// every task has a goroutine of its own, and so has every receiver. The mutex
// of the executor guards its tables and is never held across IO or a call of
// user code.
package executor
