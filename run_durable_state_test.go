package tidemill_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/rdd"
	"github.com/tidemill/tidemill/tidetest"
)

// TestB38aGracefulStopKeepsTheLastUpdates: there is no interval at which state is
// saved, so none is lost between two.
func TestB38aGracefulStopKeepsTheLastUpdates(t *testing.T) {
	for _, graceful := range []bool{true, false} {
		tidetest.Run(t, func(t *testing.T) {
			q, sums := &tidemill.Queue[string]{}, tidetest.NewCapture[kv]()
			m := newMill(t, tidemill.Config{}, counting(q, sums))
			m.start()
			for range 7 {
				q.Push("a", "b", "a")
				m.run.Advance(1)
			}
			m.run.Stop(graceful)
			m.start()
			for range 3 {
				q.Push("a", "c")
				m.run.Advance(1)
			}
			if diff := cmp.Diff(map[string]int{"a": 17, "b": 7, "c": 3}, totalsOf(sums)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestB38bKilledInTheMiddle of batch 17, and again and again: totals are exact
// (Invariant 6).
func TestB38bKilledInTheMiddle(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		q, sums := &tidemill.Queue[string]{}, tidetest.NewCapture[kv]()
		hold, wins := make(chan struct{}), tidetest.NewCapture[kv]()
		var holding atomic.Bool
		m := newMill(t, tidemill.Config{Executors: 2, SnapshotBytes: 2000}, func(ssc *tidemill.StreamingContext) error {
			ones := tidemill.Map(tidemill.QueueStream(ssc, "queue", q), func(s string) kv { return tidemill.KV(s, 1) })
			tidemill.ForeachBatch(ones, "hold", func(ctx context.Context, _ *tidemill.Batch[kv]) error {
				if !holding.Load() {
					return nil
				}
				select {
				case <-hold:
				case <-ctx.Done():
				}
				return ctx.Err()
			})
			sums.Of(tidemill.UpdateStateByKey(ones, "sums", sumUpdate), "out")
			sub := func(a, b int) int { return a - b }
			wins.Of(tidemill.ReduceByKeyAndWindow(ones, "window", add, sub, 4*time.Second, 2*time.Second), "wins")
			return nil
		})
		m.start()
		n := 0
		push := func() { q.Push("a", "b", fmt.Sprint("c", n%3)); n++ }
		for n < 16 {
			push()
			m.run.Advance(1)
		}
		for range 6 {
			holding.Store(true)
			push()
			m.run.Advance(1)
			m.kill()
			holding.Store(false)
			m.start()
			push()
			m.run.Advance(1)
		}
		want := map[string]int{"a": n, "b": n}
		for i := range n {
			want[fmt.Sprint("c", i%3)]++
		}
		if diff := cmp.Diff(want, totalsOf(sums)); diff != "" {
			t.Error(diff)
		}
		// A window of two slides: every batch is in two of them.
		total := map[string]int{}
		seen := map[tidemill.BatchTime]bool{}
		for _, b := range wins.Batches() {
			if seen[b.Time] {
				t.Errorf("the window at %s was given twice", b.Time)
			}
			seen[b.Time] = true
			for _, p := range b.Records() {
				total[p.Key] += p.Value
			}
		}
		last := wins.Batches()[len(wins.Batches())-1]
		for _, p := range last.Records() {
			if p.Key == "a" && (total["a"] < 2*n-p.Value-2 || total["a"] > 2*n) {
				t.Errorf("all windows together count a %d times, of %d in two windows each", total["a"], n)
			}
		}
	})
}

// TestB38cChainedStateStaysFlat: two operators with state, one behind the other,
// over many batches and a restart (SPARK-6847, SPARK-16395).
func TestB38cChainedStateStaysFlat(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		q, sums := &tidemill.Queue[string]{}, tidetest.NewCapture[kv]()
		m := newMill(t, tidemill.Config{Parallelism: 1, TaskSlots: 1, SnapshotBytes: 20_000}, func(ssc *tidemill.StreamingContext) error {
			ones := tidemill.Map(tidemill.QueueStream(ssc, "queue", q), func(s string) kv { return tidemill.KV(s, 1) })
			first := tidemill.UpdateStateByKey(ones, "first", sumUpdate)
			sums.Of(tidemill.Filter(tidemill.UpdateStateByKey(first, "second", sumUpdate), func(kv) bool { return q.Len() == 0 }), "out")
			return nil
		})
		m.start()
		size := func() (bytes int) {
			for name, data := range m.files(millDir) {
				if !strings.Contains(name, "/scratch/") && !strings.Contains(name, "/state/") {
					bytes += len(data)
				}
			}
			return bytes
		}
		var sizes [3]int
		for i := range sizes {
			for range 500 {
				q.Push("a")
			}
			m.run.Advance(500)
			sizes[i] = size()
			if i == 1 {
				m.kill()
				m.start()
			}
		}
		f := m.facts()
		for _, s := range f.States {
			if len(s.Files) > 1100 {
				t.Errorf("%d files make the state of %s", len(s.Files), s.Op)
			}
		}
		if len(f.Held) > 2 || len(f.Sources) != 1 || len(f.Sources[0].Past) > 2 {
			t.Errorf("%d batches are held, %d past plans", len(f.Held), len(f.Sources[0].Past))
		}
		if sizes[2] > 2*sizes[0]+300_000 {
			t.Errorf("the log takes %d bytes after 500, 1000, 1500 batches", sizes)
		}
		got := totalsOf(sums)["a"]
		n := 1500
		if f.Done < int64(n) || got < n*(n+1)/2 { // of empty batches the second adds up the first's sum too
			t.Errorf("after %d batches the sum of sums is %d", f.Done, got)
		}
	})
}

// TestB38dAnotherPartitionCount: state is cut anew, that of windows too: totals
// stay exact and no key is in two partitions.
func TestB38dAnotherPartitionCount(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		q := &tidemill.Queue[string]{}
		in, sums, plain, inverse := tidetest.NewCapture[kv](), tidetest.NewCapture[kv](), tidetest.NewCapture[kv](), tidetest.NewCapture[kv]()
		m := newMill(t, tidemill.Config{Executors: 2, Parallelism: 2}, func(ssc *tidemill.StreamingContext) error {
			words := tidemill.Map(tidemill.QueueStream(ssc, "in", q), func(k string) kv { return tidemill.KV(k, 1) })
			in.Of(words, "seen")
			sums.Of(tidemill.UpdateStateByKey(words, "sums", sumUpdate), "all")
			plain.Of(tidemill.ReduceByKeyAndWindow(words, "plain", add, nil, 5*time.Second, time.Second), "plainly")
			inverse.Of(tidemill.ReduceByKeyAndWindow(words, "inverse", add, func(a, b int) int { return a - b }, 5*time.Second, time.Second), "inversely")
			return nil
		})
		once := func(what string, b tidetest.Captured[kv], parts int) map[string]int {
			t.Helper()
			got := map[string]int{}
			for _, r := range b.Records() {
				if _, twice := got[r.Key]; twice {
					t.Errorf("%s at %s: %q is in two partitions", what, b.Time, r.Key)
				}
				if r.Value != 0 { // a window with an inverse keeps a key for a while
					got[r.Key] = r.Value
				}
			}
			if len(b.Partitions) != parts {
				t.Errorf("%s at %s: %d partitions, want %d", what, b.Time, len(b.Partitions), parts)
			}
			return got
		}
		n, done := 0, 0
		for _, parts := range []int{2, 7, 1, 3} {
			m.cfg.Parallelism = parts
			m.start()
			for range 4 {
				for range 25 {
					n++
					q.Push(fmt.Sprint("k", n*n%31), fmt.Sprint("k", n%17))
				}
				m.run.Advance(1)
			}
			seen := in.Batches()
			at := func(since tidemill.BatchTime, until tidemill.BatchTime) map[string]int {
				want := map[string]int{}
				for _, b := range seen {
					for _, r := range b.Records() {
						if b.Time > since && b.Time <= until {
							want[r.Key] += r.Value
						}
					}
				}
				return want
			}
			all, plains, inverses := sums.Batches(), plain.Batches(), inverse.Batches()
			if len(seen) < done+4 || len(all) != len(seen) || len(plains) != len(seen) || len(inverses) != len(seen) {
				t.Fatalf("%d, %d, %d and %d batches", len(seen), len(all), len(plains), len(inverses))
			}
			for ; done < len(seen); done++ {
				now := seen[done].Time
				if diff := cmp.Diff(at(0, now), once("sums", all[done], parts)); diff != "" {
					t.Errorf("sums at %s in %d partitions (-want +got):\n%s", now, parts, diff)
				}
				want := at(now.Add(-5*time.Second), now)
				if diff := cmp.Diff(want, once("plain", plains[done], parts)); diff != "" {
					t.Errorf("window at %s in %d partitions (-want +got):\n%s", now, parts, diff)
				}
				if diff := cmp.Diff(want, once("inverse", inverses[done], parts)); diff != "" {
					t.Errorf("window with inverse at %s in %d partitions (-want +got):\n%s", now, parts, diff)
				}
			}
			m.kill()
		}
	})
}

