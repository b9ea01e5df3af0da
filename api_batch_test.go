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
	"github.com/tidemill/tidemill/tidetest"
)

// TestBatchActions calls every method of a Batch.
func TestBatchActions(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		var computed atomic.Int64
		var got []string
		job := tidetest.Start(t, tidetest.Job{
			Name: "actions",
			Build: func(ssc *tidemill.StreamingContext) error {
				in := tidetest.Script(ssc, "in", [][]int{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {}}, 5)
				m := tidemill.Map(in, func(v int) int { computed.Add(1); return v })
				tidemill.ForeachBatch(m, "out", func(ctx context.Context, b *tidemill.Batch[int]) error {
					say := func(what string, v any, err error) {
						if err != nil {
							v = err
						}
						got = append(got, fmt.Sprintf("%s=%v computed=%d", what, v, computed.Swap(0)))
					}
					for _, n := range []int{-1, 0, 1, 2, 3, 100} {
						v, err := b.Take(ctx, n)
						say(fmt.Sprint("take ", n), v, err)
					}
					n, err := b.Count(ctx)
					say("count", n, err)
					all, err := b.Collect(ctx)
					say("collect", all, err)
					parts, err := b.CollectPartitions(ctx)
					say("partitions", parts, err)
					sum, ok, err := b.Reduce(ctx, add)
					say(fmt.Sprint("reduce ", ok), sum, err)
					if want := fmt.Sprintf("/out/%d", int64(b.Time())); !strings.HasPrefix(b.Key(), "actions/") || !strings.HasSuffix(b.Key(), want) {
						t.Errorf("key %q", b.Key())
					}
					cancelled, cancel := context.WithCancel(ctx)
					cancel()
					if _, err := b.Collect(cancelled); err == nil {
						t.Error("a cancelled context has no effect")
					}
					if n := computed.Swap(0); n != 0 {
						t.Errorf("%d records were computed for a cancelled context", n)
					}
					return nil
				})
				return nil
			},
		})
		job.Advance(2)
		if err := job.Err(); err != nil {
			t.Fatal(err)
		}
		// Take computes a partition, then four more.
		want := []string{
			"take -1=[] computed=0", "take 0=[] computed=0", "take 1=[1] computed=1", "take 2=[1 2] computed=2",
			"take 3=[1 2 3] computed=10", "take 100=[1 2 3 4 5 6 7 8 9 10] computed=10", "count=10 computed=10",
			"collect=[1 2 3 4 5 6 7 8 9 10] computed=10", "partitions=[[1 2] [3 4] [5 6] [7 8] [9 10]] computed=10", "reduce true=55 computed=10",
			"take -1=[] computed=0", "take 0=[] computed=0", "take 1=[] computed=0", "take 2=[] computed=0",
			"take 3=[] computed=0", "take 100=[] computed=0", "count=0 computed=0",
			"collect=[] computed=0", "partitions=[[] [] [] [] []] computed=0", "reduce false=0 computed=0",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestSliceGivesRememberedBatches: within what is remembered, not before, not
// after, also while the job runs on and after it has ended.
func TestSliceGivesRememberedBatches(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		var in, quick tidemill.DStream[int]
		build := func(ssc *tidemill.StreamingContext) error {
			ssc.Remember(3 * time.Second)
			in = numbers(ssc, 10)
			quick = tidemill.Map(in, func(v int) int { return -v })
			tidemill.Print(tidemill.Window(quick, 4*time.Second, 2*time.Second), "out", 1)
			return nil
		}
		first := true
		var dIn, dQuick tidemill.DStream[int]
		job := tidetest.Start(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
			err := build(ssc)
			if first { // the driver's own handles
				dIn, dQuick, first = in, quick, false
			}
			return err
		}})
		slice := func(d tidemill.DStream[int], from, to int) string {
			t.Helper()
			sets, err := tidemill.Slice(d, job.Time(from), job.Time(to).Add(300*time.Millisecond)) // ends are floored
			if err != nil {
				return err.Error()
			}
			var s []string
			for _, b := range sets {
				records, err := b.Collect(t.Context())
				s = append(s, fmt.Sprint(int64(b.Time()-job.Time(0))/1000, records))
				if err != nil {
					s = append(s, err.Error())
				}
			}
			return strings.Join(s, " ")
		}
		job.Advance(3)
		if got := slice(dQuick, 1, 3); got != "1 [-10 -11] 2 [-20 -21] 3 [-30 -31]" {
			t.Error(got)
		}
		if got := slice(dIn, 2, 99); got != "2 [20 21] 3 [30 31]" {
			t.Error(got)
		}
		if got := slice(dIn, 3, 2); got != "" {
			t.Error(got)
		}
		job.Advance(7)
		// It remembers what is above, and what the window of four needs.
		if got := slice(dQuick, 1, 10); !strings.Contains(got, `"in.map"`) || !strings.Contains(got, "forgotten") || !strings.Contains(got, "Remember") {
			t.Error(got)
		}
		if got := slice(dQuick, 8, 10); got != "8 [-80 -81] 9 [-90 -91] 10 [-100 -101]" {
			t.Error(got)
		}
		for _, r := range job.Context().Remembered() {
			if len(r.Held) == 0 || len(r.Held) > 8 || r.Remember < 3*time.Second {
				t.Errorf("%+v", r)
			}
		}
		sets, err := tidemill.Slice(dQuick, job.Time(9), job.Time(9))
		if err != nil || len(sets) != 1 {
			t.Fatal(sets, err)
		}
		job.Stop(true)
		if _, err := sets[0].Collect(t.Context()); err == nil || !strings.Contains(err.Error(), "stopped") {
			t.Error(err)
		}
	})
}

