package state_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/state"
)

// deltaOf commits the running batch and lists what its delta holds.
func deltaOf[K comparable, S any](m state.Keyed[K, S]) []state.Entry {
	b := nextDelta(m)
	m.Commit()
	_, entries, err := state.Entries(b)
	if err != nil {
		panic(err)
	}
	return entries
}

func seqs(entries []state.Entry) (live, dead []uint64) {
	for _, e := range entries {
		if e.Dead {
			dead = append(dead, e.Seq)
		} else {
			live = append(live, e.Seq)
		}
	}
	return live, dead
}

// TestDeltaHoldsWhatChangedOnly: a value or, if the map is timed, the time of
// its last update; and removals.
func TestDeltaHoldsWhatChangedOnly(t *testing.T) {
	ints, strs, wordss, lists := newKeyed[string, int64], newKeyed[string, string], newKeyed[string, words], newKeyed[string, []string]
	testDelta(t, "int64", ints, 1, 2)
	testDelta(t, "string", strs, "a", "b")
	testDelta(t, "words", wordss, words{"a", ""}, words{"", "a"})
	testDelta(t, "slice", lists, []string{"a"}, []string{"b"})
}

func testDelta[S any](t *testing.T, name string, fresh func(bool) state.Keyed[string, S], one, two S) {
	for _, timed := range []bool{false, true} {
		t.Run(fmt.Sprintf("%s, timed %t", name, timed), func(t *testing.T) {
			m := fresh(timed)
			m.Begin(1)
			for i := range 10 {
				m.Insert(fmt.Sprint(i), one)
			}
			m.Remove(m.Insert("came and went", one))
			if live, dead := seqs(deltaOf(m)); !slices.Equal(live, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) || dead != nil {
				t.Errorf("first batch: live %d, dead %d", live, dead)
			}
			m.Begin(2)
			m.Open(1)
			m.Set(2, two)
			m.Set(3, one)
			m.Set(4, two)
			m.Set(4, one)
			m.Open(5)
			m.Set(5, one)
			m.Remove(6)
			m.Remove(7)
			m.Insert("7", one)
			m.Refresh(8)
			live, dead := seqs(deltaOf(m))
			want := []uint64{3, 12}
			if timed {
				want = []uint64{3, 4, 5, 6, 9, 12}
			}
			if !slices.Equal(live, want) || !slices.Equal(dead, []uint64{7, 8}) {
				t.Errorf("second batch: live %d, dead %d, want live %d, dead [7 8]", live, dead, want)
			}
			m.Begin(3)
			if got := deltaOf(m); got != nil {
				t.Errorf("empty batch: %v", got)
			}
		})
	}
}

// TestKeysThatHoldNaNAreRefused: they could not be found, changed or removed
// again (bug B39).
func TestKeysThatHoldNaNAreRefused(t *testing.T) {
	type point struct{ X, Y float64 }
	m := newKeyed[float64, int64](false)
	m.Begin(1)
	for _, nan := range []float64{math.NaN(), math.Float64frombits(0x7ff8000000000abc)} {
		if msg := panicOf(func() { m.Insert(nan, 1) }); !strings.Contains(msg, "NaN") {
			t.Errorf("Insert panics with %q", msg)
		}
	}
	p := newKeyed[point, int64](false)
	p.Begin(1)
	if msg := panicOf(func() { p.Insert(point{0, math.NaN()}, 1) }); !strings.Contains(msg, "NaN") {
		t.Errorf("Insert panics with %q", msg)
	}
	if m.Len() != 0 || p.Len() != 0 {
		t.Errorf("%d and %d keys, want none", m.Len(), p.Len())
	}
	w := state.NewWindow(codec.For[float64](), codec.For[int64](), state.WindowSpec[float64, int64]{
		Window: 2 * time.Second, Slide: 4 * time.Second, Reduce: func(a, b int64) int64 { return a + b },
	})
	for at := second; at < 5*second; at += second { // also in gaps between windows
		w.Begin(at)
		if err := w.Add(math.NaN(), 1); err == nil || !strings.Contains(err.Error(), "NaN") {
			t.Errorf("Add(NaN) at %s = %v", at, err)
		}
		w.Rollback()
	}
}

