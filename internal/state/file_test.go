package state_test

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/state"
)

var update = flag.Bool("update", false, "write the fixtures that are missing; those that exist are kept for ever")

func sumWindow(inverse bool) *state.Window[string, int64] {
	spec := state.WindowSpec[string, int64]{
		Window: 3 * time.Second, Slide: 2 * time.Second,
		Reduce: func(a, b int64) int64 { return a + b },
	}
	if inverse {
		spec.Inverse = func(a, b int64) int64 { return a - b }
	}
	return state.NewWindow(codec.For[string](), codec.For[int64](), spec)
}

// written runs three batches over keyed state and returns its files.
func written() (files map[string][]byte, m state.Keyed[string, []string]) {
	files, m = map[string][]byte{}, newKeyed[string, []string](true)
	m.Begin(1000)
	m.Insert("tide", []string{"a", ""})
	m.Insert("", nil)
	m.Insert("mill", []string{})
	files["1.delta"] = nextDelta(m)
	m.Commit()
	m.Begin(2000)
	m.Open(0)[1] = "b"
	m.Refresh(1)
	m.Remove(2)
	m.Insert("mill", []string{"again"})
	files["2.delta"] = nextDelta(m)
	m.Commit()
	files["2.snapshot"] = must(m.Snapshot())
	m.Begin(3000)
	m.Remove(0)
	files["3.delta"] = nextDelta(m)
	m.Commit()
	return files, m
}

// writtenWindow runs three batches over a window.
func writtenWindow(inverse bool) (files map[string][]byte, w *state.Window[string, int64]) {
	files, w = map[string][]byte{}, sumWindow(inverse)
	add := func(k string, v int64) {
		if err := w.Add(k, v); err != nil {
			panic(err)
		}
	}
	name := "window-"
	if inverse {
		name = "totals-"
	}
	w.Begin(1000)
	add("tide", 300)
	add("", -1)
	files[name+"1.delta"] = nextDelta(w)
	w.Commit()
	w.Begin(2000)
	add("tide", 2)
	w.Emit(func(string, int64) bool { return true })
	files[name+"2.delta"] = nextDelta(w)
	w.Commit()
	files[name+"2.snapshot"] = must(w.Snapshot())
	w.Begin(4000)
	add("mill", 7)
	w.Emit(func(string, int64) bool { return true })
	files[name+"4.delta"] = nextDelta(w)
	w.Commit()
	return files, w
}

func allWritten() map[string][]byte {
	all, _ := written()
	for _, inverse := range []bool{false, true} {
		more, _ := writtenWindow(inverse)
		for name, b := range more {
			all[name] = b
		}
	}
	return all
}

func fixture(t tb, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "v1", name))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return b
}

