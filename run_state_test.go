package tidemill_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/tidetest"
)

func sumUpdate(values []int, old tidemill.Opt[int]) tidemill.Opt[int] {
	s := old.Or(0)
	for _, v := range values {
		s += v
	}
	return tidemill.Some(s)
}

func runningSum(_ tidemill.BatchTime, k string, v tidemill.Opt[int], s *tidemill.State[int]) (string, bool) {
	if s.IsTimingOut() {
		return fmt.Sprintf("%s timeout %d", k, s.Get()), true
	}
	n := v.Value
	if s.Exists() {
		n += s.Get()
	}
	s.Update(n)
	return fmt.Sprintf("%s %d", k, n), true
}

func sorted[T fmt.Stringer](in []T) []string {
	out := []string{}
	for _, v := range in {
		out = append(out, v.String())
	}
	slices.Sort(out)
	return out
}

func TestStateIsKeptPerKeyAcrossBatchesAndALostExecutor(t *testing.T) {
	batches := [][]kv{{{Key: "a", Value: 1}, {Key: "b", Value: 2}}, {{Key: "a", Value: 10}}, {}, {{Key: "c", Value: 5}, {Key: "a", Value: 100}}, {}, {{Key: "b", Value: 7}}}
	run := func(t *testing.T, kill bool) (upd, snap [][]string, mapped [][]string, win [][]string) {
		tidetest.Run(t, func(t *testing.T) {
			u, s, w := tidetest.NewCapture[kv](), tidetest.NewCapture[kv](), tidetest.NewCapture[kv]()
			m := tidetest.NewCapture[string]()
			job := tidetest.Start(t, tidetest.Job{
				Config: tidemill.Config{Executors: 3, Parallelism: 3},
				Build: func(ssc *tidemill.StreamingContext) error {
					in := tidetest.Script(ssc, "in", batches)
					u.Of(tidemill.UpdateStateByKey(in, "sums", sumUpdate), "u")
					st := tidemill.MapWithState(in, "mapped", tidemill.StateSpec[string, int]{Timeout: tidemill.Some(2 * time.Second)}, runningSum)
					m.Of(st.DStream, "m")
					s.Of(tidemill.StateSnapshots(st, "snap"), "s")
					sub := func(a, b int) int { return a - b }
					add := func(a, b int) int { return a + b }
					w.Of(tidemill.ReduceByKeyAndWindow(in, "win", add, sub, 3*time.Second, time.Second), "w")
					return nil
				},
			})
			job.Advance(2)
			if kill {
				job.Kill(1)
			}
			job.Advance(2)
			if kill {
				job.Kill(0)
			}
			job.Advance(2)
			if err := job.Err(); err != nil {
				t.Fatal(err)
			}
			for i := range u.Batches() {
				upd = append(upd, sorted(u.Records()[i]))
				snap = append(snap, sorted(s.Records()[i]))
				win = append(win, sorted(w.Records()[i]))
				x := m.Records()[i]
				slices.Sort(x)
				mapped = append(mapped, x)
			}
		})
		return upd, snap, mapped, win
	}
	upd, snap, mapped, win := run(t, false)
	want := [][]string{{"(a,1)", "(b,2)"}, {"(a,11)", "(b,2)"}, {"(a,11)", "(b,2)"}, {"(a,111)", "(b,2)", "(c,5)"}, {"(a,111)", "(b,2)", "(c,5)"}, {"(a,111)", "(b,9)", "(c,5)"}}
	if diff := cmp.Diff(want, upd); diff != "" {
		t.Error("updateStateByKey:", diff)
	}
	if diff := cmp.Diff([][]string{{"a 1", "b 2"}, {"a 11"}, {}, {"a 111", "b timeout 2", "c 5"}, {}, {"b 7"}}, mapped); diff != "" {
		t.Error("mapWithState:", diff)
	}
	if diff := cmp.Diff([][]string{{"(a,1)", "(b,2)"}, {"(a,11)", "(b,2)"}, {"(a,11)", "(b,2)"}, {"(a,111)", "(c,5)"}, {"(a,111)", "(c,5)"}, {"(a,111)", "(b,7)", "(c,5)"}}, snap); diff != "" {
		t.Error("snapshots:", diff)
	}
	if diff := cmp.Diff([][]string{{"(a,1)", "(b,2)"}, {"(a,11)", "(b,2)"}, {"(a,11)", "(b,2)"}, {"(a,110)", "(b,0)", "(c,5)"}, {"(a,100)", "(b,0)", "(c,5)"}, {"(a,100)", "(b,7)", "(c,5)"}}, win); diff != "" {
		t.Error("window:", diff)
	}
	u2, s2, m2, w2 := run(t, true)
	for _, d := range []string{cmp.Diff(upd, u2), cmp.Diff(snap, s2), cmp.Diff(mapped, m2), cmp.Diff(win, w2)} {
		if d != "" {
			t.Error("after losses:", d)
		}
	}
}

// A source without data set is no input: the initial state waits for the first.
func TestUpdateStateByKeyDoesNothingBeforeItsFirstInput(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		out := tidetest.NewCapture[kv]()
		job := tidetest.Start(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
			in := tidetest.Script(ssc, "in", [][]kv{nil, nil, {}, nil})
			calls := func(_ []int, old tidemill.Opt[int]) tidemill.Opt[int] { return tidemill.Some(old.Or(0) + 1) }
			out.Of(tidemill.UpdateStateByKey(in, "calls", calls, tidemill.InitialState(kv{Key: "a", Value: 10})), "out")
			return nil
		}})
		job.Advance(4)
		if err := job.Err(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]kv{{{Key: "a", Value: 11}}, {{Key: "a", Value: 12}}}, out.Records()); diff != "" {
			t.Error(diff)
		}
	})
}
