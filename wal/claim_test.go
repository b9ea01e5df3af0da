package wal_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// lockless hides that a file system has locks.
type lockless struct{ fsys.FS }

func claim(t testing.TB, fs fsys.FS) *wal.Claimed {
	t.Helper()
	c, err := wal.Claim(t.Context(), fs, "a/p", wal.ClaimOptions{})
	must(t, err)
	return c
}

func TestClaimSealsItsPredecessors(t *testing.T) {
	m := fsys.NewMem()
	for n := range base.Epoch(3) {
		c := claim(t, m)
		var want []wal.EpochDir
		for e := range n {
			want = append(want, wal.EpochDir{Epoch: e + 1, Dir: "a/p/e-00000" + (e + 1).String() + ".sealed", Sealed: true})
		}
		if c.Epoch != n+1 || c.Dir != "a/p/e-00000"+c.Epoch.String() {
			t.Errorf("claimed epoch %s in %q", c.Epoch, c.Dir)
		}
		if diff := cmp.Diff(want, c.Sealed); diff != "" {
			t.Errorf("sealed (-want +got):\n%s", diff)
		}
		must(t, c.Close())
		must(t, c.Close())
	}
	got, err := wal.Epochs(m, "a/p")
	must(t, err)
	if len(got) != 3 || got[2].Sealed || !got[1].Sealed {
		t.Errorf("epochs %+v", got)
	}
	if got, err := wal.Epochs(m, "nowhere"); err != nil || len(got) > 0 {
		t.Errorf("epochs of nothing: %v, %v", got, err)
	}
}

func TestForeignNamesAreNoEpochs(t *testing.T) {
	m := fsys.NewMem()
	for _, name := range []string{"a/p/e-1", "a/p/e-0000007", "a/p/e-00000x", "a/p/e-000009.sealed.old", "a/p/other"} {
		must(t, m.MkdirAll(name))
	}
	must(t, fsys.WriteFile(m, "a/p/e-000005", nil))
	if c := claim(t, m); c.Epoch != 1 {
		t.Errorf("claimed epoch %s", c.Epoch)
	}
}

// B17 (e): the second driver on one directory is refused with an error that
// names it; when the first is gone it can go on.
func TestB17SecondClaimerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsys.NewMem()
		first := claim(t, m)
		begin := time.Now()
		_, err := wal.Claim(t.Context(), m, "a/p", wal.ClaimOptions{LockWait: time.Minute})
		wantError(t, err, fsys.ErrLocked, `"a/p" is in use`, "1m0s")
		if waited := time.Since(begin); waited != time.Minute {
			t.Errorf("it waited %v", waited)
		}
		if epochs, _ := wal.Epochs(m, "a/p"); len(epochs) != 1 || epochs[0].Sealed {
			t.Errorf("the refused claim left %v", epochs)
		}
		time.AfterFunc(time.Second, func() { first.Close() })
		second, err := wal.Claim(t.Context(), m, "a/p", wal.ClaimOptions{LockWait: time.Minute})
		must(t, err)
		if second.Epoch != 2 {
			t.Errorf("claimed epoch %s", second.Epoch)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = wal.Claim(ctx, m, "a/p", wal.ClaimOptions{LockWait: time.Minute})
		wantError(t, err, context.DeadlineExceeded)
	})
}

func TestLockIsTakenWhereTheNameLeads(t *testing.T) {
	m := fsys.NewMem()
	r := fsys.NewRouter(lockless{fsys.NewMem()}, map[string]func(string) (fsys.FS, error){
		"mem": func(string) (fsys.FS, error) { return m, m.MkdirAll("mem://h/") },
	})
	first, err := wal.Claim(t.Context(), r, "mem://h/p", wal.ClaimOptions{})
	must(t, err)
	if first.Dir != "mem://h/p/e-000001" {
		t.Errorf("claimed %q", first.Dir)
	}
	_, err = wal.Claim(t.Context(), r, "mem://h/p", wal.ClaimOptions{})
	wantError(t, err, fsys.ErrLocked, `"mem://h/p" is in use`)
	must(t, first.Close())
	for range 2 { // no locks on the other one
		_, err = wal.Claim(t.Context(), r, "p", wal.ClaimOptions{})
		must(t, err)
	}
}

