package tidemill

import (
	"fmt"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
)

// DStream is a stream cut into batches: at every batch time that is a multiple
// of its slide it has a data set with records of type T, or none. It is a
// handle that Build passes around; its operations are functions of this
// package.
type DStream[T any] struct {
	ssc *StreamingContext
	op  *plan.Op
}

// Name returns the stream's name: the one given, or one made from its parent
// and kind.
func (d DStream[T]) Name() string { return string(d.op.UID) }

// Slide returns the time between the stream's data sets.
func (d DStream[T]) Slide() time.Duration { return d.op.Slide }

// Context returns the context that the stream belongs to.
func (d DStream[T]) Context() *StreamingContext { return d.ssc }

// Persist keeps the stream's data sets at the given level once they are
// computed, as long as something may read them again.
func Persist[T any](d DStream[T], level StorageLevel) DStream[T] {
	if !d.ssc.open("Persist of " + d.Name()) {
		d.ssc.g.Errorf("cannot change the storage level of stream %q after the context has been started", d.Name())
		return d
	}
	if !level.Valid() || level == base.StorageNone {
		d.ssc.g.Errorf("Persist of %q: %v is no storage level: use MemoryOnly, MemoryAndDisk or DiskOnly", d.Name(), level)
		return d
	}
	encodable[T](d.ssc, "Persist of "+d.Name())
	d.op.Level = level
	return d
}

// Option changes one operation.
type Option func(*opOptions)

type opOptions struct {
	parts       int
	hasParts    bool
	partitioner any // of type Partitioner[K]
	level       base.StorageLevel
	inputParts  int
	allQueued   bool
	existing    bool
	keepEmpty   bool
	host        string
	keyed       stateOptions
	filter      any // of type func(K, V) bool
}

// Partitions sets the number of partitions that a shuffle makes.
func Partitions(n int) Option {
	return func(o *opOptions) { o.parts, o.hasParts = n, true }
}

// PartitionWith places keys by p instead of by hash.
func PartitionWith[K comparable](p Partitioner[K]) Option {
	return func(o *opOptions) { o.partitioner = p }
}

// Level sets where a receiver's blocks are kept; memory and disk by default.
func Level(l StorageLevel) Option { return func(o *opOptions) { o.level = l } }

// InputPartitions sets into how many partitions a queue's or constant's
// batches are cut; the default is the parallelism setting.
func InputPartitions(n int) Option { return func(o *opOptions) { o.inputParts = n } }

// AllQueued makes a queue stream take all that is queued into one batch,
// instead of one entry per batch.
func AllQueued() Option { return func(o *opOptions) { o.allQueued = true } }

// ExistingFiles makes a file stream take files that are older than its start
// too, within the file-remember setting.
func ExistingFiles() Option { return func(o *opOptions) { o.existing = true } }

// KeepEmpty makes a file output commit a directory for empty batches too.
func KeepEmpty() Option { return func(o *opOptions) { o.keepEmpty = true } }

// PreferHost asks to place a receiver on the given host.
func PreferHost(host string) Option { return func(o *opOptions) { o.host = host } }

func options(opts []Option) opOptions {
	var o opOptions
	for _, f := range opts {
		f(&o)
	}
	return o
}

// partitioner returns the placement that an operation's options ask for.
func partitioner[K comparable](ssc *StreamingContext, what string, opts []Option) (p Partitioner[K]) {
	if err := codec.CheckKey[K](); err != nil {
		ssc.g.Errorf("%s: %w", what, err)
	}
	o := options(opts)
	n := ssc.cfg.Parallelism
	if o.hasParts {
		if o.parts <= 0 {
			ssc.g.Errorf("%s: the partition count is %d: must be positive", what, o.parts)
			o.parts = 1
		}
		n = o.parts
	}
	if o.partitioner != nil {
		custom, ok := o.partitioner.(Partitioner[K])
		switch {
		case !ok:
			ssc.g.Errorf("%s: the partitioner is for another key type: a %T, want a %T", what, o.partitioner, p)
		case custom.IsZero():
			ssc.g.Errorf("%s: the partitioner is the zero value: make one with rdd.Hash or rdd.PartitionBy", what)
		case o.hasParts && custom.Parts() != n:
			ssc.g.Errorf("%s: Partitions(%d) and a partitioner with %d partitions contradict each other", what, n, custom.Parts())
		default:
			return custom
		}
	}
	return rdd.Hash[K](n)
}

