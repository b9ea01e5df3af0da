package wal_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/wal"
)

func TestAppendedRecordsAreScannedInOrder(t *testing.T) {
	for _, level := range []wal.Level{wal.LevelFlush, wal.LevelSync, wal.LevelMemory} {
		t.Run(level.String(), func(t *testing.T) {
			m := newDir(t)
			w := create(t, wal.Config{FS: m, Level: level}, 7)
			hs := add(t, w, "a", "", "ccc")
			want := []base.Handle{
				{Log: "log", Epoch: 1, Segment: 1, Offset: headerBytes, Length: 1},
				{Log: "log", Epoch: 1, Segment: 1, Offset: headerBytes + recordBytes + 1},
				{Log: "log", Epoch: 1, Segment: 1, Offset: headerBytes + 2*recordBytes + 1, Length: 3},
			}
			if diff := cmp.Diff(want, hs); diff != "" {
				t.Errorf("handles (-want +got):\n%s", diff)
			}
			if w.Next() != 10 {
				t.Errorf("next is %d, want 10", w.Next())
			}
			must(t, w.Close())
			must(t, w.Close())
			r := wantScan(t, m, "d", records(7, "a", "", "ccc"))
			wantReport := wal.Report{
				Segments: []wal.SegmentReport{{Number: 1, First: 7, Last: 9, Records: 3, Bytes: 4, Length: headerBytes + 3*recordBytes + 4 + 32, Sealed: true}},
				Last:     9, Records: 3, Bytes: 4,
			}
			if diff := cmp.Diff(wantReport, r); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCreateDoesNoIO(t *testing.T) {
	m := newDir(t)
	ops := m.Ops()
	w := create(t, wal.Config{FS: m}, 1)
	must(t, w.Close())
	if m.Ops() != ops {
		t.Errorf("%d operations for a log without records", m.Ops()-ops)
	}
}

func TestConfigIsRefusedByName(t *testing.T) {
	for _, c := range []wal.Config{
		{},
		{FS: newDir(t), Level: 9},
		{FS: newDir(t), SegmentBytes: -1},
		{FS: newDir(t), SegmentAge: -1},
		{FS: newDir(t), MaxRecord: -1},
		{FS: newDir(t), MaxRecord: math.MaxInt32},
		{FS: newDir(t), RetryDelay: -1},
	} {
		if _, err := wal.Create(c, "d", "log", 1, 1); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	if _, err := wal.Create(wal.Config{FS: newDir(t)}, "d", "", 1, 1); err == nil {
		t.Error("a log without a name is accepted")
	}
}

func TestLevelsHaveNames(t *testing.T) {
	for _, level := range []wal.Level{wal.LevelFlush, wal.LevelSync, wal.LevelMemory} {
		if got, err := wal.ParseLevel(level.String()); err != nil || got != level {
			t.Errorf("%s is read as %s: %v", level, got, err)
		}
	}
	if _, err := wal.ParseLevel("disk"); err == nil {
		t.Error(`"disk" is read as a level`)
	}
	if got := wal.Level(7).String(); got != "level-7" {
		t.Errorf("an unknown level is called %q", got)
	}
}

// Each level does what it promises before it acknowledges, and no more.
func TestLevelsSyncWhatTheyPromise(t *testing.T) {
	for _, test := range []struct {
		level wal.Level
		want  []string
	}{
		{wal.LevelFlush, []string{"create", "write", "flush", "write", "flush"}},
		{wal.LevelSync, []string{"create", "write", "sync", "syncdir", "write", "sync"}},
	} {
		m := newDir(t)
		var ops []string
		m.FailWith(func(op, _ string) error { ops = append(ops, op); return nil })
		w := create(t, wal.Config{FS: m, Level: test.level}, 1)
		add(t, w, "a", "b")
		if diff := cmp.Diff(test.want, ops); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.level, diff)
		}
		w.Kill()
	}
}

func TestMemoryLevelAcknowledgesWhileTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDir(t)
		m.Slow(func(op, _ string) time.Duration { return time.Hour })
		w := create(t, wal.Config{FS: m, Level: wal.LevelMemory}, 1)
		begin := time.Now()
		rec := []byte("before")
		_, err := w.Append(t.Context(), rec)
		must(t, err)
		if time.Since(begin) > 0 {
			t.Error("the append waited for the disk")
		}
		copy(rec, "after!") // it was acknowledged
		must(t, w.Sync(t.Context()))
		m.Slow(nil)
		w.Kill()
		wantScan(t, m, "d", records(1, "before"))
	})
}

