package wal_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// threeSegments writes n records into each of three sealed segments.
func threeSegments(t testing.TB, n int) (*fsys.Mem, []string) {
	t.Helper()
	m := newDir(t)
	w := create(t, wal.Config{FS: m}, 1)
	all := numbered(3 * n)
	for i := range 3 {
		add(t, w, all[i*n:(i+1)*n]...)
		must(t, w.Roll(t.Context()))
	}
	must(t, w.Close())
	return m, all
}

// B01: an empty file, wherever it is, costs a warning and no record.
func TestB01EmptySegmentIsAWarning(t *testing.T) {
	for _, test := range []struct {
		name, file string
		want       func(all []string) []entry
	}{
		{"a newest", "d/0000000000000004.wal", func(all []string) []entry { return records(1, all...) }},
		{"b oldest", "d/0000000000000000.wal", func(all []string) []entry { return records(1, all...) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, all := threeSegments(t, 2)
			must(t, fsys.WriteFile(m, test.file, nil))
			r := wantScan(t, m, "d", test.want(all))
			if diff := cmp.Diff([]wal.Torn{{File: test.file}}, r.Torn); diff != "" {
				t.Errorf("torn (-want +got):\n%s", diff)
			}
			w := create(t, wal.Config{FS: m}, r.Last+1)
			add(t, w, "new")
			must(t, w.Close())
			wantScan(t, m, "d", records(1, append(all, "new")...))
		})
	}
	t.Run("c only", func(t *testing.T) {
		m := newDir(t)
		w := create(t, wal.Config{FS: m}, 1)
		m.FailWith(func(op, _ string) error {
			if op == "write" {
				return fsys.ErrCrashed
			}
			return nil
		})
		_, err := w.Start([]byte("never")).Wait(expired())
		wantError(t, err, context.Canceled)
		for !m.Crashed() {
			runtime.Gosched()
		}
		w.Kill()
		m = m.AfterKill(seeded(3))
		patch(t, m, segment1, func([]byte) []byte { return nil })
		r := wantScan(t, m, "d", nil)
		if len(r.Torn) != 1 || r.Torn[0].File != segment1 || r.Last != 0 {
			t.Errorf("report %+v", r)
		}
		w = create(t, wal.Config{FS: m}, r.Last+1)
		add(t, w, "new")
		must(t, w.Close())
		wantScan(t, m, "d", records(1, "new"))
	})
}

func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// B03 (a): a length is compared with what the file has before memory is taken.
func TestB03AbsurdLengthIsDamageAndTakesNoMemory(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		for _, length := range []uint32{0xFFFFFFFF, 0x7FFFFFFF, 0x80000000} {
			t.Run(fmt.Sprintf("%x sealed %v", length, sealed), func(t *testing.T) {
				m := newDir(t)
				w := create(t, wal.Config{FS: m}, 1)
				hs := add(t, w, numbered(9)...)
				if sealed {
					must(t, w.Close())
				}
				w.Kill()
				patch(t, m, segment1, func(b []byte) []byte {
					binary.LittleEndian.PutUint32(b[hs[4].Offset:], length)
					return b
				})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				got, _, err := scanDir(t, m, "d", wal.ScanOptions{})
				runtime.ReadMemStats(&after)
				wantError(t, err, base.ErrCorrupt, segment1, fmt.Sprintf("at %d", hs[4].Offset), "tidemill wal verify d")
				if diff := cmp.Diff(records(1, numbered(4)...), got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if more := after.TotalAlloc - before.TotalAlloc; more > 1<<20 {
					t.Errorf("%d bytes were allocated", more)
				}
			})
		}
	}
}

// B04: damage in an old segment is an error that names it, if a wanted record is
// hit; the segments behind it stay readable.
func TestB04DamageInTheMiddleCostsNoOtherSegment(t *testing.T) {
	m, all := threeSegments(t, 100)
	var at int64
	_, err := wal.Scan(t.Context(), m, "d", wal.ScanOptions{}, func(seq uint64, h base.Handle, _ []byte) error {
		if seq == 150 {
			at = h.Offset
		}
		return nil
	})
	must(t, err)
	patch(t, m, segment2, func(b []byte) []byte { b[at+25] ^= 1; return b })

	got, _, err := scanDir(t, m, "d", wal.ScanOptions{})
	wantError(t, err, base.ErrCorrupt, segment2, fmt.Sprintf("at %d", at))
	if diff := cmp.Diff(records(1, all[:149]...), got); diff != "" {
		t.Errorf("before the damage (-want +got):\n%s", diff)
	}

	got, _, err = scanDir(t, m, "d", wal.ScanOptions{From: 201})
	must(t, err)
	if diff := cmp.Diff(records(201, all[200:]...), got); diff != "" {
		t.Errorf("after the damage (-want +got):\n%s", diff)
	}
	if _, _, err = scanDir(t, m, "d", wal.ScanOptions{From: 200}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a wanted record is hit, and the error is %v", err)
	}

	got, r, err := scanDir(t, m, "d", wal.ScanOptions{SkipDamaged: true})
	must(t, err)
	if diff := cmp.Diff(append(records(1, all[:149]...), records(201, all[200:]...)...), got); diff != "" {
		t.Errorf("skipping (-want +got):\n%s", diff)
	}
	if len(r.Damaged) != 1 || r.Damaged[0].First != 150 || r.Damaged[0].Last != 200 || r.Damaged[0].File != segment2 {
		t.Errorf("damaged %+v", r.Damaged)
	}
}

