package wal_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// inspected has a sealed epoch with a segment and a torn one, and an open epoch.
func inspected(t *testing.T) *fsys.Mem {
	t.Helper()
	m := fsys.NewMem()
	for range 2 {
		c, err := wal.Claim(t.Context(), m, "p", wal.ClaimOptions{})
		must(t, err)
		w, err := wal.Create(wal.Config{FS: m}, c.Dir, "log", c.Epoch, 1)
		must(t, err)
		add(t, w, "text", "\x00\x01", strings.Repeat("long", 20))
		must(t, w.Roll(t.Context()))
		add(t, w, "open")
		w.Kill()
		must(t, c.Close())
	}
	patch(t, m, "p/e-000001.sealed/0000000000000002.wal", func(b []byte) []byte { return b[:len(b)-1] })
	must(t, fsys.WriteFile(m, "p/e-000001.sealed/0000000000000003.wal", nil))
	return m
}

func TestDumpShowsSegmentsAndRecords(t *testing.T) {
	m := inspected(t)
	patch(t, m, "p/e-000002/0000000000000001.wal", func(b []byte) []byte { b[70] ^= 1; return b })
	var out strings.Builder
	must(t, wal.Dump(t.Context(), m, "p", &out, nil))
	want := `p/e-000001.sealed/0000000000000001.wal: log "log", epoch 1, segment 1, 214 bytes, first sequence 1
  36: 4 bytes, sequence 1, crc ok: "text"
  60: 2 bytes, sequence 2, crc ok: 00 01
  82: 80 bytes, sequence 3, crc ok: "longlonglonglonglonglonglonglong"...
  182: sealed, 3 records
p/e-000001.sealed/0000000000000002.wal: log "log", epoch 1, segment 2, 59 bytes, first sequence 4
  36: torn, 23 bytes count for nothing
p/e-000001.sealed/0000000000000003.wal: 0 bytes, no whole header
  0: torn, 0 bytes count for nothing
p/e-000002/0000000000000001.wal: log "log", epoch 2, segment 1, 214 bytes, first sequence 1
  36: 4 bytes, sequence 1, crc ok: "text"
  60: damaged, 154 bytes can't be read: a record of a sealed segment fails its checksum
p/e-000002/0000000000000002.wal: log "log", epoch 2, segment 2, 60 bytes, first sequence 4
  36: 4 bytes, sequence 4, crc ok: "open"
  60: open, 1 records
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	out.Reset()
	must(t, wal.Dump(t.Context(), m, "p/e-000002", &out, func(b []byte) string { return "decoded " + string(b) }))
	if !strings.Contains(out.String(), "crc ok: decoded open\n") || strings.Contains(out.String(), "e-000001") {
		t.Errorf("dump of one epoch:\n%s", out.String())
	}
	if err := wal.Dump(t.Context(), m, "nowhere", &out, nil); err == nil {
		t.Error("a directory that is not there was dumped")
	}
	full := errors.New("full")
	if err := wal.Dump(t.Context(), m, "p", failing{full}, nil); !errors.Is(err, full) {
		t.Errorf("the writer's error is %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestVerifyListsAllDamage(t *testing.T) {
	m := inspected(t)
	before := m.String()
	r, err := wal.Verify(t.Context(), m, "p")
	must(t, err)
	if r.Records != 7 || len(r.Segments) != 5 || len(r.Torn) != 2 {
		t.Errorf("report %+v", r)
	}
	for _, segment := range []string{"p/e-000001.sealed/0000000000000001.wal", "p/e-000002/0000000000000001.wal"} {
		patch(t, m, segment, func(b []byte) []byte { b[70] ^= 1; return b })
	}
	r, err = wal.Verify(t.Context(), m, "p")
	wantError(t, err, base.ErrCorrupt, "p/e-000001.sealed/0000000000000001.wal", "p/e-000002/0000000000000001.wal")
	if len(r.Damaged) != 2 || r.Damaged[0].First != 2 {
		t.Errorf("damaged %+v", r.Damaged)
	}
	if _, err := wal.Verify(t.Context(), m, "p/e-000002"); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("one epoch: %v", err)
	}
	if m.String() != before {
		t.Errorf("Verify changed something:\n%s\n%s", before, m)
	}
}

// A store removes segments from the middle of a log, which is no damage.
func TestVerifyAllowsRemovedSegments(t *testing.T) {
	m, _ := threeSegments(t, 2)
	must(t, m.Remove(segment2))
	r, err := wal.Verify(t.Context(), m, "d")
	must(t, err)
	if r.Records != 4 {
		t.Errorf("report %+v", r)
	}
	// A segment that can't be read is not one that was removed.
	must(t, fsys.WriteFile(m, segment2, []byte("TML")))
	_, err = wal.Verify(t.Context(), m, "d")
	wantError(t, err, base.ErrCorrupt, "records 3 to 4")
}
