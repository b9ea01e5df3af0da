package state_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

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
	m.Begin(4000)
	rec, _ := m.Find("mill")
	m.Set(rec, 7)
	chain = append(chain, must(m.Delta()))
	m.Commit()

	again := lengths(1, fromStrings)
	if err := again.Restore(chain); err != nil {
		t.Fatal(err)
	}
	snap := must(m.Snapshot())
	if got := must(again.Snapshot()); string(got) != string(snap) {
		t.Errorf("old files and a new delta are restored as\n%x, want\n%x", got, snap)
	}
	var other *state.SchemaError
	if _, err := state.MergeFiles(chain); !errors.As(err, &other) {
		t.Errorf("merge of files of two schemas: %v", err)
	}
	if again = lengths(1); again.Restore([][]byte{snap}) != nil { // no migration is needed now
		t.Error("the snapshot of migrated state can't be restored")
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
	file := must(m.Delta())
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
