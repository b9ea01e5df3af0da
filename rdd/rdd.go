package rdd

import (
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
)

// Iter is a partition: it hands records to yield, in order, until yield
// returns false or there are no more. A stop by yield is no error.
type Iter[T any] func(yield func(T) bool) error

// RDD is a handle on a data set with records of type T.
type RDD[T any] struct {
	n     *plan.Node
	scope *plan.Scope
}

// Of returns a handle on node n, whose records must be of type T, for use in
// scope.
func Of[T any](n *plan.Node, scope *plan.Scope) RDD[T] { return RDD[T]{n, scope} }

// Node returns the node, nil for the zero RDD.
func (r RDD[T]) Node() *plan.Node { return r.n }

// Parts returns the number of partitions.
func (r RDD[T]) Parts() int { return r.n.Parts }

// Persist keeps the partitions of r at the given level once they are
// computed. It must be called right after r was made.
func (r RDD[T]) Persist(level base.StorageLevel) RDD[T] {
	r.n.SetLevel(level)
	return r
}

// compute is the shape of every node's Compute.
type compute[T any] func(t *Task, part int) Iter[T]

// node makes a node in scope with records of type T.
func node[T any](scope *plan.Scope, spec plan.NodeSpec, c compute[T]) RDD[T] {
	spec.Compute = c
	spec.Ops = ops[T]{}
	return RDD[T]{scope.NewNode(spec), scope}
}

// iterate returns partition part of n, from where it is kept or computed.
func iterate[T any](t *Task, n *plan.Node, part int) Iter[T] {
	c := n.Compute.(compute[T])
	if n.Level == base.StorageNone {
		return c(t, part)
	}
	return func(yield func(T) bool) error {
		cd := codec.For[T]()
		key := plan.CacheKey{Node: n.ID, Part: part}
		frame, ok := t.env.Kept(t.ctx, key)
		if !ok {
			w := codec.NewFrameWriter(cd)
			p := watch[T](t, n, part)
			var werr error
			err := c(t, part)(func(v T) bool {
				p.enter(v) // its own encoding is user code
				werr = w.Append(v)
				p.busy = false
				return werr == nil
			})
			if err != nil {
				return err
			}
			if werr != nil {
				return p.fail(werr)
			}
			frame = w.Finish()
			t.env.Keep(key, frame, n.Level)
		}
		f, err := codec.TrustFrame(frame)
		if err != nil {
			return err
		}
		_, err = codec.EachInFrame(cd, f, yield)
		return err
	}
}
