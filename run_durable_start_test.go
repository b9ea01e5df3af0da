package tidemill_test

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
	"github.com/tidemill/tidemill/wal"
)

// TestB17eTwoJobsOnOneDirectory: the second one is refused, the first goes on.
func TestB17eTwoJobsOnOneDirectory(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f, out := newFeed(), tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{}, received(f, out))
		first := m.start()
		began := time.Now()
		other := newMill(t, tidemill.Config{}, received(newFeed(), tidetest.NewCapture[string]()))
		other.disk = m.disk
		holds(t, other.refused(), millDir, "locked by another process")
		if d := time.Since(began); d > 15*time.Second {
			t.Errorf("the refusal took %v", d)
		}
		f.in <- []string{"a", "b"}
		first.Advance(2)
		first.Stop(true)
		eachOnce(t, out, "a", "b")
		other.start() // now it may
		if !other.run.Context().Recovered().Recovered {
			t.Error("the second job does not go on where the first was")
		}
	})
}

// snapshotsOf lists the snapshots on the disk, newest first.
func snapshotsOf(m *mill) []string {
	var out []string
	for name := range m.files(millDir + "/log") {
		if strings.HasSuffix(name, ".tms") {
			out = append(out, name)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return -strings.Compare(path.Base(a), path.Base(b)) })
	return out
}

// rewrite replaces a file.
func rewrite(t *testing.T, disk *fsys.Mem, name, data string) {
	t.Helper()
	if err := errors.Join(disk.Remove(name), fsys.WriteFile(disk, name, []byte(data))); err != nil {
		t.Fatal(err)
	}
}

// counting is a job with state, whose input is a queue.
func counting(q *tidemill.Queue[string], sums *tidetest.Capture[kv], opts ...tidemill.Option) func(ssc *tidemill.StreamingContext) error {
	return func(ssc *tidemill.StreamingContext) error {
		ones := tidemill.Map(tidemill.QueueStream(ssc, "queue", q), func(s string) kv { return tidemill.KV(s, 1) })
		sums.Of(tidemill.UpdateStateByKey(ones, "sums", sumUpdate, opts...), "out")
		return nil
	}
}

// counted runs a counting job for some batches, in which "a" and "b" come once
// each, and kills it.
func counted(t *testing.T, cfg tidemill.Config, batches int) (*mill, *tidemill.Queue[string], *tidetest.Capture[kv]) {
	q, sums := &tidemill.Queue[string]{}, tidetest.NewCapture[kv]()
	m := newMill(t, cfg, counting(q, sums))
	m.start()
	for range batches {
		q.Push("a", "b")
		m.run.Advance(1)
	}
	m.kill()
	return m, q, sums
}

// TestB18aNoDirectory and b: an empty one are a new job.
func TestB18aNoDirectory(t *testing.T) {
	for _, made := range [][]string{nil, {millDir}, {millDir, millDir + "/log"}} {
		tidetest.Run(t, func(t *testing.T) {
			q, sums := &tidemill.Queue[string]{}, tidetest.NewCapture[kv]()
			m := newMill(t, tidemill.Config{}, counting(q, sums))
			for _, d := range made {
				if err := m.disk.Mkdir(d); err != nil {
					t.Fatal(err)
				}
			}
			q.Push("a")
			m.start().Advance(1)
			if r := m.run.Context().Recovered(); r.Recovered || r.Run == "" && r.Epoch == 0 {
				t.Errorf("with %v: %+v", made, r)
			}
			if len(m.alarms.all) != 0 || totalsOf(sums)["a"] != 1 {
				t.Errorf("with %v: %v, alarms %v", made, totalsOf(sums), m.alarms.all)
			}
		})
	}
}

// TestB18cOnlyTemporaryFiles: a process that died in its very first snapshot left
// a new job behind.
func TestB18cOnlyTemporaryFiles(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		q, sums := &tidemill.Queue[string]{}, tidetest.NewCapture[kv]()
		m := newMill(t, tidemill.Config{}, counting(q, sums))
		if err := m.disk.MkdirAll(millDir + "/log/e-000001"); err != nil {
			t.Fatal(err)
		}
		if err := fsys.WriteFile(m.disk, millDir+"/log/e-000001/snap-0000000000000001.tms.1.tmp", []byte("TMC")); err != nil {
			t.Fatal(err)
		}
		q.Push("a")
		m.start().Advance(1)
		if r := m.run.Context().Recovered(); r.Recovered || totalsOf(sums)["a"] != 1 {
			t.Errorf("%+v, %v", r, totalsOf(sums))
		}
		if said := m.alarms.of("snapshot"); len(said) != 1 || !strings.Contains(said[0].Message, "snap-0000000000000001.tms.1.tmp") {
			t.Errorf("alarms %v, want one that names the file", said)
		}
	})
}