// TestFixturesOfV1 checks that files are still written as the first format
// version wrote them, and reads those (Invariant 12).
func TestFixturesOfV1(t *testing.T) {
	for name, now := range allWritten() {
		file := filepath.Join("testdata", "v1", name)
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) && *update {
			if err := os.WriteFile(file, now, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if old := fixture(t, name); !bytes.Equal(old, now) {
			t.Errorf("%s: written otherwise now: a change of the format needs a new version\nwas %x\nnow %x", file, old, now)
		}
	}
	_, want := written()
	for _, names := range [][]string{{"1.delta", "2.delta", "3.delta"}, {"2.snapshot", "3.delta"}} {
		var files [][]byte
		for _, n := range names {
			files = append(files, fixture(t, n))
		}
		m := newKeyed[string, []string](true)
		if err := m.Restore(files); err != nil {
			t.Fatal(err)
		}
		if got, want := must(m.Snapshot()), must(want.Snapshot()); !bytes.Equal(got, want) {
			t.Errorf("%s: restored as\n%x, want\n%x", names, got, want)
		}
		if got, want := must(state.MergeFiles(files)), must(want.Snapshot()); !bytes.Equal(got, want) {
			t.Errorf("%s: merged as\n%x, want\n%x", names, got, want)
		}
	}
	for _, inverse := range []bool{false, true} {
		_, want := writtenWindow(inverse)
		prefix := map[bool]string{false: "window-", true: "totals-"}[inverse]
		for _, names := range [][]string{{"1.delta", "2.delta", "4.delta"}, {"2.snapshot", "4.delta"}} {
			var files [][]byte
			for _, n := range names {
				files = append(files, fixture(t, prefix+n))
			}
			w := sumWindow(inverse)
			if err := w.Restore(files); err != nil {
				t.Fatal(err)
			}
			if got, want := must(w.Snapshot()), must(want.Snapshot()); !bytes.Equal(got, want) {
				t.Errorf("%s %s: restored as\n%x, want\n%x", prefix, names, got, want)
			}
		}
	}
}

// TestFileLayout spells out docs/formats.md.
func TestFileLayout(t *testing.T) {
	m := newKeyed[string, int64](true)
	m.Begin(300)
	m.Insert("tide", 64)
	m.Commit()
	m.Begin(301)
	m.Remove(0)
	m.Insert("a", -1)
	body := "\x06string" + "\x05int64" + "\x00" + "\x01\x01\x05\x04tide" + "\x02\x00\xda\x04\x02\x01a\x01\x01"
	want := "TMS\x01\x02" + "\x2d\x01\x00\x00\x00\x00\x00\x00" + "\x02\x00\x00\x00" + "\x1f\x00\x00\x00" + "????" + body
	got := nextDelta(m)
	if d := string(got[:21]) + "????" + string(got[25:]); d != want {
		t.Errorf("state file\n%x, want\n%x", d, want)
	}

	w := sumWindow(true)
	w.Begin(2000)
	if err := w.Add("a", -1); err != nil {
		t.Fatal(err)
	}
	w.Emit(func(string, int64) bool { return true })
	got = nextDelta(w)
	totals, err := state.TotalsOf(got)
	if err != nil {
		t.Fatal(err)
	}
	want = "TMW\x01\x02" + "\xd0\x07\x00\x00\x00\x00\x00\x00" + "\xd0\x07\x00\x00\x00\x00\x00\x00" + "\x18\xfc\xff\xff\xff\xff\xff\xff" + "????" +
		"\x06string" + "\x16int64 over 3s every 2s" + "\x00" + "\x01" + "\xa0\x1f\x01\x03" + "\x01a\x01" + "\x01" + string(totals)
	if d := string(got[:29]) + "????" + string(got[33:]); d != want {
		t.Errorf("window file\n%x, want\n%x", d, want)
	}
	if _, entries, err := state.Entries(totals); err != nil || !reflect.DeepEqual(entries, []state.Entry{{Seq: 1, At: 2000, Key: "\x01a", Val: "\x01\x01"}}) {
		t.Errorf("totals: %+v, %v", entries, err)
	}
}

// restores reads a file of either format, alone, into a part that wrote such.
func restores(name string, files ...[]byte) error {
	switch {
	case strings.HasPrefix(name, "window-"):
		return sumWindow(false).Restore(files)
	case strings.HasPrefix(name, "totals-"):
		return sumWindow(true).Restore(files)
	}
	return newKeyed[string, []string](true).Restore(files)
}

func TestEveryDamagedByteIsDetected(t *testing.T) {
	for name, good := range allWritten() {
		check := func(what string, at int, b []byte) {
			if restores(name, b) == nil {
				t.Errorf("%s: %s at %d: restored", name, what, at)
			}
			if _, err := state.MergeFiles([][]byte{b}); err == nil {
				t.Errorf("%s: %s at %d: merged", name, what, at)
			}
		}
		if err := restores(name, good); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range good {
			for _, flip := range []byte{1, 0x80, 0xff} {
				bad := bytes.Clone(good)
				bad[i] ^= flip
				check("flipped byte", i, bad)
			}
			check("cut", i, good[:i])
			if restores(name, good[len(good)-i:]) == nil {
				t.Errorf("%s: cut in front to %d: restored", name, i)
			}
		}
		check("zeros", len(good), append(bytes.Clone(good), 0))
	}
}

func TestNewerVersionIsRefusedWithBothNumbers(t *testing.T) {
	for name, good := range allWritten() {
		bad := bytes.Clone(good)
		bad[3] = 7
		state.Seal(bad)
		_, err := state.MergeFiles([][]byte{bad})
		for _, err := range []error{restores(name, bad), err} {
			if err == nil || !strings.Contains(err.Error(), "version 7") || !strings.Contains(err.Error(), "reads 1") || errors.Is(err, base.ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestWhatNoWriterWritesIsRefused, though its checksum holds.
func TestWhatNoWriterWritesIsRefused(t *testing.T) {
	one := state.Entry{Seq: 1, At: 5, Key: "\x01a", Val: "\x00"}
	with := func(change func(*state.Entry)) state.Entry { e := one; change(&e); return e }
	for name, b := range map[string][]byte{
		"kind 0":                    state.FileOf(5, 0, one),
		"kind 3":                    state.FileOf(5, 3, one),
		"number 0":                  state.FileOf(5, 2, with(func(e *state.Entry) { e.Seq = 0 })),
		"a number that none has":    state.FileOf(5, 2, with(func(e *state.Entry) { e.Seq = 1<<62 + 1 })),
		"the time of the removed":   state.FileOf(5, 2, with(func(e *state.Entry) { e.At = -1 << 63 })),
		"removed in a snapshot":     state.FileOf(5, 1, with(func(e *state.Entry) { e.Dead = true })),
		"twice in a snapshot":       state.FileOf(5, 1, one, one),
		"descending in a snapshot":  state.FileOf(5, 1, with(func(e *state.Entry) { e.Seq = 2 }), one),
		"two keys of one number":    state.FileOf(5, 2, one, with(func(e *state.Entry) { e.Key = "\x01b" })),
		"one key of two numbers":    state.FileOf(5, 2, one, with(func(e *state.Entry) { e.Seq = 2 })),
		"an empty key":              state.FileOf(5, 2, with(func(e *state.Entry) { e.Key = "" })),
		"more than a key":           state.FileOf(5, 2, with(func(e *state.Entry) { e.Key += "b" })),
		"more than a value":         state.FileOf(5, 2, with(func(e *state.Entry) { e.Val += "b" })),
		"half a value":              state.FileOf(5, 2, with(func(e *state.Entry) { e.Val = "\x04\x02a" })),
		"a flag that nobody knows":  sealed(state.FileOf(5, 2, one), func(b []byte) { b[26+17] = 2 }),
		"a count above the entries": sealed(state.FileOf(5, 2, one), func(b []byte) { b[13] = 2 }),
		"a huge count":              sealed(state.FileOf(5, 2, one), func(b []byte) { b[16] = 0xff }),
		"a count below the entries": sealed(state.FileOf(5, 2, one), func(b []byte) { b[13] = 0 }),
		"a huge key":                sealed(state.FileOf(5, 2, one), func(b []byte) { b[28+17] = 0x7f }),
	} {
		if err := restores("", b); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"a pair too few":       state.WindowFileOf(5000, 5000, 2, "\x01a\x02"),
		"a pair too many":      state.WindowFileOf(5000, 5000, 0, "\x01a\x02"),
		"half a key":           state.WindowFileOf(5000, 5000, 1, "\x02a"),
		"more pairs than fit":  state.WindowFileOf(5000, 5000, 1<<62, "\x01a\x02"),
		"a negative count":     state.WindowFileOf(5000, 5000, -1, "\x01a\x02"),
		"kind 3":               sealed(state.WindowFileOf(5000, 5000, 1, "\x01a\x02"), func(b []byte) { b[4] = 3 }),
		"totals that are none": sealed(state.WindowFileOf(5000, 5000, 1, "\x01a\x02"), func(b []byte) { b[len(b)-1] = 2 }),
		"a huge number":        sealed(state.WindowFileOf(5000, 5000, 1, "\x01a\x02"), func(b []byte) { b[33+31] = 0x7f }),
		"bytes at the end":     sealed(append(state.WindowFileOf(5000, 5000, 1, "\x01a\x02"), 0), func([]byte) {}),
	} {
		if err := restores("window-", b); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
	for name, b := range map[string][]byte{ // which a merge must see too
		"number 0":             state.FileOf(5, 2, with(func(e *state.Entry) { e.Seq = 0 })),
		"half a value":         sealed(cut(state.FileOf(5, 2, one), 1), func([]byte) {}),
		"more pairs than fit":  state.WindowFileOf(5000, 5000, 5, "\x01a\x02"),
		"totals that are none": sealed(state.WindowFileOf(5000, 5000, 1, "\x01a\x02"), func(b []byte) { b[len(b)-1] = 2 }),
	} {
		if _, err := state.MergeFiles([][]byte{b}); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("merge of %s: %v, want ErrCorrupt", name, err)
		}
	}
	nan := "\x01\x00\x00\x00\x00\x00\xf8\x7f"
	m := newKeyed[float64, []string](false)
	f := state.FileWith(state.Schema{Key: "float64", Value: "[]string"}, 5, 2, state.Entry{Seq: 1, Key: nan, Val: "\x00"})
	if err := m.Restore([][]byte{f}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a NaN key: %v, want ErrCorrupt", err)
	}
	w := state.NewWindow(codec.For[float64](), codec.For[int64](), state.WindowSpec[float64, int64]{
		Window: second.Sub(0), Slide: second.Sub(0), Reduce: func(a, b int64) int64 { return a + b },
	})
	f = state.WindowFileWith(state.Schema{Key: "float64", Value: "int64 over 1s every 1s"}, 5000, 5000, 1, nan+"\x02")
	if err := w.Restore([][]byte{f}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a NaN key in a window: %v, want ErrCorrupt", err)
	}
	descending := [][]byte{state.WindowFileOf(5000, 5000, 1, "\x01a\x02"), state.WindowFileOf(6000, 4000, 1, "\x01a\x02")}
	if err := restores("window-", descending...); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("panes that go back: %v, want ErrCorrupt", err)
	}
}

// TestMergeOfAnyNumbers: a merge is the same whether the numbers of the entries
// are dense, as in young state, or far between.
func TestMergeOfAnyNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		factor := rapid.SampledFrom([]uint64{1, 1000, 1 << 20, 1 << 56}).Draw(t, "factor")
		key := func(seq uint64) string { return "\x01" + string(rune('a'+seq)) }
		newest := map[uint64]state.Entry{}
		var files [][]byte
		for i := range rapid.IntRange(1, 5).Draw(t, "files") {
			kind := byte(2)
			if i == 0 {
				kind = rapid.SampledFrom([]byte{1, 2}).Draw(t, "kind")
			}
			seqs := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 15), 0, 10, rapid.ID).Draw(t, "numbers")
			if kind == 1 {
				slices.Sort(seqs)
			}
			var entries []state.Entry
			for _, seq := range seqs {
				e := state.Entry{Seq: seq * factor, At: base.BatchTime(i + 1), Key: key(seq), Val: "v"}
				if kind == 2 && rapid.Bool().Draw(t, "removed") {
					e.At, e.Val, e.Dead = 0, "", true
				}
				newest[seq] = e
				entries = append(entries, e)
			}
			files = append(files, state.FileOf(base.BatchTime(i+1), kind, entries...))
		}
		var want []state.Entry
		for _, seq := range slices.Sorted(maps.Keys(newest)) {
			if e := newest[seq]; !e.Dead {
				want = append(want, e)
			}
		}
		at, got, err := state.Entries(must(state.Merge(files)))
		if err != nil || int(at) != len(files) || !reflect.DeepEqual(got, want) {
			t.Fatalf("merged as %v at %d, %v, want %v", got, at, err, want)
		}
	})
}

