package state_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/state"
)

// What reading may allocate, at all and for each byte of input: an entry of
// five bytes becomes a record, its slots and a place in the index.
const (
	allocatedAtAll   = 8 << 20 // an index of sequence numbers, in Merge
	allocatedPerByte = 1 << 10
)

func bounded(t *testing.T, b []byte, f func()) {
	t.Helper()
	if n := allocated(f); n > uint64(allocatedAtAll+len(b)*allocatedPerByte) {
		t.Errorf("%d bytes allocated for %d", n, len(b))
	}
}

// seedFiles adds all fixtures, as they are and without what Seal makes.
func seedFiles(f *testing.F, add func(b []byte)) {
	files := allWritten()
	names := []string{}
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		add(files[name])
	}
}

// parts are fresh parts of every kind.
func parts() map[string]state.Part {
	return map[string]state.Part{
		"keyed":    newKeyed[string, []string](true),
		"plain":    newKeyed[string, int64](false),
		"migrated": lengths(1, state.From(codec.For[[]string](), 0, count)),
		"window":   sumWindow(false),
		"totals":   sumWindow(true),
	}
}

// FuzzRestore reads any bytes behind a good header and checksum: whatever is
// accepted is written, read and merged again as the same.
func FuzzRestore(f *testing.F) {
	seedFiles(f, func(b []byte) { f.Add(b, true) })
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal {
			b = bytes.Clone(b)
			state.Seal(b)
		}
		bounded(t, b, func() {
			_ = state.OpenWindowFile(b)
			_, _, _ = state.Entries(b)
		})
		for kind, p := range parts() {
			var err error
			bounded(t, b, func() { err = p.Restore([][]byte{b}) })
			if err != nil {
				continue
			}
			snap, err := p.Snapshot()
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			again := parts()[kind]
			if err := again.Restore([][]byte{snap}); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if twice := must(again.Snapshot()); !bytes.Equal(snap, twice) {
				t.Errorf("%s: written as\n%x, then as\n%x", kind, snap, twice)
			}
			if _, err := state.MergeFiles([][]byte{b}); err != nil {
				t.Errorf("%s: restored, but merge: %v", kind, err)
			}
			p.Begin(p.Version() + second)
			p.Rollback()
		}
	})
}

// FuzzMerge merges any two files.
func FuzzMerge(f *testing.F) {
	seedFiles(f, func(b []byte) {
		seedFiles(f, func(c []byte) {
			if string(b[:3]) == string(c[:3]) && len(b) < len(c) {
				f.Add(b, c)
			}
		})
	})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		a, b = bytes.Clone(a), bytes.Clone(b)
		state.Seal(a)
		state.Seal(b)
		files := [][]byte{a, b}
		for _, merge := range []func([][]byte) ([]byte, error){state.Merge, state.MergeWindows, state.MergeFiles} {
			var merged []byte
			var err error
			bounded(t, append(bytes.Clone(a), b...), func() { merged, err = merge(files) })
			if err != nil {
				continue
			}
			again, err := merge([][]byte{merged})
			if err != nil || !bytes.Equal(again, merged) {
				t.Errorf("merged as\n%x, merged again as\n%x, %v", merged, again, err)
			}
		}
	})
}