// Invariant 9: what is acknowledged before it is written is bounded.
func TestMemoryLevelHoldsBackBeyondItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDir(t)
		w := create(t, wal.Config{FS: m, Level: wal.LevelMemory}, 1)
		m.Slow(func(string, string) time.Duration { return time.Hour })
		big := make([]byte, 40<<20)
		begin := time.Now()
		_, err := w.Append(t.Context(), big)
		must(t, err)
		if time.Since(begin) > 0 {
			t.Error("the first record was held back")
		}
		_, err = w.Append(t.Context(), big)
		must(t, err)
		if time.Since(begin) < time.Hour {
			t.Error("80 MiB were acknowledged without a write")
		}
		m.Slow(nil)
		must(t, w.Close())
	})
}

func TestGroupsShareOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDir(t)
		w := create(t, wal.Config{FS: m, Level: wal.LevelSync}, 1)
		add(t, w, "first")
		writes := 0
		m.FailWith(func(op, _ string) error {
			if op == "write" {
				writes++
			}
			return nil
		})
		m.Slow(func(string, string) time.Duration { return time.Second })
		var tickets []*wal.Ticket
		for i := range 100 {
			tickets = append(tickets, w.Start([]byte{byte(i)}))
			if i == 0 {
				synctest.Wait() // it is being written
			}
		}
		for i, ticket := range tickets {
			_, err := ticket.Wait(t.Context())
			must(t, err)
			if ticket.Seq() != uint64(i+2) {
				t.Errorf("record %d has sequence %d", i, ticket.Seq())
			}
		}
		if writes != 2 {
			t.Errorf("%d writes, want one for the first and one for the 99 that came meanwhile", writes)
		}
		must(t, w.Close())
	})
}

func TestWaitWithoutTimeIsUnknownNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDir(t)
		m.Slow(func(string, string) time.Duration { return time.Minute })
		w := create(t, wal.Config{FS: m}, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ticket := w.Start([]byte("late"))
		_, err := ticket.Wait(ctx)
		wantError(t, err, context.DeadlineExceeded, "unknown")
		_, err = ticket.Wait(t.Context())
		must(t, err)
		must(t, w.Close())
		wantScan(t, m, "d", records(1, "late"))
	})
}

// B03 (b), (c): what is longer than the limit is refused with both numbers and
// leaves no trace; the limit itself works.
func TestB03LongestRecordIsReadAndLongerRefused(t *testing.T) {
	const limit = 1 << 20
	m := newDir(t)
	w := create(t, wal.Config{FS: m, MaxRecord: limit}, 1)
	ops := m.Ops()
	_, err := w.Append(t.Context(), make([]byte, limit+1))
	if err == nil {
		t.Fatal("a record beyond the limit was accepted")
	}
	wantError(t, err, err, "1048577", "1048576")
	if m.Ops() != ops || w.Next() != 1 {
		t.Errorf("the refused record cost %d operations, next is %d", m.Ops()-ops, w.Next())
	}
	h, err := w.Append(t.Context(), make([]byte, limit))
	must(t, err)
	if h.Length != limit {
		t.Errorf("handle %s", h)
	}
	must(t, w.Close())
	wantScan(t, m, "d", records(1, string(make([]byte, limit))))
	_, _, err = scanDir(t, m, "d", wal.ScanOptions{MaxRecord: limit - 1})
	if err == nil || errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a reader with a lower limit gets %v", err)
	}
}

func TestSegmentsRollBySize(t *testing.T) {
	m := newDir(t)
	w := create(t, wal.Config{FS: m, SegmentBytes: 100}, 1)
	hs := add(t, w, numbered(4)...) // 28 bytes each: two in a segment
	big := add(t, w, string(make([]byte, 200)))
	if hs[1].Segment != 1 || hs[2].Segment != 2 || hs[3].Segment != 2 || big[0].Segment != 3 {
		t.Errorf("handles %v, %v", hs, big)
	}
	must(t, w.Close())
	r := wantScan(t, m, "d", records(1, append(numbered(4), string(make([]byte, 200)))...))
	for _, s := range r.Segments {
		if !s.Sealed {
			t.Errorf("segment %d is not sealed", s.Number)
		}
	}
}

