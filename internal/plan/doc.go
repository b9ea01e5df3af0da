// Package plan turns an operator graph and the durable plan of a batch into
// data sets, stages and tasks. It is pure: driver and executors run it on the
// same input and get the same nodes with the same ids and the same lineage
// hash (Invariant 11), so tasks can name what to compute instead of carrying
// it.
//
// Nodes are erased: what computes them is stored as a value that package rdd
// interprets. A [Lineage] belongs to one goroutine at a time; [Node] values
// are immutable once built and may be shared.
package plan
