package checkpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

func failing(m *fsys.Mem, op string, err error) (stop func()) {
	m.FailWith(func(o, _ string) error {
		if o == op {
			return err
		}
		return nil
	})
	return func() { m.FailWith(nil) }
}

func TestB17aARenameThatDidNothingIsNotWritten(t *testing.T) {
	m := disk(t, "d")
	write(t, m, "d", 1)
	stop := failing(m, "rename", &fsys.UnappliedSuccess{})
	_, err := checkpoint.Write(m, "d", snap(1, 2))
	if err == nil || !strings.Contains(err.Error(), "snap-0000000000000002.tms") {
		t.Errorf("error %v", err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v looks as if the directory had gone", err)
	}
	stop()
	if seq, bad, err := newest(t, m, "d"); seq != 1 || bad != nil || err != nil {
		t.Errorf("newest is %d, bad %v, %v", seq, bad, err)
	}
	write(t, m, "d", 2)
	if seq, _, err := newest(t, m, "d"); seq != 2 || err != nil {
		t.Errorf("newest is %d, %v", seq, err)
	}
}

// TestB17aAWriteThatDidNothingIsNotWritten: all calls succeed, and the file is short.
func TestB17aAWriteThatDidNothingIsNotWritten(t *testing.T) {
	m := disk(t, "d")
	defer failing(m, "write", &fsys.UnappliedSuccess{})()
	_, err := checkpoint.Write(m, "d", snap(1, 2))
	if err == nil || !strings.Contains(err.Error(), "it has 0 bytes, 134 were written") {
		t.Errorf("error %v", err)
	}
}

func TestB17aARenameThatFailedButHappenedIsWritten(t *testing.T) {
	m := disk(t, "d")
	defer failing(m, "rename", &fsys.AppliedError{})()
	write(t, m, "d", 2)
	if d := cmp.Diff([]string{"d/snap-0000000000000002.tms"}, names(t, m, "d")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestB17bATargetThatExists(t *testing.T) {
	m := disk(t, "d")
	write(t, m, "d", 2)
	write(t, m, "d", 2) // the same once more
	other := snap(1, 2)
	other.Body = append([]byte(nil), other.Body...)
	other.Body[0]++
	_, err := checkpoint.Write(m, "d", other)
	if err == nil || !strings.Contains(err.Error(), "another snapshot of that name") {
		t.Errorf("other content: %v", err)
	}
	if _, err := checkpoint.Write(m, "d", checkpoint.Snapshot{Epoch: 2, Seq: 2, Body: snap(1, 2).Body}); err == nil {
		t.Error("one of another epoch is taken for the same")
	}
	if seq, bad, err := newest(t, m, "d"); seq != 2 || bad != nil || err != nil {
		t.Errorf("newest is %d, bad %v, %v", seq, bad, err)
	}
	damage(t, m, "d/snap-0000000000000002.tms", half)
	if _, err := checkpoint.Write(m, "d", snap(1, 2)); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("damaged content: %v", err)
	}
	if n := len(names(t, m, "d")); n != 1 {
		t.Errorf("%d files, want one", n)
	}
}

// TestB17bATargetThatExistsIsSynced: whoever wrote it may have died before.
func TestB17bATargetThatExistsIsSynced(t *testing.T) {
	m := disk(t, "d")
	stop := failing(m, "syncdir", syscall.EIO)
	if _, err := checkpoint.Write(m, "d", snap(1, 2)); !errors.Is(err, syscall.EIO) {
		t.Errorf("error %v", err)
	}
	if _, err := checkpoint.Write(m, "d", snap(1, 2)); !errors.Is(err, syscall.EIO) {
		t.Errorf("the second time: error %v", err)
	}
	stop()
	write(t, m, "d", 2)
}

func TestB17cTemporaryFilesOfOlderAttempts(t *testing.T) {
	m := disk(t, "d")
	for i := range 3 {
		if err := fsys.WriteFile(m, fmt.Sprintf("d/snap-0000000000000002.tms.%d.tmp", i), []byte("half")); err != nil {
			t.Fatal(err)
		}
	}
	write(t, m, "d", 1, 2)
	if seq, bad, err := newest(t, m, "d"); seq != 2 || bad != nil || err != nil {
		t.Errorf("newest is %d, bad %v, %v", seq, bad, err)
	}
	if all, err := checkpoint.List(m, []string{"d"}); err != nil || !slices.Equal(seqs(all), []uint64{2, 1}) {
		t.Errorf("listed %d, %v", seqs(all), err)
	}
	if _, err := checkpoint.Prune(m, []string{"d"}, 9); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"d/snap-0000000000000001.tms", "d/snap-0000000000000002.tms"}, names(t, m, "d")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestB17dKilledBeforeTheRename(t *testing.T) {
	m := disk(t, "d")
	write(t, m, "d", 1)
	m.FailWith(func(op, _ string) error {
		if op == "rename" || op == "remove" {
			return syscall.EIO
		}
		return nil
	})
	if _, err := checkpoint.Write(m, "d", snap(1, 2)); !errors.Is(err, syscall.EIO) {
		t.Errorf("error %v", err)
	}
	m.FailWith(nil)
	if n := len(names(t, m, "d")); n != 2 {
		t.Errorf("%d files, want the temporary one too", n)
	}
	if seq, bad, err := newest(t, m, "d"); seq != 1 || bad != nil || err != nil {
		t.Errorf("newest is %d, bad %v, %v", seq, bad, err)
	}
}

func TestB18WithoutSnapshotsThereIsNone(t *testing.T) {
	m := disk(t, "empty", "temps")
	if err := fsys.WriteFile(m, "temps/snap-0000000000000002.tms.0.tmp", nil); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		dirs []string
		bad  []string
	}{
		{nil, nil},
		{[]string{"absent"}, nil},          // (a)
		{[]string{"absent", "empty"}, nil}, // (b)
		{[]string{"empty", "temps"}, []string{"temps/snap-0000000000000002.tms.0.tmp"}}, // (c), with a warning
	} {
		if seq, bad, err := newest(t, m, test.dirs...); seq != 0 || !slices.Equal(bad, test.bad) || err != nil {
			t.Errorf("%v: newest is %d, bad %v, %v", test.dirs, seq, bad, err)
		}
	}
	if _, bad, _ := checkpoint.Newest(m, []string{"temps"}); !strings.Contains(bad[0].Err.Error(), "not finished") {
		t.Errorf("warning %v", bad[0].Err)
	}
}

// TestB18dDamagedSnapshotsArePassedOver for an older good one, and told: (d) cut in half, (e) empty.
func TestB18dDamagedSnapshotsArePassedOver(t *testing.T) {
	m := disk(t, "d", "e-000002")
	write(t, m, "d", 1, 2, 3)
	if _, err := checkpoint.Write(m, "e-000002", snap(2, 4)); err != nil {
		t.Fatal(err)
	}
	damage(t, m, "e-000002/snap-0000000000000004.tms", half)
	damage(t, m, "d/snap-0000000000000003.tms", none)
	damage(t, m, "d/snap-0000000000000001.tms", half) // that one is not looked at
	seq, bad, err := newest(t, m, "d", "e-000002")
	if want := []string{"e-000002/snap-0000000000000004.tms", "d/snap-0000000000000003.tms"}; seq != 2 || !slices.Equal(bad, want) || err != nil {
		t.Errorf("newest is %d, bad %v, %v", seq, bad, err)
	}
}

func TestB18fAllDamagedIsAnError(t *testing.T) {
	m := disk(t, "log", "log/e-000001")
	write(t, m, "log/e-000001", 1, 2, 3)
	damage(t, m, "log/e-000001/snap-0000000000000001.tms", half)
	damage(t, m, "log/e-000001/snap-0000000000000002.tms", none)
	damage(t, m, "log/e-000001/snap-0000000000000003.tms", func(b []byte) []byte { b[3] = 9; return b })
	seq, bad, err := newest(t, m, "log/e-000001")
	if seq != 0 || len(bad) != 3 || !errors.Is(err, base.ErrCorrupt) {
		t.Fatalf("newest is %d, bad %v, %v", seq, bad, err)
	}
	for _, part := range []string{"none of 3", "`tidemill checkpoint show log/e-000001`", "0001.tms", "0002.tms", "0003.tms", "version 9"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not say %q: %v", part, err)
		}
	}
	// And nothing is cleaned.
	if kept, err := checkpoint.Prune(m, []string{"log/e-000001"}, 1); len(kept) != 0 || err == nil {
		t.Errorf("kept %d, %v", seqs(kept), err)
	}
	if n := len(names(t, m, "log/e-000001")); n != 3 {
		t.Errorf("%d files are left of 3", n)
	}
}

