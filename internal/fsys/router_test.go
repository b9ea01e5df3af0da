package fsys_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/tidemill/tidemill/internal/fsys"
)

// closable is a file system that is closed once, with an error.
type closable struct {
	fsys.FS
	closed atomic.Int32
}

var errOfClose = errors.New("close failed")

func (c *closable) Close() error {
	c.closed.Add(1)
	return errOfClose
}

// mounted opens in-memory file systems, in which a name is its own path.
type mounted struct {
	mu     sync.Mutex
	opened map[string][]*closable
	before func(authority string) error // each open
}

func (m *mounted) open(authority string) (fsys.FS, error) {
	if m.before != nil {
		if err := m.before(authority); err != nil {
			return nil, err
		}
	}
	c := &closable{FS: fsys.NewMem()}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opened == nil {
		m.opened = map[string][]*closable{}
	}
	m.opened[authority] = append(m.opened[authority], c)
	return c, c.MkdirAll("mem://" + authority + "/")
}

func (m *mounted) router() *fsys.Router {
	return fsys.NewRouter(fsys.NewMem(), map[string]func(string) (fsys.FS, error){"mem": m.open, "other": m.open})
}

func TestEachNameLandsOnItsFileSystem(t *testing.T) {
	r := (&mounted{}).router()
	noErr(t, r.MkdirAll("other://a/"))
	all := []string{"/x", "mem://a/x", "mem://b/x", "mem:///x", "other://a/x"}
	for _, name := range all {
		noErr(t, fsys.WriteFile(r, name, []byte(name)))
	}
	for _, name := range all {
		b, err := fsys.ReadFile(r, name)
		if string(b) != name || err != nil {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
		served, err := fsys.For(r, name)
		noErr(t, err)
		if _, err := served.Stat(name); err != nil {
			t.Error(err)
		}
	}
	for _, from := range all {
		for _, to := range all {
			err := r.Rename(from, to+"2")
			var le *os.LinkError
			switch {
			case from == to:
				noErr(t, err)
				noErr(t, r.Rename(to+"2", from))
			case !errors.Is(err, syscall.EXDEV) || !errors.As(err, &le) || le.Old != from || le.New != to+"2":
				t.Errorf("rename %s to %s2: %v, want %v", from, to, err, syscall.EXDEV)
			}
		}
	}
}

func TestForOfAnOrdinaryFileSystemIsItself(t *testing.T) {
	m := fsys.NewMem()
	if f, err := fsys.For(m, "mem:/a"); f != fsys.FS(m) || err != nil {
		t.Errorf("For is %v, %v", f, err)
	}
}

// calls are all operations of a file system on one name.
func calls(f fsys.FS) map[string]func(name string) error {
	return map[string]func(name string) error{
		"create":    func(name string) error { _, err := f.Create(name); return err },
		"open":      func(name string) error { _, err := f.Open(name); return err },
		"list":      func(name string) error { _, err := f.List(name); return err },
		"stat":      func(name string) error { _, err := f.Stat(name); return err },
		"mkdir":     f.Mkdir,
		"mkdirall":  f.MkdirAll,
		"remove":    f.Remove,
		"removeall": f.RemoveAll,
		"syncdir":   f.SyncDir,
	}
}

func TestNamesThatNobodyServesAreRefused(t *testing.T) {
	// As when a configuration file is missing: the name itself may well exist.
	m := &mounted{before: func(string) error { return &fs.PathError{Op: "open", Path: "site.xml", Err: fs.ErrNotExist} }}
	only := fsys.NewRouter(fsys.NewMem(), nil)
	for _, c := range []struct {
		r          *fsys.Router
		name, want string
	}{
		{m.router(), "hdfs:/a", "names of a file system other than the local one look like hdfs://host:port/path"},
		{m.router(), "hdfs://nn/a", `unknown scheme "hdfs": known are local names and mem://, other://`},
		{only, "hdfs://nn/a", `unknown scheme "hdfs": only local names are known`},
		{m.router(), "mem://h/a", "open mem://h: open site.xml: file does not exist"},
	} {
		for op, call := range calls(c.r) {
			err := call(c.name)
			if want := op + " " + c.name + ": " + c.want; err == nil || err.Error() != want || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v, want %s", err, want)
			}
		}
		_, err := fsys.For(c.r, c.name)
		if want := fmt.Sprintf("name %q: %s", c.name, c.want); err == nil || err.Error() != want {
			t.Errorf("For: error %v, want %s", err, want)
		}
		for _, pair := range [][2]string{{c.name, "/x"}, {"/x", c.name}, {c.name, c.name}} {
			err := c.r.Rename(pair[0], pair[1])
			if want := "rename " + pair[0] + " " + pair[1] + ": " + c.want; err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		}
		if _, err := fsys.Glob(c.r, c.name+"/*"); err == nil {
			t.Errorf("Glob below %s finds nothing, want an error", c.name)
		}
	}
}

