package fsys_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tidemill/tidemill/internal/fsys"
)

// TestPowerLoss: what can be found is exactly what each rule allows.
func TestPowerLoss(t *testing.T) {
	for _, c := range []struct {
		rule string
		do   func(t *testing.T, m *fsys.Mem)
		want []string
	}{
		{"SyncedFileInSyncedDirectoryStays", func(t *testing.T, m *fsys.Mem) {
			put(t, m, "f", "abc")
			syncDirs(t, m, "/")
		}, []string{"f=abc"}},
		{"UnsyncedNameMayBeGone", func(t *testing.T, m *fsys.Mem) {
			put(t, m, "f", "abc")
		}, []string{"", "f=abc"}},
		{"UnsyncedBytesAreCutOrZero", func(t *testing.T, m *fsys.Mem) {
			begin(t, m, "f", "abc")
			syncDirs(t, m, "/")
		}, []string{"f=", "f=a", "f=ab", "f=abc", "f=0", "f=00", "f=000"}},
		{"FlushAndCloseSyncNothing", func(t *testing.T, m *fsys.Mem) {
			w := begin(t, m, "f", "a")
			noErr(t, errors.Join(w.Flush(), w.Close()))
			syncDirs(t, m, "/")
		}, []string{"f=", "f=a", "f=0"}},
		{"BytesBeforeTheLastSyncStay", func(t *testing.T, m *fsys.Mem) {
			w := begin(t, m, "f", "ab")
			noErr(t, w.Sync())
			_, err := w.Write([]byte("cd"))
			noErr(t, err)
			syncDirs(t, m, "/")
		}, []string{"f=ab", "f=abc", "f=abcd", "f=ab0", "f=ab00"}},
		{"RenameWithinADirectoryIsOneStep", func(t *testing.T, m *fsys.Mem) {
			put(t, m, "f", "x")
			syncDirs(t, m, "/")
			noErr(t, m.Rename("f", "g"))
		}, []string{"f=x", "g=x"}},
		{"ALaterRenameNeedsTheEarlier", func(t *testing.T, m *fsys.Mem) {
			put(t, m, "f", "x")
			syncDirs(t, m, "/")
			noErr(t, m.Rename("f", "g"))
			noErr(t, m.Rename("g", "h"))
		}, []string{"f=x", "g=x", "h=x"}},
		{"ARenameNeedsTheCreation", func(t *testing.T, m *fsys.Mem) {
			put(t, m, "f", "x")
			noErr(t, m.Rename("f", "g"))
		}, []string{"", "f=x", "g=x"}},
		{"OtherNamesAreIndependent", func(t *testing.T, m *fsys.Mem) {
			put(t, m, "f", "1")
			put(t, m, "g", "2")
		}, []string{"", "f=1", "g=2", "f=1 g=2"}},
		{"RenameAcrossDirectoriesIsTwoSteps", func(t *testing.T, m *fsys.Mem) {
			acrossDirectories(t, m)
		}, []string{"a/ b/", "a/ a/f=x b/", "a/ b/ b/f=x", "a/ a/f=x b/ b/f=x"}},
		{"RenameAcrossDirectoriesNewSideSynced", func(t *testing.T, m *fsys.Mem) {
			acrossDirectories(t, m)
			syncDirs(t, m, "b")
		}, []string{"a/ b/ b/f=x", "a/ a/f=x b/ b/f=x"}},
		{"RenameAcrossDirectoriesOldSideSynced", func(t *testing.T, m *fsys.Mem) {
			acrossDirectories(t, m)
			syncDirs(t, m, "a")
		}, []string{"a/ b/", "a/ b/ b/f=x"}},
		{"UnsyncedRemoveMayComeBack", func(t *testing.T, m *fsys.Mem) {
			put(t, m, "f", "x")
			syncDirs(t, m, "/")
			noErr(t, m.Remove("f"))
		}, []string{"", "f=x"}},
		{"SyncedRemoveStays", func(t *testing.T, m *fsys.Mem) {
			put(t, m, "f", "x")
			syncDirs(t, m, "/")
			noErr(t, m.Remove("f"))
			syncDirs(t, m, "/")
		}, []string{""}},
		{"ANewFileOfTheSameNameNeedsTheRemoval", func(t *testing.T, m *fsys.Mem) {
			put(t, m, "f", "1")
			syncDirs(t, m, "/")
			noErr(t, m.Remove("f"))
			put(t, m, "f", "2")
		}, []string{"", "f=1", "f=2"}},
		{"ANewFileOfTheOldNameNeedsTheRename", func(t *testing.T, m *fsys.Mem) {
			put(t, m, "f", "1")
			syncDirs(t, m, "/")
			noErr(t, m.Rename("f", "g"))
			put(t, m, "f", "2")
		}, []string{"f=1", "g=1", "f=2 g=1"}},
		{"AFileFoundTwiceIsTheSame", func(t *testing.T, m *fsys.Mem) {
			noErr(t, errors.Join(m.Mkdir("a"), m.Mkdir("b")))
			begin(t, m, "a/f", "x")
			syncDirs(t, m, "a", "/")
			noErr(t, m.Rename("a/f", "b/f"))
			syncDirs(t, m, "b")
		}, []string{
			"a/ b/ b/f=", "a/ b/ b/f=x", "a/ b/ b/f=0",
			"a/ a/f= b/ b/f=", "a/ a/f=x b/ b/f=x", "a/ a/f=0 b/ b/f=0",
		}},
		{"ADirectoryNeedsItsOwnName", func(t *testing.T, m *fsys.Mem) {
			noErr(t, m.Mkdir("d"))
			put(t, m, "d/f", "x")
			syncDirs(t, m, "d")
		}, []string{"", "d/ d/f=x"}},
		{"EachDirectoryOfATreeIsSyncedByItself", func(t *testing.T, m *fsys.Mem) {
			noErr(t, m.MkdirAll("a/b/c"))
			syncDirs(t, m, "a/b")
		}, []string{"", "a/", "a/ a/b/ a/b/c/"}},
		{"RemoveAllIsManySteps", func(t *testing.T, m *fsys.Mem) {
			noErr(t, m.Mkdir("d"))
			put(t, m, "d/f", "1")
			put(t, m, "d/g", "2")
			syncDirs(t, m, "d", "/")
			noErr(t, m.RemoveAll("d"))
		}, []string{"", "d/", "d/ d/f=1", "d/ d/g=2", "d/ d/f=1 d/g=2"}},
		{"AMovedDirectoryMayBeFoundTwice", func(t *testing.T, m *fsys.Mem) {
			noErr(t, errors.Join(m.MkdirAll("a/d"), m.Mkdir("b")))
			put(t, m, "a/d/f", "x")
			syncDirs(t, m, "a/d", "a", "/")
			noErr(t, m.Rename("a/d", "b/d"))
		}, []string{
			"a/ b/", "a/ a/d/ a/d/f=x b/", "a/ b/ b/d/ b/d/f=x", "a/ a/d/ a/d/f=x b/ b/d/ b/d/f=x",
		}},
		{"ADirectoryFoundTwiceIsTheSame", func(t *testing.T, m *fsys.Mem) {
			noErr(t, errors.Join(m.MkdirAll("a/d"), m.Mkdir("b")))
			syncDirs(t, m, "a", "/")
			put(t, m, "a/d/f", "x")
			noErr(t, m.Rename("a/d", "b/d"))
			syncDirs(t, m, "b")
		}, []string{
			"a/ b/ b/d/", "a/ b/ b/d/ b/d/f=x", "a/ a/d/ b/ b/d/", "a/ a/d/ a/d/f=x b/ b/d/ b/d/f=x",
		}},
		{"ADirectoryIsNotFoundBelowItself", func(t *testing.T, m *fsys.Mem) {
			noErr(t, m.MkdirAll("a/x"))
			syncDirs(t, m, "a", "/")
			noErr(t, m.Rename("a/x", "x"))
			noErr(t, m.Rename("a", "x/a"))
			syncDirs(t, m, "x") // now a holds x, and x holds a
		}, []string{
			"", "a/", "a/ a/x/", "a/ x/ x/a/", "a/ a/x/ x/ x/a/", "x/ x/a/",
		}},
		{"FailedSyncLosesForGood", func(t *testing.T, m *fsys.Mem) {
			w := begin(t, m, "f", "a")
			noErr(t, w.Sync())
			_, err := w.Write([]byte("b"))
			noErr(t, err)
			syncDirs(t, m, "/")
			m.FailWith(func(op, _ string) error { return errors.New(op) })
			if w.Sync() == nil {
				t.Error("the failing sync succeeded")
			}
			m.FailWith(nil)
			noErr(t, w.Sync())
		}, []string{"f=a", "f=ab", "f=a0"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			m := fsys.NewMem()
			c.do(t, m)
			check(t, outcomes(t, m.AfterPowerLoss), c.want...)
		})
	}
}