// TestPersistComputesOnce, and without it each output computes for itself.
func TestPersistComputesOnce(t *testing.T) {
	for _, level := range []tidemill.StorageLevel{0, tidemill.MemoryOnly, tidemill.MemoryAndDisk, tidemill.DiskOnly} {
		tidetest.Run(t, func(t *testing.T) {
			var computed atomic.Int64
			a, b := tidetest.NewCapture[int](), tidetest.NewCapture[int]()
			job := tidetest.Start(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
				m := tidemill.Map(numbers(ssc, 2), func(v int) int { computed.Add(1); return v })
				if level != 0 {
					m = tidemill.Persist(m, level)
				}
				a.Of(m, "a")
				b.Of(tidemill.Map(m, func(v int) int { return v + 1 }), "b")
				return nil
			}})
			job.Advance(2)
			want := int64(4)
			if level == 0 {
				want = 8
			}
			if computed.Load() != want {
				t.Errorf("%v: computed %d times, want %d", level, computed.Load(), want)
			}
			if diff := cmp.Diff([][]int{{10, 11}, {20, 21}}, a.Records()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([][]int{{11, 12}, {21, 22}}, b.Records()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWrongUseNamesBothValues: what is wrong, with what it clashes.
func TestWrongUseNamesBothValues(t *testing.T) {
	type bad struct{ C chan int }
	pairs := func(ssc *tidemill.StreamingContext) tidemill.DStream[kv] {
		return tidemill.ConstantStream(ssc, "in", []kv{tidemill.KV("a", 1)})
	}
	for name, c := range map[string]struct {
		build func(ssc *tidemill.StreamingContext)
		want  []string
	}{
		"window no multiple": {func(ssc *tidemill.StreamingContext) { tidemill.Window(pairs(ssc), 2500*time.Millisecond, time.Second) }, []string{`window of "in"`, "the window 2.5s", "multiple of the slide 1s"}},
		"slide no multiple":  {func(ssc *tidemill.StreamingContext) { tidemill.Window(pairs(ssc), 2*time.Second, 700*time.Millisecond) }, []string{"the slide 700ms", "multiple of the slide 1s"}},
		"window negative":    {func(ssc *tidemill.StreamingContext) { tidemill.Window(pairs(ssc), -time.Second, time.Second) }, []string{"the window is -1s", "positive"}},
		"window zero":        {func(ssc *tidemill.StreamingContext) { tidemill.Window(pairs(ssc), 0, time.Second) }, []string{"the window is 0s", "positive"}},
		"partitions":         {func(ssc *tidemill.StreamingContext) { tidemill.ReduceByKey(pairs(ssc), add, tidemill.Partitions(0)) }, []string{`reduceByKey of in`, "count is 0", "positive"}},
		"repartition":        {func(ssc *tidemill.StreamingContext) { tidemill.Repartition(pairs(ssc), -2) }, []string{`repartition of "in"`, "count is -2"}},
		"input partitions": {func(ssc *tidemill.StreamingContext) {
			tidemill.ConstantStream(ssc, "c", []int{1}, tidemill.InputPartitions(-1))
		}, []string{`constant "c"`, "-1"}},
		"name twice": {func(ssc *tidemill.StreamingContext) {
			tidemill.Print(pairs(ssc), "same", 1)
			tidemill.ForeachBatch(pairs2(ssc), "same", func(context.Context, *tidemill.Batch[kv]) error { return nil })
		}, []string{`foreachBatch "same"`, "taken by another print"}},
		"no name":  {func(ssc *tidemill.StreamingContext) { tidemill.Print(pairs(ssc), "", 1) }, []string{"print needs a name"}},
		"bad name": {func(ssc *tidemill.StreamingContext) { tidemill.Print(pairs(ssc), "a/b", 1) }, []string{`print "a/b"`, "'/'"}},
		"slides differ": {func(ssc *tidemill.StreamingContext) {
			in := pairs(ssc)
			tidemill.Union(in, tidemill.Window(in, 2*time.Second, 2*time.Second))
		}, []string{"union", `"in"`, `"in.window"`, "1s and 2s"}},
		"contexts differ": {func(ssc *tidemill.StreamingContext) {
			tidemill.Union(tidemill.ConstantStream(ssc, "mine", []int{1}), otherStream(t))
		}, []string{"union", `"mine"`, `"other"`, "different contexts"}},
		"type": {func(ssc *tidemill.StreamingContext) {
			tidemill.Repartition(tidemill.Map(pairs(ssc), func(kv) bad { return bad{} }), 2)
		}, []string{"repartition of in.map", "bad.C is a chan"}},
		"level":          {func(ssc *tidemill.StreamingContext) { tidemill.Persist(pairs(ssc), 99) }, []string{`Persist of "in"`, "storage-level-99", "MemoryOnly"}},
		"print n":        {func(ssc *tidemill.StreamingContext) { tidemill.Print(pairs(ssc), "p", 0) }, []string{`print "p"`, "n is 0"}},
		"remember twice": {func(ssc *tidemill.StreamingContext) { ssc.Remember(time.Second); ssc.Remember(2 * time.Second) }, []string{"Remember", "1s", "2s"}},
		"remember":       {func(ssc *tidemill.StreamingContext) { ssc.Remember(-time.Second) }, []string{"Remember", "-1s", "positive"}},
		"resource":       {func(ssc *tidemill.StreamingContext) { tidemill.Resource[int](ssc, "r", nil, nil) }, []string{`resource "r"`, "open is nil"}},
		"directory":      {func(ssc *tidemill.StreamingContext) { tidemill.SaveAsTextFiles(pairs(ssc), "s", "", nil) }, []string{`saveAsTextFiles "s"`, "empty"}},
		"panic in Build": {func(*tidemill.StreamingContext) { panic("oh no") }, []string{"Build panicked", "oh no"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tidetest.New(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
				c.build(ssc)
				tidemill.Print(tidemill.ConstantStream(ssc, "filler", []int{1}), "filler-out", 1)
				return nil
			}})
			holds(t, err, append(c.want, `job "test"`)...)
		})
	}
}

func otherStream(t *testing.T) (d tidemill.DStream[int]) {
	_, err := tidetest.New(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
		d = tidemill.ConstantStream(ssc, "other", []int{1})
		tidemill.Print(d, "out", 1)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func pairs2(ssc *tidemill.StreamingContext) tidemill.DStream[kv] {
	return tidemill.ConstantStream(ssc, "in2", []kv{})
}

// TestLifeOfAContext: what may be called when.
func TestLifeOfAContext(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		var in tidemill.DStream[int]
		var mine *tidemill.StreamingContext
		ssc, err := tidetest.New(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
			d := tidemill.ConstantStream(ssc, "in", []int{1})
			tidemill.Print(d, "out", 1)
			if mine == nil {
				in, mine = d, ssc
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if ssc.State() != tidemill.Initialized || ssc.AwaitTermination(t.Context()) == nil || ssc.AddExecutor() == nil || ssc.Counters() != nil || len(ssc.Remembered()) != 1 {
			t.Error("a context that was not started", ssc.State())
		}
		_, err = tidemill.Slice(in, 0, 1)
		holds(t, err, `"in"`, "INITIALIZED")
		for range 2 { // the second time it does nothing
			if err := ssc.Start(t.Context()); err != nil || ssc.State() != tidemill.Active {
				t.Error(err, ssc.State())
			}
		}
		tidemill.Map(in, func(v int) int { return v })
		tidemill.Print(in, "late", 1)
		ssc.AddListener(&batches{})
		holds(t, ssc.Err(), "map", `print "late"`, "after starting a context", "AddListener", "ACTIVE")
		holds(t, ssc.KillExecutor(7), "no executor 7", "1 were started")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := ssc.AwaitTermination(ctx); err != context.DeadlineExceeded {
			t.Error(err)
		}
		if _, err := ssc.Stop(t.Context(), true); err != nil {
			t.Error(err)
		}
		holds(t, ssc.Start(t.Context()), "already been stopped")
		if err := ssc.AwaitTermination(t.Context()); err != nil || ssc.State() != tidemill.Stopped {
			t.Error(err, ssc.State())
		}
		nothing, err := tidetest.New(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
			tidemill.ConstantStream(ssc, "in", []int{1})
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		holds(t, nothing.Start(t.Context()), "no output operations", "Print")
		holds(t, nothing.Start(t.Context()), "already been stopped")
	})
}