// Invariant 8: no byte of a sealed segment can change without notice, be it the
// last segment or not.
func TestEveryByteOfASealedSegmentCounts(t *testing.T) {
	for _, segment := range []string{segment1, segment2} {
		m := newDir(t)
		w := create(t, wal.Config{FS: m}, 1)
		add(t, w, "a", "bb", "")
		must(t, w.Roll(t.Context()))
		add(t, w, "c")
		must(t, w.Close())
		whole, err := fsys.ReadFile(m, segment)
		must(t, err)
		for i := range whole {
			for _, flip := range []byte{1, 0x80, 0xff} {
				patch(t, m, segment, func(b []byte) []byte { b = append(b[:0:0], whole...); b[i] ^= flip; return b })
				_, _, err := scanDir(t, m, "d", wal.ScanOptions{})
				newer := i == 3
				if err == nil || !newer && !errors.Is(err, base.ErrCorrupt) {
					t.Errorf("byte %d of %s changed by %x: %v", i, segment, flip, err)
				}
			}
		}
		patch(t, m, segment, func([]byte) []byte { return append(append([]byte{}, whole...), 0) })
		if _, _, err := scanDir(t, m, "d", wal.ScanOptions{}); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("a byte after the seal of %s: %v", segment, err)
		}
	}
}

// A write that was cut short anywhere costs only what was not acknowledged.
func TestTornTailIsCutAndCounted(t *testing.T) {
	m := newDir(t)
	w := create(t, wal.Config{FS: m}, 1)
	hs := add(t, w, "first", "second")
	w.Kill()
	whole, err := fsys.ReadFile(m, segment1)
	must(t, err)
	for size := range int64(len(whole)) {
		patch(t, m, segment1, func([]byte) []byte { return append([]byte{}, whole[:size]...) })
		want, good := []entry(nil), int64(0)
		switch {
		case size >= hs[1].Offset:
			want, good = records(1, "first"), hs[1].Offset
		case size >= headerBytes:
			good = headerBytes
		}
		r := wantScan(t, m, "d", want)
		torn := []wal.Torn{{File: segment1, Offset: good, Bytes: size - good}}
		if size == headerBytes || size == hs[1].Offset {
			torn = nil
		}
		if diff := cmp.Diff(torn, r.Torn); diff != "" {
			t.Errorf("%d of %d bytes (-want +got):\n%s", size, len(whole), diff)
		}
	}
}

// A loss of power within the write of a seal leaves sectors of it as zeros: that
// is torn, and no damage.
func TestHoleInASealIsTorn(t *testing.T) {
	const cut = 24 // bytes of the seal in the first sector
	for _, hole := range []struct{ from, to int }{{0, cut}, {cut, 32}, {0, 32}} {
		m := newDir(t)
		w := create(t, wal.Config{FS: m}, 1)
		rec := string(make([]byte, 512-cut-headerBytes-recordBytes))
		add(t, w, rec)
		must(t, w.Close())
		patch(t, m, segment1, func(b []byte) []byte {
			clear(b[512-cut+hole.from : 512-cut+hole.to])
			return b
		})
		if r := wantScan(t, m, "d", records(1, rec)); len(r.Torn) != 1 || r.Torn[0].Bytes != 32 {
			t.Errorf("hole %v: torn %+v", hole, r.Torn)
		}
	}
}

