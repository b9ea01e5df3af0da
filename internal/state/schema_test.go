package state_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/state"
)

// lengths counts what the fixtures of written hold.
func lengths(version int, from ...state.Migration[int64]) state.Keyed[string, int64] {
	m := newKeyed[string, int64](true)
	m.Migrate(version, from...)
	return m
}

func count(old []string) (int64, error) {
	for _, s := range old {
		if s == "bad" {
			return 0, errors.New("a bad string")
		}
	}
	return int64(len(old)), nil
}

// TestStateOfAnotherTypeIsMigrated, with the order and the times of its keys,
// and goes on in files of its own schema.
func TestStateOfAnotherTypeIsMigrated(t *testing.T) {
	files, _ := written()
	chain := [][]byte{files["2.snapshot"], files["3.delta"]}
	fromStrings := state.From(codec.For[[]string](), 0, count)
	m := lengths(1, fromStrings)
	if err := m.Restore(chain); err != nil {
		t.Fatal(err)
	}
	list := func(m state.Keyed[string, int64]) (out []string) {
		for rec := range m.Records() {
			if m.Live(rec) {
				out = append(out, fmt.Sprint(m.Key(rec), "=", m.Peek(rec)))
			}
		}
		return out
	}
	if got, want := fmt.Sprint(list(m)), "[=0 mill=1]"; got != want || m.Version() != 3000 {
		t.Errorf("migrated to %s at %s, want %s at 3000", got, m.Version(), want)
	}
	old := chain
	if _, err := state.MergeFiles([][]byte{files["1.delta"], state.FileWith(state.Schema{Key: "string", Value: "int64", Version: 1}, 9000, 2)}); err == nil {
		t.Error("files of two schemas were merged")
	}

	step := func(t0 base.BatchTime, change func()) (file []byte, full bool) {
		m.Begin(t0)
		change()
		file, full, err := m.Delta()
		if err != nil {
			t.Fatal(err)
		}
		return file, full
	}
	// What a batch that is rolled back gave exists for nobody: the next delta is
	// full again.
	set := func() {
		rec, _ := m.Find("mill")
		m.Set(rec, 7)
	}
	first, full := step(4000, set)
	if !full {
		t.Error("the first delta after a migration is not full")
	}
	m.Rollback()
	again, full := step(4000, set)
	if !full || string(again) != string(first) {
		t.Errorf("after a rollback, full %t:\n%x, want\n%x", full, again, first)
	}
	m.Commit()
	if at, entries, err := state.Entries(first); err != nil || at != 4000 || len(entries) != 2 || first[4] != 1 {
		t.Errorf("the full delta is of kind %d, at %s, with %v, %v: want a snapshot at 4000 of 2 entries", first[4], at, entries, err)
	}
	chain = [][]byte{first}
	for i, change := range []func(){
		func() { m.Insert("tide", 1) },
		func() { rec, _ := m.Find(""); m.Remove(rec) },
	} {
		file, full := step(base.BatchTime(5000+i*1000), change)
		if full || file[4] != 2 {
			t.Errorf("delta %d after the full one: full %t, kind %d", i, full, file[4])
		}
		m.Commit()
		chain = append(chain, file)
	}
	want := must(m.Snapshot())
	if got := must(state.MergeFiles(chain)); string(got) != string(want) {
		t.Errorf("merged as\n%x, want\n%x", got, want)
	}
	fresh := lengths(1) // no migration is needed now
	if err := fresh.Restore(chain); err != nil {
		t.Fatal(err)
	}
	if got := must(fresh.Snapshot()); string(got) != string(want) {
		t.Errorf("restored as\n%x, want\n%x", got, want)
	}
	fresh.Begin(7000)
	if _, full, err := fresh.Delta(); full || err != nil {
		t.Errorf("state of today's schema gives a full delta: %t, %v", full, err)
	}
	if err := lengths(1, fromStrings).Restore(append(old, chain...)); err == nil {
		t.Error("old files before a full delta were restored: it takes their place")
	}
}

