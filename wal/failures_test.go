package wal_test

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// faults makes the n-th operation of a kind fail, and notes the operations.
type faults struct {
	mu   sync.Mutex
	op   string
	at   int
	err  error
	seen []string // "op name" of all
	hit  int      // how many were seen up to the one that failed
}

func (f *faults) hook(op, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, op+" "+name)
	if op != f.op {
		return nil
	}
	if f.at--; f.at == 0 {
		f.hit = len(f.seen)
		return f.err
	}
	return nil
}

// fired reports whether the operation was reached.
func (f *faults) fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at <= 0
}

// Invariant 14: whatever fails, wherever, every append ends with the record in
// the log once.
func TestAppendHasNoFailedOutcome(t *testing.T) {
	for _, level := range []wal.Level{wal.LevelFlush, wal.LevelSync, wal.LevelMemory} {
		for _, op := range []string{"create", "write", "flush", "sync", "syncdir", "close", "remove"} {
			for _, err := range []error{
				syscall.EIO, &fsys.AppliedError{}, &fsys.ShortWrite{N: 0}, &fsys.ShortWrite{N: 30}, &fsys.ShortWrite{N: 50},
			} {
				for at := 1; ; at++ {
					m := newDir(t)
					f := &faults{op: op, at: at, err: err}
					m.FailWith(f.hook)
					alarms := 0
					w := create(t, wal.Config{FS: m, Level: level, SegmentBytes: 120, Alarm: func(error) { alarms++ }}, 1)
					hs := add(t, w, numbered(7)...)
					must(t, w.Roll(t.Context()))
					must(t, w.Close())
					m.FailWith(nil)
					wantScan(t, m, "d", records(1, numbered(7)...))
					if level != wal.LevelMemory {
						wantHandles(t, m, hs)
					}
					if !f.fired() {
						break
					}
					if alarms == 0 {
						t.Errorf("%s: %s %d failed with %v without an alarm", level, op, at, err)
					}
					if at > 100 {
						t.Fatal("the operation never ends")
					}
				}
			}
		}
	}
}

// wantHandles reads the records of numbered by the handles that were given.
func wantHandles(t testing.TB, m *fsys.Mem, hs []base.Handle) {
	t.Helper()
	for i, h := range hs {
		data, err := fsys.ReadFile(m, segmentName(h.Segment))
		must(t, err)
		if got, want := string(data[h.Offset+recordBytes:][:h.Length]), numbered(len(hs))[i]; got != want {
			t.Errorf("%s is %q, want %q", h, got, want)
		}
	}
}

func segmentName(n uint64) string {
	return "d/000000000000000" + string(rune('0'+n)) + ".wal"
}

// A file whose sync failed is never synced or written again: the system may have
// dropped the pages and say nil the next time.
func TestFileIsNotTouchedAfterAFailedSync(t *testing.T) {
	for _, level := range []wal.Level{wal.LevelSync, wal.LevelFlush} {
		m := newDir(t)
		f := &faults{op: "sync", at: 1, err: syscall.EIO}
		if level == wal.LevelSync {
			f.at = 2 // the file has acknowledged records then
		}
		m.FailWith(f.hook)
		w := create(t, wal.Config{FS: m, Level: level}, 1)
		add(t, w, "a")
		if level == wal.LevelFlush {
			if err := w.Sync(t.Context()); !errors.Is(err, syscall.EIO) {
				t.Errorf("sync of lost pages: %v", err)
			}
		}
		add(t, w, "b")
		// Nobody may rely on "a" at the lower level, now or later.
		if err := w.Sync(t.Context()); level == wal.LevelFlush != errors.Is(err, syscall.EIO) {
			t.Errorf("%s: later sync: %v", level, err)
		}
		must(t, w.Close())
		for _, op := range f.seen[f.hit:] {
			if (strings.HasPrefix(op, "sync ") || strings.HasPrefix(op, "write ")) && strings.HasSuffix(op, segment1) {
				t.Errorf("%s: after the failed sync: %s", level, op)
			}
		}
		m.FailWith(nil)
		wantScan(t, m, "d", records(1, "a", "b"))
	}
}

// The same for the sync of a segment that was sealed, which nobody waits for.
func TestFailedSyncOfASealedSegmentIsRemembered(t *testing.T) {
	m := newDir(t)
	f := &faults{op: "sync", at: 1, err: syscall.EIO}
	m.FailWith(f.hook)
	w := create(t, wal.Config{FS: m}, 1)
	add(t, w, "a")
	must(t, w.Roll(t.Context()))
	add(t, w, "b")
	for range 2 {
		wantError(t, w.Sync(t.Context()), syscall.EIO, segment1)
	}
	must(t, w.Close())
	wantScan(t, m, "d", records(1, "a", "b"))
}

