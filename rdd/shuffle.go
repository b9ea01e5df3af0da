package rdd

import (
	"fmt"
	"runtime/debug"

	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
)

// Bucket is what one map task made for one reduce partition: typed records
// that are handed over as they are within a process, and encoded when another
// process asks or memory is short.
type Bucket interface {
	// Len is the number of records.
	Len() int
	// Encode returns the records as a frame.
	Encode() ([]byte, error)
	// Size estimates the encoded bytes from a sample of the records.
	Size() int64
}

// bucket is the one implementation. A record's own encoding is user code, and
// runs outside of any task when another executor asks: it is contained here.
type bucket[T any] struct {
	recs []T
	node *plan.Node // that reads it, for errors
	part int        // of the map side
}

func (b bucket[T]) Len() int { return len(b.recs) }

func (b bucket[T]) Encode() (frame []byte, err error) {
	w := codec.NewFrameWriter(codec.For[T]())
	defer func() {
		if r := recover(); r != nil {
			frame, err = nil, b.at(w.Count()).taskError(fmt.Sprint(r), true, string(debug.Stack()))
		}
	}()
	for i := range b.recs {
		if err := w.Append(b.recs[i]); err != nil {
			return nil, b.at(i).fail(err)
		}
	}
	return w.Finish(), nil
}

// at returns a probe for record i.
func (b bucket[T]) at(i int) *probe {
	return &probe{node: b.node, part: b.part, n: int64(i) + 1, preview: func() any { return b.recs[i] }}
}

func (b bucket[T]) Size() int64 {
	const sample = 16
	if len(b.recs) == 0 {
		return 0
	}
	step := max(1, len(b.recs)/sample)
	seen, size := 0, 0
	for i := 0; i < len(b.recs); i += step {
		size += encodedSize(b.recs[i])
		seen++
	}
	return int64(size) * int64(len(b.recs)) / int64(seen)
}

// encodedSize is 0 for a record that can't be encoded: the error shows when
// the bucket is.
func encodedSize[T any](v T) (n int) {
	defer func() { _ = recover() }()
	b, _ := codec.For[T]().Append(nil, v)
	return len(b)
}

// shuffleWrite is the shape of every plan.Shuffle's Write.
type shuffleWrite func(t *Task, mapPart int) ([]Bucket, error)

// exchange describes a shuffle of the records of parent.
func exchange(parent *plan.Node, parts int, w shuffleWrite) *plan.Shuffle {
	return &plan.Shuffle{Parent: parent, Parts: parts, Write: w}
}

// fetch reads reduce partition part of a shuffle, in map-partition order
// (Invariant 13).
func fetch[T any](t *Task, s *plan.Shuffle, part int) Iter[T] {
	return func(yield func(T) bool) error {
		c := codec.For[T]()
		for m := range s.Parent.Parts {
			if err := t.ctx.Err(); err != nil {
				return err
			}
			b, frame, err := t.env.Bucket(t.ctx, s, m, part)
			if err != nil {
				return err
			}
			if b != nil {
				recs := b.(bucket[T]).recs
				for i := range recs {
					if !yield(recs[i]) {
						return nil
					}
				}
				continue
			}
			f, err := codec.OpenFrame(frame)
			if err != nil {
				return fmt.Errorf("shuffle %s, map partition %d: %w", s.ID, m, err)
			}
			if stopped, err := codec.EachInFrame(c, f, yield); err != nil || stopped {
				return err
			}
		}
		return nil
	}
}

func buckets[T any](n *plan.Node, mapPart int, recs [][]T) []Bucket {
	out := make([]Bucket, len(recs))
	for i := range recs {
		out[i] = bucket[T]{recs[i], n, mapPart}
	}
	return out
}

// place returns the partition of k, checked; the caller's probe must be busy.
func (p Partitioner[K]) place(k K) int {
	i := p.of(k)
	if i < 0 || i >= p.parts {
		panic(fmt.Sprintf("partitioner %q puts key %s into partition %d: must be from 0 to %d", p.name, Preview(k), i, p.parts-1))
	}
	return i
}

