package block_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/block"
	"github.com/tidemill/tidemill/internal/fsys"
)

const dir = "/scratch/blocks"

// newStore opens a store on a memory file system. It is closed when the test
// ends.
func newStore(t *testing.T, limit int64) (*block.Store, *fsys.Mem) {
	t.Helper()
	disk := fsys.NewMem()
	noErr(t, disk.Mkdir("/scratch"))
	return openOn(t, disk, limit), disk
}

func openOn(t *testing.T, disk fsys.FS, limit int64) *block.Store {
	t.Helper()
	s, err := block.Open(block.Config{FS: disk, Dir: dir, MemoryLimit: limit})
	noErr(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// bytesOf returns n bytes that depend on the key.
func bytesOf(key string, n int) []byte {
	return bytes.Repeat([]byte(key+"."), n/(len(key)+1)+1)[:n:n]
}

func put(t *testing.T, s *block.Store, key string, n int, level base.StorageLevel) []byte {
	t.Helper()
	data := bytesOf(key, n)
	noErr(t, s.Put(t.Context(), key, data, level))
	return data
}

func wantBlock(t *testing.T, s *block.Store, key string, want []byte) {
	t.Helper()
	got, err := s.Get(key)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("Get(%q): %d bytes, %v, want the %d bytes put", key, len(got), err, len(want))
	}
	if !s.Has(key) {
		t.Errorf("Has(%q) is false", key)
	}
}

func wantNoBlock(t *testing.T, s *block.Store, key string) {
	t.Helper()
	if got, err := s.Get(key); got != nil || !errors.Is(err, block.ErrNotFound) {
		t.Errorf("Get(%q): %d bytes, %v, want ErrNotFound", key, len(got), err)
	}
	if s.Has(key) {
		t.Errorf("Has(%q) is true", key)
	}
}

func wantStats(t *testing.T, s *block.Store, want block.Stats) {
	t.Helper()
	if diff := cmp.Diff(want, s.Stats(), cmpopts.IgnoreFields(block.Stats{}, "MemoryLimit", "LastSpillError")); diff != "" {
		t.Errorf("Stats (-want +got):\n%s", diff)
	}
}

// wantError checks that an error is target and names all parts.
func wantError(t *testing.T, err, target error, parts ...string) {
	t.Helper()
	if err == nil || target != nil && !errors.Is(err, target) {
		t.Errorf("error %v, want %v", err, target)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not name %q", err, p)
		}
	}
}

// filesIn lists the files of the store; a missing directory has none.
func filesIn(t *testing.T, disk fsys.FS) []string {
	t.Helper()
	infos, err := disk.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, in := range infos {
		names = append(names, in.Name)
	}
	return names
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []struct {
		cfg   block.Config
		parts []string
	}{
		{block.Config{MemoryLimit: 1}, []string{"Dir", "empty"}},
		{block.Config{Dir: "d"}, []string{"MemoryLimit", "0", "positive"}},
		{block.Config{Dir: "d", MemoryLimit: -5}, []string{"MemoryLimit", "-5"}},
	} {
		_, err := block.Open(c.cfg)
		wantError(t, err, nil, c.parts...)
	}
}

func TestMemoryGivesTheSliceThatWasPut(t *testing.T) {
	s, _ := newStore(t, 100)
	data := put(t, s, "k", 10, base.MemoryAndDisk)
	got, err := s.Get("k")
	noErr(t, err)
	if &got[0] != &data[0] {
		t.Error("Get returned a copy")
	}
	// Invariant 15: the slice outlives the block.
	want := bytes.Clone(data)
	s.Drop("k")
	put(t, s, "k2", 10, base.MemoryOnly)
	if !bytes.Equal(got, want) {
		t.Error("the slice changed after the block was dropped")
	}
}

func TestLevelsGoWhereTheySay(t *testing.T) {
	s, disk := newStore(t, 100)
	m := put(t, s, "m", 10, base.MemoryOnly)
	md := put(t, s, "md", 20, base.MemoryAndDisk)
	if _, err := disk.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory before the first spill: %v, want none", err)
	}
	wantStats(t, s, block.Stats{Blocks: 2, MemoryBytes: 30})
	d := put(t, s, "d", 40, base.DiskOnly)
	wantStats(t, s, block.Stats{Blocks: 3, MemoryBytes: 30, DiskBytes: 40})
	wantBlock(t, s, "m", m)
	wantBlock(t, s, "md", md)
	wantBlock(t, s, "d", d)
	empty := put(t, s, "empty", 0, base.DiskOnly)
	wantBlock(t, s, "empty", empty)
	for _, l := range []base.StorageLevel{base.StorageNone, 99} {
		wantError(t, s.Put(t.Context(), "x", nil, l), nil, "x", l.String())
	}
}

