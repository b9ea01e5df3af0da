package tidemill

import (
	"iter"

	"github.com/tidemill/tidemill/rdd"
)

// KeyBy pairs every record with the key that f gives it.
func KeyBy[K comparable, T any](d DStream[T], f func(T) K) DStream[Pair[K, T]] {
	return unary(d, "keyBy", func(r RDD[T]) RDD[Pair[K, T]] { return rdd.KeyBy(r, f) })
}

// MapValues applies f to every value.
func MapValues[K comparable, V, W any](d DStream[Pair[K, V]], f func(V) W) DStream[Pair[K, W]] {
	return unary(d, "mapValues", func(r RDD[Pair[K, V]]) RDD[Pair[K, W]] { return rdd.MapValues(r, f) })
}

// FlatMapValues replaces every value by the sequence that f returns for it.
func FlatMapValues[K comparable, V, W any](d DStream[Pair[K, V]], f func(V) iter.Seq[W]) DStream[Pair[K, W]] {
	return unary(d, "flatMapValues", func(r RDD[Pair[K, V]]) RDD[Pair[K, W]] { return rdd.FlatMapValues(r, f) })
}

// GroupByKey gathers the values of each key of a batch, in order. The values
// of one key must fit in memory; to combine them, ReduceByKey is cheaper.
func GroupByKey[K comparable, V any](d DStream[Pair[K, V]], opts ...Option) DStream[Pair[K, []V]] {
	p := keyed(d, "groupByKey", opts)
	return unary(d, "groupByKey", func(r RDD[Pair[K, V]]) RDD[Pair[K, []V]] { return rdd.GroupByKey(r, p) })
}

// ReduceByKey combines the values of each key of a batch by f, which must be
// associative. Values are combined before they are exchanged.
func ReduceByKey[K comparable, V any](d DStream[Pair[K, V]], f func(a, b V) V, opts ...Option) DStream[Pair[K, V]] {
	p := keyed(d, "reduceByKey", opts)
	return unary(d, "reduceByKey", func(r RDD[Pair[K, V]]) RDD[Pair[K, V]] { return rdd.ReduceByKey(r, p, f) })
}

// CombineByKey combines the values of each key of a batch: create makes a
// combiner of a key's first value, merge adds another value, and join merges
// the combiners of two partitions.
func CombineByKey[K comparable, V, C any](d DStream[Pair[K, V]], create func(V) C, merge func(C, V) C, join func(C, C) C, opts ...Option) DStream[Pair[K, C]] {
	p := keyed(d, "combineByKey", opts)
	encodable[C](d.ssc, "combineByKey of "+d.Name())
	c := rdd.Combiner[V, C]{Create: create, Merge: merge, Join: join}
	return unary(d, "combineByKey", func(r RDD[Pair[K, V]]) RDD[Pair[K, C]] { return rdd.CombineByKey(r, p, c, true) })
}

// keyed checks what a shuffle of pairs needs.
func keyed[K comparable, V any](d DStream[Pair[K, V]], kind string, opts []Option) Partitioner[K] {
	what := kind + " of " + d.Name()
	encodable[Pair[K, V]](d.ssc, what)
	return partitioner[K](d.ssc, what, opts)
}

// Cogroup gathers, for every key that either stream has in a batch, its values
// in both.
func Cogroup[K comparable, V, W any](a DStream[Pair[K, V]], b DStream[Pair[K, W]], opts ...Option) DStream[Pair[K, CoGrouped[V, W]]] {
	p := both(a, b, "cogroup", opts)
	return two(a, b, "cogroup", func(x RDD[Pair[K, V]], y RDD[Pair[K, W]], _ BatchTime) (RDD[Pair[K, CoGrouped[V, W]]], error) {
		return rdd.Cogroup(x, y, p), nil
	})
}

// Join pairs every value of a key in one stream with every one in the other.
// Streams with different windows are windowed first.
func Join[K comparable, V, W any](a DStream[Pair[K, V]], b DStream[Pair[K, W]], opts ...Option) DStream[Pair[K, Joined[V, W]]] {
	p := both(a, b, "join", opts)
	return two(a, b, "join", func(x RDD[Pair[K, V]], y RDD[Pair[K, W]], _ BatchTime) (RDD[Pair[K, Joined[V, W]]], error) {
		return rdd.Join(x, y, p), nil
	})
}

// LeftOuterJoin is Join that keeps keys without value in b.
func LeftOuterJoin[K comparable, V, W any](a DStream[Pair[K, V]], b DStream[Pair[K, W]], opts ...Option) DStream[Pair[K, Joined[V, Opt[W]]]] {
	p := both(a, b, "leftOuterJoin", opts)
	return two(a, b, "leftOuterJoin", func(x RDD[Pair[K, V]], y RDD[Pair[K, W]], _ BatchTime) (RDD[Pair[K, Joined[V, Opt[W]]]], error) {
		return rdd.LeftOuterJoin(x, y, p), nil
	})
}

// RightOuterJoin is Join that keeps keys without value in a.
func RightOuterJoin[K comparable, V, W any](a DStream[Pair[K, V]], b DStream[Pair[K, W]], opts ...Option) DStream[Pair[K, Joined[Opt[V], W]]] {
	p := both(a, b, "rightOuterJoin", opts)
	return two(a, b, "rightOuterJoin", func(x RDD[Pair[K, V]], y RDD[Pair[K, W]], _ BatchTime) (RDD[Pair[K, Joined[Opt[V], W]]], error) {
		return rdd.RightOuterJoin(x, y, p), nil
	})
}

// FullOuterJoin is Join that keeps keys without value on either side.
func FullOuterJoin[K comparable, V, W any](a DStream[Pair[K, V]], b DStream[Pair[K, W]], opts ...Option) DStream[Pair[K, Joined[Opt[V], Opt[W]]]] {
	p := both(a, b, "fullOuterJoin", opts)
	return two(a, b, "fullOuterJoin", func(x RDD[Pair[K, V]], y RDD[Pair[K, W]], _ BatchTime) (RDD[Pair[K, Joined[Opt[V], Opt[W]]]], error) {
		return rdd.FullOuterJoin(x, y, p), nil
	})
}

func both[K comparable, V, W any](a DStream[Pair[K, V]], b DStream[Pair[K, W]], kind string, opts []Option) Partitioner[K] {
	encodable[Pair[K, W]](a.ssc, kind+" of "+b.Name())
	return keyed(a, kind, opts)
}