// TestB18dNewestSnapshotDamaged and e: the older one is used, and a warning names
// the bad file (SPARK-11267: the newest name holds the newest state).
func TestB18dNewestSnapshotDamaged(t *testing.T) {
	for name, damage := range map[string]func(data string) string{
		"d cut in half": func(data string) string { return data[:len(data)/2] },
		"e empty":       func(string) string { return "" },
		"one bit":       func(data string) string { return data[:40] + string(data[40]^4) + data[41:] },
	} {
		t.Run(name, func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				m, q, sums := counted(t, tidemill.Config{SnapshotBytes: 1}, 6)
				snaps := snapshotsOf(m)
				if len(snaps) < 2 {
					t.Fatalf("snapshots %v", snaps)
				}
				rewrite(t, m.disk, snaps[0], damage(m.files(millDir)[snaps[0]]))
				q.Push("a", "c")
				m.start().Advance(2)
				bad := m.alarms.of("snapshot")
				if len(bad) != 1 || !strings.Contains(bad[0].Message, path.Base(snaps[0])) {
					t.Errorf("alarms %v, want one that names %s", bad, snaps[0])
				}
				if diff := cmp.Diff(map[string]int{"a": 7, "b": 6, "c": 1}, totalsOf(sums)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestB18fAllSnapshotsDamaged is an error that names the file, not a fresh start.
func TestB18fAllSnapshotsDamaged(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		m, _, _ := counted(t, tidemill.Config{SnapshotBytes: 1, SnapshotsKept: 2}, 8)
		snaps := snapshotsOf(m)
		for _, s := range snaps {
			rewrite(t, m.disk, s, "")
		}
		err := m.refused()
		holds(t, err, path.Base(snaps[0]))
		m.restart.Fresh = true
		if m.start().Context().Recovered().Recovered {
			t.Error("-fresh goes on")
		}
	})
}

// TestB18fTheLogIsGone: state and blocks without a log are no new job.
func TestB18fTheLogIsGone(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		m, _, _ := counted(t, tidemill.Config{}, 3)
		if err := m.disk.RemoveAll(millDir + "/log"); err != nil {
			t.Fatal(err)
		}
		before := m.files(millDir + "/state")
		holds(t, m.refused(), millDir, "log is gone or empty", "-fresh")
		if diff := cmp.Diff(before, m.files(millDir+"/state")); diff != "" {
			t.Errorf("a refused start changed the state: %s", diff)
		}
	})
}

// TestB18gStatePartIsMissing: a smaller state is never taken for the whole one.
func TestB18gStatePartIsMissing(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		m, q, sums := counted(t, tidemill.Config{}, 4)
		q.Push("b")
		m.start().Advance(1) // a second epoch of the state log
		m.kill()
		gone := ""
		for name := range m.files(millDir + "/state") {
			if strings.Contains(name, "e-000001") && strings.HasSuffix(name, ".wal") {
				gone = name
			}
		}
		if err := m.disk.Remove(gone); err != nil {
			t.Fatal(err)
		}
		holds(t, m.refused(), "state files are gone", millDir+"/state", "-drop-state", "-fresh")
		m.restart.DropState = []string{"sums"}
		q.Push("a")
		m.start().Advance(1)
		if got := totalsOf(sums)["a"]; got != 1 {
			t.Errorf("after -drop-state a counts %d", got)
		}
	})
}

// TestFailureOfAFencedJobSaysSo takes a job's directory over while it writes an
// output: it meets a staging directory that is gone before it meets its log.
func TestFailureOfAFencedJobSaysSo(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f := newFeed()
		taken := false
		var m *mill
		m = newMill(t, tidemill.Config{MaxTaskFailures: 1}, func(ssc *tidemill.StreamingContext) error {
			tidemill.SaveAsTextFiles(tidemill.ReceiverStream(ssc, "words", f.open), "out", "out", func(w string) string {
				if w == "take over" && !taken {
					taken = true
					for _, epoch := range []string{"/log/e-000001", "/blocks/words/e-000001"} {
						if err := m.disk.Rename(millDir+epoch, millDir+epoch+".sealed"); err != nil {
							t.Error(err)
						}
					}
					staging, err := fsys.Glob(m.disk, "out/.out-*")
					if err != nil || len(staging) != 1 {
						t.Errorf("staging directories %q, %v", staging, err)
					}
					for _, dir := range staging {
						if err := m.disk.RemoveAll(dir); err != nil {
							t.Error(err)
						}
					}
				}
				return w
			})
			return nil
		})
		m.start()
		f.in <- []string{"take over"}
		m.run.Advance(3)
		err := m.run.Err()
		if !errors.Is(err, wal.ErrFenced) || !strings.Contains(err.Error(), "which has the job's directory now") {
			t.Errorf("the job ended with %v, want one that is fenced", err)
		}
		m.run.Stop(false)
	})
}
