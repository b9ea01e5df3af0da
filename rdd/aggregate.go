package rdd

import (
	"fmt"
	"slices"

	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
)

// aggregation combines values by key in a table. When the table outgrows the
// combine limit it goes to disk as a run, sorted by key hash, and starts anew;
// at the end the runs are merged. When that happens depends on the records
// alone, so the order of what is emitted does too (Invariant 13): first
// occurrence without runs, key hash with them.
type aggregation[K comparable, C any] struct {
	t    *Task
	n    *plan.Node
	part int
	tb   *state.Table[K, C]
	// join merges what two runs hold of a key.
	join func(C, C) C
	// full takes the table's records when it is full; nil means a run.
	full  func() error
	limit int64
	bytes int64
	runs  [][]string // keys of the frames of each run
	hash  func(K) uint64
}

func newAggregation[K comparable, C any](t *Task, n *plan.Node, part int, join func(C, C) C, want int) *aggregation[K, C] {
	return &aggregation[K, C]{t: t, n: n, part: part, join: join, tb: state.NewTable[K, C](want), limit: t.env.CombineLimit()}
}

// entryOverhead is about what a table entry costs beside its record.
const entryOverhead = 48

// meterEvery is how often a record's encoded size is taken as that of those
// around it.
const meterEvery = 64

// foldPairs takes the pairs of src in.
func foldPairs[K comparable, V, C any](a *aggregation[K, C], src Iter[Pair[K, V]], c Combiner[V, C]) error {
	vc, pc := codec.For[V](), codec.For[Pair[K, V]]()
	cloneFirst := !c.fresh && !vc.Immutable
	grows := !codec.For[C]().Plain // a merge may make the combiner larger
	p := watch[Pair[K, V]](a.t, a.n, a.part)
	tb := a.tb
	var (
		failed error
		seen   int
		size   int64
		buf    []byte
	)
	err := src(func(v Pair[K, V]) bool {
		i, slot := tb.Find(v.Key)
		switch {
		case i >= 0:
			acc := &tb.Recs[i].Value
			p.enter(v)
			*acc = c.Merge(*acc, v.Value)
			p.busy = false
			if !grows {
				return true
			}
			a.bytes += size
		default:
			p.enter(v)
			if cloneFirst {
				v.Value = vc.Clone(v.Value) // user code may change its accumulator (Invariant 15)
			}
			first := c.Create(v.Value)
			p.busy = false
			tb.Add(slot, v.Key, first)
			a.bytes += size + entryOverhead
		}
		if seen%meterEvery == 0 {
			if b, err := pc.Append(buf[:0], v); err == nil {
				buf, size = b, int64(len(b))
			}
		}
		if seen++; a.bytes > a.limit {
			failed = a.handOn()
		}
		return failed == nil
	})
	if err == nil {
		err = failed
	}
	return err
}

// handOn empties the table.
func (a *aggregation[K, C]) handOn() error {
	f := a.full
	if f == nil {
		f = a.spill
	}
	if err := f(); err != nil {
		return err
	}
	a.tb.Reset()
	a.bytes = 0
	return nil
}

// runFrame is about the size of a frame of a run.
const runFrame = 1 << 20

// spill writes the table as a run, sorted by the stable hash of the keys.
func (a *aggregation[K, C]) spill() error {
	if a.hash == nil {
		a.hash = codec.Hasher[K]()
	}
	recs := a.tb.Recs
	hashes := make([]uint64, len(recs))
	order := make([]int, len(recs))
	for i := range recs {
		hashes[i], order[i] = a.hash(recs[i].Key), i
	}
	slices.SortFunc(order, func(x, y int) int {
		switch {
		case hashes[x] < hashes[y]:
			return -1
		case hashes[x] > hashes[y]:
			return 1
		}
		return x - y
	})
	w := codec.NewFrameWriter(codec.For[Pair[K, C]]())
	var run []string
	for at, i := range order {
		if err := w.Append(Pair[K, C](recs[i])); err != nil {
			return (&probe{node: a.n, part: a.part}).fail(err)
		}
		if w.Size() < runFrame && at < len(order)-1 {
			continue
		}
		key, err := a.t.env.Spill(a.t.ctx, w.Finish())
		if err != nil {
			return err
		}
		run = append(run, key)
		a.t.spilled = append(a.t.spilled, key)
	}
	a.runs = append(a.runs, run)
	return nil
}

