package rdd

import (
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
)

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
