package tidemill

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
	"github.com/tidemill/tidemill/rdd"
)

// StateRow is what the function of UpdateStateByKeyWhole sees of a key: its
// values in the batch and its state, if it has any.
type StateRow[K comparable, V, S any] = rdd.StateRow[K, V, S]

// State is a key's state inside a MapWithState function.
type State[S any] = rdd.State[S]

// stateOptions are what options say of keyed state.
type stateOptions struct {
	initial    any // of type []Pair[K, S]
	version    Opt[int]
	migrations []stateMigration
}

// stateMigration is what MigrateState says.
type stateMigration struct {
	made     any // of type state.Migration[S]
	old, now reflect.Type
	version  int
	wrong    error // of its own, whatever the operator is
}

func stateOptionsOf(opts []Option) stateOptions { return options(opts).keyed }

// InitialState gives UpdateStateByKey its state before the first batch that
// has input. Of equal keys the first counts.
func InitialState[K comparable, S any](pairs ...Pair[K, S]) Option {
	return func(o *opOptions) { o.keyed.initial = pairs }
}

// StateVersion says which version of its type the state of UpdateStateByKey or
// MapWithState has, 0 if it is not given. Raise it when old state must not be read as
// it is though the type has kept its name: when a field has another name or
// another meaning. A program of another version can't take the state over
// unless MigrateState says how. n must not be negative.
func StateVersion(n int) Option {
	return func(o *opOptions) { o.keyed.version = Some(n) }
}

// MigrateState says how UpdateStateByKey or MapWithState reads state that a program
// before has written, as type Old in the given version: f makes today's state of
// an old one. Give it once for each version that may still be stored; f must be
// a function of its argument alone, since it may be called several times for one value.
// An error of f fails the batch. Keys can't be migrated. The state is
// read when the job starts, and the first batch stores it in its new form, so once
// that is done the option may go.
func MigrateState[Old, S any](version int, f func(Old) (S, error)) Option {
	m := stateMigration{old: reflect.TypeFor[Old](), now: reflect.TypeFor[S](), version: version}
	if f == nil {
		m.wrong = errors.New("the function is nil")
	} else if m.wrong = codec.Check[Old](); m.wrong == nil {
		m.made = state.From(codec.For[Old](), version, f)
	}
	return func(o *opOptions) { o.keyed.migrations = append(o.keyed.migrations, m) }
}

// initialState returns the pairs of the InitialState option.
func initialState[K comparable, S any](ssc *StreamingContext, what string, opts []Option) []Pair[K, S] {
	o := stateOptionsOf(opts)
	if o.initial == nil {
		return nil
	}
	pairs, ok := o.initial.([]Pair[K, S])
	if !ok {
		ssc.g.Errorf("%s: the initial state is a %T, want a %T", what, o.initial, pairs)
	}
	return pairs
}

// keptState is how an operator keeps values of type S.
type keptState[S any] struct {
	info       stateInfo
	version    int
	migrations []state.Migration[S]
}

// keptAs checks and returns what the options say of the state's versions.
func keptAs[K comparable, S any](ssc *StreamingContext, what string, p Partitioner[K], opts []Option) keptState[S] {
	o := stateOptionsOf(opts)
	kept := keptState[S]{version: o.version.Or(0)}
	if kept.version < 0 {
		ssc.g.Errorf("%s: the state version is %d: must not be negative", what, kept.version)
	}
	info := &kept.info
	info.parts = p.Parts()
	info.Schema = state.Schema{Key: codec.For[K]().ID, Value: codec.For[S]().ID, Version: kept.version}
	known := map[state.Schema]bool{info.Schema: true}
	for _, m := range o.migrations {
		made, ok := m.made.(state.Migration[S])
		switch {
		case m.now != reflect.TypeFor[S]():
			ssc.g.Errorf("%s: the migration from version %d makes a %v, but the state is a %v", what, m.version, m.now, reflect.TypeFor[S]())
		case m.wrong != nil:
			ssc.g.Errorf("%s: the migration from %v, version %d: %w", what, m.old, m.version, m.wrong)
		case m.version < 0:
			ssc.g.Errorf("%s: the migration is from version %d: must not be negative", what, m.version)
		case ok && known[made.Reads(info.Schema.Key)]:
			ssc.g.Errorf("%s: %v in version %d is read already, as the state is now or by another migration: raise StateVersion, or leave one out", what, m.old, m.version)
		case ok:
			known[made.Reads(info.Schema.Key)] = true
			info.From = append(info.From, made.Reads(info.Schema.Key))
			kept.migrations = append(kept.migrations, made)
		}
	}
	return kept
}

