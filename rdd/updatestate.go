package rdd

import (
	"fmt"
	"iter"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
)

// UpdateSpec says how updateStateByKey makes new state.
type UpdateSpec[K comparable, V, S any] struct {
	// Op is the operator's UID, by which its state and emissions are known.
	Op          base.UID
	Partitioner Partitioner[K]
	// Update returns the new state of a key, from its values in the batch and
	// its old state; a missing one drops the key.
	Update func(t base.BatchTime, k K, values []V, old Opt[S]) Opt[S]
	// Whole, if not nil, is used instead of Update: it sees all keys of a
	// partition and gives the pairs that are the new state.
	Whole func(t base.BatchTime, rows iter.Seq[StateRow[K, V, S]]) iter.Seq[Pair[K, S]]
	// Initial is the state before the first batch. Of equal keys the first counts.
	Initial []Pair[K, S]
	// Version is that of the state's values, and Migrations read older ones.
	Version    int
	Migrations []state.Migration[S]
}

// Repack returns how the state of all partitions is cut into another number of them.
func (u UpdateSpec[K, V, S]) Repack() plan.Repack { return repack(u.fresh, u.Partitioner) }

func (u UpdateSpec[K, V, S]) fresh() state.Keyed[K, S] {
	m := state.NewMap(codec.For[K](), codec.For[S](), false)
	m.Migrate(u.Version, u.Migrations...)
	return state.Keyed[K, S]{Map: m}
}

// StateRow is what the whole-iterator form of updateStateByKey sees of a key.
type StateRow[K comparable, V, S any] struct {
	Key    K
	Values []V
	State  Opt[S]
}

// UpdateState returns the node that advances updateStateByKey by a batch.
func UpdateState[K comparable, V, S any](r RDD[Pair[K, V]], u UpdateSpec[K, V, S]) *plan.Node {
	fresh := func() state.Part { return u.fresh() }
	var n *plan.Node
	spec := plan.NodeSpec{Kind: "updateStateByKey", Parts: u.Partitioner.parts, Partitioner: u.Partitioner.name}
	in := side[K, V](&spec, r.n, &n, u.Partitioner)
	spec.Compute = advance(func(t *Task, part int) error {
		st, err := partOf[state.Keyed[K, S]](t, u.Op, part, fresh)
		if err != nil {
			return err
		}
		if st.Version() == 0 {
			for _, p := range u.Initial {
				if _, ok := st.Find(p.Key); !ok && u.Partitioner.place(p.Key) == part {
					st.Insert(p.Key, p.Value)
				}
			}
		}
		groups := state.NewTable[K, updates[V]](0)
		err = in(t, part)(func(p Pair[K, V]) bool {
			i, slot := groups.Find(p.Key)
			if i < 0 {
				groups.Add(slot, p.Key, updates[V]{values: []V{p.Value}})
			} else {
				g := &groups.Recs[i].Value
				g.values = append(g.values, p.Value)
			}
			return true
		})
		if err != nil {
			return err
		}
		x := updater[K, V, S]{t: t, u: u, st: st.Map, sc: codec.For[S](), groups: groups, out: codec.NewFrameWriter(codec.For[Pair[K, S]]())}
		x.p = watch[K](t, n, part)
		x.match()
		if u.Whole != nil {
			err = x.whole(part)
		} else {
			err = x.each()
		}
		if err != nil {
			return err
		}
		return emit(t, u.Op, part, x.out)
	})
	n = r.scope.NewNode(spec)
	return n
}

// updates are a key's values in a batch.
type updates[V any] struct {
	values []V
	used   bool
}

// updater runs one batch of updateStateByKey over one partition.
type updater[K comparable, V, S any] struct {
	t      *Task
	u      UpdateSpec[K, V, S]
	st     *state.Map[K, S]
	sc     *codec.Codec[S]
	groups *state.Table[K, updates[V]]
	out    *codec.FrameWriter[Pair[K, S]]
	p      *probeOf[K]
	// of holds, for each entry of the state, 1 + the number of its group, so that
	// a visit of every key looks none up.
	of []int32
}

// match finds the entries that have values.
func (x *updater[K, V, S]) match() {
	x.of = make([]int32, x.st.Records())
	for i := range x.groups.Recs {
		g := &x.groups.Recs[i]
		if rec, ok := x.st.Find(g.Key); ok {
			x.of[rec] = int32(i + 1)
			g.Value.used = true
		}
	}
}

