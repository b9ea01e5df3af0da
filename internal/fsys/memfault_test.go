package fsys_test

import (
	"errors"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
)

// failing lets the hook answer one kind of operation.
func failing(m *fsys.Mem, op string, fault error) {
	m.FailWith(func(o, _ string) error {
		if o == op {
			return fault
		}
		return nil
	})
}

func TestShortWritePutsAPrefixDown(t *testing.T) {
	for _, c := range []struct {
		fault *fsys.ShortWrite
		n     int
		cause error
	}{
		{&fsys.ShortWrite{N: 2, Err: syscall.ENOSPC}, 2, syscall.ENOSPC},
		{&fsys.ShortWrite{N: 99, Err: syscall.ENOSPC}, 3, syscall.ENOSPC},
		{&fsys.ShortWrite{N: -1}, 0, io.ErrShortWrite},
	} {
		m := fsys.NewMem()
		w := begin(t, m, "f", "x")
		failing(m, "write", c.fault)
		n, err := w.Write([]byte("abc"))
		var pe *fs.PathError
		if n != c.n || !errors.As(err, &pe) || pe.Op != "write" || pe.Path != "f" || !errors.Is(err, c.cause) {
			t.Errorf("%v: write: %d, %v", c.fault, n, err)
		}
		m.FailWith(nil)
		if got, want := contents(t, m, ""), "f=x"+"abc"[:c.n]; got != want {
			t.Errorf("%v left %s, want %s", c.fault, got, want)
		}
	}
}

func TestAppliedErrorFailsWhatHasHappened(t *testing.T) {
	m := fsys.NewMem()
	put(t, m, "f", "x")
	w := begin(t, m, "w", "a")
	m.FailWith(func(_, _ string) error { return &fsys.AppliedError{Err: syscall.ETIMEDOUT} })
	err := m.Rename("f", "g")
	isErr(t, err, syscall.ETIMEDOUT)
	isErr(t, m.Rename("f", "g"), fs.ErrNotExist) // not done: its own error
	_, err = w.Write([]byte("b"))
	isErr(t, err, syscall.ETIMEDOUT)
	_, err = m.Create("new")
	isErr(t, err, syscall.ETIMEDOUT)
	isErr(t, w.Sync(), syscall.ETIMEDOUT)
	isErr(t, m.SyncDir("/"), syscall.ETIMEDOUT)
	m.FailWith(func(_, _ string) error { return &fsys.AppliedError{} })
	isErr(t, w.Close(), syscall.EIO)
	isErr(t, w.Close(), fs.ErrClosed)
	m.FailWith(nil)
	check(t, outcomes(t, m.AfterPowerLoss), "g=x new= w=ab")
}

func TestUnappliedSuccessDoesNothing(t *testing.T) {
	m := fsys.NewMem()
	put(t, m, "f", "x")
	w := begin(t, m, "w", "")
	m.FailWith(func(_, _ string) error { return &fsys.UnappliedSuccess{} })
	noErr(t, m.Rename("f", "g"))
	noErr(t, m.Remove("f"))
	noErr(t, m.Mkdir("d"))
	if n, err := w.Write([]byte("b")); n != 1 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	nameless, err := m.Create("new")
	noErr(t, err)
	l, err := m.Lock("lock")
	noErr(t, errors.Join(err, l.Close()))
	r, err := m.Open("f") // gives something back, so it must be done
	noErr(t, err)
	if b, err := io.ReadAll(r); string(b) != "x" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	noErr(t, r.Close())
	m.FailWith(nil)
	_, err = nameless.Write([]byte("y"))
	noErr(t, errors.Join(err, nameless.Close()))
	if got := contents(t, m, ""); got != "f=x w=" {
		t.Errorf("found %s, want what was there before", got)
	}
}

func TestSyncThatOnlySaysSoKeepsNothing(t *testing.T) {
	m := fsys.NewMem()
	w := begin(t, m, "f", "a")
	m.FailWith(func(_, _ string) error { return &fsys.UnappliedSuccess{} })
	noErr(t, errors.Join(w.Sync(), m.SyncDir("/")))
	check(t, outcomes(t, m.AfterPowerLoss), "", "f=", "f=a", "f=0")
}

func TestHookCanCrashTheFileSystem(t *testing.T) {
	m := fsys.NewMem()
	put(t, m, "f", "x")
	failing(m, "rename", fsys.ErrCrashed)
	isErr(t, m.Rename("f", "g"), fsys.ErrCrashed)
	if !m.Crashed() {
		t.Error("not crashed")
	}
	check(t, outcomes(t, m.AfterKill), "f=x", "g=x")
}

func TestSlowOperationsSleepSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsys.NewMem()
		m.Slow(func(op, name string) time.Duration {
			if op == "mkdir" && name != "fast" {
				return time.Second
			}
			return 0
		})
		start := time.Now()
		noErr(t, m.Mkdir("fast"))
		if d := time.Since(start); d != 0 {
			t.Errorf("the fast one took %v", d)
		}
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			wg.Go(func() {
				if err := m.Mkdir(name); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := contents(t, m, ""); got != "fast/" {
			t.Errorf("during the sleep: %s", got)
		}
		wg.Wait()
		if d, got := time.Since(start), contents(t, m, ""); d != time.Second || got != "a/ b/ fast/" {
			t.Errorf("after %v: %s", d, got)
		}
	})
}

// An operation that is late when the file system crashes has not happened.
func TestCrashDuringASlowOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsys.NewMem()
		m.Slow(func(_, _ string) time.Duration { return time.Second })
		done := make(chan error)
		go func() { done <- m.Mkdir("d") }()
		synctest.Wait()
		m.Crash()
		isErr(t, <-done, fsys.ErrCrashed)
		check(t, outcomes(t, m.AfterKill), "")
	})
}