// UpdateStateByKey keeps state per key. Every batch, update is called for each
// key that has state or values, with the key's values in the batch and its old
// state; what it returns is the new state, and a missing one drops the key. The
// stream has all keys with their new state. update may change the old state in
// place. It costs a call per known key and batch: MapWithState costs a call per
// record.
func UpdateStateByKey[K comparable, V, S any](d DStream[Pair[K, V]], name string, update func(values []V, old Opt[S]) Opt[S], opts ...Option) DStream[Pair[K, S]] {
	return UpdateStateByKeyWithTime(d, name, func(_ BatchTime, _ K, values []V, old Opt[S]) Opt[S] { return update(values, old) }, opts...)
}

// UpdateStateByKeyWithTime is UpdateStateByKey whose function also gets the
// batch time and the key.
func UpdateStateByKeyWithTime[K comparable, V, S any](d DStream[Pair[K, V]], name string, update func(t BatchTime, k K, values []V, old Opt[S]) Opt[S], opts ...Option) DStream[Pair[K, S]] {
	return updateState(d, name, rdd.UpdateSpec[K, V, S]{Update: update}, opts)
}

// UpdateStateByKeyWhole keeps state by a function that sees all keys of a
// partition at once and gives the pairs that are the new state: keys it does
// not give are dropped. With one partition it may rename keys; a renamed key is
// known by its new name from the next batch on.
func UpdateStateByKeyWhole[K comparable, V, S any](d DStream[Pair[K, V]], name string, update func(t BatchTime, rows iter.Seq[StateRow[K, V, S]]) iter.Seq[Pair[K, S]], opts ...Option) DStream[Pair[K, S]] {
	return updateState(d, name, rdd.UpdateSpec[K, V, S]{Whole: update}, opts)
}

func updateState[K comparable, V, S any](d DStream[Pair[K, V]], name string, u rdd.UpdateSpec[K, V, S], opts []Option) DStream[Pair[K, S]] {
	what := fmt.Sprintf("updateStateByKey %q", name)
	u.Op = base.UID(name)
	u.Partitioner = statePartitioner[K, V, S](d, what, opts)
	u.Initial = initialState[K, S](d.ssc, what, opts)
	kept := keptAs[K, S](d.ssc, what, u.Partitioner, opts)
	u.Version, u.Migrations = kept.version, kept.migrations
	kept.info.Repack = u.Repack()
	return stateful(d, opSpec{kind: "updateStateByKey", name: name}, true, kept.info,
		func(r RDD[Pair[K, V]]) *plan.Node { return rdd.UpdateState(r, u) },
		func(b *plan.Builder, adv *plan.Node) RDD[Pair[K, S]] { return rdd.Emitted[Pair[K, S]](b.Scope, adv) })
}

// statePartitioner checks what keyed state needs.
func statePartitioner[K comparable, V, S any](d DStream[Pair[K, V]], what string, opts []Option) Partitioner[K] {
	encodable[Pair[K, V]](d.ssc, what)
	encodable[S](d.ssc, what+": the state")
	return partitioner[K](d.ssc, what, opts)
}

// stateInfo says what a stateful operator keeps, and in how many partitions.
type stateInfo struct {
	plan.StateInfo
	parts int
}