// values returns the batch's values of an entry's key.
func (x *updater[K, V, S]) values(rec int) []V {
	if i := x.of[rec]; i > 0 {
		return x.groups.Recs[i-1].Value.values
	}
	return nil
}

// old returns the state of an entry for user code.
func (x *updater[K, V, S]) old(rec int) S {
	if x.sc.Immutable {
		return x.st.Peek(rec) // can't be changed behind our back: undo is taken when it is set
	}
	return x.st.Open(rec)
}

// each calls Update for every key that has state or values.
func (x *updater[K, V, S]) each() error {
	at := x.t.spec.Batch
	var err error
	for rec := range x.of {
		if !x.st.Live(rec) {
			continue
		}
		k := x.st.Key(rec)
		old := x.old(rec)
		x.p.enter(k)
		now := x.u.Update(at, k, x.values(rec), Some(old))
		x.p.busy = false
		if !now.OK {
			x.st.Remove(rec)
			continue
		}
		x.st.Set(rec, now.Value)
		if err = x.out.Append(Pair[K, S]{k, x.st.Peek(rec)}); err != nil {
			return err
		}
	}
	for i := range x.groups.Recs {
		g := &x.groups.Recs[i]
		if g.Value.used {
			continue
		}
		x.p.enter(g.Key)
		now := x.u.Update(at, g.Key, g.Value.values, None[S]())
		x.p.busy = false
		if now.OK {
			rec := x.st.Insert(g.Key, now.Value)
			if err = x.out.Append(Pair[K, S]{g.Key, x.st.Peek(rec)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// whole calls Whole once; the pairs it gives are the new state.
func (x *updater[K, V, S]) whole(part int) error {
	at := x.t.spec.Batch
	var given []Pair[K, S]
	seen := map[K]bool{}
	var failed error
	x.p.busy = true
	for p := range x.u.Whole(at, x.rows()) {
		x.p.busy = false
		switch {
		case seen[p.Key]:
			failed = fmt.Errorf("the function gave key %s twice", Preview(p.Key))
		case x.u.Partitioner.place(p.Key) != part && x.u.Partitioner.parts > 1:
			failed = fmt.Errorf("the function gave key %s, which belongs to partition %d, in partition %d: a function that renames keys needs Partitions(1)",
				Preview(p.Key), x.u.Partitioner.place(p.Key), part)
		}
		if failed != nil {
			return x.p.fail(failed)
		}
		seen[p.Key] = true
		p.Value = x.sc.Clone(p.Value)
		given = append(given, p)
		x.p.busy = true
	}
	x.p.busy = false
	for rec := range x.st.Records() {
		if x.st.Live(rec) && !seen[x.st.Key(rec)] {
			x.st.Remove(rec)
		}
	}
	for _, p := range given {
		if rec, ok := x.st.Find(p.Key); ok {
			x.st.Set(rec, p.Value)
		} else {
			x.st.Insert(p.Key, p.Value)
		}
		if err := x.out.Append(p); err != nil {
			return err
		}
	}
	return nil
}

// rows gives user code every key that has state or values.
func (x *updater[K, V, S]) rows() iter.Seq[StateRow[K, V, S]] {
	return func(yield func(StateRow[K, V, S]) bool) {
		for rec := range x.of {
			if !x.st.Live(rec) {
				continue
			}
			k := x.st.Key(rec)
			if !yield(StateRow[K, V, S]{k, x.values(rec), Some(x.old(rec))}) {
				return
			}
		}
		for i := range x.groups.Recs {
			g := &x.groups.Recs[i]
			if !g.Value.used && !yield(StateRow[K, V, S]{g.Key, g.Value.values, None[S]()}) {
				return
			}
		}
	}
}

func emitAll[K comparable, S any](t *Task, op base.UID, part int, st *state.Map[K, S]) error {
	out := codec.NewFrameWriter(codec.For[Pair[K, S]]())
	var err error
	st.Each(func(rec int) bool {
		err = out.Append(Pair[K, S]{st.Key(rec), st.Peek(rec)})
		return err == nil
	})
	if err != nil {
		return err
	}
	return emit(t, op, part, out)
}
