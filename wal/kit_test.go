package wal_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// quick are delays that suit tests in real time.
func quick(c wal.Config) wal.Config {
	c.RetryDelay, c.RetryDelayMax = time.Microsecond, 10*time.Microsecond
	return c
}

// newDir returns an in-memory file system with a durable directory "d".
func newDir(t testing.TB) *fsys.Mem {
	t.Helper()
	m := fsys.NewMem()
	must(t, m.Mkdir("d"))
	must(t, m.SyncDir("."))
	return m
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, cfg wal.Config, next uint64) *wal.Writer {
	t.Helper()
	w, err := wal.Create(quick(cfg), "d", "log", 1, next)
	must(t, err)
	t.Cleanup(w.Kill)
	return w
}

func add(t testing.TB, w interface {
	Append(context.Context, []byte) (base.Handle, error)
}, recs ...string,
) []base.Handle {
	t.Helper()
	var hs []base.Handle
	for _, rec := range recs {
		h, err := w.Append(t.Context(), []byte(rec))
		must(t, err)
		hs = append(hs, h)
	}
	return hs
}

// entry is one record that a scan handed over.
type entry struct {
	Seq uint64
	Rec string
}

func scanDir(t testing.TB, fs fsys.FS, dir string, o wal.ScanOptions) ([]entry, wal.Report, error) {
	t.Helper()
	var got []entry
	r, err := wal.Scan(context.Background(), fs, dir, o, func(seq uint64, h base.Handle, rec []byte) error {
		if h.Length != int64(len(rec)) || h.Offset == 0 || h.Segment == 0 {
			t.Errorf("sequence %d has handle %s and %d bytes", seq, h, len(rec))
		}
		got = append(got, entry{seq, string(rec)})
		return nil
	})
	return got, r, err
}

// records are the entries of a log from sequence first.
func records(first uint64, recs ...string) []entry {
	var es []entry
	for i, rec := range recs {
		es = append(es, entry{first + uint64(i), rec})
	}
	return es
}

func wantScan(t testing.TB, fs fsys.FS, dir string, want []entry) wal.Report {
	t.Helper()
	got, r, err := scanDir(t, fs, dir, wal.ScanOptions{})
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("scan of %q (-want +got):\n%s", dir, diff)
	}
	return r
}

// wantError checks an error's kind and that it speaks of all parts.
func wantError(t testing.TB, err, is error, parts ...string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Fatalf("got error %v, want one that is %v", err, is)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

func numbered(n int) []string {
	var recs []string
	for i := range n {
		recs = append(recs, fmt.Sprintf("record %d", i+1))
	}
	return recs
}

// patch changes bytes of a file in memory.
func patch(t testing.TB, m *fsys.Mem, name string, change func([]byte) []byte) {
	t.Helper()
	data, err := fsys.ReadFile(m, name)
	must(t, err)
	must(t, m.Remove(name))
	must(t, fsys.WriteFile(m, name, change(data)))
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

const (
	segment1 = "d/0000000000000001.wal"
	segment2 = "d/0000000000000002.wal"
	segment3 = "d/0000000000000003.wal"
	// headerBytes is the length of the header of a log called "log".
	headerBytes = 36
	recordBytes = 20
)
