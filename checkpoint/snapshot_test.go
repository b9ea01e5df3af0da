package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

func fixtures() map[string]checkpoint.Snapshot {
	return map[string]checkpoint.Snapshot{
		"snap-0000000000000000.tms":     {Epoch: 1, Body: []byte{}},
		"snap-0000000000004711.tms":     {Epoch: 6, Seq: 4711, Body: []byte("what the driver knows")},
		"snap-18446744073709551615.tms": {Epoch: 1<<64 - 1, Seq: 1<<64 - 1, Body: bytes.Repeat([]byte{0, 255}, 50)},
	}
}

// TestFixturesOfV1 checks that files are still written as the first format
// version wrote them, and reads those (Invariant 12).
func TestFixturesOfV1(t *testing.T) {
	for name, s := range fixtures() {
		m := disk(t, "d")
		in, err := checkpoint.Write(m, "d", s)
		if err != nil || in.Path != "d/"+name || in.Epoch != s.Epoch || in.Seq != s.Seq || in.Size != int64(32+len(s.Body)) {
			t.Fatalf("written as %+v, %v", in, err)
		}
		now, err := fsys.ReadFile(m, in.Path)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", "v1", name)
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) && update() {
			if err := os.WriteFile(file, now, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		old, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(old, now) {
			t.Errorf("%s: written otherwise now: a change of the format needs a new version\nwas %x\nnow %x", file, old, now)
		}
		got, err := checkpoint.Read(fsys.Local(), file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(s, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", file, d)
		}
	}
}

// TestFileLayout spells out docs/formats.md.
func TestFileLayout(t *testing.T) {
	m := disk(t, "d")
	in, err := checkpoint.Write(m, "d", checkpoint.Snapshot{Epoch: 6, Seq: 4711, Body: []byte("tide")})
	if err != nil {
		t.Fatal(err)
	}
	b, err := fsys.ReadFile(m, in.Path)
	if err != nil {
		t.Fatal(err)
	}
	want := "TMC\x01" + "\x06\x00\x00\x00\x00\x00\x00\x00" + "\x67\x12\x00\x00\x00\x00\x00\x00" + "\x04\x00\x00\x00\x00\x00\x00\x00" + "????" + "tide"
	if got := string(b[:28]) + "????" + string(b[32:]); got != want {
		t.Errorf("snapshot\n%x, want\n%x", got, want)
	}
}

func TestEveryDamagedByteIsDetected(t *testing.T) {
	for name := range fixtures() {
		good, err := os.ReadFile(filepath.Join("testdata", "v1", name))
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, at int, b []byte) {
			m := disk(t, "d")
			if err := fsys.WriteFile(m, "d/"+name, b); err != nil {
				t.Fatal(err)
			}
			_, err := checkpoint.Read(m, "d/"+name)
			if err == nil || !strings.Contains(err.Error(), "d/"+name) || at != 3 && !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("%s: %s at %d: %v, want ErrCorrupt with the path", name, what, at, err)
			}
		}
		for i := range good {
			for _, flip := range []byte{1, 0x80, 0xff} {
				bad := bytes.Clone(good)
				bad[i] ^= flip
				check("flipped byte", i, bad)
			}
			if i != 3 {
				check("cut", i, good[:i])
			}
		}
		check("zero added", len(good), append(bytes.Clone(good), 0))
	}
}

func TestNewerVersionIsRefusedWithBothNumbers(t *testing.T) {
	m := disk(t, "d")
	write(t, m, "d", 5)
	damage(t, m, "d/snap-0000000000000005.tms", func(b []byte) []byte { b[3] = 2; checkpoint.Seal(b); return b })
	_, err := checkpoint.Read(m, "d/snap-0000000000000005.tms")
	if err == nil || errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), "version 2, this program reads 1") {
		t.Errorf("error %v", err)
	}
	// It stays: the newer program may come back.
	write(t, m, "d", 1, 2, 3)
	kept, err := checkpoint.Prune(m, []string{"d"}, 2)
	if err == nil || !slices.Equal(seqs(kept), []uint64{3, 2}) {
		t.Errorf("kept %d, %v", seqs(kept), err)
	}
	want := []string{"d/snap-0000000000000002.tms", "d/snap-0000000000000003.tms", "d/snap-0000000000000005.tms"}
	if d := cmp.Diff(want, names(t, m, "d")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestARenamedSnapshotIsDamaged: its name decides what of the log is read after it.
func TestARenamedSnapshotIsDamaged(t *testing.T) {
	m := disk(t, "d")
	write(t, m, "d", 5)
	if err := m.Rename("d/snap-0000000000000005.tms", "d/snap-0000000000000006.tms"); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Read(m, "d/snap-0000000000000006.tms"); !errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), "up to 5, its name says 6") {
		t.Errorf("error %v", err)
	}
}

// TestTooLargeASnapshotIsNotWritten: it could not be read.
func TestTooLargeASnapshotIsNotWritten(t *testing.T) {
	if err := checkpoint.Fits(1 << 30); err != nil {
		t.Error(err)
	}
	if err := checkpoint.Fits(1<<30 + 1); err == nil || !strings.Contains(err.Error(), "1073741825") || !strings.Contains(err.Error(), "1073741824") {
		t.Errorf("error %v", err)
	}
}

// FuzzReadSnapshot reads any bytes, also behind a good length and checksum:
// whatever is accepted is written again as the same, and a length costs no
// more memory than there are bytes.
func FuzzReadSnapshot(f *testing.F) {
	for name := range fixtures() {
		b, err := os.ReadFile(filepath.Join("testdata", "v1", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
		f.Add(b[:len(b)-1], true)
		huge := bytes.Clone(b)
		copy(huge[20:], "\x00\x00\x00\x40")
		f.Add(huge, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal {
			b = bytes.Clone(b)
			checkpoint.Seal(b)
		}
		m := disk(t, "d")
		if err := fsys.WriteFile(m, "d/any", b); err != nil {
			t.Fatal(err)
		}
		var s checkpoint.Snapshot
		var err error
		if n := allocated(func() { s, err = checkpoint.Read(m, "d/any") }); n > uint64(1<<16+4*len(b)) {
			t.Errorf("%d bytes allocated for %d", n, len(b))
		}
		if err != nil {
			return
		}
		in, err := checkpoint.Write(m, "d", s)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := fsys.ReadFile(m, in.Path); err != nil || !bytes.Equal(again, b) {
			t.Errorf("read from\n%x, written as\n%x, %v", b, again, err)
		}
	})
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func Example() {
	disk := fsys.NewMem()
	if err := disk.MkdirAll("log/e-000006"); err != nil {
		fmt.Println(err)
	}
	if _, err := checkpoint.Write(disk, "log/e-000006", checkpoint.Snapshot{Epoch: 6, Seq: 4711, Body: []byte("facts")}); err != nil {
		fmt.Println(err)
	}
	last, bad, err := checkpoint.Newest(disk, []string{"log/e-000005.sealed", "log/e-000006"})
	fmt.Println(last.Epoch, last.Seq, string(last.Body), bad, err)
	// Output: 6 4711 facts [] <nil>
}
