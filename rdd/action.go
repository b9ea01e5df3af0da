package rdd

import (
	"iter"

	"github.com/cespare/xxhash/v2"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
)

// Ops are the actions on a node whose record type is not known to the caller.
type Ops interface {
	count(t *Task, n *plan.Node, part int) (int64, error)
	collect(t *Task, n *plan.Node, part, limit int) ([]byte, error)
}

type ops[T any] struct {
	frames framesOf // nil unless partitions are frames as they are
}

func (o ops[T]) count(t *Task, n *plan.Node, part int) (int64, error) {
	var c int64
	if o.frames != nil && n.Level == base.StorageNone && !t.spec.Checked {
		err := o.frames(t, part, func(f codec.Frame) (bool, error) {
			c += int64(f.Count)
			return true, nil
		})
		return c, err
	}
	err := Records[T](t, n, part)(func(T) bool { c++; return true })
	return c, err
}

func (ops[T]) collect(t *Task, n *plan.Node, part, limit int) ([]byte, error) {
	w := codec.NewFrameWriter(codec.For[T]())
	if limit == 0 {
		return w.Finish(), nil
	}
	p := watch[T](t, n, part)
	var werr error
	err := Records[T](t, n, part)(func(v T) bool {
		p.enter(v) // its own encoding is user code
		werr = w.Append(v)
		p.busy = false
		return werr == nil && w.Count() != limit
	})
	if err == nil && werr != nil {
		err = p.fail(werr)
	}
	return w.Finish(), err
}

// CountPart counts the records of a partition.
func CountPart(t *Task, n *plan.Node, part int) (c int64, err error) {
	err = t.guard(n, part, func() error {
		c, err = n.Ops.(Ops).count(t, n, part)
		return err
	})
	return c, err
}

// CollectPart encodes the first limit records of a partition, all if limit is
// negative.
func CollectPart(t *Task, n *plan.Node, part, limit int) (frame []byte, err error) {
	err = t.guard(n, part, func() error {
		frame, err = n.Ops.(Ops).collect(t, n, part, limit)
		return err
	})
	return frame, err
}

// MapPart computes a map partition of a shuffle and spreads it over buckets,
// one per reduce partition. In checked mode it also hashes them.
func MapPart(t *Task, s *plan.Shuffle, part int) (out []Bucket, err error) {
	err = t.guard(s.Parent, part, func() error {
		out, err = s.Write.(shuffleWrite)(t, part)
		return err
	})
	return out, err
}

// OutputTask is what an output does with one partition on an executor. It
// returns a result for the driver's side of the output.
type OutputTask func(t *Task, n *plan.Node, part int) ([]byte, error)

// OutputPart runs an output's task.
func OutputPart(t *Task, n *plan.Node, part int, f OutputTask) (result []byte, err error) {
	err = t.guard(n, part, func() error {
		result, err = f(t, n, part)
		return err
	})
	return result, err
}

// Records returns partition part of n for an action. In checked mode the task
// hashes what passes (Invariant 13).
func Records[T any](t *Task, n *plan.Node, part int) Iter[T] {
	src := iterate[T](t, n, part)
	if !t.spec.Checked {
		return src
	}
	return func(yield func(T) bool) error {
		d := codec.NewDigest(codec.For[T]())
		p := watch[T](t, n, part)
		var derr error
		err := src(func(v T) bool {
			p.enter(v)
			derr = d.Add(v)
			p.busy = false
			return derr == nil && yield(v)
		})
		t.AddHash(d.Sum())
		if err == nil && derr != nil {
			err = p.fail(derr)
		}
		return err
	}
}

// AddHash mixes h into the task's content hash.
func (t *Task) AddHash(h uint64) { t.hash = (t.hash ^ h) * 1099511628211 }

// AddBytes mixes encoded records into the task's content hash.
func (t *Task) AddBytes(b []byte) { t.AddHash(xxhash.Sum64(b)) }

// ContentHash covers all records that the attempt gave away in checked mode.
// Attempts at the same partition must agree (Invariant 13).
func (t *Task) ContentHash() uint64 { return t.hash }

// ForeachPartition makes an output task of a user function.
func ForeachPartition[T any](uid base.UID, display string, f func(t *Task, in iter.Seq[T]) error) OutputTask {
	return func(t *Task, n *plan.Node, part int) ([]byte, error) {
		out := &plan.Node{ID: plan.ID{Set: base.DataSet{UID: uid, Time: t.spec.Batch}}, Op: display}
		p := watch[T](t, out, part)
		in, srcErr := pulled(p, Records[T](t, n, part))
		p.busy = true
		err := f(t, in)
		p.busy = false
		if *srcErr != nil {
			return nil, *srcErr
		}
		if err != nil {
			return nil, p.fail(err)
		}
		return nil, nil
	}
}