// TestADiskThatFailsIsNoFreshStart.
func TestADiskThatFailsIsNoFreshStart(t *testing.T) {
	for _, op := range []string{"list", "open", "read"} {
		m := disk(t, "d")
		write(t, m, "d", 1)
		defer failing(m, op, syscall.EIO)()
		if seq, _, err := newest(t, m, "d"); seq != 0 || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s fails: newest is %d, %v", op, seq, err)
		}
		if kept, err := checkpoint.Prune(m, []string{"d"}, 1); kept != nil || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s fails: prune kept %d, %v", op, seqs(kept), err)
		}
	}
}

// TestB23ADiskThatIsFull, or may not be written: the last good snapshot stays,
// a start finds it, and once there is space everything works with no manual step.
func TestB23ADiskThatIsFull(t *testing.T) {
	for _, test := range []struct {
		ops []string
		err error
	}{
		{[]string{"create"}, syscall.ENOSPC},
		{[]string{"write"}, syscall.ENOSPC},
		{[]string{"write"}, &fsys.ShortWrite{N: 7, Err: syscall.ENOSPC}},
		{[]string{"sync"}, syscall.ENOSPC},
		{[]string{"close"}, syscall.ENOSPC},
		{[]string{"rename"}, syscall.ENOSPC},
		{[]string{"write", "remove"}, syscall.ENOSPC},
		{[]string{"create", "rename", "remove"}, syscall.EACCES},
	} {
		m := disk(t, "d")
		write(t, m, "d", 1, 2)
		fault := func(op, _ string) error {
			if slices.Contains(test.ops, op) {
				return test.err
			}
			return nil
		}
		full := func(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EACCES) }
		m.FailWith(fault)
		for seq := range uint64(3) {
			if _, err := checkpoint.Write(m, "d", snap(1, 3+seq)); !full(err) {
				t.Errorf("%v: write: %v", test.ops, err)
			}
		}
		if left := names(t, m, "d"); len(left) != 2 && !slices.Contains(test.ops, "remove") {
			t.Errorf("%v: failed writes leave %v", test.ops, left)
		}
		m.FailWith(func(op, name string) error {
			if op == "close" { // of a file that was read
				return nil
			}
			return fault(op, name)
		})
		if seq, bad, err := newest(t, m, "d"); seq != 2 || bad != nil || err != nil { // a start while it is full
			t.Errorf("%v: newest is %d, bad %v, %v", test.ops, seq, bad, err)
		}
		m.FailWith(nil)
		write(t, m, "d", 6)
		kept, err := checkpoint.Prune(m, []string{"d"}, 2)
		if err != nil || !slices.Equal(seqs(kept), []uint64{6, 2}) {
			t.Errorf("%v: kept %d, %v", test.ops, seqs(kept), err)
		}
		if d := cmp.Diff([]string{"d/snap-0000000000000002.tms", "d/snap-0000000000000006.tms"}, names(t, m, "d")); d != "" {
			t.Errorf("%v: -want +got:\n%s", test.ops, d)
		}
	}
}