// TestRenumberedStateGivesAFullDelta: the numbers in the files before mean
// other keys.
func TestRenumberedStateGivesAFullDelta(t *testing.T) {
	files, _ := written()
	m := newKeyed[string, []string](true)
	for _, name := range []string{"2.snapshot", "3.delta"} {
		if err := m.Load(files[name], nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Loaded(true); err != nil {
		t.Fatal(err)
	}
	m.Begin(4000)
	m.Insert("new", nil)
	data, full, err := m.Delta()
	if err != nil || !full {
		t.Fatalf("full %t, %v", full, err)
	}
	m.Commit()
	if want := must(m.Snapshot()); string(data) != string(want) {
		t.Errorf("the full delta is\n%x, want\n%x", data, want)
	}
}

// TestWindowsTellTheirSchema, with what only the presence of totals shows in
// their files.
func TestWindowsTellTheirSchema(t *testing.T) {
	add := func(a, b int64) int64 { return a + b }
	spec := state.WindowSpec[string, int64]{Window: 3 * time.Second, Slide: 2 * time.Second, Reduce: add}
	kc, vc := codec.For[string](), codec.For[int64]()
	if got, want := spec.Schema(kc, vc), (state.Schema{Key: "string", Value: "int64 over 3s every 2s"}); got != want {
		t.Errorf("schema %v, want %v", got, want)
	}
	spec.Inverse = add
	if got, want := spec.Schema(kc, vc), (state.Schema{Key: "string", Value: "totals of int64 over 3s every 2s"}); got != want {
		t.Errorf("schema %v, want %v", got, want)
	}
}

// TestStateOfAnotherTypeIsRefused if nothing says how to read it, by an error
// that names what is in the file and what the program has.
func TestStateOfAnotherTypeIsRefused(t *testing.T) {
	files, _ := written()
	old := [][]byte{files["1.delta"]}
	for name, m := range map[string]state.Part{
		"no migration":         lengths(0),
		"from another version": lengths(0, state.From(codec.For[[]string](), 1, count)),
		"from another type":    lengths(0, state.From(codec.For[[]int](), 0, func([]int) (int64, error) { return 0, nil })),
		"another version":      versioned(2),
		"another key":          newKeyed[int, []string](true),
	} {
		err := m.Restore(old)
		var schema *state.SchemaError
		if !errors.As(err, &schema) || schema.File != (state.Schema{Key: "string", Value: "[]string"}) || schema.Program == schema.File {
			t.Errorf("%s: error %v", name, err)
			continue
		}
		for _, part := range []string{schema.File.String(), schema.Program.String()} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %v does not name %s", name, err, part)
			}
		}
	}
}

func versioned(v int) state.Part {
	m := newKeyed[string, []string](true)
	m.Migrate(v)
	return m
}

// TestAMigrationThatFailsFailsTheRestore.
func TestAMigrationThatFailsFailsTheRestore(t *testing.T) {
	m := newKeyed[string, []string](true)
	m.Begin(1000)
	m.Insert("tide", []string{"bad"})
	file := nextDelta(m)
	err := lengths(0, state.From(codec.For[[]string](), 0, count)).Restore([][]byte{file})
	if err == nil || !strings.Contains(err.Error(), "a bad string") {
		t.Errorf("error %v", err)
	}
}

// TestAWindowOfOtherLengthsIsRefused: its panes would not be these.
func TestAWindowOfOtherLengthsIsRefused(t *testing.T) {
	files, _ := writtenWindow(false)
	spec := state.WindowSpec[string, int64]{Window: 4 * second.Sub(0), Slide: 2 * second.Sub(0), Reduce: func(a, b int64) int64 { return a + b }}
	w := state.NewWindow(codec.For[string](), codec.For[int64](), spec)
	err := w.Restore([][]byte{files["window-1.delta"]})
	if err == nil || !strings.Contains(err.Error(), "over 3s every 2s") || !strings.Contains(err.Error(), "over 4s every 2s") {
		t.Errorf("error %v", err)
	}
}
