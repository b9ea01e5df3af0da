package rdd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

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

// State is a key's state inside a mapWithState function. It may be used only
// during the call.
type State[S any] struct {
	val     S
	exists  bool
	updated bool
	removed bool
	timeout bool
}

// Exists reports whether the key has state.
func (s *State[S]) Exists() bool { return s.exists }

// Get returns the state. It panics if there is none: ask Exists first, or use
// GetOption.
func (s *State[S]) Get() S {
	if !s.exists {
		panic("State.Get: the key has no state: ask Exists first, or use GetOption")
	}
	return s.val
}

// GetOption returns the state if there is any.
func (s *State[S]) GetOption() Opt[S] { return Opt[S]{Value: s.val, OK: s.exists} }

// Update sets the state. It panics after Remove and when the key is timing out.
func (s *State[S]) Update(v S) {
	switch {
	case s.removed:
		panic("State.Update: the state was removed in this call")
	case s.timeout:
		panic("State.Update: the key is timing out, its state is about to be removed")
	}
	s.val, s.exists, s.updated = v, true, true
}

// Remove drops the state. It panics after another Remove and when the key is
// timing out.
func (s *State[S]) Remove() {
	switch {
	case s.removed:
		panic("State.Remove: the state was removed in this call")
	case s.timeout:
		panic("State.Remove: the key is timing out, its state is removed anyway")
	}
	var zero S
	s.val, s.exists, s.updated, s.removed = zero, false, false, true
}

// IsTimingOut reports that the key was idle for longer than the timeout and
// that this is its last call.
func (s *State[S]) IsTimingOut() bool { return s.timeout }

// MapSpec says how mapWithState works.
type MapSpec[K comparable, V, S, R any] struct {
	Op          base.UID
	Partitioner Partitioner[K]
	// Call is called for every record, in the order of the partition, and for
	// keys that time out with a missing value. It returns false to emit nothing.
	Call    func(t base.BatchTime, k K, v Opt[V], s *State[S]) (R, bool)
	Timeout time.Duration // 0 is none
	// Initial is the state before the first batch. Of equal keys the last counts.
	Initial []Pair[K, S]
	// Snapshots, if not empty, is the operator whose data set is all state
	// after each batch.
	Snapshots base.UID
	// Version is that of the state's values, and Migrations read older ones.
	Version    int
	Migrations []state.Migration[S]
}

// Repack is that of [UpdateSpec].
func (m MapSpec[K, V, S, R]) Repack() plan.Repack { return repack(m.fresh, m.Partitioner) }

func (m MapSpec[K, V, S, R]) fresh() state.Keyed[K, S] {
	own := state.NewMap(codec.For[K](), codec.For[S](), m.Timeout > 0)
	own.Migrate(m.Version, m.Migrations...)
	return state.Keyed[K, S]{Map: own}
}

// MapState returns the node that advances mapWithState by a batch.
func MapState[K comparable, V, S, R any](r RDD[Pair[K, V]], m MapSpec[K, V, S, R]) *plan.Node {
	fresh := func() state.Part { return m.fresh() }
	var n *plan.Node
	spec := plan.NodeSpec{Kind: "mapWithState", Parts: m.Partitioner.parts, Partitioner: m.Partitioner.name, Extra: string(m.Snapshots)}
	in := side[K, V](&spec, r.n, &n, m.Partitioner)
	spec.Compute = advance(func(t *Task, part int) error {
		st, err := partOf[state.Keyed[K, S]](t, m.Op, part, fresh)
		if err != nil {
			return err
		}
		at := t.spec.Batch
		if st.Version() == 0 {
			for _, p := range m.Initial {
				if m.Partitioner.place(p.Key) != part {
					continue
				}
				if rec, ok := st.Find(p.Key); ok {
					st.Set(rec, p.Value)
				} else {
					st.Insert(p.Key, p.Value)
				}
			}
		}
		out := codec.NewFrameWriter(codec.For[R]())
		p := watch[Pair[K, V]](t, n, part)
		x := stateMapper[K, V, S, R]{m: m, st: st.Map, sc: codec.For[S](), out: out, at: at}
		var failed error
		err = inBatches(in(t, part), st.Warm, func(v Pair[K, V]) bool {
			p.enter(v)
			r, ok := x.call(v.Key, Some(v.Value))
			p.busy = false
			if ok {
				failed = out.Append(r)
			}
			return failed == nil
		})
		if err == nil {
			err = failed
		}
		if err == nil && m.Timeout > 0 {
			err = x.expire(p)
		}
		if err == nil {
			err = emit(t, m.Op, part, out)
		}
		if err == nil && m.Snapshots != "" {
			err = emitAll(t, m.Snapshots, part, st.Map)
		}
		return err
	})
	n = r.scope.NewNode(spec)
	return n
}

// inBatches hands the records of src to yield in their order, after warm was
// told the keys of some of them ahead.
func inBatches[K comparable, V any](src Iter[Pair[K, V]], warm func([]K), yield func(Pair[K, V]) bool) error {
	var ahead [state.WarmBatch]Pair[K, V]
	var keys [state.WarmBatch]K
	n, more := 0, true
	flush := func() {
		warm(keys[:n])
		for i := 0; i < n && more; i++ {
			more = yield(ahead[i])
		}
		n = 0
	}
	err := src(func(v Pair[K, V]) bool {
		ahead[n], keys[n] = v, v.Key
		if n++; n == len(ahead) {
			flush()
		}
		return more
	})
	if err != nil {
		return err
	}
	flush()
	return nil
}

// stateMapper runs one batch of mapWithState over one partition.
type stateMapper[K comparable, V, S, R any] struct {
	m   MapSpec[K, V, S, R]
	st  *state.Map[K, S]
	sc  *codec.Codec[S]
	out *codec.FrameWriter[R]
	at  base.BatchTime
	s   State[S]
}

// call runs user code for one record and takes over what it did to the state.
func (x *stateMapper[K, V, S, R]) call(k K, v Opt[V]) (R, bool) {
	rec, ok := x.st.Find(k)
	x.s = State[S]{exists: ok}
	if ok {
		x.s.val = x.value(rec)
	}
	r, emit := x.m.Call(x.at, k, v, &x.s)
	switch {
	case x.s.updated && ok:
		x.st.Set(rec, x.s.val)
	case x.s.updated:
		x.st.Insert(k, x.s.val)
	case x.s.removed && ok:
		x.st.Remove(rec)
	case ok && x.m.Timeout > 0:
		x.st.Refresh(rec) // a record keeps its key alive, even if it only reads
	}
	return r, emit
}

func (x *stateMapper[K, V, S, R]) value(rec int) S {
	if x.sc.Immutable {
		return x.st.Peek(rec)
	}
	return x.st.Open(rec)
}

// expire calls user code a last time for keys that were idle for longer than
// the timeout (Spark 4.2: last update strictly before T - timeout).
func (x *stateMapper[K, V, S, R]) expire(p *probeOf[Pair[K, V]]) error {
	for _, rec := range x.st.Expired(x.at.Add(-x.m.Timeout)) {
		k := x.st.Key(rec)
		s := State[S]{exists: true, timeout: true, val: x.value(rec)}
		p.enter(Pair[K, V]{Key: k})
		r, ok := x.m.Call(x.at, k, None[V](), &s)
		p.busy = false
		x.st.Remove(rec)
		if ok {
			if err := x.out.Append(r); err != nil {
				return err
			}
		}
	}
	return nil
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
