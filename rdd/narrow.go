package rdd

import (
	"fmt"
	"iter"

	"github.com/tidemill/tidemill/internal/plan"
)

// narrow makes a node whose partition p is computed from partition p of r.
func narrow[T, R any](r RDD[T], kind, partitioner string, c func(t *Task, n *plan.Node, part int, src Iter[T]) Iter[R]) RDD[R] {
	parent := r.n
	var out RDD[R]
	out = node(r.scope, plan.NodeSpec{Kind: kind, Parts: parent.Parts, Narrow: []*plan.Node{parent}, Partitioner: partitioner},
		func(t *Task, part int) Iter[R] {
			return c(t, out.n, part, iterate[T](t, parent, part))
		})
	return out
}

// Alias gives r a node of its own in the scope.
func Alias[T any](r RDD[T], scope *plan.Scope) RDD[T] {
	return narrow(RDD[T]{r.n, scope}, "alias", r.n.Partitioner, func(_ *Task, _ *plan.Node, _ int, src Iter[T]) Iter[T] { return src })
}

// Map applies f to every record.
func Map[T, R any](r RDD[T], f func(T) R) RDD[R] {
	return narrow(r, "map", "", mapper(f))
}

func mapper[T, R any](f func(T) R) func(*Task, *plan.Node, int, Iter[T]) Iter[R] {
	return func(t *Task, n *plan.Node, part int, src Iter[T]) Iter[R] {
		return func(yield func(R) bool) error {
			p := watch[T](t, n, part)
			return src(func(v T) bool {
				p.enter(v)
				out := f(v)
				p.busy = false
				return yield(out)
			})
		}
	}
}

// Filter keeps the records for which keep returns true.
func Filter[T any](r RDD[T], keep func(T) bool) RDD[T] {
	return narrow(r, "filter", r.n.Partitioner, func(t *Task, n *plan.Node, part int, src Iter[T]) Iter[T] {
		return func(yield func(T) bool) error {
			p := watch[T](t, n, part)
			return src(func(v T) bool {
				p.enter(v)
				ok := keep(v)
				p.busy = false
				return !ok || yield(v)
			})
		}
	})
}

// FlatMap replaces every record by the sequence that f returns for it.
func FlatMap[T, R any](r RDD[T], f func(T) iter.Seq[R]) RDD[R] {
	return narrow(r, "flatMap", "", flatMapper(f))
}

func flatMapper[T, R any](f func(T) iter.Seq[R]) func(*Task, *plan.Node, int, Iter[T]) Iter[R] {
	return func(t *Task, n *plan.Node, part int, src Iter[T]) Iter[R] {
		return func(yield func(R) bool) error {
			p := watch[T](t, n, part)
			more := true
			inner := func(out R) bool { // made once per partition, not per record
				p.busy = false
				more = more && yield(out) // a sequence may ignore that it should stop
				p.busy = true
				return more
			}
			return src(func(v T) bool {
				p.enter(v)
				if seq := f(v); seq != nil {
					seq(inner)
				}
				p.busy = false
				return more
			})
		}
	}
}

// FlatMapSlice replaces every record by the records of the slice that f
// returns for it.
func FlatMapSlice[T, R any](r RDD[T], f func(T) []R) RDD[R] {
	return narrow(r, "flatMap", "", func(t *Task, n *plan.Node, part int, src Iter[T]) Iter[R] {
		return func(yield func(R) bool) error {
			p := watch[T](t, n, part)
			return src(func(v T) bool {
				p.enter(v)
				outs := f(v)
				p.busy = false
				for _, out := range outs {
					if !yield(out) {
						return false
					}
				}
				return true
			})
		}
	})
}

// MapPartitions hands each partition to f, which passes results to emit until
// that returns false. An error of f fails the task.
func MapPartitions[T, R any](r RDD[T], f func(t *Task, in iter.Seq[T], emit func(R) bool) error) RDD[R] {
	return narrow(r, "mapPartitions", "", func(t *Task, n *plan.Node, part int, src Iter[T]) Iter[R] {
		return func(yield func(R) bool) error {
			p := watch[T](t, n, part)
			in, srcErr := pulled(p, src)
			p.busy = true
			more := true
			err := f(t, in, func(out R) bool {
				p.busy = false
				more = more && yield(out) // user code may ignore that it should stop
				p.busy = true
				return more
			})
			p.busy = false
			if *srcErr != nil {
				return *srcErr
			}
			if err != nil {
				return p.fail(err)
			}
			return nil
		}
	})
}

// pulled gives user code a partition to range over, as often as it likes. The
// source's error, which a sequence can't carry, is left behind for the caller;
// after one there are no more records.
func pulled[T any](p *probeOf[T], src Iter[T]) (iter.Seq[T], *error) {
	var err error
	return func(yield func(T) bool) {
		if err != nil {
			return
		}
		p.busy, p.n = false, 0
		err = src(func(v T) bool {
			p.enter(v)
			more := yield(v)
			p.busy = false
			return more
		})
		p.busy = true
	}, &err
}

// Glom makes one slice of each partition.
func Glom[T any](r RDD[T]) RDD[[]T] {
	return narrow(r, "glom", "", func(_ *Task, _ *plan.Node, _ int, src Iter[T]) Iter[[]T] {
		return func(yield func([]T) bool) error {
			all, err := gather(src)
			if err == nil {
				yield(all)
			}
			return err
		}
	})
}

