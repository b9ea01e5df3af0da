package rdd

import (
	"sync/atomic"

	"github.com/tidemill/tidemill/internal/plan"
)

// Combiner says how values of one key become one. Merge and Join may change
// and return their first argument. They must not change the second, nor return
// it if they ever change the first: it belongs to the data set.
type Combiner[V, C any] struct {
	Create func(V) C
	Merge  func(C, V) C
	// Join merges what two partitions made of a key. It must be associative.
	Join func(C, C) C

	// fresh says that what Create returns is never its argument.
	fresh bool
}

// CombineByKey combines the values of each key. With mapSide, values are
// combined before they are exchanged.
func CombineByKey[K comparable, V, C any](r RDD[Pair[K, V]], p Partitioner[K], c Combiner[V, C], mapSide bool) RDD[Pair[K, C]] {
	return combineByKey(r, "combineByKey", p, c, mapSide)
}

// ReduceByKey combines the values of each key by f, which must be associative.
// f may change and return a. It must not change b, nor return it if it ever
// changes a.
func ReduceByKey[K comparable, V any](r RDD[Pair[K, V]], p Partitioner[K], f func(a, b V) V) RDD[Pair[K, V]] {
	return combineByKey(r, "reduceByKey", p, Combiner[V, V]{Create: func(v V) V { return v }, Merge: f, Join: f}, true)
}

// GroupByKey gathers the values of each key in the order of the data set. The
// values of one key must fit in memory.
func GroupByKey[K comparable, V any](r RDD[Pair[K, V]], p Partitioner[K]) RDD[Pair[K, []V]] {
	return combineByKey(r, "groupByKey", p, Combiner[V, []V]{
		Create: func(v V) []V { return []V{v} },
		Merge:  func(vs []V, v V) []V { return append(vs, v) },
		Join:   func(a, b []V) []V { return append(a, b...) },
		fresh:  true,
	}, false)
}

// Distinct keeps one of equal records, the first.
func Distinct[T comparable](r RDD[T], p Partitioner[T]) RDD[T] {
	pairs := narrow(r, "distinct", "", mapper(func(v T) Pair[T, bool] { return Pair[T, bool]{Key: v} }))
	return Keys(ReduceByKey(pairs, p, func(a, _ bool) bool { return a }))
}

func combineByKey[K comparable, V, C any](r RDD[Pair[K, V]], kind string, p Partitioner[K], c Combiner[V, C], mapSide bool) RDD[Pair[K, C]] {
	parent := r.n
	var out RDD[Pair[K, C]]
	spec := plan.NodeSpec{Kind: kind, Parts: p.parts, Partitioner: p.name}
	if parent.Partitioner == p.name { // all values of a key are in one partition already
		spec.Narrow = []*plan.Node{parent}
		out = node(r.scope, spec, func(t *Task, part int) Iter[Pair[K, C]] {
			return func(yield func(Pair[K, C]) bool) error {
				a := newAggregation[K](t, out.n, part, c.Join, 0)
				if err := foldPairs(a, iterate[Pair[K, V]](t, parent, part), c); err != nil {
					return err
				}
				return a.emit(yield)
			}
		})
		return out
	}
	var sh *plan.Shuffle
	var mapKeys, reduceKeys sizeHint
	if mapSide {
		sh = exchange(parent, p.parts, func(t *Task, mapPart int) ([]Bucket, error) {
			return combineWrite(t, out.n, mapPart, iterate[Pair[K, V]](t, parent, mapPart), p, c, &mapKeys)
		})
	} else {
		sh = exchange(parent, p.parts, pairWriter[K, V](parent, &out.n, p))
	}
	spec.Shuffles = []*plan.Shuffle{sh}
	out = node(r.scope, spec, func(t *Task, part int) Iter[Pair[K, C]] {
		return func(yield func(Pair[K, C]) bool) error {
			a := newAggregation[K](t, out.n, part, c.Join, reduceKeys.get())
			var err error
			if mapSide {
				joiner := Combiner[C, C]{Create: func(v C) C { return v }, Merge: c.Join}
				err = foldPairs(a, fetch[Pair[K, C]](t, sh, part), joiner)
			} else {
				err = foldPairs(a, fetch[Pair[K, V]](t, sh, part), c)
			}
			reduceKeys.met(len(a.tb.Recs))
			if err != nil {
				return err
			}
			return a.emit(yield)
		}
	})
	return out
}

// combineWrite is the map side of a combining shuffle. A table that outgrows
// the combine limit is handed on and started anew; when that happens depends
// on the records alone (Invariant 13).
func combineWrite[K comparable, V, C any](t *Task, n *plan.Node, mapPart int, src Iter[Pair[K, V]], p Partitioner[K], c Combiner[V, C], hint *sizeHint) ([]Bucket, error) {
	out := make([][]Pair[K, C], p.parts)
	pr := watch[K](t, n, mapPart)
	a := newAggregation[K](t, n, mapPart, c.Join, hint.get())
	a.full = func() error {
		hint.met(len(a.tb.Recs))
		for i := range out {
			out[i] = growFor(out[i], len(a.tb.Recs)/p.parts)
		}
		for i := range a.tb.Recs {
			pr.enter(a.tb.Recs[i].Key) // a custom partitioner is user code
			at := p.place(a.tb.Recs[i].Key)
			pr.busy = false
			out[at] = append(out[at], Pair[K, C](a.tb.Recs[i]))
		}
		return nil
	}
	if err := foldPairs(a, src, c); err != nil {
		return nil, err
	}
	if err := a.full(); err != nil {
		return nil, err
	}
	return buckets(n, mapPart, out), nil
}

func growFor[T any](s []T, n int) []T {
	if s == nil && n > 0 {
		return make([]T, 0, n+n/8)
	}
	return s
}

// sizeHint remembers how many keys the tasks of a node met, so that the next
// one's table starts large enough. It changes no record.
type sizeHint struct{ keys atomic.Int64 }

func (h *sizeHint) get() int { return int(h.keys.Load()) }

func (h *sizeHint) met(n int) {
	if int64(n) > h.keys.Load() {
		h.keys.Store(int64(n))
	}
}
