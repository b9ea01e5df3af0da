// Package executor runs tasks and holds what they make: shuffle outputs, kept
// partitions and received blocks. It hosts receivers.
//
// An executor builds the graph for itself and gets only data from the driver:
// the plan of a batch, and tasks that name what to compute. It computes the
// same lineage hash as the driver and reports a mismatch (Invariant 11). User
// panics become task failures (Invariant 10). Nothing is dropped before the
// driver releases it (Invariant 5).
//
// One goroutine, the inbox, takes messages in order and owns the lineage;
// every task has a goroutine of its own, and so has every receiver. The mutex
// of the executor guards its tables and is never held across IO or a call of
// user code.
package executor
