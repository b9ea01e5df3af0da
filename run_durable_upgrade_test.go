package tidemill_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
	"github.com/tidemill/tidemill/wal"
)

// sameTree checks that a refused start changed nothing but epochs of the log.
func sameTree(t *testing.T, before, after map[string]string) {
	t.Helper()
	plain := func(files map[string]string) map[string]string {
		out := map[string]string{}
		for name, data := range files {
			if base := path.Base(name); base == "CLAIM" || base == "LOCK" {
				continue
			}
			out[strings.ReplaceAll(name, ".sealed/", "/")] = data
		}
		return out
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(plain(before))), slices.Sorted(maps.Keys(plain(after)))); diff != "" {
		t.Errorf("a refused start changed the files:\n%s", diff)
	}
	for name, data := range plain(before) {
		if plain(after)[name] != data {
			t.Errorf("a refused start changed %s", name)
		}
	}
}

// TestB21OtherProgramOnTheSameDirectory: what can't go on is refused with the
// difference, and nothing is touched; what can does.
func TestB21OtherProgramOnTheSameDirectory(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		m, q, sums := counted(t, tidemill.Config{BatchInterval: 2 * time.Second}, 3)
		before := m.files(millDir)
		refuse := func(what string, texts ...string) {
			t.Helper()
			err := m.refused()
			holds(t, err, append(texts, millDir)...)
			if bad := (*tidemill.IncompatibleError)(nil); !errors.As(err, &bad) {
				t.Errorf("%s: %T", what, err)
			}
			sameTree(t, before, m.files(millDir))
		}
		good := m.build

		m.cfg.BatchInterval = 5 * time.Second
		refuse("a: another interval", "2s", "5s", "--fresh")
		m.cfg.BatchInterval = 2 * time.Second

		m.build = func(ssc *tidemill.StreamingContext) error {
			in := tidemill.Map(tidemill.QueueStream(ssc, "queue", q), func(s string) tidemill.Pair[string, float64] { return tidemill.KV(s, 1.5) })
			tidemill.Print(tidemill.UpdateStateByKey(in, "sums", func(v []float64, old tidemill.Opt[float64]) tidemill.Opt[float64] {
				return tidemill.Some(old.Or(0) + float64(len(v)))
			}), "out", 1)
			return nil
		}
		refuse("another value type", `updateStateByKey "sums"`, "values int, now values float64", "--drop-state=sums", "MigrateState(0")

		m.build = func(ssc *tidemill.StreamingContext) error {
			tidemill.Print(tidemill.QueueStream(ssc, "queue", q), "out", 1)
			return nil
		}
		refuse("state gone", `updateStateByKey "sums"`, "its state would be lost", "--drop-state=sums")

		m.build = func(ssc *tidemill.StreamingContext) error {
			in := tidemill.ConstantStream(ssc, "queue", []string{"a"})
			sums.Of(tidemill.UpdateStateByKey(tidemill.Map(in, func(s string) kv { return tidemill.KV(s, 1) }), "sums", sumUpdate), "out")
			return nil
		}
		refuse("another kind of source", "queue", "constant", "--drop-state=queue")

		m.build, m.restart.DropState = good, []string{"sum"}
		refuse("a slip of the pen", "--drop-state=sum", "sums")
		m.restart.DropState = nil

		// b: streams come with Build or not at all; one more begins empty.
		var ssc *tidemill.StreamingContext
		more, moreSums := &tidemill.Queue[string]{}, tidetest.NewCapture[kv]()
		m.build = func(c *tidemill.StreamingContext) error {
			ones := tidemill.Map(tidemill.QueueStream(c, "more", more), func(s string) kv { return tidemill.KV(s, 1) })
			moreSums.Of(tidemill.UpdateStateByKey(ones, "more-sums", sumUpdate), "more-out")
			ssc = c
			return good(c)
		}
		m.start()
		q.Push("a")
		more.Push("x", "x")
		m.run.Advance(1)
		tidemill.QueueStream(ssc, "late", more)
		holds(t, ssc.Err(), "after Build has returned", "not supported")
		m.run.Stop(true)
		if totalsOf(moreSums)["x"] != 2 || totalsOf(sums)["a"] != 4 {
			t.Errorf("the new stream counts %v, the old one %v", totalsOf(moreSums), totalsOf(sums))
		}

		// c: an output less is no reason to refuse; the state goes on unseen.
		m.build = func(c *tidemill.StreamingContext) error {
			ones := tidemill.Map(tidemill.QueueStream(c, "queue", q), func(s string) kv { return tidemill.KV(s, 1) })
			tidemill.UpdateStateByKey(ones, "sums", sumUpdate)
			ones = tidemill.Map(tidemill.QueueStream(c, "more", more), func(s string) kv { return tidemill.KV(s, 1) })
			moreSums.Of(tidemill.UpdateStateByKey(ones, "more-sums", sumUpdate), "more-out")
			return nil
		}
		m.start()
		q.Push("a")
		m.run.Advance(1)
		m.run.Stop(true)
		m.build = good
		m.restart.DropState = []string{"more", "more-sums"}
		m.start()
		q.Push("a")
		m.run.Advance(1)
		if got := totalsOf(sums)["a"]; got != 6 {
			t.Errorf("a counts %d, want 6", got)
		}
	})
}

