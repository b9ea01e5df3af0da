package wal_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// crashes are the ways a process ends and the level that has to survive each.
func crashes() []crash {
	return []crash{
		{"kill", wal.LevelFlush, (*fsys.Mem).AfterKill},
		{"power loss", wal.LevelSync, (*fsys.Mem).AfterPowerLoss},
	}
}

type crash struct {
	name  string
	level wal.Level
	after func(*fsys.Mem, *rand.Rand) *fsys.Mem
}

// life is one process: it claims an epoch, reads what is there, appends, and
// remembers what was acknowledged.
type life struct {
	m     *fsys.Mem
	level wal.Level
	acked map[uint64]string
}

// run ends early when the file system has crashed.
func (l *life) run(t *testing.T, n int) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	claimed, err := wal.Claim(ctx, l.m, "p", wal.ClaimOptions{})
	if err != nil {
		return err
	}
	last := uint64(0)
	seen := map[uint64]string{}
	for _, e := range claimed.Sealed {
		got, r, err := scanDir(t, l.m, e.Dir, wal.ScanOptions{})
		if err != nil {
			return err
		}
		for _, e := range got {
			if _, ok := seen[e.Seq]; ok || e.Seq != last+1 {
				t.Errorf("sequence %d after %d", e.Seq, last)
			}
			seen[e.Seq] = e.Rec
			last = e.Seq
		}
		last = max(last, r.Last)
	}
	for seq, rec := range l.acked {
		if seen[seq] != rec {
			t.Errorf("epoch %s: sequence %d is %q, %q was acknowledged", claimed.Epoch, seq, seen[seq], rec)
		}
	}
	w, err := wal.Create(quick(wal.Config{FS: l.m, Level: l.level, SegmentBytes: 150, Alarm: func(error) {
		if l.m.Crashed() {
			cancel()
		}
	}}), claimed.Dir, "log", claimed.Epoch, last+1)
	must(t, err)
	defer w.Kill()
	for i := range n {
		rec := fmt.Sprintf("%d of epoch %s", i, claimed.Epoch)
		ticket := w.Start([]byte(rec))
		if _, err := ticket.Wait(ctx); err != nil {
			return err
		}
		l.acked[ticket.Seq()] = rec
		if i == n/2 {
			if err := w.Roll(ctx); err != nil {
				return err
			}
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return claimed.Close()
}

// At every operation of claiming, reading, appending, rolling and closing the
// process or the machine may die: what was acknowledged is there once, and the
// next epoch goes on.
func TestCrashAtEveryOperation(t *testing.T) {
	for _, c := range crashes() {
		t.Run(c.name, func(t *testing.T) {
			for at := int64(1); ; at++ {
				crashed := false
				for seed := range uint64(4) {
					l := &life{m: fsys.NewMem(), level: c.level, acked: map[uint64]string{}}
					must(t, l.run(t, 3)) // something to seal
					l.m = l.m.AfterKill(seeded(seed))
					l.m.CrashAt(at)
					err := l.run(t, 8)
					if !l.m.Crashed() {
						must(t, err)
						continue
					}
					crashed = true
					l.m = c.after(l.m, seeded(seed+uint64(at)<<8))
					if err := l.run(t, 4); err != nil {
						t.Fatalf("crash at operation %d, seed %d: %v\n%s", at, seed, err, l.m)
					}
					l.m = l.m.AfterKill(seeded(seed))
					if err := l.run(t, 0); err != nil {
						t.Fatalf("crash at operation %d, seed %d: last look: %v", at, seed, err)
					}
					if t.Failed() {
						t.Fatalf("crash at operation %d, seed %d\n%s", at, seed, l.m)
					}
				}
				if !crashed {
					if at < 40 {
						t.Errorf("only %d operations", at)
					}
					return
				}
			}
		})
	}
}

// A second power loss right after the successor has read finds what it read:
// Scan syncs it where the file system can. Here it can't, so what was accepted
// must at least be missed.
func TestAcceptedRecordsThatVanishAreMissed(t *testing.T) {
	m := newDir(t)
	w := create(t, wal.Config{FS: m}, 1)
	add(t, w, numbered(3)...)
	w.Kill()
	killed := m.AfterKill(seeded(1))
	_, r, err := scanDir(t, killed, "d", wal.ScanOptions{})
	must(t, err)
	limits := r.Limits()
	for seed := range uint64(20) {
		lost := killed.AfterPowerLoss(seeded(seed))
		got, _, err := scanDir(t, lost, "d", wal.ScanOptions{Limits: &limits})
		if len(got) < 3 && err == nil {
			t.Errorf("seed %d: %d of 3 accepted records, no error", seed, len(got))
		}
	}
}

// With a disk that syncs nothing more the records of a power loss are still
// never made up: what is found was written.
func TestPowerLossAtLevelFlushInventsNothing(t *testing.T) {
	for seed := range uint64(200) {
		m := newDir(t)
		w := create(t, wal.Config{FS: m, SegmentBytes: 200}, 1)
		want := map[uint64]string{}
		for i, rec := range numbered(12) {
			add(t, w, rec)
			want[uint64(i+1)] = rec
		}
		w.Kill()
		got, _, err := scanDir(t, m.AfterPowerLoss(seeded(seed)), "d", wal.ScanOptions{SkipDamaged: true})
		must(t, err)
		for _, e := range got {
			if want[e.Seq] != e.Rec {
				t.Errorf("seed %d: sequence %d is %q", seed, e.Seq, e.Rec)
			}
		}
	}
}
