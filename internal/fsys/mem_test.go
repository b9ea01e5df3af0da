package fsys_test

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidemill/tidemill/internal/fsys"
)

func TestMemTimesComeFromTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsys.NewMem()
		start := time.Now()
		w, err := m.Create("f")
		noErr(t, err)
		time.Sleep(time.Hour)
		_, err = w.Write([]byte("x"))
		noErr(t, err)
		time.Sleep(time.Hour)
		noErr(t, w.Close())
		in, err := m.Stat("f")
		noErr(t, err)
		if want := start.Add(time.Hour); !in.ModTime.Equal(want) {
			t.Errorf("ModTime %v, want that of the last write, %v", in.ModTime, want)
		}
	})
}

func TestMemRelativeNamesAreReadFromTheRoot(t *testing.T) {
	m := fsys.NewMem()
	noErr(t, m.MkdirAll("a/b"))
	noErr(t, fsys.WriteFile(m, "/a/./b/../f", []byte("x")))
	if b, err := fsys.ReadFile(m, "a/f"); string(b) != "x" || err != nil {
		t.Errorf("ReadFile: %q, %v", b, err)
	}
	got, err := fsys.Glob(m, "*/*")
	noErr(t, err)
	if diff := cmp.Diff([]string{"a/b", "a/f"}, got); diff != "" {
		t.Errorf("relative glob (-want +got):\n%s", diff)
	}
	if got, want := m.String(), "/\n/a/\n/a/b/\n/a/f\n"; got != want {
		t.Errorf("String: %q, want %q", got, want)
	}
}

// Every operation asks the hook, and one that is refused has no effect.
func TestMemHookRefusesEveryOperation(t *testing.T) {
	m := fsys.NewMem()
	noErr(t, m.Mkdir("d"))
	noErr(t, fsys.WriteFile(m, "f", []byte("x")))
	w, err := m.Create("w")
	noErr(t, err)
	r, err := m.Open("f")
	noErr(t, err)
	before := m.String()

	var asked []string
	m.FailWith(func(op, name string) error {
		asked = append(asked, op+" "+name)
		return syscall.ENOSPC
	})
	_, e1 := m.Create("new")
	_, e2 := m.Open("f")
	_, e3 := m.List("/")
	_, e4 := m.Stat("f")
	_, e5 := w.Write([]byte("y"))
	_, e6 := r.Read(make([]byte, 1))
	_, e7 := r.ReadAt(make([]byte, 1), 0)
	errs := []error{
		e1, e2, e3, e4, e5, e6, e7,
		m.Mkdir("new"), m.MkdirAll("new/x"), m.Rename("f", "g"), m.Remove("d"), m.RemoveAll("f"),
		m.SyncDir("d"), m.SetModTime("f", time.Time{}), w.Flush(), w.Sync(), w.Close(), r.Close(),
	}
	_, lockErr := m.Lock("l")
	errs = append(errs, lockErr)
	for i, err := range errs {
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("operation %d (%s): %v, want ENOSPC", i, asked[i], err)
		}
	}
	want := []string{
		"create new", "open f", "list /", "stat f", "write w", "read f", "read f",
		"mkdir new", "mkdirall new/x", "rename f", "remove d", "removeall f",
		"syncdir d", "setmodtime f", "flush w", "sync w", "close w", "close f", "lock l",
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("hook asked (-want +got):\n%s", diff)
	}
	m.FailWith(nil)
	if after := m.String(); after != before {
		t.Errorf("refused operations changed the tree:\n%s\nto\n%s", before, after)
	}
	if in, err := m.Stat("w"); in.Size != 0 || err != nil {
		t.Errorf("refused write left %d bytes, %v", in.Size, err)
	}
	noErr(t, w.Close())
	noErr(t, r.Close())
}

func TestWriteFileRemovesWhatItCouldNotFinish(t *testing.T) {
	for _, op := range []string{"write", "sync", "close"} {
		m := fsys.NewMem()
		m.FailWith(func(o, name string) error {
			if o == op {
				return syscall.ENOSPC
			}
			return nil
		})
		err := fsys.WriteFile(m, "f", []byte("x"))
		isErr(t, err, syscall.ENOSPC)
		var pe *fs.PathError
		if !errors.As(err, &pe) || pe.Op != op || pe.Path != "f" {
			t.Errorf("failing %s: error %v, want its operation and name", op, err)
		}
		m.FailWith(nil)
		if err := fsys.WriteFile(m, "f", []byte("x")); err != nil {
			t.Errorf("again after a failing %s: %v", op, err)
		}
	}
}

func TestReadFileReportsReadErrors(t *testing.T) {
	m := fsys.NewMem()
	noErr(t, fsys.WriteFile(m, "f", []byte("x")))
	m.FailWith(func(op, name string) error {
		if op == "read" {
			return syscall.EIO
		}
		return nil
	})
	b, err := fsys.ReadFile(m, "f")
	isErr(t, err, syscall.EIO)
	if b != nil {
		t.Errorf("bytes %q beside the error", b)
	}
}

func TestGlobReportsDirectoriesItCannotList(t *testing.T) {
	m := fsys.NewMem()
	noErr(t, m.MkdirAll("a/b"))
	for _, op := range []string{"list", "stat"} {
		m.FailWith(func(o, name string) error {
			if o == op && name != "." {
				return syscall.EACCES
			}
			return nil
		})
		for _, pattern := range []string{"*/*", "*/b", "a"} {
			_, err := fsys.Glob(m, pattern)
			hit := op == "list" == (pattern == "*/*")
			if hit != errors.Is(err, fs.ErrPermission) {
				t.Errorf("Glob(%q) with failing %s: %v", pattern, op, err)
			}
		}
	}
}

// A directory of many files costs one List, not a Stat for each.
func TestGlobDoesNotStatWhatItListed(t *testing.T) {
	m := fsys.NewMem()
	noErr(t, m.MkdirAll("in/a"))
	var asked []string
	m.FailWith(func(op, name string) error { asked = append(asked, op+" "+name); return nil })
	_, err := fsys.Glob(m, "/in/*")
	noErr(t, err)
	if diff := cmp.Diff([]string{"list /in"}, asked); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

func TestMemConcurrentUse(t *testing.T) {
	m := fsys.NewMem()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			dir := fmt.Sprint("d", i%2)
			for k := range 100 {
				name := fmt.Sprintf("%s/%d-%d", dir, i, k)
				if err := errors.Join(m.MkdirAll(dir), fsys.WriteFile(m, name, []byte(name))); err != nil {
					t.Error(err)
				}
				if b, err := fsys.ReadFile(m, name); string(b) != name || err != nil {
					t.Errorf("read %q, %v", b, err)
				}
				if _, err := m.List(dir); err != nil {
					t.Error(err)
				}
				if err := errors.Join(m.Rename(name, name+"x"), m.Remove(name+"x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
