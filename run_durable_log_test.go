package tidemill_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

// TestB12CrashAroundAnAllocation kills the driver before, during and after it
// logs the first batch, of b1 and b2 (SPARK-5233, SPARK-23438).
func TestB12CrashAroundAnAllocation(t *testing.T) {
	b1, b2, b3 := []string{"a", "b"}, []string{"c", "d"}, []string{"e", "f"}
	all := []string{"a", "b", "c", "d", "e", "f"}
	play := func(t *testing.T, seed int, crash func(m *mill, out *atomic.Bool)) (planned bool) {
		tidetest.Run(t, func(t *testing.T) {
			f, out := newFeed(), tidetest.NewCapture[string]()
			var crashInOutput atomic.Bool
			var m *mill
			m = newMill(t, tidemill.Config{}, func(ssc *tidemill.StreamingContext) error {
				in := tidemill.ReceiverStream(ssc, "in", f.open)
				tidemill.ForeachBatch(in, "crash", func(context.Context, *tidemill.Batch[string]) error {
					if crashInOutput.Load() {
						m.disk.Crash()
					}
					return nil
				})
				out.Of(in, "out")
				return nil
			})
			for range seed {
				m.rng.Uint64()
			}
			m.start()
			first := m.run.Time(1)
			f.in <- b1
			settle(300 * time.Millisecond)
			f.in <- b2
			settle(600 * time.Millisecond)
			crash(m, &crashInOutput)
			m.kill()
			planned = m.facts().Last == first
			if n := len(m.facts().Streams[0].Waiting); !planned && n != 2 {
				t.Errorf("%d blocks wait after the crash, want 2", n)
			}
			crashInOutput.Store(false)
			m.start()
			f.in <- b3
			m.run.Advance(3)
			m.run.Stop(true)
			places := eachOnce(t, out, all...)
			if t.Failed() {
				return
			}
			if places["a"][0] != places["c"][0] {
				t.Errorf("b1 came in batch %s, b2 in %s: they were in no batch, or both in the first", places["a"][0], places["c"][0])
			}
			if planned && (places["a"][0] != first || places["e"][0] == first) {
				t.Errorf("batch %s was planned before the crash with a to d, the batches are %v", first, places)
			}
		})
		return planned
	}
	t.Run("a before", func(t *testing.T) {
		// It has the first batch's time before it all the same: the restart is quick.
		play(t, 0, func(m *mill, _ *atomic.Bool) { sleep(time.Millisecond) })
	})
	t.Run("b during", func(t *testing.T) {
		seen := map[bool]int{}
		for seed := range 40 {
			seen[play(t, seed, func(m *mill, _ *atomic.Bool) {
				f := m.fault(millDir+"/log", fsys.ErrCrashed, "write")
				f.on.Store(true)
				settle(300 * time.Millisecond)
				if !m.disk.Crashed() {
					t.Error("the plan was not written")
				}
			})]++
		}
		if seen[true] == 0 || seen[false] == 0 {
			t.Errorf("the plan survived %d of 40 crashes: both must happen", seen[true])
		}
	})
	t.Run("c after", func(t *testing.T) {
		if !play(t, 0, func(m *mill, crash *atomic.Bool) { crash.Store(true); settle(300 * time.Millisecond) }) {
			t.Error("the batch ran without a plan in the log")
		}
	})
}

// TestB14TheLogFailsForAWhile: an append has no failed outcome (Invariant 14), so
// the batch is late, and has all blocks; also if the driver dies meanwhile
// (SPARK-23991).
func TestB14TheLogFailsForAWhile(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%t", killed), func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				f, out := newFeed(), tidetest.NewCapture[string]()
				var stored atomic.Int32
				f.stored = func(_ []string, err error) {
					if err == nil {
						stored.Add(1)
					}
				}
				m := newMill(t, tidemill.Config{}, received(f, out))
				m.start()
				var all []string
				for i := range 5 {
					b := []string{fmt.Sprint("x", i), fmt.Sprint("y", i)}
					all = append(all, b...)
					f.in <- b
				}
				settle(900 * time.Millisecond)
				bad := m.fault(millDir+"/log", noSpace, "create", "write", "flush", "sync")
				bad.on.Store(true)
				settle(3 * time.Second)
				if n := len(out.Batches()); n != 0 || stored.Load() != 5 {
					t.Errorf("%d batches ran without a plan in the log, %d blocks are stored", n, stored.Load())
				}
				if len(m.alarms.of("log")) == 0 {
					t.Error("nobody was told that the log fails")
				}
				// Nothing is acknowledged that the log does not have (Invariant 1).
				f.in <- []string{"late", "later"}
				settle(500 * time.Millisecond)
				if stored.Load() != 5 {
					t.Error("a block was acknowledged while the log failed")
				}
				if killed {
					m.kill()
					f.in <- []string{"late", "later"} // the source sends again what was not taken
					m.start()
				}
				bad.on.Store(false)
				m.run.Advance(3)
				if killed {
					// The write on the way may have arrived, unacknowledged.
					if n := len(placesOf(t, out)["late"]); n < 1 || n > 2 {
						t.Errorf("the block that was sent twice came %d times", n)
					}
					for _, r := range all {
						if n := len(placesOf(t, out)[r]); n != 1 {
							t.Errorf("record %q came %d times", r, n)
						}
					}
					return
				}
				all = append(all, "late", "later")
				places := eachOnce(t, out, all...)
				for _, r := range all[:10] {
					if cmp.Diff(places[r], places["x0"]) != "" {
						t.Errorf("record %q is in batch %v, x0 in %v: the first plan had both", r, places[r], places["x0"])
					}
				}
				m.kill()
				m.start()
				m.run.Advance(2)
				eachOnce(t, out, all...)
			})
		})
	}
}

