package checkpoint_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/fsys"
)

// crashes runs act on a fresh file system made by start, and again with a
// crash at each of its operations in turn, and gives check what is found after
// the death of the process and after a power loss, in several ways each. done says
// that act returned nil; keep is how many snapshots the process after a death keeps.
func crashes(t *testing.T, keep int, start func() *fsys.Mem, act func(m *fsys.Mem) error, check func(t *testing.T, m *fsys.Mem, done bool)) {
	t.Helper()
	m := start()
	before := m.Ops()
	if err := act(m); err != nil {
		t.Fatal(err)
	}
	total := m.Ops() - before
	if total < 5 {
		t.Fatalf("only %d operations", total)
	}
	for n := int64(1); n <= total+1; n++ {
		for seed := range uint64(8) {
			rng := func() *rand.Rand { return rand.New(rand.NewPCG(uint64(n), seed)) }
			run := func() (*fsys.Mem, bool) {
				m := start()
				m.CrashAt(n)
				err := act(m)
				if err != nil && !errors.Is(err, fsys.ErrCrashed) {
					t.Fatalf("crash at %d: %v", n, err)
				}
				return m, err == nil
			}
			m, done := run()
			check(t, m.AfterKill(rng()), done)
			m, done = run()
			check(t, m.AfterPowerLoss(rng()), done)
			// The power goes when a new process has already read what the killed one left,
			// and has cleaned up on the strength of it.
			m, done = run()
			m = m.AfterKill(rng())
			if _, err := checkpoint.Prune(m, []string{"d"}, keep); err != nil {
				t.Fatalf("crash at %d: prune: %v", n, err)
			}
			check(t, m.AfterPowerLoss(rng()), done)
			if t.Failed() {
				t.Fatalf("with a crash at operation %d of %d, seed %d", n, total, seed)
			}
		}
	}
}

// TestACrashInWriteCostsNoSnapshot (B17d): one of the two is there, whole, and the new one
// if Write said so; and the next can be written.
func TestACrashInWriteCostsNoSnapshot(t *testing.T) {
	start := func() *fsys.Mem {
		m := disk(t, "d")
		write(t, m, "d", 1)
		return m
	}
	act := func(m *fsys.Mem) error {
		_, err := checkpoint.Write(m, "d", snap(1, 2))
		return err
	}
	crashes(t, 1, start, act, func(t *testing.T, m *fsys.Mem, done bool) {
		seq, bad, err := newest(t, m, "d")
		if err != nil || bad != nil || seq != 2 && (done || seq != 1) {
			t.Errorf("newest is %d, bad %v, %v; written: %t", seq, bad, err, done)
		}
		write(t, m, "d", 2, 3)
		if seq, _, err := newest(t, m, "d"); seq != 3 || err != nil {
			t.Errorf("newest is %d, %v, after the next", seq, err)
		}
	})
}

// TestACrashInTheFirstWriteIsANewJob, if it left nothing.
func TestACrashInTheFirstWriteIsANewJob(t *testing.T) {
	act := func(m *fsys.Mem) error {
		_, err := checkpoint.Write(m, "d", snap(1, 1))
		return err
	}
	crashes(t, 1, func() *fsys.Mem { return disk(t, "d") }, act, func(t *testing.T, m *fsys.Mem, done bool) {
		if seq, _, err := newest(t, m, "d"); err != nil || done && seq != 1 {
			t.Errorf("newest is %d, %v; written: %t", seq, err, done)
		}
		write(t, m, "d", 1)
	})
}

// TestACrashInPruneCostsNoSnapshotThatIsKept.
func TestACrashInPruneCostsNoSnapshotThatIsKept(t *testing.T) {
	start := func() *fsys.Mem {
		m := disk(t, "d")
		write(t, m, "d", 1, 2, 3, 4, 5)
		damage(t, m, "d/snap-0000000000000004.tms", half)
		if err := fsys.WriteFile(m, "d/snap-0000000000000006.tms.0.tmp", []byte("half")); err != nil {
			t.Fatal(err)
		}
		if err := m.SyncDir("d"); err != nil {
			t.Fatal(err)
		}
		return m
	}
	act := func(m *fsys.Mem) error {
		_, err := checkpoint.Prune(m, []string{"d"}, 2)
		return err
	}
	crashes(t, 2, start, act, func(t *testing.T, m *fsys.Mem, done bool) {
		all, err := checkpoint.List(m, []string{"d"})
		if err != nil || len(all) == 0 || all[0].Seq != 5 {
			t.Errorf("there is %d, %v", seqs(all), err)
		}
		kept, err := checkpoint.Prune(m, []string{"d"}, 2)
		if err != nil || !slices.Equal(seqs(kept), []uint64{5, 3}) {
			t.Errorf("kept %d, %v", seqs(kept), err)
		}
		for _, f := range names(t, m, "d") {
			if !slices.ContainsFunc(kept, func(in checkpoint.Info) bool { return in.Path == f }) {
				t.Errorf("%s is left", f)
			}
		}
	})
}

// TestPruneSyncsWhatItKeeps: the driver that wrote it may have been killed before its
// directory was synced, and then the power goes.
func TestPruneSyncsWhatItKeeps(t *testing.T) {
	for seed := range uint64(20) {
		m := disk(t, "a", "b")
		write(t, m, "a", 1)
		m.FailWith(func(op, _ string) error {
			if op == "syncdir" {
				return fsys.ErrCrashed
			}
			return nil
		})
		if _, err := checkpoint.Write(m, "b", snap(1, 2)); !errors.Is(err, fsys.ErrCrashed) {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		m = m.AfterKill(rng)
		if kept, err := checkpoint.Prune(m, []string{"a", "b"}, 1); err != nil || !slices.Equal(seqs(kept), []uint64{2}) {
			t.Fatalf("kept %d, %v", seqs(kept), err)
		}
		m = m.AfterPowerLoss(rng)
		if seq, _, err := newest(t, m, "a", "b"); seq != 2 || err != nil {
			t.Errorf("seed %d: newest is %d, %v", seed, seq, err)
		}
	}
}