// TestB21dANewRateIsUsed: settings are those of the new process.
func TestB21dANewRateIsUsed(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		stored := make(chan string, 100_000)
		source := func() tidemill.Receiver[string] { return endless(stored) }
		m := newMill(t, tidemill.Config{ReceiverRate: 10}, func(ssc *tidemill.StreamingContext) error {
			tidemill.Print(tidemill.ReceiverStream(ssc, "in", source), "out", 1)
			return nil
		})
		m.start().Advance(10)
		slow := len(stored)
		m.run.Stop(true)
		m.cfg.ReceiverRate = 100
		before := len(stored)
		m.start().Advance(10)
		fast := len(stored) - before
		if slow < 80 || slow > 130 || fast < 800 || fast > 1300 {
			t.Errorf("%d records in 10 s at 10/s, then %d at 100/s", slow, fast)
		}
	})
}

// TestB21eNewerFormats of events and of snapshots are refused with both numbers
// (Invariant 12).
func TestB21eNewerFormats(t *testing.T) {
	for name, write := range map[string]func(t *testing.T, disk *fsys.Mem, c *wal.Claimed) error{
		"event": func(t *testing.T, disk *fsys.Mem, c *wal.Claimed) error {
			w, err := wal.Create(wal.Config{FS: disk}, c.Dir, "driver", c.Epoch, 1)
			if err != nil {
				return err
			}
			_, err = w.Append(t.Context(), []byte{2, 1, 0x80})
			return errors.Join(err, w.Close())
		},
		"facts": func(_ *testing.T, disk *fsys.Mem, c *wal.Claimed) error {
			_, err := checkpoint.Write(disk, c.Dir, checkpoint.Snapshot{Epoch: c.Epoch, Seq: 7, Body: []byte{2, 0x80}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				m := newMill(t, tidemill.Config{}, received(newFeed(), tidetest.NewCapture[string]()))
				if err := m.disk.MkdirAll(millDir + "/log"); err != nil {
					t.Fatal(err)
				}
				c, err := wal.Claim(t.Context(), m.disk, millDir+"/log", wal.ClaimOptions{})
				if err == nil {
					err = errors.Join(write(t, m.disk, c), c.Close())
				}
				if err != nil {
					t.Fatal(err)
				}
				before := m.files(millDir)
				holds(t, m.refused(), "format version 2", "reads version 1")
				delete(before, millDir+"/TIDEMILL")
				after := m.files(millDir)
				delete(after, millDir+"/TIDEMILL")
				sameTree(t, before, after)
			})
		})
	}
}

// TestFreshForgetsEverything: a new run, with state and data of its own.
func TestFreshForgetsEverything(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		m, q, sums := counted(t, tidemill.Config{SnapshotBytes: 1}, 4)
		run := m.facts().Run
		m.restart.Fresh = true
		m.start()
		q.Push("a")
		m.run.Advance(1)
		if r := m.run.Context().Recovered(); r.Recovered || totalsOf(sums)["a"] != 1 {
			t.Errorf("%+v, %v", r, totalsOf(sums))
		}
		m.kill()
		f := m.facts()
		if f.Run == run || f.Run == "" || f.Done != 1 {
			t.Errorf("run %q after %q, %d batches done", f.Run, run, f.Done)
		}
		m.restart.Fresh = false
		q.Push("a")
		m.start().Advance(1)
		if totalsOf(sums)["a"] != 2 {
			t.Errorf("the fresh run does not go on: %v", totalsOf(sums))
		}
		if state := m.files(millDir + "/state"); len(state) > 4 {
			t.Errorf("the state of the run before is still there: %v", slices.Sorted(maps.Keys(state)))
		}
	})
}