func TestAFileSystemIsOpenedOnceAndKeepsNobodyElseWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		m := &mounted{before: func(authority string) error {
			if authority == "slow" {
				<-let
			}
			return nil
		}}
		r := m.router()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := r.Stat("mem://slow/"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // all wait for the one that opens
		if _, err := r.Stat("mem://quick/"); err != nil {
			t.Error(err)
		}
		close(let)
		wg.Wait()
		if n := len(m.opened["slow"]); n != 1 {
			t.Errorf("opened %d times", n)
		}
	})
}

func TestAFailedOpenIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		fails, opens := true, 0
		m := &mounted{before: func(string) error {
			opens++
			<-let
			if fails {
				return errors.New("no route")
			}
			return nil
		}}
		r := m.router()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := r.Stat("mem://h/"); err == nil {
					t.Error("served by what can't be opened")
				}
			})
		}
		synctest.Wait()
		close(let)
		wg.Wait()
		if opens != 1 {
			t.Errorf("%d opens for calls at one time", opens)
		}
		fails = false
		for range 2 {
			if _, err := r.Stat("mem://h/"); err != nil {
				t.Error(err)
			}
		}
		if opens != 2 {
			t.Errorf("%d opens, want one more", opens)
		}
	})
}

func TestAnOpenThatPanicsLeavesNobodyWaiting(t *testing.T) {
	m := &mounted{before: func(string) error { panic("bug") }}
	r := m.router()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_, _ = r.Stat("mem://h/")
	}()
	m.before = nil
	if _, err := r.Stat("mem://h/"); err != nil {
		t.Error(err)
	}
	isErr(t, r.Close(), errOfClose)
}

func TestCloseClosesWhatWasOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		m := &mounted{before: func(authority string) error {
			if authority == "slow" {
				<-let
			}
			return nil
		}}
		r := m.router()
		_, err := r.Stat("mem://quick/")
		noErr(t, err)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = r.Stat("mem://slow/") })
		synctest.Wait()
		var ended atomic.Int32
		for range 2 {
			wg.Go(func() {
				isErr(t, r.Close(), errOfClose)
				ended.Add(1)
			})
		}
		synctest.Wait()
		if ended.Load() != 0 {
			t.Error("Close has returned while a file system was being opened")
		}
		for op, call := range calls(r) {
			if err := call("mem://quick/"); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("%s after Close: %v", op, err)
			}
		}
		close(let)
		wg.Wait()
		isErr(t, r.Close(), errOfClose)
		for authority, opened := range m.opened {
			if n := opened[0].closed.Load(); len(opened) != 1 || n != 1 {
				t.Errorf("%s was opened %d times, and closed %d times", authority, len(opened), n)
			}
		}
		if len(m.opened) != 2 {
			t.Errorf("opened %v", m.opened)
		}
		noErr(t, r.Mkdir("/local"))
	})
}