// What a window holds of a stateful operator's emissions is as it was cut, so
// another partition count is refused while it does.
func TestB38dEmissionsInAnotherPartitionCount(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		q, held := &tidemill.Queue[string]{}, tidetest.NewCapture[kv]()
		m := newMill(t, tidemill.Config{Executors: 2, Parallelism: 2}, func(ssc *tidemill.StreamingContext) error {
			words := tidemill.Map(tidemill.QueueStream(ssc, "in", q), func(k string) kv { return tidemill.KV(k, 1) })
			held.Of(tidemill.Window(tidemill.UpdateStateByKey(words, "sums", sumUpdate), 3*time.Second, time.Second), "held")
			return nil
		})
		m.start()
		q.Push("a", "b")
		m.run.Advance(2)
		m.kill()
		before := m.files(millDir)
		m.cfg.Parallelism = 7
		holds(t, m.refused(), `updateStateByKey "sums"`, "2 partitions, now 7", "Partitions(2)", "parallelism=2", "--drop-state=sums")
		sameTree(t, before, m.files(millDir))
		m.cfg.Parallelism = 2
		m.start()
		m.run.Advance(2)
		if n := len(held.Batches()); n < 3 {
			t.Errorf("%d batches", n)
		}
	})
}

// TestWindowsReachBackOverARestart: a raw window reads held blocks from the
// receiver's log, and what stateful operators emitted from the state log.
func TestWindowsReachBackOverARestart(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f, raw, emitted := newFeed(), tidetest.NewCapture[string](), tidetest.NewCapture[kv]()
		m := newMill(t, tidemill.Config{Executors: 2}, func(ssc *tidemill.StreamingContext) error {
			in := tidemill.ReceiverStream(ssc, "in", f.open)
			raw.Of(tidemill.Window(in, 4*time.Second, time.Second), "raw")
			sums := tidemill.UpdateStateByKey(tidemill.Map(in, func(string) kv { return tidemill.KV("n", 1) }), "sums", sumUpdate)
			emitted.Of(tidemill.Window(sums, 3*time.Second, time.Second), "emitted")
			return nil
		})
		var start tidemill.BatchTime
		var sent []string
		for part := range 3 {
			m.start()
			if part == 0 {
				start = m.run.Time(0)
			}
			for range 2 {
				r := fmt.Sprint("r", len(sent)/2)
				f.in <- []string{r, r + "'"}
				sent = append(sent, r, r+"'")
				m.run.Advance(1)
			}
			if part == 1 {
				m.run.Stop(true)
			} else {
				m.kill()
			}
		}
		want := map[tidemill.BatchTime][]string{}
		values := map[tidemill.BatchTime][]int{}
		for i := 1; i <= 6; i++ {
			at := start.Add(time.Duration(i) * time.Second)
			want[at] = sent[2*max(0, i-4) : 2*i]
			for k := max(1, i-2); k <= i; k++ {
				values[at] = append(values[at], 2*k)
			}
		}
		got, gotValues := map[tidemill.BatchTime][]string{}, map[tidemill.BatchTime][]int{}
		for _, b := range raw.Batches() {
			got[b.Time] = b.Records()
		}
		for _, b := range emitted.Batches() {
			gotValues[b.Time] = nil
			for _, p := range b.Records() {
				gotValues[b.Time] = append(gotValues[b.Time], p.Value)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("raw window: %s", diff)
		}
		if diff := cmp.Diff(values, gotValues); diff != "" {
			t.Errorf("window of emissions: %s", diff)
		}
	})
}

