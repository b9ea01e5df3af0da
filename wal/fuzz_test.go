package wal_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// allocatedAtMost is what reading a file of size bytes may allocate: the bytes
// once, perhaps once more to look for what comes after a bad record, an index
// entry for each record, and what the machinery takes.
func allocatedAtMost(size int) uint64 { return 8*uint64(size) + 1<<20 }

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func seedSegments(f *testing.F) {
	files, err := filepath.Glob("testdata/v1/*.wal")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-40])
	}
	f.Add([]byte{})
	f.Add([]byte("TML\x02"))
}

// FuzzScanSegment reads hostile bytes as a segment: no panic, no memory beyond
// what the file has, and the same answer when what was accepted is read again.
func FuzzScanSegment(f *testing.F) {
	seedSegments(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := newDir(t)
		must(t, fsys.WriteFile(m, segment1, b))
		var got []entry
		var r wal.Report
		var err error
		used := allocated(func() { got, r, err = scanDir(t, m, "d", wal.ScanOptions{}) })
		if most := allocatedAtMost(len(b)); used > most {
			t.Errorf("%d bytes allocated for a file of %d", used, len(b))
		}
		if _, verr := wal.Verify(t.Context(), m, "d"); (verr == nil) != (err == nil) {
			t.Errorf("scan says %v, verify %v", err, verr)
		}
		must(t, wal.Dump(context.Background(), m, "d", &bytes.Buffer{}, nil))
		if err != nil {
			return
		}
		limits := r.Limits()
		again, _, err := scanDir(t, m, "d", wal.ScanOptions{Limits: &limits})
		must(t, err)
		if len(again) != len(got) {
			t.Errorf("%d records, %d within the limits of the first scan", len(got), len(again))
		}
	})
}

// FuzzReadRecord reads by any handle from any bytes.
func FuzzReadRecord(f *testing.F) {
	seed, err := os.ReadFile("testdata/v1/0000000000000001.wal")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, int64(39), int64(4))
	f.Add(seed, int64(63), int64(0))
	f.Add(seed, int64(83), int64(300))
	f.Add(seed, int64(83), int64(1)<<62)
	f.Add(seed, int64(1)<<62, int64(4))
	f.Add(seed, int64(-1), int64(-1))
	f.Add([]byte{}, int64(39), int64(4))
	f.Fuzz(func(t *testing.T, b []byte, offset, length int64) {
		m := fsys.NewMem()
		dir := "s/orders/e-000003.sealed"
		must(t, m.MkdirAll(dir))
		must(t, fsys.WriteFile(m, dir+"/0000000000000001.wal", b))
		s, err := wal.OpenStore(wal.StoreConfig{Config: wal.Config{FS: m}, Dir: "s"})
		must(t, err)
		defer s.Close()
		h := base.Handle{Log: "orders", Epoch: 3, Segment: 1, Offset: offset, Length: length}
		var rec []byte
		used := allocated(func() { rec, err = s.Read(context.Background(), h) })
		if most := allocatedAtMost(len(b)); used > most {
			t.Errorf("%d bytes allocated for a file of %d", used, len(b))
		}
		switch {
		case err == nil && (int64(len(rec)) != length || !bytes.Contains(b, rec)):
			t.Errorf("read %d bytes by %s", len(rec), h)
		case err != nil && !errors.Is(err, base.ErrCorrupt) && !bytes.HasPrefix(b, []byte("TML")):
			t.Errorf("%v", err)
		}
	})
}
