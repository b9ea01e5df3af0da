package tidemill_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

const onHDFS = "hdfs://fake:8020"

// openHDFS routes hdfs:// names to a fake cluster, as one process does.
func openHDFS(t *testing.T, c *hdfstest.Cluster, log hclog.Logger) (*fsys.Router, *hdfs.FS) {
	t.Helper()
	far, err := hdfs.New(hdfs.Config{Addresses: c.Namenodes(), User: "tester", Dial: c.Dial, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return fsys.NewRouter(fsys.Local(), map[string]func(string) (fsys.FS, error){
		"hdfs": func(string) (fsys.FS, error) { return far, nil },
	}), far
}

// startOnHDFS starts a mill whose directory is on a fake cluster. What it
// returns is closed after the job.
func startOnHDFS(t *testing.T, m *mill, c *hdfstest.Cluster, log hclog.Logger) (*fsys.Router, *hdfs.FS) {
	t.Helper()
	r, far := openHDFS(t, c, log)
	m.options = []tidemill.ContextOption{tidemill.WithFS(r), tidemill.WithDir(onHDFS + "/job"), tidemill.WithScratch(t.TempDir())}
	m.start()
	return r, far
}

// TestRunningJobMakesFewFilesOnHDFS runs an hour with a receiver, state, a window
// and snapshots: each file costs the namenode memory for as long as it is there.
func TestRunningJobMakesFewFilesOnHDFS(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an hour of batches")
	}
	const (
		batches = 3600
		// most is what the docs promise: each of three logs begins a file an hour,
		// the driver's two at every snapshot; and what a start needs.
		most = 40
	)
	tidetest.Run(t, func(t *testing.T) {
		c := hdfstest.Start(hdfstest.Options{SilentWrites: true})
		defer c.Close()
		var said bytes.Buffer
		f := newFeed()
		m := newMill(t, tidemill.Config{CatchUp: "all"}, func(ssc *tidemill.StreamingContext) error {
			words := tidemill.ReceiverStream(ssc, "words", f.open)
			ones := tidemill.Map(words, func(w string) tidemill.Pair[string, int] { return tidemill.KV(w, 1) })
			add := func(a, b int) int { return a + b }
			tidemill.ForeachBatch(tidemill.ReduceByKeyAndWindow(ones, "window", add, nil, 30*time.Second, 5*time.Second), "out", func(context.Context, *tidemill.Batch[tidemill.Pair[string, int]]) error { return nil })
			return nil
		})
		r, far := startOnHDFS(t, m, c, hclog.New(&hclog.LoggerOptions{Output: &said, Level: hclog.Info}))
		for i := range batches {
			if i%10 == 0 {
				f.in <- []string{fmt.Sprint("word ", i%7)}
			}
			m.run.Advance(1)
		}
		if err := m.run.Err(); err != nil {
			t.Fatal(err)
		}
		n := far.Stats().Creates
		t.Logf("%d files made on HDFS in an hour of %d batches", n, batches)
		if n < 3 || n > most {
			t.Errorf("%d files made on HDFS in an hour: want 3 (one a log) to %d; there are:\n%s", n, most, strings.Join(c.Tree(), "\n"))
		}
		m.run.Stop(true)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(said.String(), "files made on HDFS") {
			t.Errorf("the log does not say how many files were made:\n%s", said.String())
		}
	})
}

// TestFileThatIsStillBeingWrittenIsLeftForLater: the namenode says that it is
// empty, or has the size of its whole blocks.
func TestFileThatIsStillBeingWrittenIsLeftForLater(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		c := hdfstest.Start(hdfstest.Options{SilentWrites: true})
		defer c.Close()
		out := tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{CatchUp: "all"}, func(ssc *tidemill.StreamingContext) error {
			out.Of(tidemill.TextFileStream(ssc, "files", onHDFS+"/in"), "out")
			return nil
		})
		r, far := startOnHDFS(t, m, c, hclog.NewNullLogger())
		if err := far.MkdirAll("/in"); err != nil {
			t.Fatal(err)
		}
		m.run.Advance(1)
		w, err := far.Create("/in/slow")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if _, err := fmt.Fprintln(w, "line", i); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			m.run.Advance(2)
		}
		if got := slices.Concat(out.Records()...); len(got) > 0 {
			t.Errorf("lines of a file that is being written: %q", got)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		m.run.Advance(3)
		if err := m.run.Err(); err != nil {
			t.Fatal(err)
		}
		want := []string{"line 0", "line 1", "line 2"}
		if diff := cmp.Diff(want, slices.Concat(out.Records()...)); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
		m.run.Stop(true)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestJobOnHDFSSurvivesItsNodes runs sources, state and outputs on a cluster whose
// nodes go and come back under it, in two processes.
func TestJobOnHDFSSurvivesItsNodes(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		c := hdfstest.Start(hdfstest.Options{SilentWrites: true, SafeModeFor: 2 * time.Second})
		defer c.Close()
		f := newFeed()
		m := newMill(t, tidemill.Config{CatchUp: "all"}, func(ssc *tidemill.StreamingContext) error {
			received := tidemill.ReceiverStream(ssc, "received", f.open)
			all := tidemill.Union(received, tidemill.TextFileStream(ssc, "files", onHDFS+"/in"))
			tidemill.SaveAsTextFiles(all, "text", onHDFS+"/out", nil)
			tidemill.SaveAsParquet(all, "rows", onHDFS+"/rows")
			total := tidemill.UpdateStateByKey(tidemill.Map(all, func(string) tidemill.Pair[string, int] { return tidemill.KV("all", 1) }), "total",
				func(more []int, old tidemill.Opt[int]) tidemill.Opt[int] { return tidemill.Some(old.Value + len(more)) })
			tidemill.SaveAsTextFiles(total, "totals", onHDFS+"/totals", nil)
			return nil
		})
		r, far := startOnHDFS(t, m, c, hclog.NewNullLogger())
		if err := far.MkdirAll("/in"); err != nil {
			t.Fatal(err)
		}
		m.run.Advance(1)
		var want []string
		step := func(what string) {
			t.Helper()
			line := "received " + what
			f.in <- []string{line}
			if err := fsys.WriteFile(far, "/in/"+strings.ReplaceAll(what, " ", "-"), []byte("file "+what+"\n")); err != nil {
				t.Fatal(err)
			}
			want = append(want, "received "+what, "file "+what)
			m.run.Advance(3)
			if err := m.run.Err(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		step("before")
		c.KillDatanode(1)
		step("a datanode dead")
		if err := c.RestartDatanode(1); err != nil {
			t.Fatal(err)
		}
		c.KillNamenode(0)
		time.AfterFunc(7*time.Second, func() { _ = c.RestartNamenode(0) })
		step("the namenode away")
		c.PauseDatanode(0)
		step("a datanode hung")
		c.ResumeDatanode(0)
		m.run.Stop(true)
		if err := r.Close(); err != nil {
			t.Error(err)
		}

		r, far = startOnHDFS(t, m, c, hclog.NewNullLogger())
		step("the second process")
		m.run.Advance(2)
		m.run.Stop(true)
		names, err := fsys.Glob(far, "/out/text-*/part-*")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range names {
			b, err := fsys.ReadFile(far, name)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(b)) {
				got = append(got, strings.TrimSuffix(line, "\n"))
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines in the outputs (-want +got):\n%s", diff)
		}
		dirs, err := fsys.Glob(far, "/rows/rows-*")
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		for _, dir := range dirs {
			for _, r := range readParquet[struct {
				Value string `parquet:"value"`
			}](t, far, dir) {
				rows = append(rows, r.Value)
			}
		}
		slices.Sort(rows)
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Errorf("rows in the Parquet outputs (-want +got):\n%s", diff)
		}
		last := ""
		totals, err := fsys.Glob(far, "/totals/totals-*/part-*")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range totals {
			b, err := fsys.ReadFile(far, name)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 0 {
				last = string(b)
			}
		}
		if w := fmt.Sprintf("(all,%d)\n", len(want)); last != w {
			t.Errorf("the last total is %q, want %q", last, w)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}