// What is on disk elsewhere is not asked of a file whose sync failed, and nothing
// more than that.
func TestSyncDoesNotAnswerForWhatIsCovered(t *testing.T) {
	m := newDir(t)
	f := &faults{op: "sync", at: 1, err: syscall.EIO}
	m.FailWith(f.hook)
	w := create(t, wal.Config{FS: m}, 1)
	add(t, w, "a", "b")
	wantError(t, w.Sync(t.Context()), syscall.EIO, segment1)
	add(t, w, "c")
	w.Covered(1)
	wantError(t, w.Sync(t.Context()), syscall.EIO, segment1)
	w.Covered(2)
	must(t, w.Sync(t.Context()))
	must(t, w.Sync(t.Context()))
	must(t, w.Close())
}

// B23: a disk that is full for a while delays and loses nothing, and leaves no
// heap of empty files.
func TestB23DiskFullForAWhile(t *testing.T) {
	for _, op := range []string{"create", "write", "flush", "mixed"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newDir(t)
				var mu sync.Mutex
				full, alarms := false, 0
				m.FailWith(func(o, _ string) error {
					mu.Lock()
					defer mu.Unlock()
					if full && (o == op || op == "mixed" && (o == "create" && alarms%3 == 0 || o == "write")) {
						return &fsys.ShortWrite{N: 10, Err: syscall.ENOSPC}
					}
					return nil
				})
				w, err := wal.Create(wal.Config{FS: m, SegmentBytes: 100, Alarm: func(err error) {
					mu.Lock()
					defer mu.Unlock()
					if alarms++; !errors.Is(err, syscall.ENOSPC) {
						t.Errorf("alarm %v", err)
					}
				}}, "d", "log", 1, 1)
				must(t, err)
				all := numbered(20)
				add(t, w, all[:5]...)
				mu.Lock()
				full = true
				mu.Unlock()
				var tickets []*wal.Ticket
				for _, rec := range all[5:] {
					tickets = append(tickets, w.Start([]byte(rec)))
				}
				time.Sleep(time.Minute)
				mu.Lock()
				full = false
				tries := alarms
				mu.Unlock()
				// 10 ms doubled up to 1 s: some 60 attempts in a minute.
				if tries < 50 || tries > 80 {
					t.Errorf("%d attempts in a minute", tries)
				}
				for _, ticket := range tickets {
					_, err := ticket.Wait(t.Context())
					must(t, err)
				}
				must(t, w.Close())
				wantScan(t, m, "d", records(1, all...))
				if infos, _ := m.List("d"); len(infos) > 20 {
					t.Errorf("%d files are left", len(infos))
				}
			})
		})
	}
}

func TestCloseOnABrokenDiskEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDir(t)
		m.FailWith(func(op, _ string) error { return syscall.EIO })
		w, err := wal.Create(wal.Config{FS: m}, "d", "log", 1, 1)
		must(t, err)
		ticket := w.Start([]byte("a"))
		time.Sleep(time.Hour)
		err = w.Close()
		wantError(t, err, wal.ErrClosed, "1 records not written")
		wantError(t, err, syscall.EIO)
		_, err = ticket.Wait(t.Context())
		wantError(t, err, wal.ErrClosed)
	})
}

func TestKillEndsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDir(t)
		m.FailWith(func(op, _ string) error { return syscall.EIO })
		w, err := wal.Create(wal.Config{FS: m}, "d", "log", 1, 1)
		must(t, err)
		ticket := w.Start([]byte("a"))
		time.Sleep(time.Hour)
		ops := m.Ops()
		w.Kill()
		if m.Ops() != ops {
			t.Errorf("%d operations after Kill", m.Ops()-ops)
		}
		_, err = ticket.Wait(t.Context())
		wantError(t, err, wal.ErrClosed)
	})
}

// Invariant 7: the rename of its directory is what a fenced writer meets, at the
// latest when it rolls.
func TestRenamedDirectoryFencesItsWriter(t *testing.T) {
	for _, level := range []wal.Level{wal.LevelFlush, wal.LevelSync} {
		m := newDir(t)
		w := create(t, wal.Config{FS: m, Level: level}, 1)
		add(t, w, "a")
		must(t, m.Rename("d", "d.sealed"))
		add(t, w, "into the open file")
		must(t, w.Roll(t.Context()))
		_, err := w.Append(t.Context(), []byte("b"))
		wantError(t, err, wal.ErrFenced)
		wantError(t, err, fs.ErrNotExist)
		_, err = w.Append(t.Context(), []byte("c"))
		wantError(t, err, wal.ErrFenced)
		wantError(t, w.Sync(t.Context()), wal.ErrFenced)
		wantError(t, w.Close(), wal.ErrFenced)
		if _, err := m.Stat("d"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the fenced writer made its directory again: %v", err)
		}
		wantScan(t, m, "d.sealed", records(1, "a", "into the open file"))
	}
}
