package tidemill

import (
	"errors"
	"fmt"
	"iter"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
)

// Map applies f to every record.
func Map[T, R any](d DStream[T], f func(T) R) DStream[R] {
	return unary(d, "map", func(r RDD[T]) RDD[R] { return rdd.Map(r, f) })
}

// FlatMap replaces every record by the sequence that f returns for it, as
// strings.FieldsSeq does for words.
func FlatMap[T, R any](d DStream[T], f func(T) iter.Seq[R]) DStream[R] {
	return unary(d, "flatMap", func(r RDD[T]) RDD[R] { return rdd.FlatMap(r, f) })
}

// FlatMapSlice replaces every record by the records of the slice that f
// returns for it.
func FlatMapSlice[T, R any](d DStream[T], f func(T) []R) DStream[R] {
	return unary(d, "flatMap", func(r RDD[T]) RDD[R] { return rdd.FlatMapSlice(r, f) })
}

// Filter keeps the records for which keep returns true.
func Filter[T any](d DStream[T], keep func(T) bool) DStream[T] {
	return unary(d, "filter", func(r RDD[T]) RDD[T] { return rdd.Filter(r, keep) })
}

// MapPartitions hands each partition to f, which passes results to emit until
// that returns false. An error of f fails the task.
func MapPartitions[T, R any](d DStream[T], f func(t *Task, in iter.Seq[T], emit func(R) bool) error) DStream[R] {
	return unary(d, "mapPartitions", func(r RDD[T]) RDD[R] { return rdd.MapPartitions(r, f) })
}

// Glom makes one slice of each partition.
func Glom[T any](d DStream[T]) DStream[[]T] {
	return unary(d, "glom", rdd.Glom[T])
}

// Repartition spreads the records over exactly n partitions by way of a shuffle.
func Repartition[T any](d DStream[T], n int) DStream[T] {
	if n <= 0 {
		d.ssc.g.Errorf("repartition of %q: the partition count is %d: must be positive", d.Name(), n)
		n = 1
	}
	encodable[T](d.ssc, "repartition of "+d.Name())
	return unary(d, "repartition", func(r RDD[T]) RDD[T] { return rdd.Repartition(r, n) })
}

// Union puts streams of one slide together, in the order given.
func Union[T any](d DStream[T], others ...DStream[T]) DStream[T] {
	all := append([]DStream[T]{d}, others...)
	ops, contexts := handles(all)
	together(d.ssc, "union", contexts, ops)
	return add(d.ssc, opSpec{kind: "union", parents: ops}, func(b *plan.Builder) (RDD[T], bool, error) {
		rs, err := parents[T](b, len(ops))
		if err != nil {
			return RDD[T]{}, false, err
		}
		return rdd.Union(b.Scope, rs...), true, nil
	})
}

func handles[T any](ds []DStream[T]) (ops []*plan.Op, contexts []*StreamingContext) {
	for _, d := range ds {
		ops = append(ops, d.op)
		contexts = append(contexts, d.ssc)
	}
	return ops, contexts
}

func parents[T any](b *plan.Builder, n int) ([]RDD[T], error) {
	rs := make([]RDD[T], n)
	for i := range rs {
		var err error
		if rs[i], err = parent[T](b, i); err != nil {
			return nil, err
		}
	}
	return rs, nil
}

// Count has one record per batch: the number of records, 0 for an empty batch.
func Count[T any](d DStream[T]) DStream[int64] {
	return add(d.ssc, opSpec{kind: "count", parents: []*plan.Op{d.op}}, func(b *plan.Builder) (RDD[int64], bool, error) {
		r, err := parent[T](b, 0)
		if err != nil {
			return RDD[int64]{}, false, err
		}
		return rdd.Count(r), true, nil
	})
}

// CountByValue counts how often each record occurs in a batch.
func CountByValue[T comparable](d DStream[T], opts ...Option) DStream[Pair[T, int64]] {
	p := partitioner[T](d.ssc, "countByValue of "+d.Name(), opts)
	encodable[T](d.ssc, "countByValue of "+d.Name())
	return unary(d, "countByValue", func(r RDD[T]) RDD[Pair[T, int64]] {
		ones := rdd.Map(r, func(v T) Pair[T, int64] { return rdd.KV(v, int64(1)) })
		return rdd.ReduceByKey(ones, p, func(a, b int64) int64 { return a + b })
	})
}

// Reduce combines all records of a batch by f, which must be associative. An
// empty batch gives no record.
func Reduce[T any](d DStream[T], f func(a, b T) T) DStream[T] {
	encodable[T](d.ssc, "reduce of "+d.Name())
	return unary(d, "reduce", func(r RDD[T]) RDD[T] { return rdd.Reduce(r, f) })
}

// TopN has the n greatest records of each batch in the order of compare, which
// follows slices.SortFunc, the greatest first. Of equal records the first win.
func TopN[T any](d DStream[T], n int, compare func(a, b T) int) DStream[T] {
	if n <= 0 {
		d.ssc.g.Errorf("topN of %q: n is %d: must be positive", d.Name(), n)
		n = 1
	}
	encodable[T](d.ssc, "topN of "+d.Name())
	return unary(d, "topN", func(r RDD[T]) RDD[T] { return rdd.TopN(r, n, compare) })
}

// Distinct keeps one of equal records of a batch.
func Distinct[T comparable](d DStream[T], opts ...Option) DStream[T] {
	p := partitioner[T](d.ssc, "distinct of "+d.Name(), opts)
	encodable[T](d.ssc, "distinct of "+d.Name())
	return unary(d, "distinct", func(r RDD[T]) RDD[T] { return rdd.Distinct(r, p) })
}

