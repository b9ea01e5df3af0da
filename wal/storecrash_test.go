package wal_test

import (
	"context"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// keeper stands for the log that names a store's handles: what is in live is
// durable before anything relies on it.
type keeper struct {
	m     *fsys.Mem
	level wal.Level
	live  map[base.Handle]string
}

// run recovers a store, checks what is live, appends, releases half, and closes.
func (k *keeper) run(t *testing.T, epoch base.Epoch, n int) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := wal.StoreConfig{Config: quick(wal.Config{FS: k.m, Level: k.level, SegmentBytes: 100}), Dir: "s"}
	cfg.Alarm = func(error) {
		if k.m.Crashed() {
			cancel()
		}
	}
	s, err := wal.OpenStore(cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	var named []base.Handle
	for h := range k.live {
		named = append(named, h)
	}
	r, err := s.Recover(ctx, named)
	if err != nil {
		return err
	}
	if len(r.Missing) > 0 {
		t.Errorf("epoch %s: %v are missing", epoch, r.Missing)
	}
	for h, want := range k.live {
		got, err := s.Read(ctx, h)
		if err != nil {
			if !k.m.Crashed() {
				t.Errorf("epoch %s: %v", epoch, err)
			}
			return err
		}
		if string(got) != want {
			t.Errorf("epoch %s: %s is %q, want %q", epoch, h, got, want)
		}
	}
	w, err := s.Writer(ctx, "a", epoch)
	if err != nil {
		return err
	}
	defer w.Kill()
	for i, rec := range numbered(n) {
		h, err := w.Append(ctx, []byte(rec))
		if err != nil {
			return err
		}
		k.live[h] = rec
		if i%4 != 1 {
			delete(k.live, h)
			s.Release(h)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return s.Close()
}

// At every operation of recovery, append, release and removal the process or the
// machine may die: live records stay readable, and what nobody names goes.
func TestStoreCrashAtEveryOperation(t *testing.T) {
	for _, c := range crashes() {
		t.Run(c.name, func(t *testing.T) {
			for at := int64(1); ; at++ {
				crashed := false
				for seed := range uint64(3) {
					k := &keeper{m: fsys.NewMem(), level: c.level, live: map[base.Handle]string{}}
					must(t, k.run(t, 1, 8))
					k.m.CrashAt(at)
					err := k.run(t, 2, 8)
					if !k.m.Crashed() {
						must(t, err)
						continue
					}
					crashed = true
					k.m = c.after(k.m, seeded(seed+uint64(at)<<8))
					if err := k.run(t, 3, 3); err != nil {
						t.Fatalf("crash at operation %d, seed %d: %v\n%s", at, seed, err, k.m)
					}
					clear(k.live)
					if err := k.run(t, 4, 0); err != nil {
						t.Fatalf("crash at operation %d, seed %d: last look: %v", at, seed, err)
					}
					if left := files(k.m); len(left) > 0 {
						t.Errorf("nobody names a record, left: %v", left)
					}
					if t.Failed() {
						t.Fatalf("crash at operation %d, seed %d\n%s", at, seed, k.m)
					}
				}
				if !crashed {
					if at < 60 {
						t.Errorf("only %d operations", at)
					}
					return
				}
			}
		})
	}
}

// Invariant 14 for the store: whatever fails once, the handle that is given
// leads to the record, and nothing is left that nobody names.
func TestStoreAfterFailures(t *testing.T) {
	for _, op := range []string{"create", "write", "flush", "sync", "remove", "syncdir", "close", "open", "read"} {
		for _, fault := range []error{fsys.ErrLocked, &fsys.AppliedError{}} {
			for at := 1; at < 12; at++ {
				m := fsys.NewMem()
				s := openStore(t, m, nil)
				w := storeWriter(t, s, "a", 1)
				f := &faults{op: op, at: at, err: fault}
				m.FailWith(f.hook)
				hs := add(t, w, numbered(6)...)
				must(t, w.Roll(t.Context()))
				for i, h := range hs {
					got, err := s.Read(t.Context(), h)
					if err != nil {
						got, err = s.Read(t.Context(), h)
					}
					if err != nil || string(got) != numbered(6)[i] {
						t.Errorf("%s %d: %q, %v", op, at, got, err)
					}
				}
				m.FailWith(nil)
				must(t, w.Close())
				s.Release(hs...)
				must(t, s.Close())
				if left := files(m); len(left) > 0 {
					t.Errorf("%s %d: left %v", op, at, left)
				}
			}
		}
	}
}
