package tidemill

import (
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
)

// Window has, every slide, all records of d in the last window: of its batches
// in (T-window, T], the oldest first. Early windows are partial. Both must be
// positive multiples of d's slide; for a window at every batch of d pass
// d.Slide(). What it may read again of d is kept at d's storage level, in memory
// if none was set.
func Window[T any](d DStream[T], window, slide time.Duration) DStream[T] {
	slide = checkWindow(d, "window", window, slide)
	keepForWindow(d)
	return windowed(d, window, slide)
}

func windowed[T any](d DStream[T], window, slide time.Duration) DStream[T] {
	spec := opSpec{kind: "window", parents: []*plan.Op{d.op}, slide: slide, window: window}
	return add(d.ssc, spec, func(b *plan.Builder) (RDD[T], bool, error) {
		nodes, err := b.ParentIn(0, b.Time.Add(-window))
		if err != nil {
			return RDD[T]{}, false, err
		}
		rs := make([]RDD[T], len(nodes))
		for i, n := range nodes {
			rs[i] = rdd.Of[T](n, b.Scope)
		}
		return rdd.Union(b.Scope, rs...), true, nil
	})
}

// keepForWindow persists what a window reads again and again, unless it is a
// source, whose data is at hand anyway, or the user chose a level.
func keepForWindow[T any](d DStream[T]) {
	if d.op.Level != base.StorageNone || d.op.Kind == "receiver" || d.op.Kind == "queue" || d.op.Kind == "constant" || d.ssc.g.Finished() {
		return
	}
	encodable[T](d.ssc, "window of "+d.Name())
	d.op.Level = base.MemoryOnly
}

// checkWindow records what is wrong with a window and returns the slide to use.
func checkWindow[T any](d DStream[T], kind string, window, slide time.Duration) time.Duration {
	g, own := d.ssc.g, d.op.Slide
	for _, v := range []struct {
		what string
		d    time.Duration
	}{{"window", window}, {"slide", slide}} {
		switch {
		case v.d <= 0:
			g.Errorf("%s of %q: the %s is %v: must be positive", kind, d.Name(), v.what, v.d)
			return own
		case !base.IsMultiple(v.d, own):
			g.Errorf("%s of %q: the %s %v must be a multiple of the slide %v of its parent", kind, d.Name(), v.what, v.d, own)
			return own
		}
	}
	return slide
}

// GroupByKeyAndWindow gathers the values of each key in a window.
func GroupByKeyAndWindow[K comparable, V any](d DStream[Pair[K, V]], window, slide time.Duration, opts ...Option) DStream[Pair[K, []V]] {
	slide = checkWindow(d, "groupByKeyAndWindow", window, slide)
	keepForWindow(d)
	return GroupByKey(windowed(d, window, slide), opts...)
}

// ReduceByWindow combines, every slide, all records in the last window by f,
// which must be associative. With inv, the inverse of f (inv(f(a, b), b) == a), a
// window is made of the one before, so its cost does not depend on its length;
// it then has no record before the first window that holds data, and one for
// every empty window after it. Without it, inv is nil, an empty window gives no
// record.
func ReduceByWindow[T any](d DStream[T], name string, f, inv func(a, b T) T, window, slide time.Duration) DStream[T] {
	all := unkeyed(d, func(v T) T { return v })
	return valuesOf(reduceWindow(all, "reduceByWindow", name, f, inv, window, slide, []Option{Partitions(1)}))
}

// ReduceByKeyAndWindow combines, every slide, the values of each key in the
// last window by f, which must be associative. With inv, the inverse of f
// (inv(f(a, b), b) == a), a window is made of the one before, so its cost does
// not depend on its length; a key then stays for ever, even without values in
// the window, unless WithFilter is given. Without it, inv is nil, a key leaves
// with its last value. f and inv may change and return their first argument.
func ReduceByKeyAndWindow[K comparable, V any](d DStream[Pair[K, V]], name string, f, inv func(a, b V) V, window, slide time.Duration, opts ...Option) DStream[Pair[K, V]] {
	return reduceWindow(d, "reduceByKeyAndWindow", name, f, inv, window, slide, opts)
}