// TestSliceAfterARestart gives what is remembered and refuses what is forgotten,
// as before it.
func TestSliceAfterARestart(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f := newFeed()
		var in tidemill.DStream[string]
		m := newMill(t, tidemill.Config{}, func(ssc *tidemill.StreamingContext) error {
			ssc.Remember(4 * time.Second)
			d := tidemill.ReceiverStream(ssc, "in", f.open)
			if in == (tidemill.DStream[string]{}) {
				in = d // the driver's, which comes first
			}
			tidemill.Print(d, "out", 1)
			return nil
		})
		m.start()
		first := m.run.Time(1)
		for i := range 8 {
			f.in <- []string{fmt.Sprint("x", i), fmt.Sprint("y", i)}
			m.run.Advance(1)
		}
		slice := func(from, to int) ([]string, error) {
			sets, err := tidemill.Slice(in, first.Add(time.Duration(from-1)*time.Second), first.Add(time.Duration(to-1)*time.Second))
			var got []string
			for _, s := range sets {
				records, err := s.Collect(t.Context())
				if err != nil {
					t.Error(err)
				}
				got = append(got, records...)
			}
			return got, err
		}
		before, err := slice(5, 8)
		if err != nil || !slices.Equal(before, []string{"x4", "y4", "x5", "y5", "x6", "y6", "x7", "y7"}) {
			t.Fatalf("%q, %v", before, err)
		}
		m.kill()
		in = tidemill.DStream[string]{}
		m.start()
		synctest.Wait()
		after, err := slice(5, 8)
		if diff := cmp.Diff(before, after); diff != "" || err != nil {
			t.Errorf("%v: %s", err, diff)
		}
		_, err = slice(4, 8)
		holds(t, err, "forgotten", "remembers them for 4s")
		if got, err := slice(9, 20); len(got) != 0 || err != nil {
			t.Errorf("of the future: %q, %v", got, err)
		}
	})
}

