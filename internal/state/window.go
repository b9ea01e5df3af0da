package state

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
)

// WindowSpec says what a reducing window computes.
type WindowSpec[K comparable, V any] struct {
	Window, Slide time.Duration
	// Reduce must be associative. It may change and return its first argument.
	Reduce func(a, b V) V
	// Inverse, if not nil, takes b out of a: Inverse(Reduce(a, b), b) == a.
	Inverse func(a, b V) V
	// Filter, if not nil, says which keys are emitted.
	Filter func(K, V) bool
}

// Window is the state of a reducing window: panes of length gcd(window,
// slide), and with an inverse the totals of the last emitted window.
type Window[K comparable, V any] struct {
	spec   WindowSpec[K, V]
	pane   time.Duration
	kc     *codec.Codec[K]
	schema Schema
	vc     *codec.Codec[V]

	panes   []*pane[K, V] // ascending by end
	totals  *Map[K, total[V]]
	last    emission // the last one
	version base.BatchTime

	// the running batch
	running  base.BatchTime
	current  *pane[K, V] // nil if no window holds the batch
	fresh    bool        // the current pane was made in this batch
	before   int         // records of the current pane at Begin
	undo     []paneUndo[V]
	added    []byte        // encoded contribution
	count    int           // of its records
	dropped  []*pane[K, V] // by this batch's emission
	included []*pane[K, V] // likewise
	lastWas  emission      // at Begin
}

// emission is an emitted window: its end, and the time at or before which
// panes are no part of it.
type emission struct{ at, cut base.BatchTime }

// later returns the later of two emissions; the zero one is none.
func (e emission) later(o emission) emission {
	if o.at > e.at {
		return o
	}
	return e
}

// pane holds what the batches in (end-length, end] reduce to.
type pane[K comparable, V any] struct {
	end base.BatchTime
	tb  *Table[K, V]
	in  bool // it is part of the totals
}

// total is a key's reduced value over the window, and the panes it is in.
type total[V any] struct {
	Value V
	Refs  int
}

type paneUndo[V any] struct {
	rec int
	val V
	enc []byte
}

// NewWindow returns an empty window.
func NewWindow[K comparable, V any](kc *codec.Codec[K], vc *codec.Codec[V], spec WindowSpec[K, V]) *Window[K, V] {
	w := &Window[K, V]{spec: spec, pane: gcd(spec.Window, spec.Slide), kc: kc, vc: vc}
	w.schema = spec.files(kc, vc)
	if spec.Inverse != nil {
		w.totals = NewMap(kc, totalCodec(vc), false)
	}
	return w
}

