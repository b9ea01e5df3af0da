package wal_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

func openStore(t testing.TB, m fsys.FS, change func(*wal.StoreConfig)) *wal.Store {
	t.Helper()
	cfg := wal.StoreConfig{Config: quick(wal.Config{FS: m, SegmentBytes: 100}), Dir: "s"}
	if change != nil {
		change(&cfg)
	}
	s, err := wal.OpenStore(cfg)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func storeWriter(t testing.TB, s *wal.Store, log string, epoch base.Epoch) *wal.StoreWriter {
	t.Helper()
	w, err := s.Writer(t.Context(), log, epoch)
	must(t, err)
	return w
}

func wantRead(t testing.TB, s *wal.Store, h base.Handle, want string) {
	t.Helper()
	got, err := s.Read(t.Context(), h)
	must(t, err)
	if string(got) != want {
		t.Errorf("%s is %q, want %q", h, got, want)
	}
}

func wantGone(t testing.TB, s *wal.Store, h base.Handle) {
	t.Helper()
	_, err := s.Read(t.Context(), h)
	wantError(t, err, fs.ErrNotExist, h.String(), ".wal")
}

// files are the segments under a directory of a memory file system.
func files(m *fsys.Mem) []string {
	var names []string
	for line := range strings.Lines(m.String()) {
		if line = strings.TrimSpace(line); strings.HasSuffix(line, ".wal") {
			names = append(names, line)
		}
	}
	return names
}

func TestStoreReadsByHandle(t *testing.T) {
	for _, level := range []wal.Level{wal.LevelFlush, wal.LevelSync, wal.LevelMemory} {
		m := fsys.NewMem()
		s := openStore(t, m, func(c *wal.StoreConfig) { c.Level = level })
		w := storeWriter(t, s, "orders/EU", 4)
		all := numbered(30)
		hs := add(t, w, all...)
		for i, h := range hs {
			wantRead(t, s, h, all[i])
		}
		must(t, w.Close())
		for i, h := range hs {
			wantRead(t, s, h, all[i])
		}
		// Another process finds them after the epoch was sealed.
		storeWriter(t, s, "orders/EU", 5)
		other := openStore(t, m, nil)
		for i, h := range hs {
			wantRead(t, other, h, all[i])
		}
		if _, err := m.Stat("s/orders%2FEU/e-000004.sealed"); err != nil {
			t.Errorf("%v\n%s", err, m)
		}
	}
}

func TestStoreRefusesWrongHandles(t *testing.T) {
	m := fsys.NewMem()
	s := openStore(t, m, func(c *wal.StoreConfig) { c.SegmentBytes = 0 })
	w := storeWriter(t, s, "a", 1)
	h := add(t, w, "one", "two")[0]
	for name, change := range map[string]func(*base.Handle){
		"longer":          func(h *base.Handle) { h.Length++ },
		"shorter":         func(h *base.Handle) { h.Length-- },
		"negative length": func(h *base.Handle) { h.Length = -1 },
		"huge length":     func(h *base.Handle) { h.Length = 1 << 62 },
		"long":            func(h *base.Handle) { h.Length = 1 << 30 },
		"other offset":    func(h *base.Handle) { h.Offset++ },
		"in the header":   func(h *base.Handle) { h.Offset = 0 },
		"negative offset": func(h *base.Handle) { h.Offset = -5 },
		"huge offset":     func(h *base.Handle) { h.Offset = 1<<63 - 1 },
	} {
		bad := h
		change(&bad)
		_, err := s.Read(t.Context(), bad)
		if !errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), bad.String()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []base.Handle{
		{Log: "a", Epoch: 1, Segment: 2, Offset: 34, Length: 3},
		{Log: "a", Epoch: 2, Segment: 1, Offset: 34, Length: 3},
		{Log: "b", Epoch: 1, Segment: 1, Offset: 34, Length: 3},
	} {
		wantGone(t, s, bad)
	}
	if _, err := s.Read(t.Context(), base.Handle{}); err == nil {
		t.Error("the zero handle was read")
	}
	// A segment in another's place is noticed.
	must(t, w.Close())
	must(t, m.Rename("s/a/e-000001", "s/a/e-000009"))
	h.Epoch = 9
	_, err := s.Read(t.Context(), h)
	wantError(t, err, base.ErrCorrupt, "epoch 1")
}

func TestStoreNoticesDamage(t *testing.T) {
	m := fsys.NewMem()
	s := openStore(t, m, nil)
	w := storeWriter(t, s, "a", 1)
	h := add(t, w, "one")[0]
	must(t, w.Close())
	patch(t, m, "s/a/e-000001/0000000000000001.wal", func(b []byte) []byte { b[h.Offset+recordBytes] ^= 1; return b })
	_, err := s.Read(t.Context(), h)
	wantError(t, err, base.ErrCorrupt, h.String(), "0000000000000001.wal")
}

func TestRecoverSweepsWhatNobodyNames(t *testing.T) {
	m := fsys.NewMem()
	s := openStore(t, m, nil)
	w := storeWriter(t, s, "a", 1)
	hs := add(t, w, numbered(6)...) // two in a segment
	must(t, w.Close())
	other := storeWriter(t, s, "b", 7)
	add(t, other, "orphan")
	other.Kill()
	must(t, s.Close())
	must(t, m.MkdirAll("s/not%a%log/e-000001"))

	s = openStore(t, m, nil)
	lost := base.Handle{Log: "a", Epoch: 3, Segment: 1, Offset: 34, Length: 1}
	r, err := s.Recover(t.Context(), []base.Handle{hs[0], hs[4], hs[5], hs[0], lost})
	must(t, err)
	want := wal.Recovered{Missing: []base.Handle{lost}, Segments: 2, Live: hs[0].Length + hs[4].Length + hs[5].Length, Removed: 2}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantFiles := []string{"/s/a/e-000001.sealed/0000000000000001.wal", "/s/a/e-000001.sealed/0000000000000003.wal"}
	if diff := cmp.Diff(wantFiles, files(m)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if _, err := m.Stat("s/b/e-000007.sealed"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty epoch is left: %v", err)
	}
	wantRead(t, s, hs[4], "record 5")
	wantGone(t, s, hs[2])
	if _, err := s.Recover(t.Context(), nil); err == nil {
		t.Error("a second Recover, which would sweep everything, was accepted")
	}
	u := s.Usage()
	if u.Logs != 2 || u.Segments != 2 || u.Live != want.Live || u.Bytes <= u.Live {
		t.Errorf("usage %+v", u)
	}
	s.Release(hs[0], hs[4], hs[5])
	must(t, s.Close())
	if left := files(m); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Invariant 7.
func TestStoreWriterIsFencedByItsSuccessor(t *testing.T) {
	m := fsys.NewMem()
	s := openStore(t, m, nil)
	first := storeWriter(t, s, "a", 3)
	h := add(t, first, "one")[0]
	if _, err := s.Writer(t.Context(), "a", 3); !errors.Is(err, wal.ErrFenced) {
		t.Errorf("the same epoch again: %v", err)
	}
	second := storeWriter(t, s, "a", 4)
	if _, err := s.Writer(t.Context(), "a", 2); !errors.Is(err, wal.ErrFenced) {
		t.Errorf("a lower epoch: %v", err)
	}
	must(t, first.Roll(t.Context()))
	_, err := first.Append(t.Context(), []byte("late"))
	wantError(t, err, wal.ErrFenced)
	add(t, second, "two")
	wantRead(t, s, h, "one")
	if _, err := s.Writer(t.Context(), "a", 4); !errors.Is(err, wal.ErrFenced) {
		t.Errorf("an epoch that was opened: %v", err)
	}
	if _, err := s.Writer(t.Context(), "", 1); err == nil {
		t.Error("a log without a name was opened")
	}
	if _, err := s.Writer(t.Context(), strings.Repeat("/", 100), 1); err == nil {
		t.Error("a name of 300 bytes was opened")
	}
}

func TestLogNamesCannotLeaveTheStore(t *testing.T) {
	m := fsys.NewMem()
	s := openStore(t, m, nil)
	for log, dir := range map[string]string{
		"..": "%2E.", "../x": "%2E.%2Fx", "a b": "a%20b", "ü": "%C3%BC", "%": "%25", "A-Z_a.0": "A-Z_a.0",
	} {
		w := storeWriter(t, s, log, 1)
		h := add(t, w, "x")[0]
		wantRead(t, s, h, "x")
		if _, err := m.Stat("s/" + dir + "/e-000001"); err != nil {
			t.Error(err)
		}
	}
	must(t, s.Close())
	again := openStore(t, m, nil)
	r, err := again.Recover(t.Context(), nil)
	must(t, err)
	if r.Removed != 6 || len(files(m)) > 0 {
		t.Errorf("recovered %+v, files %v", r, files(m))
	}
}

// A group that fills several segments seals the first ones before any of it is
// acknowledged. They must not pass for empty.
func TestSegmentsOfAnUnacknowledgedGroupAreNotDeleted(t *testing.T) {
	for _, level := range []wal.Level{wal.LevelFlush, wal.LevelMemory} {
		synctest.Test(t, func(t *testing.T) {
			m := fsys.NewMem()
			s := openStore(t, m, func(c *wal.StoreConfig) { c.Level = level })
			w := storeWriter(t, s, "a", 1)
			m.Slow(func(string, string) time.Duration { return time.Second })
			var tickets []*wal.Ticket
			for _, rec := range numbered(20) {
				tickets = append(tickets, w.Start([]byte(rec)))
			}
			time.Sleep(time.Hour)
			m.Slow(nil)
			for i, ticket := range tickets {
				h, err := ticket.Wait(t.Context())
				must(t, err)
				wantRead(t, s, h, numbered(20)[i])
			}
			must(t, s.Close())
			if len(files(m)) < 7 {
				t.Errorf("files %v", files(m))
			}
		})
	}
}

func TestSparse(t *testing.T) {
	m := fsys.NewMem()
	s := openStore(t, m, func(c *wal.StoreConfig) { c.SegmentBytes = 1 << 20 })
	w := storeWriter(t, s, "a", 1)
	rec := string(make([]byte, 1000))
	hs := add(t, w, rec, rec, rec, rec, rec)
	s.Release(hs[:4]...)
	if s.Sparse(hs[4]) {
		t.Error("an open segment is sparse")
	}
	must(t, w.Roll(t.Context()))
	if !s.Sparse(hs[4]) {
		t.Error("a fifth is live, and the segment is not sparse")
	}
	more := add(t, w, rec, rec, rec)
	must(t, w.Roll(t.Context()))
	s.Release(more[:2]...)
	if s.Sparse(more[2]) {
		t.Error("a third is live, and the segment is sparse")
	}
	if s.Sparse(base.Handle{Log: "b"}) {
		t.Error("an unknown segment is sparse")
	}
}

func TestQueuedRecordsAreReadFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsys.NewMem()
		s := openStore(t, m, func(c *wal.StoreConfig) { c.Level = wal.LevelMemory })
		w := storeWriter(t, s, "a", 1)
		m.Slow(func(op, _ string) time.Duration { return time.Hour })
		hs := add(t, w, numbered(9)...)
		for i, h := range hs {
			wantRead(t, s, h, numbered(9)[i])
		}
		s.Release(hs[0], hs[1]) // before they are written
		m.Slow(nil)
		must(t, w.Roll(t.Context()))
		synctest.Wait()
		wantGone(t, s, hs[0])
		wantRead(t, s, hs[2], "record 3")
		must(t, s.Close())
	})
}