// TestBroadcastValuesOfPendingBatches are those that were planned.
func TestBroadcastValuesOfPendingBatches(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		var made atomic.Int32
		var hold atomic.Bool
		hold.Store(true)
		q, out := &tidemill.Queue[string]{}, tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{MaxPendingBatches: 5, Executors: 2}, func(ssc *tidemill.StreamingContext) error {
			value := tidemill.BroadcastEach(ssc, "value", func(context.Context, tidemill.BatchTime) (int, error) { return int(made.Add(1)), nil })
			in := tidemill.QueueStream(ssc, "queue", q)
			tidemill.ForeachBatch(in, "hold", func(ctx context.Context, _ *tidemill.Batch[string]) error {
				if hold.Load() {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
			tagged := tidemill.Transform(in, func(r tidemill.RDD[string], at tidemill.BatchTime) (tidemill.RDD[string], error) {
				v := value.At(at)
				if v%2 == 1 { // driver and executors must see the same value to plan the same
					r = rdd.Filter(r, func(string) bool { return true })
				}
				return rdd.Map(r, func(s string) string { return fmt.Sprint(s, "#", v) }), nil
			})
			out.Of(tidemill.Window(tagged, 2*time.Second, time.Second), "out")
			return nil
		})
		m.start()
		for i := range 3 {
			q.Push(fmt.Sprint("r", i))
			m.run.Advance(1)
		}
		if made.Load() != 3 {
			t.Fatalf("%d values were made", made.Load())
		}
		made.Store(100)
		m.kill()
		hold.Store(false)
		q.Push("r3")
		m.start().Advance(1)
		m.kill() // the value of a batch that only a window holds
		q.Push("r4")
		m.start().Advance(1)
		want := [][]string{{"r0#1"}, {"r0#1", "r1#2"}, {"r1#2", "r2#3"}, {"r2#3", "r3#101"}, {"r3#101", "r4#102"}}
		if diff := cmp.Diff(want, out.Records()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestAKilledExecutorOfADurableJob: its received blocks come from the log, its
// state from the state log.
func TestAKilledExecutorOfADurableJob(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f, sums, out := newFeed(), tidetest.NewCapture[kv](), tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{Executors: 2}, func(ssc *tidemill.StreamingContext) error {
			in := tidemill.ReceiverStream(ssc, "in", f.open, tidemill.Level(tidemill.MemoryOnly))
			out.Of(in, "out")
			sums.Of(tidemill.UpdateStateByKey(tidemill.Map(in, func(s string) kv { return tidemill.KV(s[:1], 1) }), "sums", sumUpdate), "sums-out")
			return nil
		})
		m.start()
		var all []string
		send := func() {
			n := len(all)
			b := []string{fmt.Sprint("a", n), fmt.Sprint("b", n), fmt.Sprint("c", n)}
			all = append(all, b...)
			f.in <- b
		}
		for range 3 {
			send()
			m.run.Advance(1)
		}
		send()
		settle(500 * time.Millisecond) // received, in no batch
		m.run.Kill(0)                  // where the receiver is
		m.run.Advance(3)
		if err := m.run.Context().AddExecutor(); err != nil {
			t.Fatal(err)
		}
		send()
		settle(500 * time.Millisecond)
		m.run.Kill(1)
		m.run.Advance(3)
		send()
		m.run.Advance(1)
		m.kill()
		m.start()
		send()
		m.run.Advance(1)
		eachOnce(t, out, all...)
		if diff := cmp.Diff(map[string]int{"a": 7, "b": 7, "c": 7}, totalsOf(sums)); diff != "" {
			t.Error(diff)
		}
		if n := len(m.alarms.of("blocks-lost")); n != 0 {
			t.Errorf("%d losses", n)
		}
	})
}

// TestEmptyStateIsRestored: a partition that has no key, and one whose keys all
// timed out (SPARK-13195, SPARK-11979).
func TestEmptyStateIsRestored(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		q, out, snaps := &tidemill.Queue[string]{}, tidetest.NewCapture[string](), tidetest.NewCapture[kv]()
		m := newMill(t, tidemill.Config{Parallelism: 4, SnapshotBytes: 1}, func(ssc *tidemill.StreamingContext) error {
			ones := tidemill.Map(tidemill.QueueStream(ssc, "queue", q), func(s string) kv { return tidemill.KV(s, 1) })
			st := tidemill.MapWithState(ones, "mapped", tidemill.StateSpec[string, int]{Timeout: tidemill.Some(2 * time.Second)}, runningSum)
			out.Of(st.DStream, "out")
			snaps.Of(tidemill.StateSnapshots(st, "snaps"), "snaps-out")
			return nil
		})
		m.start().Advance(1)
		m.kill()
		m.start()
		q.Push("a", "a")
		m.run.Advance(1)
		m.kill()
		m.start().Advance(4)
		m.kill()
		m.start()
		q.Push("a")
		m.run.Advance(1)
		if diff := cmp.Diff([]string{"a 1", "a 2", "a timeout 2", "a 1"}, slices.Concat(out.Records()...)); diff != "" {
			t.Error(diff)
		}
		var sizes []int
		for _, b := range snaps.Batches() {
			sizes = append(sizes, len(b.Records()))
		}
		if diff := cmp.Diff([]int{0, 1, 1, 1, 0, 0, 1}, sizes); diff != "" {
			t.Errorf("keys per batch: %s", diff)
		}
	})
}