// slowly is a job whose batches take d each.
func slowly(f *feed, out *tidetest.Capture[string], d time.Duration) func(ssc *tidemill.StreamingContext) error {
	return func(ssc *tidemill.StreamingContext) error {
		in := tidemill.ReceiverStream(ssc, "in", f.open)
		tidemill.ForeachBatch(in, "slow", func(ctx context.Context, _ *tidemill.Batch[string]) error {
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		out.Of(in, "out")
		return nil
	}
}

// TestB16aABacklogKeepsItsBlocks: batches that wait for long find their blocks,
// with as little kept as may be, over many restarts (SPARK-6222); and what no
// batch needs any more is deleted in the end (SPARK-5147).
func TestB16aABacklogKeepsItsBlocks(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f, out := newFeed(), tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{MaxPendingBatches: 30, SnapshotBytes: 1, SnapshotsKept: 1}, slowly(f, out, 10*time.Second))
		m.start()
		var all []string
		for i := range 30 {
			b := []string{fmt.Sprint("x", i), fmt.Sprint("y", i)}
			all = append(all, b...)
			f.in <- b
			m.run.Advance(1)
		}
		m.run.Advance(21)
		if n := len(out.Batches()); n != 5 {
			t.Fatalf("%d batches are done", n)
		}
		starts := 0
		for ; len(placesOf(t, out)) < len(all) && starts < 30; starts++ {
			m.kill()
			m.start()
			m.run.Advance(31)
		}
		if starts < 5 {
			t.Errorf("it took only %d restarts", starts)
		}
		eachOnce(t, out, all...)
		m.run.Advance(400) // the batches of the restarts themselves
		m.kill()
		m.start()
		m.run.Advance(3)
		if blocks := m.files(millDir + "/blocks"); len(blocks) > 1 {
			t.Errorf("%d files of blocks are left, of which nothing is needed: %v", len(blocks), blocks)
		}
	})
}

// TestB16bBlocksOfADeadProcess: without a receiver log, queued batches lose
// their blocks with the process. The default is to refuse, with the numbers and
// the help; on-lost-blocks=skip goes on without them (SPARK-10210).
func TestB16bBlocksOfADeadProcess(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f, out := newFeed(), tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{ReceiverWAL: "off", MaxPendingBatches: 5}, slowly(f, out, time.Hour))
		m.start()
		for i := range 3 {
			f.in <- []string{fmt.Sprint("x", i), fmt.Sprint("y", i)}
			m.run.Advance(1)
		}
		f.in <- []string{"x3", "y3", "z3"}
		settle(500 * time.Millisecond)
		m.kill()
		before := m.facts()
		if len(before.Pending) != 3 || len(before.Streams[0].Waiting) != 1 {
			t.Fatalf("%d batches are pending, %d blocks wait", len(before.Pending), len(before.Streams[0].Waiting))
		}
		m.build = slowly(f, out, 0)
		for range 2 {
			holds(t, m.refused(), "9 records in 4 received blocks", "on-lost-blocks=skip", "receiver-wal=on")
		}
		after := m.facts()
		if len(after.Pending) != 3 || after.Lost != 0 {
			t.Errorf("a refused start changed the facts: %d pending, %d lost", len(after.Pending), after.Lost)
		}
		m.cfg.OnLostBlocks = "skip"
		m.start()
		f.in <- []string{"new", "newer"}
		m.run.Advance(2)
		lost := m.alarms.of("blocks-lost")
		if len(lost) != 1 || !strings.Contains(lost[0].Message, "9 records in 4 received blocks") {
			t.Errorf("alarms %v", lost)
		}
		if n := m.run.Context().Counters()[driver.CounterLostRecords]; n != 9 {
			t.Errorf("%d records are counted as lost", n)
		}
		eachOnce(t, out, "new", "newer")
		times := map[tidemill.BatchTime]bool{}
		for _, b := range out.Batches() {
			times[b.Time] = true
		}
		for _, p := range before.Pending {
			if !times[p.Batch.Time] {
				t.Errorf("batch %s, whose blocks are gone, never ran", p.Batch.Time)
			}
		}
		// It counts once.
		m.run.Stop(true)
		m.start()
		m.run.Advance(1)
		if n := len(m.alarms.of("blocks-lost")); n != 0 || m.facts().Lost != 9 {
			t.Errorf("after another restart: %d alarms, %d records lost", n, m.facts().Lost)
		}
	})
}