func gcd(a, b time.Duration) time.Duration {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func totalCodec[V any](vc *codec.Codec[V]) *codec.Codec[total[V]] {
	return &codec.Codec[total[V]]{
		ID: "total(" + vc.ID + ")",
		Append: func(dst []byte, t total[V]) ([]byte, error) {
			return vc.Append(binary.AppendUvarint(dst, uint64(t.Refs)), t.Value)
		},
		Read: func(src []byte) (t total[V], n int, err error) {
			refs, n := binary.Uvarint(src)
			if n <= 0 {
				return t, 0, fmt.Errorf("%w: bad total", base.ErrCorrupt)
			}
			v, m, err := vc.Read(src[n:])
			return total[V]{v, int(refs)}, n + m, err
		},
		Clone:     func(t total[V]) total[V] { return total[V]{vc.Clone(t.Value), t.Refs} },
		Plain:     vc.Plain,
		Immutable: vc.Immutable,
	}
}

// Version implements [Part].
func (w *Window[K, V]) Version() base.BatchTime { return w.version }

// Running implements [Part].
func (w *Window[K, V]) Running() base.BatchTime { return w.running }

// Len implements [Part]: the keys of the totals, or of the panes.
func (w *Window[K, V]) Len() int {
	if w.totals != nil {
		return w.totals.Len()
	}
	n := 0
	for _, p := range w.panes {
		n += len(p.tb.Recs)
	}
	return n
}

// Begin implements [Part].
func (w *Window[K, V]) Begin(t base.BatchTime) {
	w.Rollback()
	w.running, w.lastWas = t, w.last
	if w.totals != nil {
		w.totals.Begin(t)
	}
	if t <= t.CeilBoundary(w.spec.Slide).Add(-w.spec.Window) {
		return // the slide is longer than the window, and t is in the gap
	}
	w.current, w.fresh = w.paneOf(t.CeilBoundary(w.pane))
	w.before = len(w.current.tb.Recs)
}

// paneOf returns the pane with the given end, which is the last one or new.
func (w *Window[K, V]) paneOf(end base.BatchTime) (p *pane[K, V], fresh bool) {
	want := 0
	if n := len(w.panes); n > 0 {
		last := w.panes[n-1]
		if last.end >= end {
			return last, false
		}
		want = len(last.tb.Recs) // a guess
	}
	p = &pane[K, V]{end: end, tb: NewTable[K, V](want)}
	w.panes = append(w.panes, p)
	return p, true
}

// Add folds one pair of the running batch into the current pane. Of a batch
// every key comes at most once. After an error the batch must be rolled back.
func (w *Window[K, V]) Add(k K, v V) error {
	if k != k { //nolint:staticcheck // true for keys that hold a NaN
		return errors.New(errNaN)
	}
	if w.current == nil {
		return nil
	}
	var err error
	if w.added, err = w.kc.Append(w.added, k); err != nil {
		return err
	}
	if w.added, err = w.vc.Append(w.added, v); err != nil {
		return err
	}
	w.count++
	i, slot := w.current.tb.Find(k)
	if i >= 0 && i < w.before {
		u := paneUndo[V]{rec: i, val: w.current.tb.Recs[i].Value}
		if !w.vc.Immutable {
			if u.enc, err = w.vc.Append(nil, u.val); err != nil {
				return err
			}
		}
		w.undo = append(w.undo, u)
	}
	w.fold(w.current.tb, i, slot, k, v)
	return nil
}

// fold reduces a pair into a pane, where Find said. What is kept is cloned
// (Invariant 15).
func (w *Window[K, V]) fold(tb *Table[K, V], i int, slot uint64, k K, v V) {
	v = w.vc.Clone(v)
	if i < 0 {
		tb.Add(slot, w.kc.Clone(k), v)
		return
	}
	r := &tb.Recs[i]
	r.Value = w.spec.Reduce(r.Value, v)
}

// Emits reports whether the window emits at t.
func (w *Window[K, V]) Emits(t base.BatchTime) bool { return t.IsMultipleOf(w.spec.Slide) }

// Emit hands out the window that ends with the running batch, until yield
// returns false. Call it once, if it emits, after all Adds.
func (w *Window[K, V]) Emit(yield func(K, V) bool) {
	w.last = emission{w.running, w.running.Add(-w.spec.Window)}
	n := 0
	for n < len(w.panes) && w.panes[n].end <= w.last.cut {
		n++
	}
	w.dropped, w.panes = w.panes[:n:n], w.panes[n:]
	if w.totals == nil {
		w.emitPanes(yield)
		return
	}
	for _, p := range w.dropped {
		if p.in { // else it never was: no batch had the time of its window's end
			w.takeOut(p)
		}
	}
	for _, p := range w.panes {
		if !p.in {
			p.in = true
			w.included = append(w.included, p)
			w.takeIn(p)
		}
	}
	w.totals.Each(func(rec int) bool {
		k, v := w.totals.Key(rec), w.totals.Peek(rec).Value
		return !w.passes(k, v) || yield(k, v)
	})
}

func (w *Window[K, V]) passes(k K, v V) bool { return w.spec.Filter == nil || w.spec.Filter(k, v) }

// takeOut takes a pane out of the totals.
func (w *Window[K, V]) takeOut(p *pane[K, V]) {
	for r := range warmed(w.totals, p.tb) {
		i, ok := w.totals.Find(r.Key)
		if !ok {
			continue
		}
		c := w.totals.Open(i)
		if c.Refs--; c.Refs == 0 && w.spec.Filter != nil {
			w.totals.Remove(i) // without a filter keys stay for ever, as in Spark 4.2
			continue
		}
		c.Value = w.spec.Inverse(c.Value, w.vc.Clone(r.Value))
		w.totals.replace(i, c)
	}
}

// takeIn adds a pane to the totals.
func (w *Window[K, V]) takeIn(p *pane[K, V]) {
	for r := range warmed(w.totals, p.tb) {
		i, ok := w.totals.Find(r.Key)
		if !ok {
			w.totals.Insert(r.Key, total[V]{r.Value, 1})
			continue
		}
		c := w.totals.Open(i)
		c.Value, c.Refs = w.spec.Reduce(c.Value, w.vc.Clone(r.Value)), c.Refs+1
		w.totals.replace(i, c)
	}
}

func (w *Window[K, V]) emitPanes(yield func(K, V) bool) {
	sum := NewTable[K, V](0)
	if len(w.panes) == 1 {
		sum = w.panes[0].tb
	} else {
		for _, p := range w.panes {
			for _, r := range p.tb.Recs {
				if i, slot := sum.Find(r.Key); i < 0 {
					sum.Add(slot, r.Key, w.vc.Clone(r.Value))
				} else {
					sum.Recs[i].Value = w.spec.Reduce(sum.Recs[i].Value, w.vc.Clone(r.Value))
				}
			}
		}
	}
	for _, r := range sum.Recs {
		if w.passes(r.Key, r.Value) && !yield(r.Key, r.Value) {
			return
		}
	}
}

// Commit implements [Part].
func (w *Window[K, V]) Commit() {
	if w.running == 0 {
		return
	}
	w.version = w.running
	if w.totals != nil {
		w.totals.Commit()
	}
	w.end()
	w.drop()
}

// drop forgets panes that no later window holds and that no totals hold.
func (w *Window[K, V]) drop() {
	cut := (w.version + 1).CeilBoundary(w.spec.Slide).Add(-w.spec.Window)
	w.panes = slices.DeleteFunc(w.panes, func(p *pane[K, V]) bool { return !p.in && p.end <= cut })
}

// Rollback implements [Part].
func (w *Window[K, V]) Rollback() {
	if w.running == 0 {
		return
	}
	if len(w.dropped) > 0 {
		w.panes = slices.Concat(w.dropped, w.panes)
	}
	for _, p := range w.included {
		p.in = false
	}
	if w.fresh {
		w.panes = w.panes[:len(w.panes)-1]
	} else if w.current != nil {
		w.restoreCurrent()
	}
	w.last = w.lastWas
	if w.totals != nil {
		w.totals.Rollback()
	}
	w.end()
}

func (w *Window[K, V]) restoreCurrent() {
	tb := w.current.tb
	for _, u := range slices.Backward(w.undo) {
		v := u.val
		if u.enc != nil {
			var err error
			if v, _, err = w.vc.Read(u.enc); err != nil {
				panic(err.Error()) // it was encoded by the same codec
			}
		}
		tb.Recs[u.rec].Value = v
	}
	for i := w.before; i < len(tb.Recs); i++ {
		tb.Unlink(i)
	}
	clear(tb.Recs[w.before:])
	tb.Recs = tb.Recs[:w.before]
}

func (w *Window[K, V]) end() {
	w.running, w.current, w.fresh, w.before = 0, nil, false, 0
	w.added, w.count = emptied(w.added), 0
	w.undo, w.dropped, w.included = nil, nil, nil
}

// Delta implements [Part]. It is never full: windows have no migrations.
func (w *Window[K, V]) Delta() (data []byte, full bool, err error) {
	var parts []contribution
	if w.count > 0 {
		parts = []contribution{{w.current.end, w.count, w.added}}
	}
	var totals []byte
	if w.totals != nil {
		if totals, _, err = w.totals.Delta(); err != nil {
			return nil, false, err
		}
	}
	return windowFile(delta, w.schema, w.running, w.last, parts, totals), false, nil
}

// Snapshot implements [Part].
func (w *Window[K, V]) Snapshot() ([]byte, error) {
	var parts []contribution
	for _, p := range w.panes {
		c := contribution{end: p.end, count: len(p.tb.Recs)}
		var err error
		for _, r := range p.tb.Recs {
			if c.data, err = w.kc.Append(c.data, r.Key); err != nil {
				return nil, err
			}
			if c.data, err = w.vc.Append(c.data, r.Value); err != nil {
				return nil, err
			}
		}
		if c.count > 0 {
			parts = append(parts, c)
		}
	}
	var totals []byte
	if w.totals != nil {
		var err error
		if totals, err = w.totals.Snapshot(); err != nil {
			return nil, err
		}
	}
	return windowFile(snapshot, w.schema, w.version, w.last, parts, totals), nil
}

// Restore implements [Part].
func (w *Window[K, V]) Restore(files [][]byte) error {
	parts, err := w.load(files, nil)
	if err != nil {
		return err
	}
	return w.loaded(parts, nil, false)
}

// Gather is that of [Keyed].
func (w *Window[K, V]) Gather(partitions [][][]byte, here func(K) bool) error {
	var all []contribution
	for _, files := range partitions {
		parts, err := w.load(files, here)
		if err != nil {
			return err
		}
		all = append(all, parts...)
	}
	// Of one pane those of an older partition come first, so that equal files
	// always give the same order of keys.
	slices.SortStableFunc(all, func(a, b contribution) int { return cmp.Compare(a.end, b.end) })
	return w.loaded(all, here, true)
}

// load takes in the files of one partition, and returns what its batches
// contributed.
func (w *Window[K, V]) load(files [][]byte, here func(K) bool) (parts []contribution, err error) {
	var o order
	for _, f := range files {
		p, err := openWindowFile(f)
		if err != nil {
			return nil, err
		}
		if err := o.next(f); err != nil {
			return nil, err
		}
		if p.schema != w.schema {
			return nil, &SchemaError{File: p.schema, Program: w.schema}
		}
		if (p.totals != nil) != (w.totals != nil) {
			return nil, fmt.Errorf("window file: totals: %t, this window has them: %t", p.totals != nil, w.totals != nil)
		}
		if w.totals != nil {
			if err := w.totals.Load(p.totals, here); err != nil {
				return nil, err
			}
		}
		parts = append(parts, p.parts...)
		w.last, w.version = w.last.later(p.last), max(w.version, p.t)
	}
	return parts, nil
}

// loaded is called when all files were loaded.
func (w *Window[K, V]) loaded(parts []contribution, here func(K) bool, renumber bool) error {
	if w.totals != nil {
		if err := w.totals.Loaded(renumber); err != nil {
			return err
		}
	}
	for _, c := range held(parts, w.last) {
		p, _ := w.paneOf(c.end)
		if p.end != c.end {
			return fmt.Errorf("window file: %w: pane %s comes after %s", base.ErrCorrupt, c.end, p.end)
		}
		p.in = w.totals != nil && p.end <= w.last.at
		if err := w.refold(p, c, here); err != nil {
			return err
		}
	}
	w.drop()
	return nil
}

// refold folds what a batch contributed once more, of the keys that belong here.
func (w *Window[K, V]) refold(p *pane[K, V], c contribution, here func(K) bool) error {
	b := c.data
	for range c.count {
		k, n, err := w.kc.Read(b)
		if err != nil {
			return err
		}
		v, m, err := w.vc.Read(b[n:])
		if err != nil {
			return err
		}
		if k != k { //nolint:staticcheck // true for keys that hold a NaN
			return fmt.Errorf("window file: %w: %s", base.ErrCorrupt, errNaN)
		}
		if here == nil || here(k) {
			i, slot := p.tb.Find(k)
			w.fold(p.tb, i, slot, k, v)
		}
		b = b[n+m:]
	}
	if len(b) > 0 {
		return fmt.Errorf("window file: %w: %d bytes after the last of %d pairs", base.ErrCorrupt, len(b), c.count)
	}
	return nil
}
