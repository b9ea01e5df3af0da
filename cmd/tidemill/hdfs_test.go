package main

import (
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// TestTheDirectoryOfALiveJobOnHDFS looks at a directory whose logs somebody has
// open, where the namenode says that they are empty.
func TestTheDirectoryOfALiveJobOnHDFS(t *testing.T) {
	const there = "hdfs://nn:8020/jobs/words"
	m := fsys.NewMem()
	poisoned(t, m)
	synctest.Test(t, func(t *testing.T) {
		c := hdfstest.Start(hdfstest.Options{})
		defer c.Close()
		cfg := hdfs.Config{Addresses: c.Namenodes(), User: "tester", Dial: c.Dial}
		live, err := hdfs.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		written := copyOpen(t, m, "/job", live, "/jobs/words")
		defer func() {
			_ = live.Close() // as its process would be killed: the files are not closed
			for _, w := range written {
				_ = w.Close() // they were not
			}
		}()
		if n := len(c.OpenFiles()); n != len(written) || n < 2 {
			t.Fatalf("%d files are open, want those of %d logs", n, len(written))
		}

		r := fsys.NewRouter(fsys.NewMem(), map[string]func(string) (fsys.FS, error){
			"hdfs": func(string) (fsys.FS, error) { return hdfs.New(cfg) },
		})
		for _, args := range [][]string{
			{"wal", "verify", "DIR"},
			{"wal", "dump", "DIR"},
			{"wal", "dump", "DIR/blocks/lines"},
			{"checkpoint", "show", "DIR"},
			{"checkpoint", "show", "DIR", "--json"},
		} {
			at := func(f fsys.FS, dir string) result {
				r := tidemillCmd(t, f, strings.Split(strings.ReplaceAll(strings.Join(args, "\x00"), "DIR", dir), "\x00")...)
				return result{r.code, strings.ReplaceAll(r.out, dir, "DIR"), strings.ReplaceAll(r.err, dir, "DIR")}
			}
			want, got := at(m, "/job"), at(r, there)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("%v (-local +there):\n%s", args, diff)
			}
			if want.code != 0 {
				t.Errorf("%v locally: %+v", args, want)
			}
		}
		c.FailNext("getReplicaVisibleLength", 100, hdfstest.Exception("java.io.IOException", "no such disk"))
		expect(t, tidemillCmd(t, r, "wal", "verify", there), 1, nil, []string{"the file is still being written", "no such disk"})
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// copyOpen copies a directory. The newest segment of each log is flushed and not
// closed, as that of a job that runs.
func copyOpen(t *testing.T, from fsys.FS, dir string, to *hdfs.FS, target string) (written []fsys.File) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(to.MkdirAll(target))
	infos, err := from.List(dir)
	must(err)
	segment := func(in fsys.Info) bool { return strings.HasSuffix(in.Name, ".wal") }
	for i, in := range infos {
		if in.Dir {
			written = append(written, copyOpen(t, from, path.Join(dir, in.Name), to, path.Join(target, in.Name))...)
			continue
		}
		data, err := fsys.ReadFile(from, path.Join(dir, in.Name))
		must(err)
		w, err := to.Create(path.Join(target, in.Name))
		must(err)
		_, err = w.Write(data)
		must(err)
		must(w.Flush())
		if segment(in) && !slices.ContainsFunc(infos[i+1:], segment) {
			written = append(written, w)
			continue
		}
		must(w.Close())
		must(to.SetModTime(path.Join(target, in.Name), in.ModTime))
	}
	return written
}
