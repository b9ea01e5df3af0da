package wal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// fixture copies the segments of a version into memory, so that nothing can
// change them.
func fixture(t testing.TB, version string) *fsys.Mem {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", version, "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	m := newDir(t)
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(t, err)
		must(t, fsys.WriteFile(m, "d/"+filepath.Base(file), data))
	}
	return m
}

func fixtureRecords() []string { return []string{"tide", "", strings.Repeat("mill", 75), "open"} }

// Invariant 12: version 1 stays readable for ever.
func TestFixturesOfVersion1AreRead(t *testing.T) {
	m := fixture(t, "v1")
	r := wantScan(t, m, "d", records(7, fixtureRecords()...))
	want := wal.Report{
		Segments: []wal.SegmentReport{
			{Number: 1, First: 7, Last: 9, Records: 3, Bytes: 304, Length: 435, Sealed: true},
			{Number: 2, First: 10, Last: 10, Records: 1, Bytes: 4, Length: 63, Torn: 13},
		},
		Last: 10, Records: 4, Bytes: 308,
		Torn: []wal.Torn{{File: segment2, Offset: 63, Bytes: 13}},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is written today is version 1, byte for byte.
func TestWriterMakesTheFixtures(t *testing.T) {
	m := newDir(t)
	writeFixtures(t, m)
	want := fixture(t, "v1")
	for _, name := range []string{segment1, segment2} {
		got, err := fsys.ReadFile(m, name)
		must(t, err)
		was, err := fsys.ReadFile(want, name)
		must(t, err)
		if !bytes.Equal(got, was) {
			t.Errorf("%s:\n got %x\nwant %x", name, got, was)
		}
	}
}

func writeFixtures(t testing.TB, m *fsys.Mem) {
	t.Helper()
	w, err := wal.Create(wal.Config{FS: m}, "d", "orders", 3, 7)
	must(t, err)
	recs := fixtureRecords()
	add(t, w, recs[:3]...)
	must(t, w.Roll(t.Context()))
	add(t, w, recs[3])
	w.Kill()
	patch(t, m, segment2, func(b []byte) []byte { return append(b, "\x09\x00\x00\x00cut short"...) })
}

// Invariant 12: a newer version is refused with both numbers, whatever else the
// file holds.
func TestNewerVersionIsRefusedWithBothNumbers(t *testing.T) {
	m := fixture(t, "v1")
	patch(t, m, segment2, func(b []byte) []byte { b[3] = 2; return b[:4] })
	got, _, err := scanDir(t, m, "d", wal.ScanOptions{SkipDamaged: true})
	wantError(t, err, err, segment2, "version 2", "versions up to 1")
	if errors.Is(err, base.ErrCorrupt) || len(got) != 3 {
		t.Errorf("%d records, error %v", len(got), err)
	}
	var out strings.Builder
	must(t, wal.Dump(t.Context(), m, "d", &out, nil))
	if !strings.Contains(out.String(), "version 2") {
		t.Errorf("dump:\n%s", out.String())
	}
	if _, err := wal.Verify(t.Context(), m, "d"); err == nil {
		t.Error("Verify is content with a version it does not know")
	}
}
