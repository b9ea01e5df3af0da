package state_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/state"
)

// reducer is a reduce function and what tests must know of it. Functions
// change their first argument in place if they can.
type reducer[V any] struct {
	kind    kind[V]
	reduce  func(a, b V) V
	inverse func(a, b V) V
	keep    func(k string, v V) bool // a filter
}

func sums(k kind[int64]) reducer[int64] {
	return reducer[int64]{
		k, func(a, b int64) int64 { return a + b }, func(a, b int64) int64 { return a - b },
		func(_ string, v int64) bool { return v != 0 },
	}
}

// bags adds and subtracts counts, and drops those that are zero.
func bags(k kind[map[string]int]) reducer[map[string]int] {
	add := func(sign int) func(a, b map[string]int) map[string]int {
		return func(a, b map[string]int) map[string]int {
			if len(a) == 0 && sign > 0 {
				return b // which is then changed in place
			}
			for w, n := range b {
				if a[w] += sign * n; a[w] == 0 {
					delete(a, w)
				}
			}
			return a
		}
	}
	draw := k.draw
	k.draw = func(t *rapid.T) map[string]int { // zeros equal absence
		v := draw(t)
		maps.DeleteFunc(v, func(_ string, n int) bool { return n == 0 })
		return v
	}
	return reducer[map[string]int]{k, add(1), add(-1), func(_ string, v map[string]int) bool { return len(v) > 0 }}
}

// lists are appended, so a wrong order shows. A spare place at the end makes
// append write to memory that may be shared.
func lists(k kind[[]string]) reducer[[]string] {
	return reducer[[]string]{
		k, func(a, b []string) []string { return append(slices.Grow(a, 1), b...) }, nil,
		func(_ string, v []string) bool { return len(v) != 1 },
	}
}

// longer keeps the longer string, which may be the second argument itself.
func longer(k kind[string]) reducer[string] {
	return reducer[string]{k, func(a, b string) string {
		if len(b) > len(a) {
			return b
		}
		return a
	}, nil, func(_ string, v string) bool { return v != "" }}
}

// windowModel is a window and all records that ever came.
type windowModel[V any] struct {
	red    reducer[V]
	spec   state.WindowSpec[string, V]
	w      *state.Window[string, V]
	files  [][]byte
	now    base.BatchTime
	past   []windowRecord[V]
	totals []string       // the keys that an inverse window has, in order
	last   base.BatchTime // of the last emission
}

type windowRecord[V any] struct {
	at  base.BatchTime
	key string
	val V
}

func (x *windowModel[V]) fresh() *state.Window[string, V] {
	return state.NewWindow(codec.For[string](), codec.For[V](), x.spec)
}

// reduced is the window (from, to] over raw records.
func (x *windowModel[V]) reduced(from, to base.BatchTime) (keys []string, vals map[string]V) {
	vals = map[string]V{}
	for _, r := range x.past {
		if r.at <= from || r.at > to {
			continue
		}
		v := codec.For[V]().Clone(r.val)
		if old, ok := vals[r.key]; ok {
			v = x.spec.Reduce(old, v)
		} else {
			keys = append(keys, r.key)
		}
		vals[r.key] = v
	}
	return keys, vals
}

type emitted[V any] struct {
	Key string
	Val V
}

// emission is what the oracle emits at t; it keeps the order of totals.
func (x *windowModel[V]) emission(t base.BatchTime) (out []emitted[V]) {
	from := t.Add(-x.spec.Window)
	keys, vals := x.reduced(from, t)
	if x.spec.Inverse != nil {
		if still, _ := x.reduced(from, x.last); x.spec.Filter != nil {
			x.totals = slices.DeleteFunc(x.totals, func(k string) bool { return !slices.Contains(still, k) })
		}
		later, _ := x.reduced(max(x.last, from), t)
		for _, k := range later {
			if !slices.Contains(x.totals, k) {
				x.totals = append(x.totals, k)
			}
		}
		keys = x.totals
	}
	x.last = t
	for _, k := range keys {
		v, ok := vals[k]
		if !ok { // what the inverse leaves: a value less itself
			_, all := x.reduced(0, t)
			v = x.spec.Inverse(all[k], codec.For[V]().Clone(all[k]))
		}
		if x.spec.Filter == nil || x.spec.Filter(k, v) {
			out = append(out, emitted[V]{k, v})
		}
	}
	return out
}