// A failed write moves what was acknowledged from memory; its handle stays good,
// and its release counts where it is.
func TestHandlesFollowRecordsThatMoved(t *testing.T) {
	for at := 1; at < 8; at++ { // records and seals in turn
		synctest.Test(t, func(t *testing.T) {
			m := fsys.NewMem()
			s := openStore(t, m, func(c *wal.StoreConfig) { c.Level = wal.LevelMemory })
			w := storeWriter(t, s, "a", 1)
			f := &faults{op: "write", at: at, err: &fsys.ShortWrite{N: 30}}
			m.FailWith(f.hook)
			m.Slow(func(op, _ string) time.Duration { return time.Second })
			hs := add(t, w, numbered(9)...)
			m.Slow(nil)
			time.Sleep(time.Hour)
			must(t, w.Roll(t.Context()))
			if !f.fired() {
				t.Fatal("no write failed")
			}
			for i, h := range hs {
				wantRead(t, s, h, numbered(9)[i])
			}
			s.Release(hs...)
			s.Release(hs...)
			synctest.Wait()
			if left := files(m); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			must(t, s.Close())
		})
	}
}

// After a crash the handle of a record that moved leads nowhere, or to that
// record; never to another.
func TestPromisedHandleNeverLeadsToAnotherRecord(t *testing.T) {
	for at := 1; at < 8; at++ {
		synctest.Test(t, func(t *testing.T) {
			m := fsys.NewMem()
			s := openStore(t, m, func(c *wal.StoreConfig) { c.Level = wal.LevelMemory })
			w := storeWriter(t, s, "a", 1)
			f := &faults{op: "write", at: at, err: &fsys.ShortWrite{N: 30}}
			m.FailWith(f.hook)
			m.Slow(func(op, _ string) time.Duration { return time.Second })
			hs := add(t, w, numbered(9)...)
			time.Sleep(time.Hour)
			m.Slow(nil)
			must(t, s.Close())
			if !f.fired() {
				t.Fatal("no write failed")
			}
			s = openStore(t, m, nil)
			for i, h := range hs {
				if got, err := s.Read(t.Context(), h); err == nil && string(got) != numbered(9)[i] {
					t.Errorf("%s is %q, was given for %q", h, got, numbered(9)[i])
				}
			}
			must(t, s.Close())
		})
	}
}

func TestAppendThatGaveUpLeavesNothingLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsys.NewMem()
		s := openStore(t, m, nil)
		w := storeWriter(t, s, "a", 1)
		m.Slow(func(string, string) time.Duration { return time.Minute })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.Append(ctx, []byte("nobody knows where"))
		wantError(t, err, context.DeadlineExceeded)
		m.Slow(nil)
		must(t, w.Close())
		must(t, s.Close())
		if left := files(m); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestManyReadersShareFewFiles(t *testing.T) {
	m := fsys.NewMem()
	s := openStore(t, m, func(c *wal.StoreConfig) { c.SegmentBytes = 40 })
	w := storeWriter(t, s, "a", 1)
	all := numbered(40) // a segment each
	hs := add(t, w, all...)
	must(t, w.Close())
	var mu sync.Mutex
	open, most := 0, 0
	m.FailWith(func(op, name string) error {
		mu.Lock()
		defer mu.Unlock()
		switch op {
		case "open":
			open++
		case "close":
			open--
		}
		most = max(most, open)
		return nil
	})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				n := (i*7 + g) % len(hs)
				got, err := s.Read(context.Background(), hs[n])
				if err != nil || string(got) != all[n] {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	must(t, s.Close())
	if most > 16+4+4 || open != 0 {
		t.Errorf("%d files were open at once, %d are left open", most, open)
	}
}

func TestClosedStoreRefusesWriters(t *testing.T) {
	s := openStore(t, fsys.NewMem(), nil)
	w := storeWriter(t, s, "a", 1)
	must(t, s.Close())
	must(t, s.Close())
	_, err := w.Append(t.Context(), []byte("x"))
	wantError(t, err, wal.ErrClosed)
	_, err = s.Writer(t.Context(), "b", 1)
	wantError(t, err, wal.ErrClosed)
}

// While one record is written, the next is queued for the same segment and one
// more for another: the segment is sealed only when it has both.
func TestSegmentWaitsForWhatIsQueuedForIt(t *testing.T) {
	for _, level := range []wal.Level{wal.LevelFlush, wal.LevelSync, wal.LevelMemory} {
		m := fsys.NewMem()
		writing, on := make(chan struct{}), make(chan struct{})
		var once sync.Once
		m.FailWith(func(op, _ string) error {
			if op == "write" {
				once.Do(func() { close(writing); <-on })
			}
			return nil
		})
		s := openStore(t, m, func(c *wal.StoreConfig) {
			c.Level, c.SegmentBytes = level, 100 // two records
			c.Alarm = func(err error) { t.Errorf("%s: %v", level, err) }
		})
		w := storeWriter(t, s, "a", 1)
		recs := []string{"one, which is", "two, which is", "three", "four"}
		var tickets []*wal.Ticket
		for i, rec := range recs {
			tickets = append(tickets, w.Start([]byte(rec)))
			if i == 0 {
				<-writing
			}
		}
		close(on)
		var segments []uint64
		for i, ticket := range tickets {
			h, err := ticket.Wait(t.Context())
			must(t, err)
			segments = append(segments, h.Segment)
			wantRead(t, s, h, recs[i])
			defer wantRead(t, s, h, recs[i]) // and after the close
		}
		must(t, w.Close())
		if d := cmp.Diff([]uint64{1, 1, 2, 2}, segments); d != "" {
			t.Errorf("%s: segments (-want +got):\n%s", level, d)
		}
	}
}