func TestRollSealsAndLaterRecordsGoElsewhere(t *testing.T) {
	m := newDir(t)
	w := create(t, wal.Config{FS: m}, 1)
	must(t, w.Roll(t.Context())) // nothing to seal
	add(t, w, "a")
	must(t, w.Roll(t.Context()))
	must(t, w.Roll(t.Context())) // nothing again
	if got := wantScan(t, m, "d", records(1, "a")).Segments; len(got) != 1 || !got[0].Sealed {
		t.Errorf("segments %+v", got)
	}
	if h := add(t, w, "b")[0]; h.Segment != 2 || h.Offset != headerBytes {
		t.Errorf("handle %s", h)
	}
	must(t, w.Close())
	wantScan(t, m, "d", records(1, "a", "b"))
}

func TestSegmentsRollByAgeWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDir(t)
		w := create(t, wal.Config{FS: m, SegmentAge: time.Minute}, 1)
		add(t, w, "a")
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if wantScan(t, m, "d", records(1, "a")).Segments[0].Sealed {
			t.Error("sealed before its time")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !wantScan(t, m, "d", records(1, "a")).Segments[0].Sealed {
			t.Error("not sealed in time")
		}
		add(t, w, "b")
		must(t, w.Close())
		wantScan(t, m, "d", records(1, "a", "b"))
	})
}

func TestCloseWritesWhatIsQueued(t *testing.T) {
	m := newDir(t)
	w := create(t, wal.Config{FS: m}, 1)
	var tickets []*wal.Ticket
	for _, rec := range numbered(100) {
		tickets = append(tickets, w.Start([]byte(rec)))
	}
	must(t, w.Close())
	for _, ticket := range tickets {
		_, err := ticket.Wait(t.Context())
		must(t, err)
	}
	_, err := w.Append(t.Context(), []byte("late"))
	wantError(t, err, wal.ErrClosed)
	wantError(t, w.Sync(t.Context()), wal.ErrClosed)
	wantError(t, w.Roll(t.Context()), wal.ErrClosed)
	wantScan(t, m, "d", records(1, numbered(100)...))
}

func TestKillLeavesTheSegmentUnsealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDir(t)
		w := create(t, wal.Config{FS: m}, 1)
		add(t, w, "a")
		m.Slow(func(string, string) time.Duration { return time.Second })
		writing, queued := w.Start([]byte("b")), (*wal.Ticket)(nil)
		synctest.Wait()
		queued = w.Start([]byte("c"))
		w.Kill()
		w.Kill()
		_, err := queued.Wait(t.Context())
		wantError(t, err, wal.ErrClosed)
		_, err = writing.Wait(t.Context())
		wantError(t, err, wal.ErrClosed)
		m.Slow(nil)
		got, r, err := scanDir(t, m, "d", wal.ScanOptions{})
		must(t, err)
		// The write that was under way is unknown; what was queued is not there.
		if diff := cmp.Diff(records(1, "a", "b"), got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if r.Segments[0].Sealed {
			t.Error("a killed writer has sealed its segment")
		}
	})
}

func TestManyGoroutinesAppend(t *testing.T) {
	m := newDir(t)
	w := create(t, wal.Config{FS: m, SegmentBytes: 4 << 10}, 1)
	var mu sync.Mutex
	want := map[uint64]string{}
	handles := map[base.Handle]bool{}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 50 {
				rec := fmt.Sprintf("%d of %d", i, g)
				ticket := w.Start([]byte(rec))
				h, err := ticket.Wait(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				want[ticket.Seq()] = rec
				handles[h] = true
				mu.Unlock()
				if i%20 == 0 {
					if err := w.Sync(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	must(t, w.Close())
	got := map[uint64]string{}
	_, err := wal.Scan(t.Context(), m, "d", wal.ScanOptions{}, func(seq uint64, h base.Handle, rec []byte) error {
		if !handles[h] {
			t.Errorf("sequence %d is at %s, which was not given", seq, h)
		}
		got[seq] = string(rec)
		return nil
	})
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
