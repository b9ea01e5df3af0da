package fsys_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidemill/tidemill/internal/fsys"
	"pgregory.net/rapid"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// contents lists directories and files with what is in them; a zero byte is
// written 0.
func contents(t rapid.TB, f fsys.FS, dir string) string {
	t.Helper()
	infos, err := f.List("/" + dir)
	if err != nil {
		t.Error(err)
	}
	var out []string
	for _, in := range infos {
		name := path.Join(dir, in.Name)
		if in.Dir {
			out = append(out, name+"/")
			if below := contents(t, f, name); below != "" {
				out = append(out, below)
			}
			continue
		}
		b, err := fsys.ReadFile(f, name)
		if err != nil {
			t.Error(err)
		}
		out = append(out, name+"="+strings.ReplaceAll(string(b), "\x00", "0"))
	}
	return strings.Join(out, " ")
}

// outcomes collects what is found after a crash with many seeds.
func outcomes(t *testing.T, after func(*rand.Rand) *fsys.Mem) []string {
	t.Helper()
	found := map[string]bool{}
	for seed := range uint64(1000) {
		found[contents(t, after(seeded(seed)), "")] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// check fails unless exactly the wanted outcomes have been seen.
func check(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

// put writes a file and syncs it; its name is not durable.
func put(t *testing.T, m *fsys.Mem, name, data string) {
	t.Helper()
	noErr(t, fsys.WriteFile(m, name, []byte(data)))
}

func syncDirs(t *testing.T, m *fsys.Mem, dirs ...string) {
	t.Helper()
	for _, d := range dirs {
		noErr(t, m.SyncDir(d))
	}
}

// begin creates a file and writes to it; the file stays open.
func begin(t *testing.T, m *fsys.Mem, name, data string) fsys.File {
	t.Helper()
	w, err := m.Create(name)
	noErr(t, err)
	_, err = w.Write([]byte(data))
	noErr(t, err)
	return w
}

// TestKillDuringAnOperation: it has happened or not, or by some of its steps.
func TestKillDuringAnOperation(t *testing.T) {
	for _, c := range []struct {
		op   string
		do   func(m *fsys.Mem, w fsys.File) error
		want []string
	}{
		{"write", func(_ *fsys.Mem, w fsys.File) error {
			p := []byte("bcd")
			n, err := w.Write(p)
			copy(p, "???") // the caller's again
			if n != 0 {
				return fmt.Errorf("%d bytes written", n)
			}
			return err
		}, []string{"d/ d/f=1 d/g=2 w=a", "d/ d/f=1 d/g=2 w=ab", "d/ d/f=1 d/g=2 w=abc", "d/ d/f=1 d/g=2 w=abcd"}},
		{"create", func(m *fsys.Mem, _ fsys.File) error { _, err := m.Create("n"); return err }, []string{
			"d/ d/f=1 d/g=2 w=a", "d/ d/f=1 d/g=2 n= w=a",
		}},
		{"lock", func(m *fsys.Mem, _ fsys.File) error { _, err := m.Lock("n"); return err }, []string{
			"d/ d/f=1 d/g=2 w=a", "d/ d/f=1 d/g=2 n= w=a",
		}},
		{"rename", func(m *fsys.Mem, _ fsys.File) error { return m.Rename("d/f", "f") }, []string{
			"d/ d/f=1 d/g=2 w=a", "d/ d/g=2 f=1 w=a",
		}},
		{"remove", func(m *fsys.Mem, _ fsys.File) error { return m.Remove("d/f") }, []string{
			"d/ d/f=1 d/g=2 w=a", "d/ d/g=2 w=a",
		}},
		{"removeall", func(m *fsys.Mem, _ fsys.File) error { return m.RemoveAll("d") }, []string{
			"d/ d/f=1 d/g=2 w=a", "d/ d/g=2 w=a", "d/ w=a", "w=a",
		}},
		{"mkdirall", func(m *fsys.Mem, _ fsys.File) error { return m.MkdirAll("m/n") }, []string{
			"d/ d/f=1 d/g=2 w=a", "d/ d/f=1 d/g=2 m/ w=a", "d/ d/f=1 d/g=2 m/ m/n/ w=a",
		}},
		{"mkdir that would fail", func(m *fsys.Mem, _ fsys.File) error { return m.Mkdir("d") }, []string{
			"d/ d/f=1 d/g=2 w=a",
		}},
		{"stat", func(m *fsys.Mem, _ fsys.File) error { _, err := m.Stat("d"); return err }, []string{
			"d/ d/f=1 d/g=2 w=a",
		}},
	} {
		t.Run(c.op, func(t *testing.T) {
			m := fsys.NewMem()
			noErr(t, m.Mkdir("d"))
			put(t, m, "d/f", "1")
			put(t, m, "d/g", "2")
			w := begin(t, m, "w", "a")
			m.CrashAt(2)
			noErr(t, w.Flush())
			if m.Crashed() {
				t.Error("crashed one operation early")
			}
			isErr(t, c.do(m, w), fsys.ErrCrashed)
			if !m.Crashed() {
				t.Error("not crashed")
			}
			check(t, outcomes(t, m.AfterKill), c.want...)
		})
	}
}

func TestPowerLossDuringSync(t *testing.T) {
	m := fsys.NewMem()
	w := begin(t, m, "f", "a")
	m.CrashAt(1)
	isErr(t, m.SyncDir("/"), fsys.ErrCrashed)
	isErr(t, w.Sync(), fsys.ErrCrashed)
	check(t, outcomes(t, m.AfterPowerLoss), "", "f=", "f=a", "f=0")
}

// A killed process leaves its writes with the kernel, which can still lose them.
func TestPowerLossAfterAKillLosesWhatWasNotSynced(t *testing.T) {
	m := fsys.NewMem()
	w := begin(t, m, "f", "a")
	killed := m.AfterKill(seeded(1))
	_, err := w.Write([]byte("b"))
	isErr(t, err, fsys.ErrCrashed)
	check(t, outcomes(t, killed.AfterKill), "f=a")
	check(t, outcomes(t, killed.AfterPowerLoss), "", "f=", "f=a", "f=0")

	// What a power loss has left is on the disk.
	found := killed.AfterPowerLoss(seeded(2))
	check(t, outcomes(t, found.AfterPowerLoss), contents(t, found.AfterKill(seeded(3)), ""))
}

func TestEverythingFailsAfterACrash(t *testing.T) {
	m := fsys.NewMem()
	noErr(t, m.Mkdir("d"))
	put(t, m, "f", "x")
	w := begin(t, m, "w", "a")
	r, err := m.Open("f")
	noErr(t, err)
	l, err := m.Lock("l")
	noErr(t, err)
	m.Crash()
	begun, tree := m.Ops(), m.String()
	_, e1 := m.Create("new")
	_, e2 := m.Open("f")
	_, e3 := m.List("/")
	_, e4 := m.Stat("f")
	_, e5 := w.Write([]byte("y"))
	_, e6 := r.Read(make([]byte, 1))
	_, e7 := r.ReadAt(make([]byte, 1), 0)
	_, e8 := m.Lock("l2")
	for i, err := range []error{
		e1, e2, e3, e4, e5, e6, e7, e8,
		m.Mkdir("new"), m.MkdirAll("new/x"), m.Rename("f", "g"), m.Remove("d"), m.RemoveAll("f"),
		m.SyncDir("d"), m.SetModTime("f", time.Time{}), w.Flush(), w.Sync(), w.Close(), r.Close(), l.Close(),
	} {
		if !errors.Is(err, fsys.ErrCrashed) {
			t.Errorf("operation %d: %v, want %v", i, err, fsys.ErrCrashed)
		}
	}
	if m.Ops() != begun || m.String() != tree {
		t.Errorf("operations changed something after the crash: %d to %d begun,\n%s\nto\n%s", begun, m.Ops(), tree, m.String())
	}
}

func TestOpsCountsEveryOperation(t *testing.T) {
	m := fsys.NewMem()
	asked := int64(0)
	m.FailWith(func(_, _ string) error { asked++; return nil })
	put(t, m, "f", "x")
	_, err := m.Stat("none")
	_, err2 := fsys.ReadFile(m, "f")
	noErr(t, errors.Join(m.MkdirAll("a/b"), m.SyncDir("a"), err2))
	if err == nil || m.Ops() != asked || asked < 9 {
		t.Errorf("%d operations, hook asked %d times", m.Ops(), asked)
	}
}

func TestCrashCanBeTakenBack(t *testing.T) {
	m := fsys.NewMem()
	m.CrashAt(1)
	m.CrashAt(0)
	noErr(t, m.Mkdir("d"))
}

func TestAfterCrashIsIndependent(t *testing.T) {
	m := fsys.NewMem()
	w := begin(t, m, "f", "a")
	put(t, m, "g", "x")
	m.FailWith(func(op, _ string) error { return map[string]error{"flush": errors.New("no")}[op] })
	_, err := m.Lock("l")
	noErr(t, err)
	m.CrashAt(1)
	_, err = w.Write([]byte("b"))
	isErr(t, err, fsys.ErrCrashed)

	var wg sync.WaitGroup // what they share, they only read
	for seed := range uint64(20) {
		wg.Go(func() { testIndependence(t, m, seed) })
	}
	wg.Wait()
}

func testIndependence(t *testing.T, m *fsys.Mem, seed uint64) {
	one, two := m.AfterKill(seeded(seed)), m.AfterKill(seeded(seed))
	if one.Ops() != 0 || one.Crashed() {
		t.Errorf("after a kill: %d operations, crashed %v", one.Ops(), one.Crashed())
	}
	before := contents(t, two, "")
	if got := contents(t, one, ""); got != before {
		t.Errorf("one seed gave %s and %s", got, before)
	}
	for i, k := range []*fsys.Mem{one, two} {
		l, err := k.Lock("l")
		if err != nil {
			t.Errorf("lock: %v", err)
			return
		}
		err = errors.Join(l.Close(), fsys.WriteFile(k, fmt.Sprint("of", i), nil), k.RemoveAll("f"))
		if err != nil {
			t.Error(err)
		}
	}
	for i, k := range []*fsys.Mem{one, two} {
		if got, want := contents(t, k, ""), fmt.Sprintf("g=x l= of%d=", i); got != want {
			t.Errorf("found %s, want %s", got, want)
		}
		for again := range uint64(20) {
			if got := contents(t, k.AfterPowerLoss(seeded(again)), ""); strings.Contains(got, fmt.Sprint("of", 1-i)) {
				t.Errorf("a change of the other file system was found: %s", got)
			}
		}
	}
	got, again := contents(t, m.AfterPowerLoss(seeded(seed)), ""), contents(t, m.AfterPowerLoss(seeded(seed)), "")
	if got != again {
		t.Errorf("one seed gave %s and %s", got, again)
	}
}

// What the crash hit was for a process that is dead: its buffers stay as they
// are and its lock is nobody's.
func TestCrashGivesTheCallerNothing(t *testing.T) {
	m := fsys.NewMem()
	put(t, m, "f", "x")
	r, err := m.Open("f")
	noErr(t, err)
	m.CrashAt(1)
	buf := []byte{0}
	if n, err := r.Read(buf); n != 0 || !errors.Is(err, fsys.ErrCrashed) {
		t.Errorf("read: %d, %v", n, err)
	}
	locking := fsys.NewMem()
	locking.CrashAt(1)
	_, err = locking.Lock("l")
	isErr(t, err, fsys.ErrCrashed)
	for seed := range uint64(20) {
		m.AfterKill(seeded(seed))
		_, err := locking.AfterKill(seeded(seed)).Lock("l")
		noErr(t, err)
	}
	if buf[0] != 0 {
		t.Error("the buffer was written to after the read had failed")
	}
}