// encodable records an error if records of type T can't be encoded.
func encodable[T any](ssc *StreamingContext, what string) {
	if err := codec.Check[T](); err != nil {
		ssc.g.Errorf("%s: %w", what, err)
	}
}

// opSpec describes an operator to be added.
type opSpec struct {
	kind    string
	name    string // empty for stateless operators
	parents []*plan.Op
	slide   time.Duration // 0: that of the first parent
	window  time.Duration
}

// add adds an operator whose data sets build makes. build returns false when
// there is none.
func add[T any](ssc *StreamingContext, s opSpec, build func(b *plan.Builder) (RDD[T], bool, error)) DStream[T] {
	op := &plan.Op{Kind: s.kind, Parents: s.parents, Slide: s.slide, Window: s.window}
	if op.Slide == 0 {
		op.Slide = ssc.g.Interval
		if len(s.parents) > 0 {
			op.Slide = s.parents[0].Slide
		}
	}
	op.Build = func(b *plan.Builder) (*plan.Node, error) {
		r, ok, err := build(b)
		if err != nil || !ok {
			return nil, err
		}
		if r.Node().ID.Set != b.Scope.Set {
			r = rdd.Alias(r, b.Scope) // a data set has a node of its own
		}
		return r.Node(), nil
	}
	what := s.kind
	if s.name != "" {
		what = fmt.Sprintf("%s %q", s.kind, s.name)
	}
	if !ssc.open(what) {
		op.UID = base.UID(s.name)
		return DStream[T]{ssc, op} // not in the graph; the wrong use is recorded
	}
	if s.name != "" {
		op.UID = ssc.g.Name(s.kind, s.name)
	} else {
		op.UID = ssc.g.Derived(s.kind, s.parents...)
	}
	op.Display = fmt.Sprintf("%s %q", s.kind, op.UID)
	ssc.op(op)
	return DStream[T]{ssc, op}
}

// unary adds an operator that has a data set whenever its parent has one.
func unary[T, R any](d DStream[T], kind string, f func(RDD[T]) RDD[R]) DStream[R] {
	return add(d.ssc, opSpec{kind: kind, parents: []*plan.Op{d.op}}, func(b *plan.Builder) (RDD[R], bool, error) {
		n, err := b.Parent(0)
		if err != nil || n == nil {
			return RDD[R]{}, false, err
		}
		return f(rdd.Of[T](n, b.Scope)), true, nil
	})
}

// parent returns the data set of parent i, an empty one if there is none: a
// source without data set counts as empty where streams meet.
func parent[T any](b *plan.Builder, i int) (RDD[T], error) {
	n, err := b.Parent(i)
	if err != nil {
		return RDD[T]{}, err
	}
	if n == nil {
		return rdd.Empty[T](b.Scope), nil
	}
	return rdd.Of[T](n, b.Scope), nil
}

// together records an error unless all streams belong to ssc and have one slide.
func together(ssc *StreamingContext, what string, contexts []*StreamingContext, ops []*plan.Op) {
	for i, op := range ops {
		if contexts[i] != ssc {
			ssc.g.Errorf("%s: streams %q and %q belong to different contexts", what, ops[0].UID, op.UID)
			return
		}
		if op.Slide != ops[0].Slide {
			ssc.g.Errorf("%s: streams %q and %q have different slide times: %v and %v", what, ops[0].UID, op.UID, ops[0].Slide, op.Slide)
			return
		}
	}
}

// two adds an operator on two streams.
func two[T, U, R any](a DStream[T], c DStream[U], kind string, f func(RDD[T], RDD[U], BatchTime) (RDD[R], error)) DStream[R] {
	ops := []*plan.Op{a.op, c.op}
	together(a.ssc, kind, []*StreamingContext{a.ssc, c.ssc}, ops)
	return add(a.ssc, opSpec{kind: kind, parents: ops}, func(b *plan.Builder) (RDD[R], bool, error) {
		x, err := parent[T](b, 0)
		if err != nil {
			return RDD[R]{}, false, err
		}
		y, err := parent[U](b, 1)
		if err != nil {
			return RDD[R]{}, false, err
		}
		r, err := f(x, y, b.Time)
		return r, err == nil, err
	})
}
