package rdd

import (
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
)

// Combiner says how values of one key become one.
type Combiner[V, C any] struct {
	Create func(V) C
	Merge  func(C, V) C
	// Join merges what two partitions made of a key. It must be associative.
	Join func(C, C) C
}

// CombineByKey combines the values of each key. With mapSide, values are
// combined before they are exchanged.
func CombineByKey[K comparable, V, C any](r RDD[Pair[K, V]], p Partitioner[K], c Combiner[V, C], mapSide bool) RDD[Pair[K, C]] {
	return combineByKey(r, "combineByKey", p, c, mapSide)
}

// ReduceByKey combines the values of each key by f, which must be associative.
func ReduceByKey[K comparable, V any](r RDD[Pair[K, V]], p Partitioner[K], f func(a, b V) V) RDD[Pair[K, V]] {
	return combineByKey(r, "reduceByKey", p, Combiner[V, V]{Create: func(v V) V { return v }, Merge: f, Join: f}, true)
}

// GroupByKey gathers the values of each key in the order of the data set. The
// values of one key must fit in memory.
func GroupByKey[K comparable, V any](r RDD[Pair[K, V]], p Partitioner[K]) RDD[Pair[K, []V]] {
	return combineByKey(r, "groupByKey", p, Combiner[V, []V]{
		Create: func(v V) []V { return []V{v} },
		Merge:  func(vs []V, v V) []V { return append(vs, v) },
	}, false)
}

// Distinct keeps one of equal records, the first.
func Distinct[T comparable](r RDD[T], p Partitioner[T]) RDD[T] {
	pairs := narrow(r, "distinct", "", mapper(func(v T) Pair[T, bool] { return Pair[T, bool]{Key: v} }))
	return Keys(ReduceByKey(pairs, p, func(a, _ bool) bool { return a }))
}

func combineByKey[K comparable, V, C any](r RDD[Pair[K, V]], kind string, p Partitioner[K], c Combiner[V, C], mapSide bool) RDD[Pair[K, C]] {
	parent := r.n
	var out RDD[Pair[K, C]]
	spec := plan.NodeSpec{Kind: kind, Parts: p.parts, Partitioner: p.name}
	if parent.Partitioner == p.name { // all values of a key are in one partition already
		spec.Narrow = []*plan.Node{parent}
		out = node(r.scope, spec, func(t *Task, part int) Iter[Pair[K, C]] {
			return func(yield func(Pair[K, C]) bool) error {
				tb := newTable[K, C](0)
				err := foldValues(tb, watch[Pair[K, V]](t, out.n, part), iterate[Pair[K, V]](t, parent, part), c, nil)
				return tb.emit(err, yield)
			}
		})
		return out
	}
	var sh *plan.Shuffle
	var mapKeys, reduceKeys sizeHint
	if mapSide {
		sh = exchange(parent, p.parts, func(t *Task, mapPart int) ([]Bucket, error) {
			return combineWrite(t, out.n, mapPart, iterate[Pair[K, V]](t, parent, mapPart), p, c, &mapKeys)
		})
	} else {
		sh = exchange(parent, p.parts, pairWriter[K, V](parent, &out.n, p))
	}
	spec.Shuffles = []*plan.Shuffle{sh}
	out = node(r.scope, spec, func(t *Task, part int) Iter[Pair[K, C]] {
		return func(yield func(Pair[K, C]) bool) error {
			tb := newTable[K, C](reduceKeys.get())
			var err error
			if mapSide {
				joiner := Combiner[C, C]{Create: func(v C) C { return v }, Merge: c.Join}
				err = foldValues(tb, watch[Pair[K, C]](t, out.n, part), fetch[Pair[K, C]](t, sh, part), joiner, nil)
			} else {
				err = foldValues(tb, watch[Pair[K, V]](t, out.n, part), fetch[Pair[K, V]](t, sh, part), c, nil)
			}
			reduceKeys.met(len(tb.recs))
			return tb.emit(err, yield)
		}
	})
	return out
}

// foldValues takes the pairs of src into tb. full, if not nil, is asked after
// every new key and may empty the table.
func foldValues[K comparable, V, C any](tb *table[K, C], p *probeOf[Pair[K, V]], src Iter[Pair[K, V]], c Combiner[V, C], full func()) error {
	vc := codec.For[V]()
	return src(func(v Pair[K, V]) bool {
		i, slot := tb.find(v.Key)
		if i >= 0 {
			acc := &tb.recs[i].Value
			p.enter(v)
			*acc = c.Merge(*acc, v.Value)
			p.busy = false
			return true
		}
		if !vc.Immutable {
			v.Value = vc.Clone(v.Value) // user code may change its accumulator (Invariant 15)
		}
		p.enter(v)
		first := c.Create(v.Value)
		p.busy = false
		tb.add(slot, v.Key, first)
		if full != nil {
			full()
		}
		return true
	})
}

// combineWrite is the map side of a combining shuffle. A table that outgrows
// the combine limit is handed on and started anew; when that happens depends
// on the records alone (Invariant 13).
func combineWrite[K comparable, V, C any](t *Task, n *plan.Node, mapPart int, src Iter[Pair[K, V]], p Partitioner[K], c Combiner[V, C], hint *sizeHint) ([]Bucket, error) {
	out := make([][]Pair[K, C], p.parts)
	tb := newTable[K, C](hint.get())
	pr := watch[Pair[K, V]](t, n, mapPart)
	flush := func() {
		pr.busy = true // a custom partitioner is user code
		for i := range out {
			out[i] = growFor(out[i], len(tb.recs)/p.parts)
		}
		for i := range tb.recs {
			pr.cur.Key = tb.recs[i].Key
			at := p.place(tb.recs[i].Key)
			out[at] = append(out[at], tb.recs[i])
		}
		pr.busy = false
	}
	limit := t.env.CombineLimit()
	size := tableSize[K, C]{}
	err := foldValues(tb, pr, src, c, func() {
		if size.add(&tb.recs[len(tb.recs)-1]); size.bytes > limit {
			flush()
			tb.reset()
			size.bytes = 0
		}
	})
	if err != nil {
		return nil, err
	}
	hint.met(len(tb.recs))
	flush()
	return buckets(out), nil
}

func growFor[T any](s []T, n int) []T {
	if s == nil && n > 0 {
		return make([]T, 0, n+n/8)
	}
	return s
}

// tableSize estimates the bytes of a table from every 64th of its records.
type tableSize[K comparable, C any] struct {
	c     *codec.Codec[Pair[K, C]]
	n     int
	last  int64
	bytes int64
	buf   []byte
}

// entryOverhead is about what a map and slice entry cost beside the record.
const entryOverhead = 48

func (s *tableSize[K, C]) add(rec *Pair[K, C]) {
	if s.n%64 == 0 {
		if s.c == nil {
			s.c = codec.For[Pair[K, C]]()
		}
		if b, err := s.c.Append(s.buf[:0], *rec); err == nil {
			s.buf, s.last = b, int64(len(b))
		}
	}
	s.n++
	s.bytes += s.last + entryOverhead
}