// batch runs one batch at the next time, or at one of the times after it up to
// the next slide boundary, which always has one.
func (x *windowModel[V]) batch(t *rapid.T) {
	boundary := (x.now + 1).CeilBoundary(x.spec.Slide)
	x.now = min(boundary, x.now+second*base.BatchTime(rapid.IntRange(1, 3).Draw(t, "pause")))
	was := *x
	for attempt := rapid.IntRange(1, 2).Draw(t, "attempts"); attempt > 0; attempt-- {
		x.past, x.totals, x.last = was.past[:len(was.past):len(was.past)], slices.Clone(was.totals), was.last
		x.w.Begin(x.now)
		x.add(t)
		if attempt > 1 && rapid.Bool().Draw(t, "attempt ends before it emits") {
			continue
		}
		if emits := x.w.Emits(x.now); emits != (x.now == boundary) {
			t.Fatalf("Emits(%s) = %t", x.now, emits)
		} else if emits {
			x.emit(t)
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "outcome") == 0 { // this time is lost
		x.w.Rollback()
		x.past, x.totals, x.last = was.past, was.totals, was.last
		return
	}
	delta := nextDelta(x.w)
	x.w.Commit()
	x.files = append(x.files, delta)
	if x.w.Version() != x.now || x.w.Running() != 0 {
		t.Fatalf("version %s, running %s, want %s", x.w.Version(), x.w.Running(), x.now)
	}
}

func (x *windowModel[V]) add(t *rapid.T) {
	var buf buffer
	keys := rapid.SliceOfNDistinct(rapid.SampledFrom(modelKeys[:6]), 0, 4, rapid.ID).Draw(t, "keys")
	for _, k := range keys {
		v := x.red.kind.draw(t)
		lent, overwrite := lend(&buf, v)
		if err := x.w.Add(buf.string(k), lent); err != nil {
			t.Fatal(err)
		}
		overwrite()
		buf.overwrite()
		x.past = append(x.past, windowRecord[V]{x.now, k, v})
	}
}

func (x *windowModel[V]) emit(t *rapid.T) {
	var got []emitted[V]
	x.w.Emit(func(k string, v V) bool {
		got = append(got, emitted[V]{k, codec.For[V]().Clone(v)})
		return true
	})
	want := x.emission(x.now)
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("window %s slide %s: at %s\n%v, want\n%v", x.spec.Window, x.spec.Slide, x.now, got, want)
	}
	if x.spec.Inverse == nil || x.spec.Filter == nil {
		return
	}
	// The window with a filter is the one without inverse and with that filter.
	_, vals := x.reduced(x.now.Add(-x.spec.Window), x.now)
	maps.DeleteFunc(vals, func(k string, v V) bool { return !x.spec.Filter(k, v) })
	for _, e := range got {
		if v, ok := vals[e.Key]; !ok || !reflect.DeepEqual(v, e.Val) {
			t.Fatalf("%q: %v, without inverse %v", e.Key, e.Val, v)
		}
		delete(vals, e.Key)
	}
	if len(vals) > 0 {
		t.Fatalf("not emitted: %v", vals)
	}
}

// TestWindowEqualsReducedRawRecords runs random batches through random windows
// with lost batches, re-runs, snapshots, restores and merges of files.
func TestWindowEqualsReducedRawRecords(t *testing.T) {
	ints, strings, _, slices, tables, _ := kinds()
	testWindow(t, "sum", sums(ints))
	testWindow(t, "bag", bags(tables))
	testWindow(t, "list", lists(slices))
	testWindow(t, "longer", longer(strings))
}

func testWindow[V any](t *testing.T, name string, red reducer[V]) {
	for _, inverse := range []bool{false, true} {
		if inverse && red.inverse == nil {
			continue
		}
		t.Run(fmt.Sprintf("%s, inverse %t", name, inverse), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { runWindow(t, red, inverse) })
		})
	}
}

