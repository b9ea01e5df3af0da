package fsys_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidemill/tidemill/internal/fsys"
)

func TestLocalListFollowsLinks(t *testing.T) {
	dir, target := t.TempDir(), t.TempDir()
	noErr(t, os.WriteFile(filepath.Join(target, "f"), []byte("four"), 0o666))
	for name, to := range map[string]string{"dir": target, "file": filepath.Join(target, "f"), "nowhere": "gone"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	if diff := cmp.Diff([]string{"dir/", "file"}, names(t, fsys.Local(), dir)); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	infos, err := fsys.Local().List(dir)
	noErr(t, err)
	if infos[1].Size != 4 {
		t.Errorf("size of a link to a file is %d, want the file's, 4", infos[1].Size)
	}
}

// A dangling link occupies its name: a rename must not replace it either.
func TestRenameDoesNotReplaceDanglingLink(t *testing.T) {
	for _, f := range []fsys.FS{fsys.Local(), fsys.LocalWithoutNoReplace()} {
		dir := t.TempDir()
		if err := os.Symlink("gone", filepath.Join(dir, "link")); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
		noErr(t, fsys.WriteFile(f, filepath.Join(dir, "f"), nil))
		isErr(t, f.Rename(filepath.Join(dir, "f"), filepath.Join(dir, "link")), os.ErrExist)
	}
}

func TestRelativeNames(t *testing.T) {
	t.Chdir(t.TempDir())
	f := fsys.Local()
	noErr(t, f.MkdirAll("a/b"))
	noErr(t, fsys.WriteFile(f, "a/f", nil))
	got, err := fsys.Glob(f, "*/*")
	noErr(t, err)
	if diff := cmp.Diff([]string{"a/b", "a/f"}, got); diff != "" {
		t.Errorf("relative glob (-want +got):\n%s", diff)
	}
	noErr(t, f.SyncDir("."))
}