// TestBlockIDsStayUsedForEver: a receiver's epochs go on after every restart, so
// no block has the name of an older one (Invariant 2).
func TestBlockIDsStayUsedForEver(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		f, out := newFeed(), tidetest.NewCapture[string]()
		m := newMill(t, tidemill.Config{SnapshotBytes: 1}, received(f, out))
		for i := range 4 {
			m.start()
			f.in <- []string{fmt.Sprint("x", i), fmt.Sprint("y", i)}
			m.run.Advance(2)
			m.kill()
			s := m.facts().Stream("in")
			if s.Epoch != base.Epoch(i+1) || len(s.High) != i+1 || s.High[i].Counter != 1 {
				t.Errorf("after start %d: %+v", i+1, s)
			}
		}
	})
}

// TestStateThatHasBegunGoesOn without input: that an operator once had some is not
// forgotten with the process.
func TestStateThatHasBegunGoesOn(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		script, sums := [][]kv{nil, {tidemill.KV("a", 1)}}, tidetest.NewCapture[kv]()
		m := newMill(t, tidemill.Config{}, func(ssc *tidemill.StreamingContext) error {
			sums.Of(tidemill.UpdateStateByKey(tidetest.Script(ssc, "in", script), "sums", sumUpdate), "out")
			return nil
		})
		m.start().Advance(2)
		m.kill()
		script = [][]kv{nil, {tidemill.KV("a", 5)}}
		m.start().Advance(2)
		if diff := cmp.Diff([][]kv{{tidemill.KV("a", 1)}, {tidemill.KV("a", 1)}, {tidemill.KV("a", 6)}}, sums.Records()); diff != "" {
			t.Error(diff)
		}
	})
}
