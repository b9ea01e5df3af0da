package rdd

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
)

// A stateful operator is a pipeline breaker. It has two nodes per batch: one
// whose tasks advance the state of a partition and put aside what the operator
// emits, and one that reads that. Only the second is seen by what comes after.

// StateEnv is what tasks that advance or read state need of their executor
// beside [Env].
type StateEnv interface {
	// State returns the executor's state of a partition at the version before
	// the task's batch, or a fresh one before the first batch.
	State(ctx context.Context, op base.UID, part int, fresh func() state.Part) (state.Part, error)
	// Emit puts aside what an operator emits at the task's batch.
	Emit(ctx context.Context, key plan.CacheKey, frame []byte) error
	// Emission returns what was put aside.
	Emission(ctx context.Context, key plan.CacheKey) ([]byte, error)
}

// stateEnv returns the task's executor as keeper of state.
func (t *Task) stateEnv() (StateEnv, error) {
	if e, ok := t.env.(StateEnv); ok {
		return e, nil
	}
	return nil, errors.New("rdd: this executor keeps no state")
}

// advance is the shape of an advancing node's Compute.
type advance func(t *Task, part int) error

// AdvancePart advances one partition's state by the task's batch.
func AdvancePart(t *Task, n *plan.Node, part int) error {
	return t.guard(n, part, func() error { return n.Compute.(advance)(t, part) })
}

// Emitted returns the node that reads what an advancing node's tasks put aside.
func Emitted[T any](scope *plan.Scope, adv *plan.Node) RDD[T] {
	spec := plan.NodeSpec{Kind: plan.Emitted, Parts: adv.Parts, Partitioner: adv.Partitioner, Extra: fmt.Sprint(adv.Hash)}
	return framed(scope, spec, codec.For[T](), func(t *Task, part int) (codec.Frame, error) {
		env, err := t.stateEnv()
		if err != nil {
			return codec.Frame{}, err
		}
		frame, err := env.Emission(t.ctx, plan.CacheKey{Node: plan.ID{Set: scope.Set}, Part: part})
		if err != nil {
			return codec.Frame{}, err
		}
		return codec.OpenFrame(frame)
	})
}

// emit puts aside what partition part of the operator emits at the task's batch.
func emit[T any](t *Task, op base.UID, part int, w *codec.FrameWriter[T]) error {
	env, err := t.stateEnv()
	if err != nil {
		return err
	}
	key := plan.CacheKey{Node: plan.ID{Set: base.DataSet{UID: op, Time: t.spec.Batch}}, Part: part}
	return env.Emit(t.ctx, key, w.Finish())
}

// partOf returns this executor's state of a partition, with the batch begun.
func partOf[P state.Part](t *Task, op base.UID, part int, fresh func() state.Part) (P, error) {
	var own P
	env, err := t.stateEnv()
	if err != nil {
		return own, err
	}
	p, err := env.State(t.ctx, op, part, fresh)
	if err != nil {
		return own, err
	}
	own, ok := p.(P)
	if !ok {
		return own, fmt.Errorf("state of %s is a %T, want a %T", op, p, own)
	}
	own.Begin(t.spec.Batch)
	return own, nil
}

// gatherer is state that can be put together from the files of all partitions.
type gatherer[K comparable] interface {
	Gather(partitions [][][]byte, here func(K) bool) error
	Snapshot() ([]byte, error)
}

func repack[K comparable, G gatherer[K]](fresh func() G, p Partitioner[K]) plan.Repack {
	return func(partitions [][][]byte, part int) ([]byte, error) {
		g := fresh()
		if err := g.Gather(partitions, func(k K) bool { return p.place(k) == part }); err != nil {
			return nil, err
		}
		return g.Snapshot()
	}
}