// TestMinusZeroIsZero (bug B39).
func TestMinusZeroIsZero(t *testing.T) {
	minus := math.Copysign(0, -1)
	m := newKeyed[float64, int64](false)
	type point struct{ X float64 }
	p := newKeyed[point, int64](false)
	m.Begin(1)
	p.Begin(1)
	m.Insert(minus, 1)
	p.Insert(point{minus}, 1)
	if i, ok := m.Find(0); !ok || i != 0 {
		t.Errorf("Find(0) = %d, %t", i, ok)
	}
	if i, ok := p.Find(point{0}); !ok || i != 0 {
		t.Errorf("Find({0}) = %d, %t", i, ok)
	}
	files := [][]byte{nextDelta(m)}
	m.Commit()
	m.Begin(2)
	m.Remove(0)
	m.Insert(0, 2)
	files = append(files, nextDelta(m))
	again := newKeyed[float64, int64](false)
	if err := again.Restore(files); err != nil {
		t.Fatal(err)
	}
	if i, ok := again.Find(minus); !ok || again.Peek(i) != 2 || again.Len() != 1 {
		t.Errorf("restored: Find(-0) = %d, %t, %d keys", i, ok, again.Len())
	}
}

func TestEmptyAndNilKeysDoNotMerge(t *testing.T) {
	m := newKeyed[[2]string, int64](false)
	m.Begin(1)
	m.Insert([2]string{"", "a"}, 1)
	m.Insert([2]string{"a", ""}, 2)
	var nilKey *int
	p := newKeyed[any, int64](false)
	p.Begin(1)
	p.Insert(nilKey, 1)
	p.Insert("", 2)
	if m.Len() != 2 || p.Len() != 2 {
		t.Errorf("%d and %d keys, want 2 and 2", m.Len(), p.Len())
	}
}

func TestInsertOfAKeyThatIsThereIsABug(t *testing.T) {
	m := newKeyed[string, int64](false)
	m.Begin(1)
	m.Insert("a", 1)
	if msg := panicOf(func() { m.Insert("a", 2) }); !strings.Contains(msg, "key a has an entry") {
		t.Errorf("panics with %q", msg)
	}
}

func TestEachVisitsWhatIsAddedAndStops(t *testing.T) {
	m := newKeyed[string, int64](false)
	m.Begin(1)
	m.Insert("a", 1)
	var got []string
	visit := func(rec int) bool {
		got = append(got, m.Key(rec))
		if len(m.Key(rec)) < 3 {
			m.Insert(m.Key(rec)+"a", 1)
		}
		return true
	}
	if m.Each(visit); !slices.Equal(got, []string{"a", "aa", "aaa"}) {
		t.Errorf("visited %q", got)
	}
	n := 0
	if m.Each(func(int) bool { n++; return n < 2 }); n != 2 {
		t.Errorf("%d visits, want 2", n)
	}
}