func cut(b []byte, n int) []byte { return b[:len(b)-n] }

// TestATruncatedFileSaysByHowMuch, before anything is read of it.
func TestATruncatedFileSaysByHowMuch(t *testing.T) {
	b := state.FileOf(5, 1, state.Entry{Seq: 1, Key: "\x01a", Val: "\x00"})
	err := restores("", cut(b, 3))
	if err == nil || !strings.Contains(err.Error(), "25 bytes of schema and entries, there are 22") {
		t.Errorf("error %v", err)
	}
}

func sealed(b []byte, damage func([]byte)) []byte {
	damage(b)
	state.Seal(b)
	return b
}

// TestFilesOutOfOrderAreRefused: a delta that is missing can't be seen, one
// that comes twice or too early can.
func TestFilesOutOfOrderAreRefused(t *testing.T) {
	all := allWritten()
	for _, test := range []struct{ prefix, names string }{
		{"", "2.delta 1.delta"},
		{"", "1.delta 1.delta"},
		{"", "2.snapshot 2.delta"},
		{"", "1.delta 2.snapshot"},
		{"", "2.snapshot 2.snapshot"},
		{"window-", "2.delta 1.delta"},
		{"window-", "2.snapshot 2.delta"},
		{"window-", "1.delta 2.snapshot"},
		{"totals-", "2.snapshot 2.snapshot"},
	} {
		var files [][]byte
		for _, n := range strings.Fields(test.names) {
			files = append(files, all[test.prefix+n])
		}
		_, merged := state.MergeFiles(files)
		for what, err := range map[string]error{"restore": restores(test.prefix, files...), "merge": merged} {
			// A restore may first see that the numbers of a key don't fit.
			if err == nil || !strings.Contains(err.Error(), "out of order") && !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("%s %s%s: %v", what, test.prefix, test.names, err)
			}
		}
	}
}

func TestFilesOfAnotherKindOfStateAreRefused(t *testing.T) {
	all := allWritten()
	for name, files := range map[string][][]byte{
		"totals-": {all["window-1.delta"]},
		"window-": {all["totals-1.delta"]},
		"":        {all["window-1.delta"]},
	} {
		if restores(name, files...) == nil {
			t.Errorf("%q read the file of another", name)
		}
	}
	if _, err := state.MergeFiles([][]byte{all["1.delta"], all["window-2.delta"]}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("merged two kinds: %v", err)
	}
	if _, err := state.MergeFiles([][]byte{all["window-1.delta"], all["2.delta"]}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("merged two kinds: %v", err)
	}
}

// TestTooLargeAFileIsNotWritten: it could not be read.
func TestTooLargeAFileIsNotWritten(t *testing.T) {
	if err := state.Fits(1 << 31); err != nil {
		t.Error(err)
	}
	if err := state.Fits(1<<31 + 1); err == nil || !strings.Contains(err.Error(), "2147483649") || !strings.Contains(err.Error(), "2147483648") {
		t.Errorf("error %v", err)
	}
}