func TestOldestBlocksAreSpilledFirst(t *testing.T) {
	s, disk := newStore(t, 100)
	m := put(t, s, "m", 20, base.MemoryOnly)
	a := put(t, s, "a", 30, base.MemoryAndDisk)
	b := put(t, s, "b", 30, base.MemoryAndDisk)
	wantBlock(t, s, "a", a) // reading does not make it younger
	c := put(t, s, "c", 30, base.MemoryAndDisk)
	wantStats(t, s, block.Stats{Blocks: 4, MemoryBytes: 80, DiskBytes: 30, Spilled: 1, Evicted: 1})
	noErr(t, disk.RemoveAll(dir))
	wantBlock(t, s, "m", m)
	wantBlock(t, s, "b", b)
	wantBlock(t, s, "c", c)
	_, err := s.Get("a")
	wantError(t, err, fs.ErrNotExist, `"a"`, dir)
}

func TestBlockThatCanNotFitGoesToDiskItself(t *testing.T) {
	s, _ := newStore(t, 100)
	put(t, s, "m", 60, base.MemoryOnly)
	a := put(t, s, "a", 30, base.MemoryAndDisk)
	b := put(t, s, "b", 50, base.MemoryAndDisk) // moving a would not make room
	c := put(t, s, "c", 500, base.MemoryAndDisk)
	wantStats(t, s, block.Stats{Blocks: 4, MemoryBytes: 90, DiskBytes: 550, Spilled: 2})
	wantBlock(t, s, "a", a)
	wantBlock(t, s, "b", b)
	wantBlock(t, s, "c", c)
}

func TestBlockLargerThanLimitIsRefusedAtOnce(t *testing.T) {
	s, _ := newStore(t, 100)
	err := s.Put(t.Context(), "huge", make([]byte, 101), base.MemoryOnly)
	wantError(t, err, block.ErrNoMemory, `"huge"`, "101", "100")
	put(t, s, "just", 100, base.MemoryOnly)
}

func TestTryPutDoesNotWait(t *testing.T) {
	s, _ := newStore(t, 100)
	put(t, s, "m", 60, base.MemoryOnly)
	put(t, s, "md", 30, base.MemoryAndDisk)
	err := s.TryPut(t.Context(), "c", make([]byte, 41), base.MemoryOnly)
	wantError(t, err, block.ErrNoMemory, `"c"`, "41", "100")
	wantNoBlock(t, s, "c")
	wantStats(t, s, block.Stats{Blocks: 2, MemoryBytes: 90}) // nothing was moved in vain
	noErr(t, s.TryPut(t.Context(), "c", make([]byte, 40), base.MemoryOnly))
	wantStats(t, s, block.Stats{Blocks: 3, MemoryBytes: 100, DiskBytes: 30, Spilled: 1, Evicted: 1})
	noErr(t, s.TryPut(t.Context(), "d", make([]byte, 40), base.MemoryAndDisk))
	noErr(t, s.TryPut(t.Context(), "e", make([]byte, 40), base.DiskOnly))
}

func TestPutOfAnExistingKey(t *testing.T) {
	s, _ := newStore(t, 100)
	for _, l := range []base.StorageLevel{base.MemoryOnly, base.MemoryAndDisk, base.DiskOnly} {
		key := l.String()
		data := put(t, s, key, 10, l)
		before := s.Stats()
		for _, again := range []base.StorageLevel{base.MemoryOnly, base.MemoryAndDisk, base.DiskOnly} {
			noErr(t, s.Put(t.Context(), key, bytes.Clone(data), again))
			noErr(t, s.TryPut(t.Context(), key, bytes.Clone(data), again))
			other := bytes.Clone(data)
			other[9]++
			wantError(t, s.Put(t.Context(), key, other, again), nil, key, "other bytes")
			wantError(t, s.TryPut(t.Context(), key, other[:9], again), nil, key, "10 bytes stored", "9 bytes put")
		}
		if diff := cmp.Diff(before, s.Stats()); diff != "" {
			t.Errorf("%s: puts of an existing key changed (-before +after):\n%s", l, diff)
		}
		wantBlock(t, s, key, data)
	}
}

func TestDropFreesMemoryAndDisk(t *testing.T) {
	s, disk := newStore(t, 100)
	put(t, s, "m", 10, base.MemoryOnly)
	put(t, s, "md", 10, base.MemoryAndDisk)
	put(t, s, "d", 10, base.DiskOnly)
	for _, k := range []string{"m", "md", "d", "none"} {
		s.Drop(k)
		wantNoBlock(t, s, k)
	}
	wantStats(t, s, block.Stats{})
	if got := filesIn(t, disk); len(got) != 0 {
		t.Errorf("files left: %v", got)
	}
	put(t, s, "d", 20, base.DiskOnly) // the key is free for other bytes
}

func TestDropPrefix(t *testing.T) {
	s, disk := newStore(t, 1000)
	keys := []string{"in@1:0", "in@1:1", "in@10:0", "in@2:0", "in", "other#1/in@1"}
	for i, k := range keys {
		put(t, s, k, 10, []base.StorageLevel{base.MemoryOnly, base.MemoryAndDisk, base.DiskOnly}[i%3])
	}
	if n := s.DropPrefix("in@1:"); n != 2 {
		t.Errorf("dropped %d, want 2", n)
	}
	wantNoBlock(t, s, "in@1:0")
	wantNoBlock(t, s, "in@1:1")
	for _, k := range keys[2:] {
		wantBlock(t, s, k, bytesOf(k, 10))
	}
	if n := s.DropPrefix("none"); n != 0 {
		t.Errorf("dropped %d, want 0", n)
	}
	if n := s.DropPrefix(""); n != 4 {
		t.Errorf("dropped %d, want the other 4", n)
	}
	wantStats(t, s, block.Stats{})
	if got := filesIn(t, disk); len(got) != 0 {
		t.Errorf("files left: %v", got)
	}
}