// emit hands out every key once.
func (a *aggregation[K, C]) emit(yield func(Pair[K, C]) bool) error {
	if len(a.runs) == 0 {
		for i := range a.tb.Recs {
			if !yield(Pair[K, C](a.tb.Recs[i])) {
				return nil
			}
		}
		return nil
	}
	if len(a.tb.Recs) > 0 {
		if err := a.handOn(); err != nil {
			return err
		}
	}
	return a.merge(yield)
}

// cursor reads a run in the order of its hashes.
type cursor[K comparable, C any] struct {
	a      *aggregation[K, C]
	frames []string
	recs   []Pair[K, C]
	hash   uint64 // of recs[0]
}

// load makes recs[0] the next record; it returns false at the end of the run.
func (c *cursor[K, C]) load() (bool, error) {
	for len(c.recs) == 0 {
		if len(c.frames) == 0 {
			return false, nil
		}
		data, err := c.a.t.env.Spilled(c.a.t.ctx, c.frames[0])
		if err != nil {
			return false, err
		}
		f, err := codec.OpenFrame(data)
		if err != nil {
			return false, err
		}
		c.frames = c.frames[1:]
		_, err = codec.EachInFrame(codec.For[Pair[K, C]](), f, func(p Pair[K, C]) bool {
			c.recs = append(c.recs, p)
			return true
		})
		if err != nil {
			return false, err
		}
	}
	c.hash = c.a.hash(c.recs[0].Key)
	return true, nil
}

// merge joins the runs key by key. Of a key it takes the oldest run first.
func (a *aggregation[K, C]) merge(yield func(Pair[K, C]) bool) error {
	var open []*cursor[K, C]
	for _, r := range a.runs {
		c := &cursor[K, C]{a: a, frames: r}
		if ok, err := c.load(); err != nil {
			return err
		} else if ok {
			open = append(open, c)
		}
	}
	p := watch[Pair[K, C]](a.t, a.n, a.part)
	g := gathering[K, C]{a: a, p: p, c: codec.For[Pair[K, C]]()}
	for len(open) > 0 {
		least := open[0].hash
		for _, c := range open[1:] {
			least = min(least, c.hash)
		}
		g.recs = g.recs[:0]
		left := open[:0]
		for _, c := range open {
			ok := true
			for ok && c.hash == least {
				if err := g.take(c.recs[0]); err != nil {
					return err
				}
				c.recs = c.recs[1:]
				var err error
				if ok, err = c.load(); err != nil {
					return err
				}
			}
			if ok {
				left = append(left, c)
			}
		}
		open = left
		for _, r := range g.recs {
			if !yield(r.Pair) {
				return nil
			}
		}
	}
	return nil
}

// gathering joins the few records of one hash.
type gathering[K comparable, C any] struct {
	a    *aggregation[K, C]
	p    *probeOf[Pair[K, C]]
	c    *codec.Codec[Pair[K, C]]
	recs []sized[K, C]
	buf  []byte
}

type sized[K comparable, C any] struct {
	Pair[K, C]
	bytes int64
}

func (g *gathering[K, C]) take(r Pair[K, C]) error {
	b, err := g.c.Append(g.buf[:0], r)
	if err != nil {
		return err
	}
	g.buf = b
	for i := range g.recs {
		have := &g.recs[i]
		if have.Key != r.Key {
			continue
		}
		g.p.enter(r)
		have.Value = g.a.join(have.Value, r.Value)
		g.p.busy = false
		most := 4 * g.a.limit
		if have.bytes += int64(len(b)); have.bytes <= most {
			return nil
		}
		// So much was joined; what came of it may be small.
		if b, err = g.c.Append(g.buf[:0], have.Pair); err != nil {
			return err
		}
		if g.buf, have.bytes = b, int64(len(b)); have.bytes > most {
			return (&probe{node: g.a.n, part: g.a.part}).fail(fmt.Errorf(
				"the values of key %s take more than %d bytes: those of one key must fit in memory; raise memory-limit, or combine values with ReduceByKey",
				Preview(r.Key), most))
		}
		return nil
	}
	g.recs = append(g.recs, sized[K, C]{r, int64(len(b))})
	return nil
}