// stateful adds a stateful operator. ifStarted says that it has no data set,
// and does not advance, before its first input.
func stateful[T, R any](d DStream[T], s opSpec, ifStarted bool, info stateInfo, advance func(RDD[T]) *plan.Node, emitted func(*plan.Builder, *plan.Node) RDD[R]) DStream[R] {
	s.parents = []*plan.Op{d.op}
	out := add(d.ssc, s, func(b *plan.Builder) (RDD[R], bool, error) {
		adv, err := b.Advanced()
		if err != nil || adv == nil {
			return RDD[R]{}, false, err
		}
		return emitted(b, adv), true, nil
	})
	out.op.State = &info.StateInfo
	d.ssc.g.SetParts(out.op.UID, info.parts)
	out.op.Advance = func(b *plan.Builder) (*plan.Node, error) {
		if ifStarted {
			if ok, err := b.Started(); !ok || err != nil {
				return nil, err
			}
		}
		r, err := parent[T](b, 0)
		if err != nil {
			return nil, err
		}
		return advance(r), nil
	}
	return out
}

// StateSpec says how MapWithState keeps state.
type StateSpec[K comparable, S any] struct {
	// Initial is the state before the first batch. Of equal keys the last counts.
	Initial []Pair[K, S]
	// Timeout, if given, drops keys that were idle for longer: in the first batch
	// T whose time is more than Timeout after the key's last record, the function
	// is called once more, without a value. It must be positive; left out, keys
	// stay until the function removes them.
	Timeout Opt[time.Duration]
}

// StateStream is the stream of a MapWithState.
type StateStream[K comparable, S, R any] struct {
	DStream[R]
	snapshots func(name string) DStream[Pair[K, S]]
}

// StateSnapshots has, every batch, all keys with their state after the batch.
// It costs a visit of every key.
func StateSnapshots[K comparable, S, R any](s StateStream[K, S, R], name string) DStream[Pair[K, S]] {
	return s.snapshots(name)
}

// MapWithState calls f for every record, in the order of its partition, with
// the key's state, which f may read, update and remove; what f returns is
// emitted if it also returns true. Keys without records are not visited, except
// by a timeout. f may change the state's value in place if it updates the state
// with it.
func MapWithState[K comparable, V, S, R any](d DStream[Pair[K, V]], name string, spec StateSpec[K, S], f func(t BatchTime, k K, v Opt[V], s *State[S]) (R, bool), opts ...Option) StateStream[K, S, R] {
	what := fmt.Sprintf("mapWithState %q", name)
	if t := spec.Timeout; t.OK && t.Value <= 0 {
		d.ssc.g.Errorf("%s: the timeout is %v: must be positive; leave it out for none", what, t.Value)
	}
	encodable[R](d.ssc, what+": what is emitted")
	m := &rdd.MapSpec[K, V, S, R]{
		Op: base.UID(name), Partitioner: statePartitioner[K, V, S](d, what, opts),
		Call: f, Timeout: spec.Timeout.Or(0), Initial: spec.Initial,
	}
	kept := keptAs[K, S](d.ssc, what, m.Partitioner, opts)
	m.Version, m.Migrations = kept.version, kept.migrations
	kept.info.Repack = m.Repack()
	out := stateful(d, opSpec{kind: "mapWithState", name: name}, false, kept.info,
		func(r RDD[Pair[K, V]]) *plan.Node { return rdd.MapState(r, *m) },
		func(b *plan.Builder, adv *plan.Node) RDD[R] { return rdd.Emitted[R](b.Scope, adv) })
	snapshots := func(snap string) DStream[Pair[K, S]] {
		if m.Snapshots != "" {
			d.ssc.g.Errorf("stateSnapshots %q: mapWithState %q has a stream of its snapshots already: %q", snap, name, m.Snapshots)
		}
		m.Snapshots = base.UID(snap)
		return add(d.ssc, opSpec{kind: "stateSnapshots", name: snap, parents: []*plan.Op{out.op}}, func(b *plan.Builder) (RDD[Pair[K, S]], bool, error) {
			adv, err := b.AdvancedParent(0)
			if err != nil || adv == nil {
				return RDD[Pair[K, S]]{}, false, err
			}
			return rdd.Emitted[Pair[K, S]](b.Scope, adv), true, nil
		})
	}
	return StateStream[K, S, R]{out, snapshots}
}