// TestDropStateForgetsOneOperator, and the others go on.
func TestDropStateForgetsOneOperator(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		q := &tidemill.Queue[string]{}
		one, two := tidetest.NewCapture[kv](), tidetest.NewCapture[kv]()
		m := newMill(t, tidemill.Config{}, func(ssc *tidemill.StreamingContext) error {
			ones := tidemill.Map(tidemill.QueueStream(ssc, "queue", q), func(s string) kv { return tidemill.KV(s, 1) })
			one.Of(tidemill.UpdateStateByKey(ones, "one", sumUpdate), "out-one")
			two.Of(tidemill.UpdateStateByKey(ones, "two", sumUpdate), "out-two")
			return nil
		})
		m.start()
		for range 3 {
			q.Push("a", "b")
			m.run.Advance(1)
		}
		m.kill()
		m.restart.DropState = []string{"one"}
		m.start()
		q.Push("a")
		m.run.Advance(1)
		last := func(c *tidetest.Capture[kv]) map[string]int {
			got := map[string]int{}
			all := c.Records()
			for _, p := range all[len(all)-1] {
				got[p.Key] = p.Value
			}
			return got
		}
		if diff := cmp.Diff([]map[string]int{{"a": 1}, {"a": 4, "b": 3}}, []map[string]int{last(one), last(two)}); diff != "" {
			t.Error(diff)
		}
		// What was dropped stays dropped.
		m.kill()
		m.restart.DropState = nil
		m.start().Advance(1)
		if diff := cmp.Diff(map[string]int{"a": 1}, last(one)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestStateOfAnOlderProgramIsMigrated through a restart of the whole job.
func TestStateOfAnOlderProgramIsMigrated(t *testing.T) {
	type sum struct{ N, Batches int }
	tidetest.Run(t, func(t *testing.T) {
		m, q, _ := counted(t, tidemill.Config{}, 3)
		out := tidetest.NewCapture[tidemill.Pair[string, sum]]()
		build := func(opts ...tidemill.Option) func(ssc *tidemill.StreamingContext) error {
			return func(ssc *tidemill.StreamingContext) error {
				ones := tidemill.Map(tidemill.QueueStream(ssc, "queue", q), func(s string) kv { return tidemill.KV(s, 1) })
				out.Of(tidemill.UpdateStateByKey(ones, "sums", func(v []int, old tidemill.Opt[sum]) tidemill.Opt[sum] {
					return tidemill.Some(sum{old.Value.N + len(v), old.Value.Batches + 1})
				}, opts...), "out")
				return nil
			}
		}
		m.build = build(tidemill.MigrateState(0, func(n int) (sum, error) { return sum{N: n}, nil }))
		m.start()
		q.Push("a")
		m.run.Advance(2)
		m.kill()
		m.build = build() // it is stored in the new form by now
		m.start()
		q.Push("b")
		m.run.Advance(1)
		got := map[string]sum{}
		for _, b := range out.Batches() {
			for _, p := range b.Records() {
				got[p.Key] = p.Value
			}
		}
		if diff := cmp.Diff(map[string]sum{"a": {4, 3}, "b": {4, 3}}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestAnotherProgramDoesNotRunPendingBatches unless it is told to (-rerun-pending).
func TestAnotherProgramDoesNotRunPendingBatches(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f, out := newFeed(), tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{}, slowly(f, out, time.Hour))
		m.options = []tidemill.ContextOption{tidemill.WithBinary("1111111111111111")}
		m.start()
		f.in <- []string{"a", "b"}
		m.run.Advance(2)
		first := m.run.Time(1)
		m.kill()
		m.build = slowly(f, out, 0)
		m.options = []tidemill.ContextOption{tidemill.WithBinary("2222222222222222")}
		before := m.files(millDir)
		holds(t, m.refused(), "111111111111", "222222222222", "2 planned batches", first.String(), "--rerun-pending", "the old program")
		sameTree(t, before, m.files(millDir))
		m.restart.RerunPending = true
		m.start().Advance(1)
		if at := eachOnce(t, out, "a", "b"); at["a"][0] != first {
			t.Errorf("the pending batch was %s: %v", first, at)
		}
		m.run.Stop(true)
		// Without pending batches another program is no matter.
		m.restart.RerunPending = false
		m.options = []tidemill.ContextOption{tidemill.WithBinary("3333333333333333")}
		m.start().Advance(1)
	})
}

// TestRecoveredSaysWhatItGoesOnWith, in numbers and in one line.
func TestRecoveredSaysWhatItGoesOnWith(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f, out := newFeed(), tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{}, slowly(f, out, time.Hour))
		m.start()
		f.in <- []string{"a", "b"}
		m.run.Advance(2)
		f.in <- []string{"c", "d", "e"}
		settle(300 * time.Millisecond)
		times := []tidemill.BatchTime{m.run.Time(1), m.run.Time(2)}
		m.kill()
		r := m.start().Context().Recovered()
		want := tidemill.Recovery{Recovered: true, Run: m.facts().Run, Epoch: 2, Last: times[1], Pending: times, Blocks: 1, Records: 3, Events: r.Events}
		if diff := cmp.Diff(want, r); diff != "" || r.Events == 0 {
			t.Error(diff)
		}
		holdsText(t, r.String(), fmt.Sprintf("run %s as epoch 2", r.Run), times[1].String(), "2 pending", "3 received records in 1 blocks")
		if _, err := m.run.Context().Stop(context.Background(), false); err != nil {
			t.Error(err)
		}
	})
}