// Without locks any number may claim at once: each epoch has one owner, and the
// others are fenced.
func TestClaimsRaceWithoutLocks(t *testing.T) {
	for range 50 {
		m := lockless{fsys.NewMem()}
		var mu sync.Mutex
		owners := map[base.Epoch]int{}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 5 {
					c, err := wal.Claim(context.Background(), m, "a/p", wal.ClaimOptions{})
					switch {
					case err == nil:
						mu.Lock()
						owners[c.Epoch]++
						mu.Unlock()
					case !errors.Is(err, wal.ErrFenced) && !errors.Is(err, fs.ErrExist):
						// ErrExist: another is about to take back a directory
						// beside a sealed one.
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for e, n := range owners {
			if n > 1 {
				t.Errorf("epoch %s has %d owners", e, n)
			}
		}
		// Whoever comes later is not stuck.
		if _, err := wal.Claim(t.Context(), m, "a/p", wal.ClaimOptions{}); err != nil {
			t.Errorf("%v\n%s", err, m.FS)
		}
	}
}

// A claimer that slept while its epoch was claimed and sealed by others must not
// take the freed name.
func TestClaimerThatSleptIsFenced(t *testing.T) {
	mem := fsys.NewMem()
	m := lockless{mem}
	claim(t, m)
	stopped, resume := make(chan struct{}), make(chan struct{})
	var slept atomic.Bool
	mem.FailWith(func(op, name string) error {
		if op == "mkdir" && name == "a/p/e-000002" && slept.CompareAndSwap(false, true) {
			close(stopped)
			<-resume
		}
		return nil
	})
	result := make(chan error)
	go func() {
		_, err := wal.Claim(context.Background(), m, "a/p", wal.ClaimOptions{})
		result <- err
	}()
	<-stopped
	if c := claim(t, m); c.Epoch != 2 {
		t.Errorf("epoch %s", c.Epoch)
	}
	if c := claim(t, m); c.Epoch != 3 {
		t.Errorf("epoch %s", c.Epoch)
	}
	close(resume)
	wantError(t, <-result, wal.ErrFenced)
	if c := claim(t, m); c.Epoch != 4 {
		t.Errorf("epoch %s", c.Epoch)
	}
}

func TestTwoDirectoriesOfOneEpochAreAnError(t *testing.T) {
	m := fsys.NewMem()
	must(t, m.MkdirAll("a/p/e-000003"))
	must(t, m.MkdirAll("a/p/e-000003.sealed"))
	_, err := wal.Claim(t.Context(), m, "a/p", wal.ClaimOptions{})
	wantError(t, err, fs.ErrExist, `"a/p/e-000003"`, `"a/p/e-000003.sealed"`)
	// The lock was given back.
	must(t, m.Remove("a/p/e-000003"))
	claim(t, m)
}

// Whatever fails once, and however often, the next claim works and nobody has an
// epoch twice.
func TestClaimAfterFailures(t *testing.T) {
	for _, op := range []string{"rename", "mkdir", "mkdirall", "create", "sync", "syncdir", "list", "close", "stat"} {
		for _, fault := range []error{errors.New("broken"), &fsys.AppliedError{Err: io.ErrUnexpectedEOF}} {
			for at := 1; at < 10; at++ {
				m := fsys.NewMem()
				first := claim(t, m)
				must(t, first.Close())
				f := &faults{op: op, at: at, err: fault}
				m.FailWith(f.hook)
				second, err := wal.Claim(t.Context(), m, "a/p", wal.ClaimOptions{})
				m.FailWith(nil)
				if f.fired() != (err != nil) && op != "close" {
					t.Errorf("%s %d: fired %v, error %v", op, at, f.fired(), err)
				}
				if err == nil {
					must(t, second.Close())
				}
				third := claim(t, m)
				if third.Epoch <= first.Epoch || err == nil && third.Epoch <= second.Epoch {
					t.Errorf("%s %d: epochs %s, then %s", op, at, first.Epoch, third.Epoch)
				}
			}
		}
	}
}

func TestClaimOnDisk(t *testing.T) {
	dir := t.TempDir() + "/p"
	first, err := wal.Claim(t.Context(), fsys.Local(), dir, wal.ClaimOptions{})
	must(t, err)
	w, err := wal.Create(wal.Config{FS: fsys.Local(), Level: wal.LevelSync}, first.Dir, "log", first.Epoch, 1)
	must(t, err)
	add(t, w, numbered(3)...)
	w.Kill()
	must(t, first.Close())
	second, err := wal.Claim(t.Context(), fsys.Local(), dir, wal.ClaimOptions{})
	must(t, err)
	defer second.Close()
	// The segment is not sealed, so this syncs it.
	r := wantScan(t, fsys.Local(), second.Sealed[0].Dir, records(1, numbered(3)...))
	if r.Segments[0].Sealed {
		t.Error("the segment of a killed writer is sealed")
	}
}