// pairWriter spreads pairs over the partitions of p as they are.
func pairWriter[K comparable, V any](parent *plan.Node, reader **plan.Node, p Partitioner[K]) shuffleWrite {
	return func(t *Task, mapPart int) ([]Bucket, error) {
		out := make([][]Pair[K, V], p.parts)
		pr := watch[Pair[K, V]](t, *reader, mapPart)
		err := iterate[Pair[K, V]](t, parent, mapPart)(func(v Pair[K, V]) bool {
			pr.enter(v)
			i := p.place(v.Key)
			pr.busy = false
			out[i] = append(out[i], v)
			return true
		})
		return buckets(*reader, mapPart, out), err
	}
}

// Repartition spreads the records over exactly parts partitions, by map
// partition and index (Invariant 13).
func Repartition[T any](r RDD[T], parts int) RDD[T] {
	mustParts("repartition", parts)
	parent := r.n
	sh := exchange(parent, parts, func(t *Task, mapPart int) ([]Bucket, error) {
		out := make([][]T, parts)
		i := mapPart
		err := iterate[T](t, parent, mapPart)(func(v T) bool {
			i %= parts
			out[i] = append(out[i], v)
			i++
			return true
		})
		return buckets(parent, mapPart, out), err
	})
	return node(r.scope, plan.NodeSpec{Kind: "repartition", Parts: parts, Shuffles: []*plan.Shuffle{sh}}, func(t *Task, part int) Iter[T] {
		return fetch[T](t, sh, part)
	})
}

// toOne gathers what partial makes of every partition in one partition and
// gives it to final, which also runs when r has no partitions.
func toOne[T, P, R any](r RDD[T], kind, extra string,
	partial func(p *probeOf[T], src Iter[T]) ([]P, error),
	final func(p *probeOf[P], src Iter[P], yield func(R) bool) error,
) RDD[R] {
	parent := r.n
	var out RDD[R]
	sh := exchange(parent, 1, func(t *Task, mapPart int) ([]Bucket, error) {
		recs, err := partial(watch[T](t, out.n, mapPart), iterate[T](t, parent, mapPart))
		return buckets(out.n, mapPart, [][]P{recs}), err
	})
	out = node(r.scope, plan.NodeSpec{Kind: kind, Parts: 1, Extra: extra, Shuffles: []*plan.Shuffle{sh}}, func(t *Task, part int) Iter[R] {
		return func(yield func(R) bool) error {
			return final(watch[P](t, out.n, part), fetch[P](t, sh, part), yield)
		}
	})
	return out
}

// Count has one record: the number of records of r.
func Count[T any](r RDD[T]) RDD[int64] {
	return toOne(r, "count", "",
		func(_ *probeOf[T], src Iter[T]) ([]int64, error) {
			var n int64
			err := src(func(T) bool { n++; return true })
			return []int64{n}, err
		},
		func(_ *probeOf[int64], src Iter[int64], yield func(int64) bool) error {
			var sum int64
			err := src(func(n int64) bool { sum += n; return true })
			if err == nil {
				yield(sum)
			}
			return err
		})
}

// Reduce has one record, the records of r combined by f, or none if r is
// empty. f must be associative. It may change and return a. It must not change
// b, nor return it if it ever changes a.
func Reduce[T any](r RDD[T], f func(a, b T) T) RDD[T] {
	return toOne(r, "reduce", "",
		func(p *probeOf[T], src Iter[T]) ([]T, error) { return fold(p, src, f) },
		func(p *probeOf[T], src Iter[T], yield func(T) bool) error {
			acc, err := fold(p, src, f)
			if err == nil && len(acc) > 0 {
				yield(acc[0])
			}
			return err
		})
}

func fold[T any](p *probeOf[T], src Iter[T], f func(a, b T) T) ([]T, error) {
	c := codec.For[T]()
	var acc []T
	err := src(func(v T) bool {
		p.enter(v)
		if acc == nil {
			if !c.Immutable {
				v = c.Clone(v) // f may change its first argument (Invariant 15)
			}
			acc = []T{v}
			p.busy = false
			return true
		}
		acc[0] = f(acc[0], v)
		p.busy = false
		return true
	})
	return acc, err
}