func runWindow[V any](t *rapid.T, red reducer[V], inverse bool) {
	length := func(name string) time.Duration {
		return time.Duration(rapid.IntRange(1, 6).Draw(t, name)) * time.Second
	}
	x := &windowModel[V]{red: red, now: 1000 * second}
	x.spec = state.WindowSpec[string, V]{Window: length("window"), Slide: length("slide"), Reduce: red.reduce}
	if inverse {
		x.spec.Inverse = red.inverse
	}
	if rapid.Bool().Draw(t, "filter") {
		x.spec.Filter = red.keep
	}
	x.w = x.fresh()
	pane := time.Second // the longest of which both are multiples
	for d := pane; d <= min(x.spec.Window, x.spec.Slide); d += time.Second {
		if x.spec.Window%d == 0 && x.spec.Slide%d == 0 {
			pane = d
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"batch":  x.batch,
		"batch2": x.batch,
		"batch3": x.batch,
		"snapshot": func(t *rapid.T) {
			x.files = [][]byte{must(x.w.Snapshot())}
		},
		"merge": func(t *rapid.T) {
			if n := rapid.IntRange(0, len(x.files)).Draw(t, "files"); n > 0 {
				x.files = append([][]byte{must(state.MergeFiles(x.files[:n]))}, x.files[n:]...)
			}
		},
		"restore": func(t *rapid.T) {
			was, keys := x.w.Version(), x.w.Len()
			x.w = x.fresh()
			if err := x.w.Restore(x.files); err != nil {
				t.Fatal(err)
			}
			if len(x.files) > 0 && (x.w.Version() != was || x.w.Len() != keys) {
				t.Fatalf("restored version %s with %d keys, want %s with %d", x.w.Version(), x.w.Len(), was, keys)
			}
		},
		"": func(t *rapid.T) {
			// What the next window holds, and what the totals hold.
			most := int(x.spec.Window / pane)
			if inverse {
				most *= 2
			}
			if x.w.Panes() > most {
				t.Fatalf("%d panes, want at most %d", x.w.Panes(), most)
			}
		},
	})
}

// TestWindowShorterThanSlideKeepsNothingBetween: panes that no window holds
// are not kept until the next emission.
func TestWindowShorterThanSlideKeepsNothingBetween(t *testing.T) {
	w := state.NewWindow(codec.For[string](), codec.For[int64](), state.WindowSpec[string, int64]{
		Window: 2 * time.Second, Slide: time.Hour, Reduce: func(a, b int64) int64 { return a + b },
	})
	for at := second; at <= 3600*second; at += second {
		w.Begin(at)
		if err := w.Add("k", 1); err != nil {
			t.Fatal(err)
		}
		if held := at > 3598*second; (w.Panes() > 0) != held {
			t.Fatalf("%d panes at %s", w.Panes(), at)
		}
		if w.Emits(at) {
			w.Emit(func(_ string, v int64) bool {
				if v != 2 {
					t.Errorf("emitted %d, want 2", v)
				}
				return true
			})
		}
		w.Commit()
	}
}

func TestEmitStopsWhenToldTo(t *testing.T) {
	sum := func(a, b int64) int64 { return a + b }
	for _, inverse := range []func(a, b int64) int64{nil, sum} {
		w := state.NewWindow(codec.For[string](), codec.For[int64](), state.WindowSpec[string, int64]{
			Window: time.Second, Slide: time.Second, Reduce: sum, Inverse: inverse,
		})
		w.Begin(second)
		for _, k := range []string{"a", "b", "c"} {
			if err := w.Add(k, 1); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		w.Emit(func(string, int64) bool { n++; return n < 2 })
		if n != 2 {
			t.Errorf("inverse %t: %d calls, want 2", inverse != nil, n)
		}
	}
}

// TestInverseMayReturnItsSecondArgument: what it is given is a copy, so a later
// change in place doesn't reach the pane that a rollback brings back.
func TestInverseMayReturnItsSecondArgument(t *testing.T) {
	w := state.NewWindow(codec.For[string](), codec.For[[]int64](), state.WindowSpec[string, []int64]{
		Window: 2 * time.Second, Slide: time.Second,
		Reduce: func(a, b []int64) []int64 { a[0] += b[0]; return a },
		Inverse: func(a, b []int64) []int64 {
			if a[0] -= b[0]; a[0] == b[0] {
				return b
			}
			return a
		},
	})
	for i, v := range []int64{5, 5, 1} {
		for range 2 {
			w.Begin(second * base.BatchTime(i+1))
			if err := w.Add("k", []int64{v}); err != nil {
				t.Fatal(err)
			}
			w.Emit(func(_ string, got []int64) bool {
				if want := []int64{5, 10, 6}[i]; got[0] != want {
					t.Errorf("batch %d: %d, want %d", i+1, got[0], want)
				}
				return true
			})
		}
		w.Commit()
	}
}
