// Package rdd holds a batch's immutable, partitioned data sets: lineage,
// partitioners, transformations, iterators, and the tasks that compute them.
// It knows nothing of streaming or of where its bytes come from.
//
// An [RDD] is a typed handle on a node of package plan. A partition is a push
// iterator ([Iter]); narrow chains fuse by nesting closures, so a record costs
// one indirect call per operator and no allocation. Records that are strings
// or byte slices may be views of a block: read-only by contract, never reused
// (Invariant 15).
//
// The record sequence of every partition is a function of the plan
// (Invariant 13): reduce inputs are read in map-partition order, combiners
// emit in insertion order, Repartition routes by map partition and index.
// User functions that panic or fail give a base.TaskError that names operator,
// batch, partition and record (Invariant 10).
//
// Handles are values and may be copied; a [Task] belongs to one goroutine.
//
//	lines := rdd.FromFrames(scope, "lines", codec.For[string](), frames)
//	words := rdd.FlatMap(lines, strings.FieldsSeq)
//	pairs := rdd.Map(words, func(w string) rdd.Pair[string, int] { return rdd.KV(w, 1) })
//	counts := rdd.ReduceByKey(pairs, rdd.Hash[string](4), func(a, b int) int { return a + b })
package rdd
