package rdd

import (
	"iter"

	"github.com/tidemill/tidemill/internal/plan"
)

// Cogroup gathers, for every key of a or b, its values in both. The values of
// one key must fit in memory.
func Cogroup[K comparable, V, W any](a RDD[Pair[K, V]], b RDD[Pair[K, W]], p Partitioner[K]) RDD[Pair[K, CoGrouped[V, W]]] {
	type group = Pair[K, CoGrouped[V, W]]
	var out RDD[group]
	spec := plan.NodeSpec{Kind: "cogroup", Parts: p.parts, Partitioner: p.name}
	left := side[K, V](&spec, a.n, &out.n, p)
	right := side[K, W](&spec, b.n, &out.n, p)
	out = node(a.scope, spec, func(t *Task, part int) Iter[group] {
		return func(yield func(group) bool) error {
			a := newAggregation[K](t, out.n, part, joinGroups[V, W], 0)
			err := foldPairs(a, left(t, part), Combiner[V, CoGrouped[V, W]]{
				Create: func(v V) CoGrouped[V, W] { return CoGrouped[V, W]{Left: []V{v}} },
				Merge: func(g CoGrouped[V, W], v V) CoGrouped[V, W] {
					g.Left = append(g.Left, v)
					return g
				},
				fresh: true,
			})
			if err != nil {
				return err
			}
			err = foldPairs(a, right(t, part), Combiner[W, CoGrouped[V, W]]{
				Create: func(w W) CoGrouped[V, W] { return CoGrouped[V, W]{Right: []W{w}} },
				Merge: func(g CoGrouped[V, W], w W) CoGrouped[V, W] {
					g.Right = append(g.Right, w)
					return g
				},
				fresh: true,
			})
			if err != nil {
				return err
			}
			return a.emit(yield)
		}
	})
	return out
}

func joinGroups[V, W any](a, b CoGrouped[V, W]) CoGrouped[V, W] {
	return CoGrouped[V, W]{Left: append(a.Left, b.Left...), Right: append(a.Right, b.Right...)}
}

// side adds one parent of a cogroup to spec: as it is if its keys are placed
// already, else through a shuffle.
func side[K comparable, V any](spec *plan.NodeSpec, parent *plan.Node, reader **plan.Node, p Partitioner[K]) compute[Pair[K, V]] {
	if parent.Partitioner == p.name {
		spec.Narrow = append(spec.Narrow, parent)
		return func(t *Task, part int) Iter[Pair[K, V]] { return iterate[Pair[K, V]](t, parent, part) }
	}
	sh := exchange(parent, p.parts, pairWriter[K, V](parent, reader, p))
	spec.Shuffles = append(spec.Shuffles, sh)
	return func(t *Task, part int) Iter[Pair[K, V]] { return fetch[Pair[K, V]](t, sh, part) }
}

// Join pairs every value of a key in a with every one in b.
func Join[K comparable, V, W any](a RDD[Pair[K, V]], b RDD[Pair[K, W]], p Partitioner[K]) RDD[Pair[K, Joined[V, W]]] {
	return FlatMapValues(Cogroup(a, b, p), func(g CoGrouped[V, W]) iter.Seq[Joined[V, W]] {
		return product(g.Left, g.Right)
	})
}

// LeftOuterJoin is Join that keeps keys without value in b.
func LeftOuterJoin[K comparable, V, W any](a RDD[Pair[K, V]], b RDD[Pair[K, W]], p Partitioner[K]) RDD[Pair[K, Joined[V, Opt[W]]]] {
	return FlatMapValues(Cogroup(a, b, p), func(g CoGrouped[V, W]) iter.Seq[Joined[V, Opt[W]]] {
		return product(g.Left, opts(g.Right))
	})
}

// RightOuterJoin is Join that keeps keys without value in a.
func RightOuterJoin[K comparable, V, W any](a RDD[Pair[K, V]], b RDD[Pair[K, W]], p Partitioner[K]) RDD[Pair[K, Joined[Opt[V], W]]] {
	return FlatMapValues(Cogroup(a, b, p), func(g CoGrouped[V, W]) iter.Seq[Joined[Opt[V], W]] {
		return product(opts(g.Left), g.Right)
	})
}

// FullOuterJoin is Join that keeps keys without value on either side.
func FullOuterJoin[K comparable, V, W any](a RDD[Pair[K, V]], b RDD[Pair[K, W]], p Partitioner[K]) RDD[Pair[K, Joined[Opt[V], Opt[W]]]] {
	return FlatMapValues(Cogroup(a, b, p), func(g CoGrouped[V, W]) iter.Seq[Joined[Opt[V], Opt[W]]] {
		return product(opts(g.Left), opts(g.Right))
	})
}

func product[V, W any](vs []V, ws []W) iter.Seq[Joined[V, W]] {
	return func(yield func(Joined[V, W]) bool) {
		for _, v := range vs {
			for _, w := range ws {
				if !yield(Joined[V, W]{v, w}) {
					return
				}
			}
		}
	}
}

// opts wraps values; without any it gives one that is missing.
func opts[T any](vs []T) []Opt[T] {
	if len(vs) == 0 {
		return []Opt[T]{{}}
	}
	out := make([]Opt[T], len(vs))
	for i, v := range vs {
		out[i] = Some(v)
	}
	return out
}

// SubtractByKey keeps the pairs of a whose key is not in b.
func SubtractByKey[K comparable, V, W any](a RDD[Pair[K, V]], b RDD[Pair[K, W]], p Partitioner[K]) RDD[Pair[K, V]] {
	return FlatMapValues(Cogroup(a, b, p), func(g CoGrouped[V, W]) iter.Seq[V] {
		return func(yield func(V) bool) {
			if len(g.Right) > 0 {
				return
			}
			for _, v := range g.Left {
				if !yield(v) {
					return
				}
			}
		}
	})
}

// Subtract keeps the records of a that are not in b, as often as they are in a.
func Subtract[T comparable](a, b RDD[T], p Partitioner[T]) RDD[T] {
	return Keys(SubtractByKey(marked(a), marked(b), p))
}

// Intersection keeps one of each record that is in both a and b.
func Intersection[T comparable](a, b RDD[T], p Partitioner[T]) RDD[T] {
	both := Cogroup(marked(a), marked(b), p)
	return Keys(Filter(both, func(g Pair[T, CoGrouped[bool, bool]]) bool {
		return len(g.Value.Left) > 0 && len(g.Value.Right) > 0
	}))
}

func marked[T comparable](r RDD[T]) RDD[Pair[T, bool]] {
	return narrow(r, "mark", "", mapper(func(v T) Pair[T, bool] { return Pair[T, bool]{Key: v} }))
}
