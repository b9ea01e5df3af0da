package rdd

import (
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
)

// WindowSpec says what a reducing window computes.
type WindowSpec[K comparable, V any] struct {
	Op          base.UID
	Partitioner Partitioner[K]
	state.WindowSpec[K, V]
}

// Repack is that of [UpdateSpec].
func (w WindowSpec[K, V]) Repack() plan.Repack { return repack(w.fresh, w.Partitioner) }

func (w WindowSpec[K, V]) fresh() *state.Window[K, V] {
	return state.NewWindow(codec.For[K](), codec.For[V](), w.WindowSpec)
}

// ReduceWindow returns the node that folds a batch into a reducing window and
// emits at the window's slide.
func ReduceWindow[K comparable, V any](r RDD[Pair[K, V]], w WindowSpec[K, V]) *plan.Node {
	fresh := func() state.Part { return w.fresh() }
	// The batch is combined first, as ReduceByKey does it.
	reduced := combineByKey(r, "reduceByKeyAndWindow", w.Partitioner, Combiner[V, V]{
		Create: func(v V) V { return v }, Merge: w.Reduce, Join: w.Reduce,
	}, true)
	var n *plan.Node
	spec := plan.NodeSpec{
		Kind: "window", Parts: reduced.n.Parts, Narrow: []*plan.Node{reduced.n}, Partitioner: w.Partitioner.name,
		Extra: fmt.Sprint(w.Window, w.Slide),
	}
	spec.Compute = advance(func(t *Task, part int) error {
		st, err := partOf[*state.Window[K, V]](t, w.Op, part, fresh)
		if err != nil {
			return err
		}
		p := watch[Pair[K, V]](t, n, part)
		var failed error
		err = iterate[Pair[K, V]](t, reduced.n, part)(func(v Pair[K, V]) bool {
			p.enter(v)
			failed = st.Add(v.Key, v.Value)
			p.busy = false
			return failed == nil
		})
		if err == nil {
			err = failed
		}
		if err != nil || !st.Emits(t.spec.Batch) {
			return err
		}
		out := codec.NewFrameWriter(codec.For[Pair[K, V]]())
		p.busy = true
		st.Emit(func(k K, v V) bool {
			failed = out.Append(Pair[K, V]{k, v})
			return failed == nil
		})
		p.busy = false
		if failed != nil {
			return failed
		}
		return emit(t, w.Op, part, out)
	})
	n = r.scope.NewNode(spec)
	return n
}
