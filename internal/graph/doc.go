// Package graph is the erased operator graph that a job's Build function
// records: sources, operators, outputs, broadcast values. It checks names and
// shapes, works out how long each operator's data sets are kept, and has a
// canonical text whose hash is the graph's fingerprint.
//
// A Graph is filled by one goroutine and read-only after [Graph.Finish].
// Driver and every executor have their own, made by the same Build
// (Invariant 11).
package graph