// acrossDirectories moves a/f to b/f; all before that is durable.
func acrossDirectories(t *testing.T, m *fsys.Mem) {
	noErr(t, errors.Join(m.Mkdir("a"), m.Mkdir("b")))
	put(t, m, "a/f", "x")
	syncDirs(t, m, "a", "b", "/")
	noErr(t, m.Rename("a/f", "b/f"))
}

func TestPowerLossLeavesHolesOfWholeSectors(t *testing.T) {
	const synced, size = 700, 2000 // the second sector is synced in part
	m := fsys.NewMem()
	w := begin(t, m, "f", strings.Repeat("x", synced))
	noErr(t, w.Sync())
	_, err := w.Write(bytes.Repeat([]byte("x"), size-synced))
	noErr(t, err)
	syncDirs(t, m, "/")
	bounds := []int{synced, 1024, 1536, size}
	patterns := map[string]bool{}
	for seed := range uint64(500) {
		b, err := fsys.ReadFile(m.AfterPowerLoss(seeded(seed)), "f")
		noErr(t, err)
		if len(b) < synced || len(b) > size {
			t.Fatalf("length %d, want %d to %d", len(b), synced, size)
		}
		if len(b) < size {
			continue
		}
		pattern := b[:1:1]
		if bytes.Count(b[:synced], []byte("x")) != synced {
			t.Fatal("synced bytes are gone")
		}
		for i, from := range bounds[:3] {
			part := b[from:bounds[i+1]]
			if n := bytes.Count(part, part[:1]); n != len(part) {
				t.Fatalf("sector from %d is mixed", from)
			}
			pattern = append(pattern, max(part[0], '0'))
		}
		patterns[string(pattern)] = true
	}
	check(t, slices.Sorted(maps.Keys(patterns)), "xxxx", "xxx0", "xx0x", "xx00", "x0xx", "x0x0", "x00x", "x000")
}

