package hdfs

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/fsystest"
)

// TestConformance runs what every file system has to pass.
func TestConformance(t *testing.T) {
	h := cluster(t)
	f := files(t, h)
	var n atomic.Int64
	fsystest.Run(t, func(t *testing.T) (fsys.FS, string) {
		root := h.URL(fmt.Sprintf("conformance/%d", n.Add(1)))
		must(t, f.MkdirAll(root))
		return f, root
	})
}

// TestOutputIsNotRenamedOntoAnother: the namenode itself must refuse, or two that
// commit the same output at once both succeed (Invariant 4). Hadoop's plain rename
// would move one into the other.
func TestOutputIsNotRenamedOntoAnother(t *testing.T) {
	h := cluster(t)
	f := files(t, h)
	dir := h.URL("rename")
	for _, out := range []string{"/late", "/done"} {
		must(t, f.MkdirAll(dir+out))
		must(t, fsys.WriteFile(f, dir+out+"/part-00000", []byte(out)))
	}
	must(t, f.Mkdir(dir+"/empty"))
	for _, target := range []string{"/done", "/empty", "/done/part-00000", "/late"} {
		if err := f.Rename(dir+"/late", dir+target); !errors.Is(err, fs.ErrExist) {
			t.Errorf("rename onto %s: %v, want %v", target, err, fs.ErrExist)
		}
	}
	must(t, f.Rename(dir+"/late", dir+"/new"))
	want := map[string]string{"/done/part-00000": "/done", "/new/part-00000": "/late"}
	got := map[string]string{}
	for _, out := range []string{"/done", "/empty", "/new"} {
		files, err := f.List(dir + out)
		must(t, err)
		for _, i := range files {
			text, err := fsys.ReadFile(f, dir+out+"/"+i.Name)
			must(t, err)
			got[out+"/"+i.Name] = string(text)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files after that (-want +got):\n%s", diff)
	}
}