func gather[T any](src Iter[T]) ([]T, error) {
	out := []T{}
	err := src(func(v T) bool {
		out = append(out, v)
		return true
	})
	return out, err
}

// KeyBy pairs every record with the key that f gives it.
func KeyBy[K comparable, T any](r RDD[T], f func(T) K) RDD[Pair[K, T]] {
	return narrow(r, "keyBy", "", mapper(func(v T) Pair[K, T] { return KV(f(v), v) }))
}

// Keys drops the values.
func Keys[K comparable, V any](r RDD[Pair[K, V]]) RDD[K] {
	return narrow(r, "keys", "", mapper(func(p Pair[K, V]) K { return p.Key }))
}

// Values drops the keys.
func Values[K comparable, V any](r RDD[Pair[K, V]]) RDD[V] {
	return narrow(r, "values", "", mapper(func(p Pair[K, V]) V { return p.Value }))
}

// MapValues applies f to every value; keys stay where they are.
func MapValues[K comparable, V, W any](r RDD[Pair[K, V]], f func(V) W) RDD[Pair[K, W]] {
	return narrow(r, "mapValues", r.n.Partitioner, mapper(func(p Pair[K, V]) Pair[K, W] { return KV(p.Key, f(p.Value)) }))
}

// FlatMapValues replaces every value by the sequence that f returns for it;
// keys stay where they are.
func FlatMapValues[K comparable, V, W any](r RDD[Pair[K, V]], f func(V) iter.Seq[W]) RDD[Pair[K, W]] {
	return narrow(r, "flatMapValues", r.n.Partitioner, func(t *Task, n *plan.Node, part int, src Iter[Pair[K, V]]) Iter[Pair[K, W]] {
		return func(yield func(Pair[K, W]) bool) error {
			p := watch[Pair[K, V]](t, n, part)
			more := true
			inner := func(w W) bool {
				p.busy = false
				more = more && yield(KV(p.cur.Key, w))
				p.busy = true
				return more
			}
			return src(func(v Pair[K, V]) bool {
				p.enter(v)
				if seq := f(v.Value); seq != nil {
					seq(inner)
				}
				p.busy = false
				return more
			})
		}
	})
}

// Union puts the partitions of all data sets after one another.
func Union[T any](scope *plan.Scope, rs ...RDD[T]) RDD[T] {
	parents := make([]*plan.Node, len(rs))
	var at []place
	for i, r := range rs {
		parents[i] = r.n
		for p := range r.n.Parts {
			at = append(at, place{i, p})
		}
	}
	from := func(part int, visit func(*plan.Node, int)) { visit(parents[at[part].parent], at[part].part) }
	return node(scope, plan.NodeSpec{Kind: "union", Parts: len(at), Narrow: parents, From: from}, func(t *Task, part int) Iter[T] {
		return iterate[T](t, parents[at[part].parent], at[part].part)
	})
}

// place is a partition of one of several parents.
type place struct{ parent, part int }

// UnionOf is Union of r and others in the scope of r, for use in Transform.
func UnionOf[T any](r RDD[T], others ...RDD[T]) RDD[T] {
	return Union(r.scope, append([]RDD[T]{r}, others...)...)
}

// Coalesce merges neighbouring partitions so that at most parts are left.
func Coalesce[T any](r RDD[T], parts int) RDD[T] {
	mustParts("coalesce", parts)
	parent := r.n
	parts = min(parts, parent.Parts)
	spread := func(part int) (from, to int) { return part * parent.Parts / parts, (part + 1) * parent.Parts / parts }
	spec := plan.NodeSpec{Kind: "coalesce", Parts: parts, Narrow: []*plan.Node{parent}}
	spec.From = func(part int, visit func(*plan.Node, int)) {
		for p, to := spread(part); p < to; p++ {
			visit(parent, p)
		}
	}
	return node(r.scope, spec, func(t *Task, part int) Iter[T] {
		from, to := spread(part)
		return func(yield func(T) bool) error {
			more := true
			for p := from; p < to && more; p++ {
				err := iterate[T](t, parent, p)(func(v T) bool {
					more = yield(v)
					return more
				})
				if err != nil {
					return err
				}
			}
			return nil
		}
	})
}

// Cartesian pairs every record of a with every record of b. The partition of
// b is held in memory.
func Cartesian[T, U any](a RDD[T], b RDD[U]) RDD[Joined[T, U]] {
	left, right := a.n, b.n
	spec := plan.NodeSpec{Kind: "cartesian", Parts: left.Parts * right.Parts, Narrow: []*plan.Node{left, right}}
	spec.From = func(part int, visit func(*plan.Node, int)) {
		visit(left, part/right.Parts)
		visit(right, part%right.Parts)
	}
	return node(a.scope, spec, func(t *Task, part int) Iter[Joined[T, U]] {
		return func(yield func(Joined[T, U]) bool) error {
			us, err := gather(iterate[U](t, right, part%right.Parts))
			if err != nil {
				return err
			}
			return iterate[T](t, left, part/right.Parts)(func(v T) bool {
				for _, u := range us {
					if !yield(Joined[T, U]{v, u}) {
						return false
					}
				}
				return true
			})
		}
	})
}

// mustParts panics on a bad partition count: in a Transform function that is
// user code's error, contained by the planner; the public API checks earlier.
func mustParts(kind string, parts int) {
	if parts <= 0 {
		panic(fmt.Sprintf("%s: the partition count is %d: must be positive", kind, parts))
	}
}