// A directory that nobody syncs does not keep all that was ever removed.
func TestMemForgetsTheOldestUnsyncedChanges(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name  string
		count int
		do    func(t *testing.T, m *fsys.Mem, name string)
	}{
		{"many", 2000, func(t *testing.T, m *fsys.Mem, name string) {
			begin(t, m, name, "")
			noErr(t, m.Remove(name))
		}},
		{"large", 40, func(t *testing.T, m *fsys.Mem, name string) {
			begin(t, m, name, large)
			noErr(t, m.Remove(name))
		}},
		{"large below", 40, func(t *testing.T, m *fsys.Mem, name string) {
			noErr(t, m.Mkdir(name))
			begin(t, m, name+"/f", large)
			noErr(t, m.RemoveAll(name))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := fsys.NewMem()
			for i := range c.count {
				c.do(t, m, fmt.Sprint(i))
			}
			seen := map[string]bool{}
			for seed := range uint64(20) {
				infos, err := m.AfterPowerLoss(seeded(seed)).List("/")
				noErr(t, err)
				for _, in := range infos {
					seen[in.Name] = true
				}
			}
			last := fmt.Sprint(c.count - 1)
			if seen["0"] || !seen[last] {
				t.Errorf("found again: the first %v, the last %v; want the last only", seen["0"], seen[last])
			}
		})
	}
}