// What tells a torn tail from damage is what a later record knows of it.
func TestLaterRecordTellsDamageFromATornTail(t *testing.T) {
	build := func(together bool) (*fsys.Mem, []base.Handle) {
		m := newDir(t)
		w := create(t, wal.Config{FS: m}, 1)
		var hs []base.Handle
		if together {
			hs = appendTogether(t, w, m, "first", "second", "third")
		} else {
			hs = add(t, w, "first", "second", "third")
		}
		w.Kill()
		patch(t, m, segment1, func(b []byte) []byte { b[hs[1].Offset+recordBytes] ^= 1; return b })
		return m, hs
	}
	m, hs := build(true)
	if r := wantScan(t, m, "d", records(1, "first")); len(r.Torn) != 1 || r.Torn[0].Offset != hs[1].Offset {
		t.Errorf("torn %+v", r.Torn)
	}
	m, hs = build(false)
	_, _, err := scanDir(t, m, "d", wal.ScanOptions{})
	wantError(t, err, base.ErrCorrupt, segment1, fmt.Sprintf("at %d", hs[1].Offset), "acknowledged")

	t.Run("header", func(t *testing.T) {
		m, _ := build(false)
		patch(t, m, segment1, func(b []byte) []byte { b[5] ^= 1; return b })
		_, _, err := scanDir(t, m, "d", wal.ScanOptions{})
		wantError(t, err, base.ErrCorrupt, segment1, "header")
	})
}

// What LevelMemory acknowledges is promised only by Sync, so a hole that a loss of
// power leaves before that is no damage.
func TestHoleIsDamageAtLevelMemoryOnlyAfterSync(t *testing.T) {
	for _, synced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newDir(t)
			w := create(t, wal.Config{FS: m, Level: wal.LevelMemory}, 1)
			h := add(t, w, "a")[0]
			synctest.Wait() // it is written
			if synced {
				must(t, w.Sync(t.Context()))
			}
			add(t, w, "b")
			synctest.Wait()
			w.Kill()
			patch(t, m, segment1, func(b []byte) []byte { clear(b[h.Offset : h.Offset+h.Length+recordBytes]); return b })
			_, _, err := scanDir(t, m, "d", wal.ScanOptions{})
			if got := errors.Is(err, base.ErrCorrupt); got != synced {
				t.Errorf("synced %v: error %v", synced, err)
			}
		})
	}
}

// appendTogether appends the records after the first as one group: the disk is
// held up with the first until they are queued.
func appendTogether(t testing.TB, w *wal.Writer, m *fsys.Mem, recs ...string) []base.Handle {
	t.Helper()
	begun, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	m.FailWith(func(op, _ string) error {
		if op == "write" {
			once.Do(func() { close(begun); <-hold })
		}
		return nil
	})
	tickets := []*wal.Ticket{w.Start([]byte(recs[0]))}
	<-begun
	for _, rec := range recs[1:] {
		tickets = append(tickets, w.Start([]byte(rec)))
	}
	close(hold)
	var hs []base.Handle
	for _, ticket := range tickets {
		h, err := ticket.Wait(t.Context())
		must(t, err)
		hs = append(hs, h)
	}
	m.FailWith(nil)
	return hs
}