func TestReserveSharesTheBudget(t *testing.T) {
	s, _ := newStore(t, 100)
	put(t, s, "m", 20, base.MemoryOnly)
	put(t, s, "a", 30, base.MemoryAndDisk)
	put(t, s, "b", 30, base.MemoryAndDisk)
	if s.Reserve(81) {
		t.Error("Reserve(81) beside 20 bytes that can not move")
	}
	wantStats(t, s, block.Stats{Blocks: 3, MemoryBytes: 80})
	if !s.Reserve(20) || !s.Reserve(0) {
		t.Error("Reserve of free room failed")
	}
	if !s.Reserve(10) {
		t.Error("Reserve did not move the oldest block")
	}
	wantStats(t, s, block.Stats{Blocks: 3, MemoryBytes: 50, DiskBytes: 30, Reserved: 30, Spilled: 1, Evicted: 1})
	if s.Reserve(51) {
		t.Error("Reserve beyond the limit")
	}
	s.Release(30)
	wantStats(t, s, block.Stats{Blocks: 3, MemoryBytes: 50, DiskBytes: 30, Spilled: 1, Evicted: 1})
	for _, n := range []int64{1, -1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Release(%d) with nothing reserved did not panic", n)
				}
			}()
			s.Release(n)
		}()
	}
}

func TestCloseRemovesOwnFilesOnly(t *testing.T) {
	s, disk := newStore(t, 10)
	put(t, s, "a", 20, base.MemoryAndDisk)
	put(t, s, "b", 20, base.DiskOnly)
	noErr(t, fsys.WriteFile(disk, path.Join(dir, "foreign"), nil))
	noErr(t, s.Close())
	noErr(t, s.Close())
	if diff := cmp.Diff([]string{"foreign"}, filesIn(t, disk)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	_, err := s.Get("a")
	wantError(t, err, base.ErrStopped, `"a"`)
	wantError(t, s.Put(t.Context(), "c", nil, base.MemoryOnly), base.ErrStopped, `"c"`)
	if s.Has("a") || s.Reserve(1) || s.DropPrefix("") != 0 {
		t.Error("a closed store has blocks or room")
	}
	wantStats(t, s, block.Stats{Spilled: 1})
}

func TestCloseRemovesTheDirectoryItMade(t *testing.T) {
	s, disk := newStore(t, 10)
	put(t, s, "a", 20, base.DiskOnly)
	noErr(t, s.Close())
	if got := disk.String(); got != "/\n/scratch/\n" {
		t.Errorf("left behind:\n%s", got)
	}

	noErr(t, disk.Mkdir(dir))
	s = openOn(t, disk, 10)
	put(t, s, "a", 20, base.DiskOnly)
	noErr(t, s.Close())
	if got := disk.String(); got != "/\n/scratch/\n/scratch/blocks/\n" {
		t.Errorf("with a directory that was there before:\n%s", got)
	}
}

func TestCloseTriesStuckFilesAgain(t *testing.T) {
	s, disk := newStore(t, 10)
	put(t, s, "a", 20, base.DiskOnly)
	put(t, s, "b", 20, base.DiskOnly)
	fail := func(op, name string) error {
		if op == "remove" {
			return syscall.EBUSY
		}
		return nil
	}
	disk.FailWith(fail)
	s.Drop("a")
	wantNoBlock(t, s, "a")
	disk.FailWith(nil)
	noErr(t, s.Close())
	if got := filesIn(t, disk); len(got) != 0 {
		t.Errorf("files left: %v", got)
	}

	noErr(t, disk.Mkdir(dir)) // not the store's, so that its files are the matter
	s = openOn(t, disk, 10)
	put(t, s, "a", 20, base.DiskOnly)
	disk.FailWith(fail)
	wantError(t, s.Close(), syscall.EBUSY, "1 spill file", dir)
	wantError(t, s.Close(), syscall.EBUSY)
}

func TestOnALocalDisk(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a", "b")
	s, err := block.Open(block.Config{Dir: root, MemoryLimit: 100})
	noErr(t, err)
	defer s.Close()
	for i := range 20 {
		put(t, s, fmt.Sprintf("s/../@%d:#é", i), 30, base.MemoryAndDisk)
	}
	for i := range 20 {
		key := fmt.Sprintf("s/../@%d:#é", i)
		wantBlock(t, s, key, bytesOf(key, 30))
	}
	entries, err := os.ReadDir(root)
	noErr(t, err)
	if len(entries) != 17 {
		t.Errorf("%d files, want 17", len(entries))
	}
	noErr(t, s.Close())
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory after Close: %v", err)
	}
}