// TestAFencedDriverWritesNothing: its directory was renamed (Invariant 7).
func TestAFencedDriverWritesNothing(t *testing.T) {
	for _, when := range []string{"create", "write", "sync", "rename", "syncdir"} {
		m := disk(t, "log", "log/e-000001")
		write(t, m, "log/e-000001", 1)
		m.FailWith(func(op, _ string) error {
			if op != when {
				return nil
			}
			m.FailWith(nil)
			return m.Rename("log/e-000001", "log/e-000001.sealed")
		})
		_, err := checkpoint.Write(m, "log/e-000001", snap(1, 2))
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "newer driver") {
			t.Errorf("renamed before %s: %v", when, err)
		}
		if entries := names(t, m, "log"); !slices.Equal(entries, []string{"log/e-000001.sealed"}) {
			t.Errorf("renamed before %s: there is %v", when, entries)
		}
		// What it was about to write is whole, or is passed over.
		want := uint64(1)
		if when == "syncdir" {
			want = 2
		}
		if seq, bad, err := newest(t, m, "log/e-000001", "log/e-000001.sealed"); seq != want || bad != nil || err != nil {
			t.Errorf("renamed before %s: newest is %d, bad %v, %v", when, seq, bad, err)
		}
	}
}

func TestASnapshotBelongsIntoItsEpochsDirectory(t *testing.T) {
	m := disk(t, "e-000007")
	if _, err := checkpoint.Write(m, "e-000007", snap(6, 1)); err == nil || !strings.Contains(err.Error(), "epoch 6") || !strings.Contains(err.Error(), "epoch 7") {
		t.Errorf("error %v", err)
	}
	if in, err := checkpoint.Write(m, "e-000007", snap(7, 1)); err != nil || in.Epoch != 7 {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestListIsNewestFirst(t *testing.T) {
	m := disk(t, "e-000001.sealed", "e-000002.sealed", "e-1000003", "other")
	for dir, all := range map[string][]checkpoint.Snapshot{
		"e-000001.sealed": {snap(1, 5), snap(1, 9), snap(1, 12345678901234567890)},
		"e-000002.sealed": {snap(2, 9), snap(2, 10)},
		"e-1000003":       {snap(1000003, 9)},
		"other":           {snap(4, 11)},
	} {
		for _, s := range all {
			if _, err := checkpoint.Write(m, dir, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"snap-1.tms", "snap-x.tms", "0000000000000001.wal", "snap-0000000000000001.tms.bak", "snap-00000000000000001.tms"} {
		if err := fsys.WriteFile(m, "other/"+name, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Mkdir("other/snap-0000000000000077.tms"); err != nil {
		t.Fatal(err)
	}
	all, err := checkpoint.List(m, []string{"e-000001.sealed", "e-000002.sealed", "e-1000003", "other"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, in := range all {
		got = append(got, fmt.Sprintf("%s %d/%d", path.Dir(in.Path), in.Epoch, in.Seq))
		st, err := m.Stat(in.Path)
		if err != nil || in.Size != st.Size || !in.ModTime.Equal(st.ModTime) {
			t.Errorf("%+v, and the file is %+v, %v", in, st, err)
		}
	}
	want := []string{
		"e-000001.sealed 1/12345678901234567890", "other 0/11", "e-000002.sealed 2/10",
		"e-1000003 1000003/9", "e-000002.sealed 2/9", "e-000001.sealed 1/9", "e-000001.sealed 1/5",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestPruneNeedsANumber(t *testing.T) {
	if _, err := checkpoint.Prune(disk(t), nil, 0); err == nil || !strings.Contains(err.Error(), "0 snapshots") {
		t.Errorf("error %v", err)
	}
}

// TestPruneKeepsTheNewestGoodOnes, whatever else there is: a damaged one never
// pushes a good one out.
func TestPruneKeepsTheNewestGoodOnes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dirs := []string{"e-000001.sealed", "e-000002"}
		m := disk(t, dirs...)
		var good []string // newest first
		for seq := uint64(20); seq > 0; seq-- {
			for epoch := 2; epoch > 0; epoch-- {
				dir := dirs[epoch-1]
				file := fmt.Sprintf("%s/snap-%016d.tms", dir, seq)
				switch rapid.SampledFrom([]string{"", "", "good", "damaged", "temp"}).Draw(rt, "file") {
				case "good":
					if _, err := checkpoint.Write(m, dir, snap(base.Epoch(epoch), seq)); err != nil {
						rt.Fatal(err)
					}
					good = append(good, file)
				case "damaged":
					if err := fsys.WriteFile(m, file, []byte("TMC\x01")); err != nil {
						rt.Fatal(err)
					}
				case "temp":
					if err := fsys.WriteFile(m, file+".0.tmp", nil); err != nil {
						rt.Fatal(err)
					}
				}
			}
		}
		before := names(t, m, dirs...)
		keep := rapid.IntRange(1, 4).Draw(rt, "keep")
		kept, err := checkpoint.Prune(m, dirs, keep)
		if err != nil {
			rt.Fatal(err)
		}
		var got []string
		for _, in := range kept {
			got = append(got, in.Path)
		}
		want := good[:min(keep, len(good))]
		if !slices.Equal(got, want) {
			rt.Fatalf("kept %v, want %v", got, want)
		}
		left := names(t, m, dirs...)
		if len(want) == 0 {
			want = before // nothing is removed while nothing is good
		}
		slices.Sort(left)
		if !slices.Equal(left, slices.Sorted(slices.Values(want))) {
			rt.Fatalf("left %v, want %v", left, want)
		}
	})
}