// TestNothingKeptPinsItsBuffer: a short key or value that is a view of a large
// block doesn't keep the block in memory (Invariant 15).
func TestNothingKeptPinsItsBuffer(t *testing.T) {
	const size = 1 << 20
	m := newKeyed[string, string](false)
	s := newKeyed[string, []string](true)
	w := state.NewWindow(codec.For[string](), codec.For[string](), state.WindowSpec[string, string]{
		Window: time.Second, Slide: time.Second,
		Reduce:  func(_, b string) string { return b },
		Inverse: func(a, _ string) string { return a },
	})
	freed := make(chan struct{}, 100)
	blocks := 0
	block := func() string {
		b := make([]byte, size)
		blocks++
		runtime.AddCleanup(&b[0], func(int) { freed <- struct{}{} }, 0)
		return unsafe.String(&b[0], 8)
	}
	files := func(p state.Part) (padded [][]byte) { // whose memory has a finalizer
		b := make([]byte, 0, size)
		blocks++
		runtime.AddCleanup(unsafe.SliceData(b[:1]), func(int) { freed <- struct{}{} }, 0)
		return [][]byte{append(b, must(p.Snapshot())...)}
	}
	m.Begin(second)
	s.Begin(second)
	w.Begin(second)
	rec := m.Insert(block(), block())
	m.Set(rec, block())
	rec = s.Insert(block(), []string{block()})
	s.Set(rec, append(s.Open(rec), block()))
	for range 2 {
		if err := w.Add(block(), block()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Add("\x00\x00\x00\x00\x00\x00\x00\x00", block()); err != nil {
		t.Fatal(err)
	}
	w.Emit(func(string, string) bool { return true })
	m.Commit()
	s.Commit()
	w.Commit()
	m2, s2 := newKeyed[string, string](false), newKeyed[string, []string](true)
	w2 := state.NewWindow(codec.For[string](), codec.For[string](), state.WindowSpec[string, string]{
		Window: time.Second, Slide: time.Second,
		Reduce:  func(_, b string) string { return b },
		Inverse: func(a, _ string) string { return a },
	})
	for _, p := range [][2]state.Part{{m, m2}, {s, s2}, {w, w2}} {
		if err := p[1].Restore(files(p[0])); err != nil {
			t.Fatal(err)
		}
		if p[1].Len() != p[0].Len() {
			t.Fatalf("restored %d keys of %d", p[1].Len(), p[0].Len())
		}
	}
	deadline := time.After(10 * time.Second)
	for n := range blocks {
		runtime.GC()
		select {
		case <-freed:
		case <-deadline:
			t.Fatalf("%d of %d blocks are free", n, blocks)
		}
	}
	for _, p := range []state.Part{m, s, w, m2, s2, w2} {
		runtime.KeepAlive(p)
	}
}

// TestOneLargeBatchIsNotKept: the undo of a batch that touched everything is
// given back.
func TestOneLargeBatchIsNotKept(t *testing.T) {
	const keys = 20_000
	m := newKeyed[int, []string](false)
	m.Begin(1)
	for i := range keys {
		m.Insert(i, []string{"some", "words"})
	}
	m.Commit()
	before := heap()
	m.Begin(2)
	for i := range keys {
		m.Open(i)
	}
	grown := heap()
	m.Commit()
	m.Begin(3)
	m.Open(0)
	m.Commit()
	if after := heap(); after > before+100<<10 || grown < before+1<<20 {
		t.Errorf("heap %d bytes before, %d in, %d after a large batch", before, grown, after)
	}
	runtime.KeepAlive(m)
}

// TestVersionsOfAnEmptyPart: files of no batch are good.
func TestVersionsOfAnEmptyPart(t *testing.T) {
	m := newKeyed[string, int64](true)
	snap := must(m.Snapshot())
	m.Begin(5)
	files := [][]byte{snap, nextDelta(m)}
	m.Commit()
	m.Commit() // nothing runs
	m.Rollback()
	again := newKeyed[string, int64](true)
	if err := again.Restore([][]byte{must(state.MergeFiles(files))}); err != nil {
		t.Fatal(err)
	}
	if m.Version() != 5 || again.Version() != 5 || m.Len() != 0 {
		t.Errorf("versions %d and %d, want 5", m.Version(), again.Version())
	}
	if _, err := state.MergeFiles(nil); err == nil {
		t.Error("no files were merged: into what schema?")
	}
}

// TestARunAgainGivesTheSameDelta, to the byte (Invariant 6).
func TestARunAgainGivesTheSameDelta(t *testing.T) {
	m, w := newKeyed[string, []string](true), sumWindow(true)
	for now := second; now <= 4*second; now += second {
		run := func(keys int64) [2]string {
			m.Begin(now)
			w.Begin(now)
			for i := range keys {
				k := fmt.Sprint(int64(now/second) + i)
				if rec, ok := m.Find(k); ok {
					m.Set(rec, append(m.Open(rec), k))
				} else {
					m.Insert(k, nil)
				}
				if err := w.Add(k, i); err != nil {
					t.Fatal(err)
				}
			}
			if w.Emits(now) {
				w.Emit(func(string, int64) bool { return true })
			}
			return [2]string{string(nextDelta(m)), string(nextDelta(w))}
		}
		first := run(3)
		run(5)
		if again := run(3); again != first {
			t.Errorf("at %s: %x, again %x", now, first, again)
		}
		m.Commit()
		w.Commit()
	}
}
