package tidemill_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/tidetest"
)

// countInPlace counts values in a map that it changes in place, as users do.
func countInPlace(values []int, old tidemill.Opt[map[string]int]) tidemill.Opt[map[string]int] {
	m := old.Value
	if m == nil {
		m = map[string]int{}
	}
	for range values {
		m["n"]++
	}
	return tidemill.Some(m)
}

// TestStateChangedInPlaceCountsOnceWhenItsTaskIsRetried: the first attempt of
// batch 2 changes the state and then fails; so does all of batch 3.
func TestStateChangedInPlaceCountsOnceWhenItsTaskIsRetried(t *testing.T) {
	type counts = tidemill.Pair[string, map[string]int]
	tidetest.Run(t, func(t *testing.T) {
		var batch, tries atomic.Int32
		out := tidetest.NewCapture[counts]()
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{OnBatchFailure: "continue", MaxTaskFailures: 2, Parallelism: 1},
			Build: func(ssc *tidemill.StreamingContext) error {
				in := tidetest.Script(ssc, "in", [][]kv{{{Key: "a", Value: 1}, {Key: "z", Value: 1}}, {{Key: "a", Value: 1}, {Key: "z", Value: 1}}, {{Key: "a", Value: 1}, {Key: "z", Value: 1}}, {{Key: "a", Value: 1}, {Key: "z", Value: 1}}})
				sums := tidemill.UpdateStateByKeyWithTime(in, "counts", func(_ tidemill.BatchTime, k string, values []int, old tidemill.Opt[map[string]int]) tidemill.Opt[map[string]int] {
					now := countInPlace(values, old)
					if k == "z" { // the last key: a has been changed already
						b := batch.Load()
						if b == 3 || b == 2 && tries.Add(1) == 1 {
							panic("the mill stands")
						}
					}
					return now
				})
				out.Of(sums, "out")
				return nil
			},
		})
		for i := range 4 {
			batch.Store(int32(i + 1))
			job.Advance(1)
		}
		var got []string
		for _, b := range out.Batches() {
			for _, p := range b.Records() {
				got = append(got, fmt.Sprint(p.Key, p.Value["n"]))
			}
		}
		// Batch 3 failed as a whole: it gives nothing, and batch 4 goes on from batch 2.
		if diff := cmp.Diff([]string{"a1", "z1", "a2", "z2", "a3", "z3"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestStateDoesNotDependOnWhatReadsIt: outputs that take one record, none, fail
// or panic leave the state as outputs that read all.
func TestStateDoesNotDependOnWhatReadsIt(t *testing.T) {
	type reader struct {
		name string
		add  func(d tidemill.DStream[kv])
	}
	readers := []reader{
		{"take one", func(d tidemill.DStream[kv]) {
			tidemill.ForeachBatch(d, "take", func(ctx context.Context, b *tidemill.Batch[kv]) error {
				_, err := b.Take(ctx, 1)
				return err
			})
		}},
		{"no action", func(d tidemill.DStream[kv]) {
			tidemill.ForeachBatch(d, "none", func(context.Context, *tidemill.Batch[kv]) error { return nil })
		}},
		{"fails", func(d tidemill.DStream[kv]) {
			tidemill.ForeachBatch(d, "fails", func(context.Context, *tidemill.Batch[kv]) error { return errors.New("full") })
		}},
		{"panics in the consumer", func(d tidemill.DStream[kv]) {
			tidemill.ForeachBatch(tidemill.Map(d, func(p kv) kv {
				if p.Value > 0 {
					panic("no")
				}
				return p
			}), "panics", func(ctx context.Context, b *tidemill.Batch[kv]) error {
				_, err := b.Collect(ctx)
				return err
			})
		}},
	}
	var in [][]kv
	want := map[string]int{}
	for i := range 12 {
		p := tidemill.KV(string(rune('a'+i%3)), i+1)
		in = append(in, []kv{p})
		want[p.Key] += p.Value
	}
	for _, r := range readers {
		t.Run(r.name, func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				// Without anything that reads it whole, the state only shows at the end.
				last := tidetest.NewCapture[kv]()
				job := tidetest.Start(t, tidetest.Job{
					Config: tidemill.Config{OnBatchFailure: "continue", MaxTaskFailures: 1, Parallelism: 2},
					Build: func(ssc *tidemill.StreamingContext) error {
						sums := tidemill.UpdateStateByKey(tidetest.Script(ssc, "in", in), "sums", sumUpdate)
						r.add(sums)
						last.Of(tidemill.Filter(sums, func(kv) bool { return true }), "last")
						return nil
					},
				})
				job.Advance(len(in))
				if err := job.Err(); err != nil {
					t.Fatal(err)
				}
				got := map[string]int{}
				all := last.Records()
				for _, p := range all[len(all)-1] {
					got[p.Key] = p.Value
				}
				if len(all) != len(in) || !maps.Equal(want, got) {
					t.Errorf("after %d batches the state is %v, want %v after %d", len(all), got, want, len(in))
				}
			})
		})
	}
}