func TestMissingSegmentIsDamage(t *testing.T) {
	m, all := threeSegments(t, 2)
	must(t, m.Remove(segment2))
	got, _, err := scanDir(t, m, "d", wal.ScanOptions{})
	wantError(t, err, base.ErrCorrupt, segment3, "records 3 to 4 are missing")
	if diff := cmp.Diff(records(1, all[:2]...), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, _, err = scanDir(t, m, "d", wal.ScanOptions{From: 5})
	must(t, err)
	if diff := cmp.Diff(records(5, all[4:]...), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A whole record that is not the next one means that bytes went missing.
func TestSequenceThatIsNotDueIsDamage(t *testing.T) {
	m := newDir(t)
	w := create(t, wal.Config{FS: m}, 1)
	hs := add(t, w, "a", "b", "c")
	w.Kill()
	patch(t, m, segment1, func(b []byte) []byte { return append(b[:hs[1].Offset], b[hs[2].Offset:]...) })
	got, _, err := scanDir(t, m, "d", wal.ScanOptions{})
	wantError(t, err, base.ErrCorrupt, segment1, "sequence 3 where 2 is due")
	if diff := cmp.Diff(records(1, "a"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDamageBelowFromIsPassedOver(t *testing.T) {
	m, _ := threeSegments(t, 2)
	patch(t, m, segment3, func(b []byte) []byte { b[headerBytes+recordBytes] ^= 1; return b })
	if _, _, err := scanDir(t, m, "d", wal.ScanOptions{From: 6}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("the last record is hit, error %v", err)
	}
	_, r, err := scanDir(t, m, "d", wal.ScanOptions{From: 7})
	must(t, err)
	if len(r.Torn) != 1 {
		t.Errorf("torn %+v", r.Torn)
	}
}

func TestFromSkipsWhatIsNotWanted(t *testing.T) {
	m, all := threeSegments(t, 3)
	for from := range uint64(11) {
		got, r, err := scanDir(t, m, "d", wal.ScanOptions{From: from, Parallel: 1})
		must(t, err)
		want := records(max(from, 1), all[max(from, 1)-1:]...)
		if diff := cmp.Diff(want, got); diff != "" || r.Last != 9 {
			t.Errorf("from %d, last %d (-want +got):\n%s", from, r.Last, diff)
		}
	}
}

// Invariant 7: what a frozen writer appends after its successor looked does not
// count.
func TestLimitsHideWhatAFrozenWriterAppends(t *testing.T) {
	m := newDir(t)
	w := create(t, wal.Config{FS: m}, 1)
	add(t, w, "a", "b")
	_, r, err := scanDir(t, m, "d", wal.ScanOptions{})
	must(t, err)
	limits := r.Limits()
	add(t, w, "zombie")
	must(t, w.Roll(t.Context()))
	add(t, w, "zombie in a segment of its own")
	must(t, w.Close())
	got, _, err := scanDir(t, m, "d", wal.ScanOptions{Limits: &limits})
	must(t, err)
	if diff := cmp.Diff(records(1, "a", "b"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	fewer := limits
	fewer.Last = 1
	got, _, err = scanDir(t, m, "d", wal.ScanOptions{Limits: &fewer})
	must(t, err)
	if diff := cmp.Diff(records(1, "a"), got); diff != "" {
		t.Errorf("last accepted 1 (-want +got):\n%s", diff)
	}

	// Less than what was accepted is damage.
	patch(t, m, segment1, func(b []byte) []byte { return b[:limits.Segments[0].Length-1] })
	_, _, err = scanDir(t, m, "d", wal.ScanOptions{Limits: &limits})
	wantError(t, err, base.ErrCorrupt, segment1)
	must(t, m.Remove(segment1))
	_, _, err = scanDir(t, m, "d", wal.ScanOptions{Limits: &limits})
	wantError(t, err, base.ErrCorrupt, "2 was accepted")

	none := wal.Limits{}
	got, _, err = scanDir(t, m, "d", wal.ScanOptions{Limits: &none})
	must(t, err)
	if len(got) > 0 {
		t.Errorf("limits of an empty log let %v through", got)
	}
}

// Invariant 14: a sequence that comes again must be the same record.
func TestSameSequenceWithOtherBytesIsDamage(t *testing.T) {
	for _, test := range []struct {
		second string
		bad    bool
	}{{"same", false}, {"lame", true}, {"same and more", true}} {
		m := newDir(t)
		w := create(t, wal.Config{FS: m}, 1)
		add(t, w, "a", "same")
		w.Kill()
		// An earlier writer's segment is passed over, so this one makes the second.
		w = create(t, wal.Config{FS: m}, 2)
		add(t, w, test.second, "c")
		must(t, w.Close())
		got, _, err := scanDir(t, m, "d", wal.ScanOptions{})
		if test.bad {
			wantError(t, err, base.ErrCorrupt, segment2, "sequence 2 again with other bytes")
			continue
		}
		must(t, err)
		if diff := cmp.Diff(records(1, "a", "same", "c"), got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestSegmentOfAnotherLogIsDamage(t *testing.T) {
	m := newDir(t)
	w := create(t, wal.Config{FS: m}, 1)
	add(t, w, "a")
	must(t, w.Close())
	other, err := wal.Create(wal.Config{FS: m}, "d", "other", 1, 2)
	must(t, err)
	add(t, other, "b")
	must(t, other.Close())
	_, _, err = scanDir(t, m, "d", wal.ScanOptions{})
	wantError(t, err, base.ErrCorrupt, segment2, `"other"`)
	must(t, m.Rename(segment2, "d/0000000000000009.wal"))
	_, _, err = scanDir(t, m, "d", wal.ScanOptions{})
	wantError(t, err, base.ErrCorrupt, "header is that of segment 2")
}

func TestScanStopsWithItsCallerAndItsContext(t *testing.T) {
	m, _ := threeSegments(t, 10)
	enough := errors.New("enough")
	n := 0
	_, err := wal.Scan(t.Context(), m, "d", wal.ScanOptions{}, func(uint64, base.Handle, []byte) error {
		if n++; n == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 3 {
		t.Errorf("%d calls, error %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = wal.Scan(ctx, m, "d", wal.ScanOptions{}, func(uint64, base.Handle, []byte) error { cancel(); return nil })
	wantError(t, err, context.Canceled)
	_, err = wal.Scan(t.Context(), m, "nowhere", wal.ScanOptions{}, nil)
	if err == nil {
		t.Error("a directory that is not there was scanned")
	}
}

func TestReadErrorsOfADiskAreNotDamage(t *testing.T) {
	m, _ := threeSegments(t, 10)
	broken := errors.New("cable")
	m.FailWith(func(op, name string) error {
		if op == "read" && name == segment2 {
			return broken
		}
		return nil
	})
	_, _, err := scanDir(t, m, "d", wal.ScanOptions{SkipDamaged: true})
	if !errors.Is(err, broken) || errors.Is(err, base.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}
