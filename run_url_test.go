package tidemill_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

const far = "mem://nn1:8020,nn2:8020"

// farAndNear routes the names below far to one file system and local ones to
// another.
func farAndNear(t *testing.T, away *fsys.Mem, local fsys.FS) *fsys.Router {
	t.Helper()
	r := fsys.NewRouter(local, map[string]func(string) (fsys.FS, error){
		"mem": func(string) (fsys.FS, error) { return away, away.MkdirAll(far + "/") },
	})
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// filesOf lists the files of a file system, not its directories.
func filesOf(m *fsys.Mem) (names []string) {
	for name := range strings.Lines(m.String()) {
		if name = strings.TrimSuffix(name, "\n"); !strings.HasSuffix(name, "/") {
			names = append(names, name)
		}
	}
	return names
}

// TestEveryNameOfAJobMayBeOnAnotherFileSystem also kills the process in between:
// what the second finds is there.
func TestEveryNameOfAJobMayBeOnAnotherFileSystem(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		local := fsys.NewMem()
		f, out := newFeed(), tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{SnapshotBytes: 1, CatchUp: "all"}, func(ssc *tidemill.StreamingContext) error {
			received := tidemill.ReceiverStream(ssc, "received", f.open, tidemill.Level(tidemill.DiskOnly))
			all := tidemill.Union(received, tidemill.TextFileStream(ssc, "files", far+"/in/*"), tidemill.TailDir(ssc, "tail", far+"/tail"))
			tidemill.SaveAsTextFiles(all, "text", far+"/out", nil)
			tidemill.SaveAsParquet(tidemill.CountByValue(all), "counts", far+"/out/parquet")
			out.Of(all, "all")
			return nil
		})
		begin := func() {
			m.options = []tidemill.ContextOption{tidemill.WithFS(farAndNear(t, m.disk, local)), tidemill.WithDir(far + "/jobs/one")}
			m.start()
		}
		put := func(name, content string) {
			t.Helper()
			if err := fsys.WriteFile(m.disk, far+name, []byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{"/in/a", "/tail"} {
			if err := m.disk.MkdirAll(far + dir); err != nil {
				t.Fatal(err)
			}
		}
		begin()
		for i, word := range []string{"one", "two"} {
			if i > 0 {
				m.kill()
				begin()
			}
			m.run.Advance(1)
			put("/in/a/"+word, word+" file\n")
			put("/tail/"+word, word+" tail\n")
			f.in <- []string{word + " received"}
			m.run.Advance(3)
			if err := m.run.Err(); err != nil {
				t.Fatal(err)
			}
		}
		m.run.Stop(true)

		want := []string{"one file", "one received", "one tail", "two file", "two received", "two tail"}
		got := slices.Sorted(slices.Values(slices.Concat(out.Records()...)))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
		names, err := fsys.Glob(m.disk, far+"/out/text-*/part-*")
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, name := range names {
			b, err := fsys.ReadFile(m.disk, name)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")...)
		}
		slices.Sort(text)
		if diff := cmp.Diff(want, text); diff != "" {
			t.Errorf("text (-want +got):\n%s", diff)
		}
		if found, err := fsys.Glob(m.disk, far+"/out/parquet/counts-*/*.parquet"); err != nil || len(found) == 0 {
			t.Errorf("parquet files: %v, %v", found, err)
		}
		entries := map[string]bool{}
		infos, err := m.disk.List(far + "/jobs/one")
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range infos {
			entries[in.Name] = true
		}
		if diff := cmp.Diff([]string{"TIDEMILL", "blocks", "log", "state"}, slices.Sorted(maps.Keys(entries))); diff != "" {
			t.Errorf("the job's directory (-want +got):\n%s", diff)
		}
		for _, name := range filesOf(m.disk) {
			if !strings.HasPrefix(name, "/mem:/nn1:8020,nn2:8020/") {
				t.Errorf("%s is not where its name says", name)
			}
		}
		if infos, err := m.disk.List("/"); err != nil || len(infos) != 1 {
			t.Errorf("beside the directory of the scheme: %v, %v", infos, err)
		}
		for _, name := range filesOf(local) {
			if !strings.HasPrefix(name, "/scratch/") {
				t.Errorf("%s is on the local file system", name)
			}
		}
	})
}

// TestScratchOfAJobElsewhereIsLocal: what is spilled stays here, in a directory
// of its own that goes with the run.
func TestScratchOfAJobElsewhereIsLocal(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	away, f := fsys.NewMem(), newFeed()
	var where string
	spilled := make(chan []string, 100) // while the batch of the record runs
	app := tidemill.App{Name: "spill", Build: func(ssc *tidemill.StreamingContext) error {
		in := tidemill.ReceiverStream(ssc, "in", f.open, tidemill.Level(tidemill.DiskOnly))
		tidemill.ForeachBatch(in, "look", func(ctx context.Context, b *tidemill.Batch[string]) error {
			n, err := b.Count(ctx)
			if n == 0 || err != nil {
				return err
			}
			found, err := filepath.Glob(where)
			spilled <- found
			return err
		})
		return nil
	}}
	kept := filepath.Join(t.TempDir(), "scratch")
	if err := os.MkdirAll(kept, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(kept, "mine"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		where   string
		local   fsys.FS
		options []tidemill.ContextOption
	}{
		{where: filepath.Join(temp, "tidemill-*", "exec-1", "block-*"), local: fsys.NewMem()},
		{filepath.Join(kept, "exec-1", "block-*"), fsys.Local(), []tidemill.ContextOption{tidemill.WithScratch(kept)}},
	} {
		where = c.where
		r := farAndNear(t, away, c.local)
		options := append(c.options, tidemill.WithFS(r), tidemill.WithDir(far+"/job"), tidemill.WithRestart(tidemill.Restart{Fresh: true}))
		ssc, err := tidemill.New(app, tidemill.Config{BatchInterval: 50 * time.Millisecond, ReceiverWAL: "off"}, options...)
		if err != nil {
			t.Fatal(err)
		}
		if err := ssc.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.in <- []string{"a record"}
		select {
		case found := <-spilled:
			if len(found) == 0 {
				t.Errorf("nothing is in %s", where)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("the record is in no batch")
		}
		if _, err := ssc.Stop(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("left of %s: %v, %v", where, left, err)
		}
	}
	if left, err := os.ReadDir(kept); err != nil || len(left) != 1 || left[0].Name() != "mine" {
		t.Errorf("a directory of the user's has %v, %v", left, err)
	}
	if names := away.String(); strings.Contains(names, "scratch") || strings.Contains(names, "exec-1/block-") {
		t.Errorf("spilled elsewhere:\n%s", names)
	}
}