// TestFailedAdvanceNamesTheOperatorAndTheRecord: a panic in a state function
// stops the job with the words of any other operator.
func TestFailedAdvanceNamesTheOperatorAndTheRecord(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{Parallelism: 1, MaxTaskFailures: 1},
			Build: func(ssc *tidemill.StreamingContext) error {
				in := tidetest.Script(ssc, "in", [][]kv{{{Key: "a", Value: 1}, {Key: "b", Value: -7}}})
				st := tidemill.MapWithState(in, "balance", tidemill.StateSpec[string, int]{}, func(_ tidemill.BatchTime, k string, v tidemill.Opt[int], s *tidemill.State[int]) (int, bool) {
					if v.Value < 0 {
						return s.Get(), true // there is none
					}
					s.Update(v.Value)
					return v.Value, true
				})
				tidetest.NewCapture[int]().Of(st.DStream, "out")
				return nil
			},
		})
		job.Advance(1)
		err := job.Err()
		for _, part := range []string{`mapWithState "balance"`, "record 2", "(b,-7)", "State.Get: the key has no state"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
	})
}

// TestWindowOverStateReadsEmissionsOfLostExecutors: what a later batch reads of
// a stateful operator outlives the executor that made it.
func TestWindowOverStateReadsEmissionsOfLostExecutors(t *testing.T) {
	run := func(t *testing.T, kill bool) (out []string) {
		tidetest.Run(t, func(t *testing.T) {
			got := tidetest.NewCapture[kv]()
			job := tidetest.Start(t, tidetest.Job{
				Config: tidemill.Config{Executors: 3, Parallelism: 3},
				Build: func(ssc *tidemill.StreamingContext) error {
					in := tidetest.Script(ssc, "in", [][]kv{{{Key: "a", Value: 1}, {Key: "b", Value: 2}}, {{Key: "a", Value: 10}}, {{Key: "c", Value: 3}}, {}})
					sums := tidemill.UpdateStateByKey(in, "sums", sumUpdate)
					got.Of(tidemill.Window(sums, 3*sums.Slide(), sums.Slide()), "out")
					return nil
				},
			})
			job.Advance(3)
			if kill {
				job.Kill(0)
				job.Kill(2)
			}
			job.Advance(1)
			if err := job.Err(); err != nil {
				t.Fatal(err)
			}
			for _, b := range got.Records() {
				out = append(out, strings.Join(sorted(b), " "))
			}
		})
		return out
	}
	want := run(t, false)
	if n := len(want); n != 4 || !slices.Contains(want, "(a,11) (a,11) (a,11) (b,2) (b,2) (b,2) (c,3) (c,3)") {
		t.Fatalf("undisturbed: %q", want)
	}
	if diff := cmp.Diff(want, run(t, true)); diff != "" {
		t.Error(diff)
	}
}