// WithFilter makes a window with an inverse emit only the keys for which keep
// returns true, and forget a key with its last value in the window.
func WithFilter[K comparable, V any](keep func(K, V) bool) Option {
	return func(o *opOptions) { o.filter = keep }
}

// reduceWindow adds a reducing window over keyed state.
func reduceWindow[K comparable, V any](d DStream[Pair[K, V]], kind, name string, f, inv func(a, b V) V, window, slide time.Duration, opts []Option) DStream[Pair[K, V]] {
	slide = checkWindow(d, kind, window, slide)
	what := fmt.Sprintf("%s %q", kind, name)
	w := rdd.WindowSpec[K, V]{
		Op: base.UID(name), Partitioner: statePartitioner[K, V, V](d, what, opts),
		WindowSpec: state.WindowSpec[K, V]{Window: max(window, d.op.Slide), Slide: slide, Reduce: f, Inverse: inv},
	}
	if o := options(opts); o.filter != nil {
		keep, ok := o.filter.(func(K, V) bool)
		switch {
		case !ok:
			d.ssc.g.Errorf("%s: the filter is a %T, want a %T", what, o.filter, keep)
		case inv == nil:
			d.ssc.g.Errorf("%s: a filter goes with an inverse function; without one, use Filter on the stream", what)
		}
		w.Filter = keep
	}
	if o := stateOptionsOf(opts); o.version.OK || o.migrations != nil {
		d.ssc.g.Errorf("%s: StateVersion and MigrateState are for UpdateStateByKey and MapWithState: a reducing window's state can't be migrated. If what it reduces changes, start with --drop-state=%s, and it fills again within %v", what, name, window)
	}
	info := stateInfo{parts: w.Partitioner.Parts()}
	info.Schema, info.Repack = w.Schema(codec.For[K](), codec.For[V]()), w.Repack()
	return stateful(d, opSpec{kind: kind, name: name, slide: slide}, false, info,
		func(r RDD[Pair[K, V]]) *plan.Node { return rdd.ReduceWindow(r, w) },
		func(b *plan.Builder, adv *plan.Node) RDD[Pair[K, V]] { return rdd.Emitted[Pair[K, V]](b.Scope, adv) })
}

// unkeyed puts all records under one key, so that a window over keyed state
// can hold them.
func unkeyed[T, V any](d DStream[T], f func(T) V) DStream[Pair[bool, V]] {
	return Map(d, func(v T) Pair[bool, V] { return Pair[bool, V]{Value: f(v)} })
}

func valuesOf[K comparable, V any](d DStream[Pair[K, V]]) DStream[V] {
	return Map(d, func(p Pair[K, V]) V { return p.Value })
}

// CountByWindow has, every slide, the number of records in the last window. It
// has no record before the first window that holds data, and 0 for an empty one
// after it.
func CountByWindow[T any](d DStream[T], name string, window, slide time.Duration) DStream[int64] {
	ones := unkeyed(d, func(T) int64 { return 1 })
	return valuesOf(reduceWindow(ones, "countByWindow", name, addInt64, subInt64, window, slide, []Option{Partitions(1)}))
}

// CountByValueAndWindow has, every slide, how often each record occurs in the
// last window.
func CountByValueAndWindow[T comparable](d DStream[T], name string, window, slide time.Duration, opts ...Option) DStream[Pair[T, int64]] {
	ones := Map(d, func(v T) Pair[T, int64] { return KV(v, int64(1)) })
	positive := WithFilter(func(_ T, n int64) bool { return n != 0 })
	return reduceWindow(ones, "countByValueAndWindow", name, addInt64, subInt64, window, slide, append(opts, positive))
}

func addInt64(a, b int64) int64 { return a + b }

func subInt64(a, b int64) int64 { return a - b }