// SortByKey puts the pairs of each batch into one partition, in the ascending
// order of compare.
func SortByKey[K comparable, V any](d DStream[Pair[K, V]], compare func(a, b K) int) DStream[Pair[K, V]] {
	encodable[Pair[K, V]](d.ssc, "sortByKey of "+d.Name())
	return unary(d, "sortByKey", func(r RDD[Pair[K, V]]) RDD[Pair[K, V]] {
		return rdd.Sort(r, func(a, b Pair[K, V]) int { return compare(a.Key, b.Key) })
	})
}

// errNoHandle answers a Transform function that returned the zero handle.
var errNoHandle = errors.New("the Transform function must not return the zero RDD: return rdd.EmptyLike(r) for no records")

// transformed checks and contains what a Transform function returned.
func transformed[R any](b *plan.Builder, what string, r RDD[R], err error) (RDD[R], bool, error) {
	if err == nil && r.Node() == nil {
		err = errNoHandle
	}
	if err != nil {
		return r, false, &base.TaskError{Set: b.Scope.Set, Operator: what, Partition: -1, Message: err.Error()}
	}
	return r, true, nil
}

// Transform applies f to the data set of every batch, an empty one if there is
// none. f may use the operations of package rdd and may differ between
// batches, but must be deterministic: driver and executors call it and compare
// what it builds. An error fails this batch of all that depends on it.
func Transform[T, R any](d DStream[T], f func(r RDD[T], t BatchTime) (RDD[R], error)) DStream[R] {
	return TransformAll([]DStream[T]{d}, func(rs []RDD[T], t BatchTime) (RDD[R], error) { return f(rs[0], t) })
}

// TransformAll is Transform over several streams of one type and slide.
func TransformAll[T, R any](ds []DStream[T], f func(rs []RDD[T], t BatchTime) (RDD[R], error)) DStream[R] {
	if len(ds) == 0 {
		// Without a stream there is no context to record the error on.
		panic("tidemill: TransformAll of no streams: give it at least one")
	}
	ssc := ds[0].ssc
	ops, contexts := handles(ds)
	together(ssc, "transform", contexts, ops)
	return add(ssc, opSpec{kind: "transform", parents: ops}, func(b *plan.Builder) (RDD[R], bool, error) {
		rs, err := parents[T](b, len(ops))
		if err != nil {
			return RDD[R]{}, false, err
		}
		r, err := f(rs, b.Time)
		return transformed(b, "transform of "+string(ops[0].UID), r, err)
	})
}

// TransformWith is Transform over two streams of one slide.
func TransformWith[T, U, R any](a DStream[T], c DStream[U], f func(a RDD[T], b RDD[U], t BatchTime) (RDD[R], error)) DStream[R] {
	ops := []*plan.Op{a.op, c.op}
	together(a.ssc, "transformWith", []*StreamingContext{a.ssc, c.ssc}, ops)
	return add(a.ssc, opSpec{kind: "transformWith", parents: ops}, func(b *plan.Builder) (RDD[R], bool, error) {
		x, err := parent[T](b, 0)
		if err != nil {
			return RDD[R]{}, false, err
		}
		y, err := parent[U](b, 1)
		if err != nil {
			return RDD[R]{}, false, err
		}
		r, err := f(x, y, b.Time)
		return transformed(b, fmt.Sprintf("transformWith of %s and %s", a.op.UID, c.op.UID), r, err)
	})
}

// DeadLetter is a record that a Try function refused.
type DeadLetter[T any] struct {
	Record T
	Error  string
	Batch  BatchTime
}

// attempt is what a Try function made of a record.
type attempt[T, R any] struct {
	out  R
	dead *DeadLetter[T]
}

// TryMap applies f to every record. Records for which f returns an error, or
// panics, go to the second stream instead of failing the batch.
func TryMap[T, R any](d DStream[T], f func(T) (R, error)) (DStream[R], DStream[DeadLetter[T]]) {
	return TryFlatMap(d, func(v T) ([]R, error) {
		out, err := f(v)
		return []R{out}, err
	})
}

// TryFlatMap is FlatMapSlice whose failures go to the second stream.
func TryFlatMap[T, R any](d DStream[T], f func(T) ([]R, error)) (DStream[R], DStream[DeadLetter[T]]) {
	tried := unary(d, "try", func(r RDD[T]) RDD[attempt[T, R]] {
		t := r.Node().ID.Set.Time
		return rdd.FlatMapSlice(r, func(v T) []attempt[T, R] {
			outs, err := contained(f, v)
			if err != nil {
				return []attempt[T, R]{{dead: &DeadLetter[T]{Record: v, Error: err.Error(), Batch: t}}}
			}
			as := make([]attempt[T, R], len(outs))
			for i := range outs {
				as[i].out = outs[i]
			}
			return as
		})
	})
	good := unary(tried, "good", func(r RDD[attempt[T, R]]) RDD[R] {
		return rdd.FlatMapSlice(r, func(a attempt[T, R]) []R {
			if a.dead != nil {
				return nil
			}
			return []R{a.out}
		})
	})
	dead := unary(tried, "dead", func(r RDD[attempt[T, R]]) RDD[DeadLetter[T]] {
		return rdd.FlatMapSlice(r, func(a attempt[T, R]) []DeadLetter[T] {
			if a.dead == nil {
				return nil
			}
			return []DeadLetter[T]{*a.dead}
		})
	})
	return good, dead
}

func contained[T, R any](f func(T) ([]R, error), v T) (out []R, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f(v)
}
