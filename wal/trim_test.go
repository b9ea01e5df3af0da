package wal_test

import (
	"testing"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

func TestTrimRemovesOnlyWhatComesBefore(t *testing.T) {
	for keep, want := range map[uint64]struct{ removed, first int }{
		1: {0, 1}, 2: {0, 1}, 3: {1, 3}, 4: {1, 3}, 5: {2, 5}, 6: {2, 5}, 100: {2, 5},
	} {
		m := fsys.NewMem()
		must(t, m.Mkdir("d"))
		w, err := wal.Create(wal.Config{FS: m}, "d", "log", 1, 1)
		must(t, err)
		for i, rec := range []string{"1", "2", "3", "4", "5", "6"} { // two a segment
			if i == 2 || i == 4 {
				must(t, w.Roll(t.Context()))
			}
			if _, err := w.Append(t.Context(), []byte(rec)); err != nil {
				t.Fatal(err)
			}
		}
		removed, err := wal.Trim(m, "d", keep)
		must(t, err)
		if removed != want.removed {
			t.Errorf("before %d: %d segments removed, want %d", keep, removed, want.removed)
		}
		must(t, w.Close())
		r := wantScan(t, m, "d", records(uint64(want.first), []string{"1", "2", "3", "4", "5", "6"}[want.first-1:]...))
		if r.Last != 6 {
			t.Errorf("before %d: the last sequence is %d", keep, r.Last)
		}
		if again, err := wal.Trim(m, "d", keep); again != 0 || err != nil {
			t.Errorf("before %d, again: %d, %v", keep, again, err)
		}
	}
}