// TestB23DiskFullForAWhile: nothing is lost, nothing is cleaned, and all goes on
// by itself when there is room again; also if the process is killed and begun
// again while there is none (SPARK-22429, SPARK-13693).
func TestB23DiskFullForAWhile(t *testing.T) {
	ops := []string{"create", "write", "sync", "flush", "mkdir", "mkdirall"}
	for _, c := range []struct {
		name  string
		err   error
		ops   []string
		where string
	}{
		{"full", noSpace, ops, millDir},
		{"write", noSpace, []string{"write"}, millDir},
		{"short write", &fsys.ShortWrite{N: 7, Err: noSpace}, []string{"write"}, millDir},
		{"create", noSpace, []string{"create"}, millDir},
		{"sync", noSpace, []string{"sync", "flush"}, millDir},
		{"unknown outcome", &fsys.AppliedError{}, []string{"create", "write", "flush", "sync"}, millDir},
		{"permission", errPermission, ops, millDir},
		{"only blocks", noSpace, ops, millDir + "/blocks"},
		{"only state", noSpace, ops, millDir + "/state"},
		{"only the log", noSpace, ops, millDir + "/log"},
	} {
		for _, end := range []string{"goes on", "killed", "stopped"} {
			t.Run(c.name+" "+end, func(t *testing.T) {
				tidetest.Run(t, func(t *testing.T) { fullDisk(t, c.where, c.err, c.ops, end) })
			})
		}
	}
}

func fullDisk(t *testing.T, where string, err error, ops []string, end string) {
	f, out, sums := newFeed(), tidetest.NewCapture[string](), tidetest.NewCapture[kv]()
	acked := make(chan string, 1000)
	f.stored = func(records []string, err error) {
		if err == nil {
			for _, r := range records {
				acked <- r
			}
		}
	}
	m := newMill(t, tidemill.Config{SnapshotBytes: 500, SnapshotsKept: 2, StopTimeout: 20 * time.Second}, func(ssc *tidemill.StreamingContext) error {
		in := tidemill.ReceiverStream(ssc, "in", f.open)
		out.Of(in, "out")
		sums.Of(tidemill.UpdateStateByKey(tidemill.Map(in, func(string) kv { return tidemill.KV("n", 1) }), "sums", sumUpdate), "sums-out")
		return nil
	})
	m.start()
	n := 0
	send := func(batches int) {
		for range batches {
			f.in <- []string{fmt.Sprint("r", n), fmt.Sprint("s", n)}
			n++
			m.run.Advance(1)
		}
	}
	send(5)
	before := m.files(millDir)
	bad := m.fault(where, err, ops...)
	bad.on.Store(true)
	send(5)
	if len(m.alarms.of("log")) == 0 {
		t.Errorf("nobody was told: %v", m.alarms.all)
	}
	if err := m.run.Err(); err != nil {
		t.Errorf("the job has ended: %v", err)
	}
	if where == millDir { // a log that has no room says nothing is done, so nothing goes
		now := m.files(millDir)
		for name := range before {
			if _, there := now[name]; !there && !strings.Contains(name, "/scratch/") {
				t.Errorf("%s was removed while nothing could be written", name)
			}
		}
	}
	switch end {
	case "goes on":
		bad.on.Store(false)
		m.run.Advance(3)
	case "killed":
		m.kill()
		full := m.fault(where, err, ops...)
		full.on.Store(true)
		if ssc, err := tidetest.New(t, m.job()); err != nil {
			t.Fatal(err)
		} else {
			// Full, it starts and waits, or says what is wrong.
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if serr := ssc.Start(ctx); serr != nil && !strings.Contains(serr.Error(), millDir) && len(m.alarms.of("log")) == 0 {
				t.Errorf("nobody was told what fails where: %v", serr)
			}
			cancel()
			if _, err := ssc.Stop(context.Background(), false); err != nil {
				t.Error(err)
			}
		}
		full.on.Store(false)
		m.start()
		m.run.Advance(3)
	case "stopped":
		m.run.Stop(false)
		bad.on.Store(false)
		m.start()
		m.run.Advance(3)
	}
	send(5)
	m.run.Advance(1)
	m.kill()
	m.start()
	m.run.Advance(2)
	m.run.Stop(true)
	close(acked)
	places := placesOf(t, out)
	count := 0
	for r := range acked {
		count++
		if len(places[r]) == 0 {
			t.Errorf("record %q was acknowledged and never came", r)
		}
	}
	if count < 20 {
		t.Errorf("only %d records were acknowledged", count)
	}
	total := 0
	for r, at := range places {
		total++
		if len(at) != 1 {
			t.Errorf("record %q came in the batches %v", r, at)
		}
	}
	if got := totalsOf(sums)["n"]; got != total {
		t.Errorf("the state counts %d records, %d came", got, total)
	}
}
