package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/tidetest"
)

func runMapWithState(t *testing.T, c *golden) outcome {
	if c.Op == "checkpoint_interval" {
		return runStream(t, c)
	}
	return job{build: func(ssc *tidemill.StreamingContext, r *recorder) error {
		if c.str("fn") == "probe" {
			mapped(r, c, input[tidemill.Pair[string, string]](ssc, c, 0), probe)
			return nil
		}
		in := input[pair](ssc, c, 0)
		switch c.Op {
		case "mapWithState":
		case "window+mapWithState":
			in = tidemill.Window(in, millis(c.WindowMS), millis(c.SlideMS))
		default:
			return fmt.Errorf("operation %q is not known", c.Op)
		}
		mapped(r, c, in, mapping(byName(c, "fn", steps)))
		return nil
	}}.run(t, c)
}

// mapFunc gives a tree, since the records of a case differ in shape.
type mapFunc[V any] = func(t tidemill.BatchTime, k string, v tidemill.Opt[V], s *tidemill.State[int64]) (tree, bool)

// mapped declares the outputs of a case.
func mapped[V any](r *recorder, c *golden, in tidemill.DStream[tidemill.Pair[string, V]], f mapFunc[V]) {
	spec := tidemill.StateSpec[string, int64]{Initial: initialOf(c)}
	if c.has("timeout_ms") {
		spec.Timeout = tidemill.Some(millis(c.num("timeout_ms", 0)))
	}
	st := tidemill.MapWithState(in, "state", spec, f, placed(c)...)
	watch(r, st.DStream, "output")
	if c.Snapshots != nil {
		watch(r, tidemill.StateSnapshots(st, "snapshots"), snapshots)
	}
}

// sparkMapWithState reads a case; of what an error inside a function is, only
// that it was one counts.
func sparkMapWithState(c *golden) outcome {
	if c.Op == "checkpoint_interval" {
		var result any
		c.get("result", &result)
		return outcome{"result": {text(result)}}
	}
	for _, e := range c.Output {
		for i := range e.Records {
			e.Records[i] = withoutErrors(e.Records[i])
		}
	}
	return sparkOutputs(c)
}

func withoutErrors(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return "error"
	case []any:
		for i := range v {
			v[i] = withoutErrors(v[i])
		}
	}
	return v
}

// step is a function of the cases: what it emits besides the key, and the
// state that it leaves.
type step func(at, v int64, old opt64) (emit []any, now opt64)

var steps = map[string]step{
	"running_sum": func(_, v int64, old opt64) ([]any, opt64) {
		now := old.Or(0) + v
		return []any{now}, tidemill.Some(now)
	},
	"running_sum_time": func(at, v int64, old opt64) ([]any, opt64) {
		now := old.Or(0) + v
		return []any{now, at}, tidemill.Some(now)
	},
	"toggle": func(_, v int64, old opt64) ([]any, opt64) {
		if old.OK {
			return []any{"removed"}, opt64{}
		}
		return []any{"created"}, tidemill.Some(v)
	},
	"count_remove_at_3": func(_, _ int64, old opt64) ([]any, opt64) {
		n := old.Or(0) + 1
		if n == 3 {
			return []any{"removed"}, opt64{}
		}
		return []any{n}, tidemill.Some(n)
	},
	"read_only": func(_, _ int64, old opt64) ([]any, opt64) {
		if old.OK {
			return []any{old.Value}, old
		}
		return []any{nil}, old
	},
	"create_once": func(_, v int64, old opt64) ([]any, opt64) {
		if old.OK {
			return []any{"kept", old.Value}, old
		}
		return []any{"created", v}, tidemill.Some(v)
	},
}

// expired is what a function emits besides the key when it times out.
func expired(f step, at, state int64) []any {
	out := []any{"timeout", state}
	if emit, _ := f(at, 0, opt64{}); len(emit) == 2 && emit[1] == any(at) {
		out = append(out, at)
	}
	return out
}

// mapping makes a step a function of MapWithState.
func mapping(f step) mapFunc[int64] {
	return func(t tidemill.BatchTime, k string, v opt64, s *tidemill.State[int64]) (tree, bool) {
		at := caseTime(t)
		if s.IsTimingOut() {
			return treeText(append([]any{k}, expired(f, at, s.Get())...)...), true
		}
		old := s.GetOption()
		emit, now := f(at, v.Value, old)
		switch {
		case now.OK && now != old:
			s.Update(now.Value)
		case !now.OK && old.OK:
			s.Remove()
		}
		return treeText(append([]any{k}, emit...)...), true
	}
}

// probe does to the state what the value says, and tells how that went.
func probe(_ tidemill.BatchTime, k string, v tidemill.Opt[string], s *tidemill.State[int64]) (tree, bool) {
	commands := v.Or("exists+isTimingOut+get+getOption+update:7+remove+value")
	results := []any{}
	for command := range strings.SplitSeq(commands, "+") {
		results = append(results, []any{command, probed(command, v, s)})
	}
	return treeText(k, results), true
}

func probed(command string, v tidemill.Opt[string], s *tidemill.State[int64]) (result any) {
	defer func() {
		if recover() != nil {
			result = "error"
		}
	}()
	orNull := func(ok bool, v any) any {
		if ok {
			return v
		}
		return nil
	}
	name, arg, _ := strings.Cut(command, ":")
	switch name {
	case "exists":
		return s.Exists()
	case "isTimingOut":
		return s.IsTimingOut()
	case "get":
		return s.Get()
	case "getOption":
		o := s.GetOption()
		return orNull(o.OK, o.Value)
	case "update":
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			return err.Error()
		}
		s.Update(n)
	case "remove":
		s.Remove()
	case "value":
		return orNull(v.OK, v.Value)
	case "noop":
	default:
		return fmt.Sprintf("%q is not known", command)
	}
	return "ok"
}

// mapState is the model of mapWithState.
type mapState struct {
	f       step
	timeout int64 // 0 is none
	// every says how often timeouts are checked: in batches at a multiple of it.
	every   int64
	initial []pair
	// bad is a batch that fails and leaves nothing behind.
	bad int64
}

func mapStateOf(c *golden, every int64) (m mapState, ok bool) {
	f, ok := steps[c.str("fn")]
	return mapState{f: f, timeout: c.num("timeout_ms", 0), every: every, initial: initialOf(c)}, ok
}

// run runs batches at multiples of slide.
func (m mapState) run(end, slide int64, in func(at int64) []any) (out, states []entry) {
	type entryOf struct{ state, at int64 }
	all := map[string]entryOf{}
	for at := slide; at <= end; at += slide {
		if at == m.bad {
			continue
		}
		if at == slide { // the first batch counts as the last update of the initial state
			for _, p := range m.initial {
				all[p.Key] = entryOf{p.Value, at}
			}
		}
		o, s := entry{TimeMS: at, Records: []any{}}, entry{TimeMS: at, Records: []any{}}
		emit := func(k string, rest []any) {
			o.Records = append(o.Records, jsonOf(append([]any{k}, rest...)))
		}
		for _, r := range in(at) {
			k := key(r).(string)
			e, ok := all[k]
			rest, now := m.f(at, number(value(r).(json.Number)), opt64{Value: e.state, OK: ok})
			delete(all, k)
			if now.OK {
				all[k] = entryOf{now.Value, at}
			}
			emit(k, rest)
		}
		for _, k := range slices.Sorted(maps.Keys(all)) {
			e := all[k]
			if m.timeout > 0 && at%m.every == 0 && e.at < at-m.timeout {
				emit(k, expired(m.f, at, e.state))
				delete(all, k)
				continue
			}
			s.Records = append(s.Records, []any{k, num(e.state)})
		}
		out, states = append(out, o), append(states, s)
	}
	return out, states
}

// checkInterval is how often Spark checks the timeouts of a case: when it
// checkpoints the state.
func checkInterval(c *golden) int64 {
	if c.has("checkpoint_interval_ms") {
		return c.num("checkpoint_interval_ms", 0)
	}
	return 10 * c.BatchMS
}

// mapStateBy is what a case gives if timeouts are checked that often.
func mapStateBy(c *golden, every int64) outcome {
	o := outcome{}
	m, _ := mapStateOf(c, every)
	slide, in := c.BatchMS, c.records
	if c.WindowMS > 0 {
		slide, in = c.SlideMS, func(at int64) []any { return inWindow(c, at-c.WindowMS, at, 0) }
	}
	out, states := m.run(c.end(), slide, in)
	o.outputs("output", c, out)
	o.outputs(snapshots, c, states)
	return o
}

func checkedEveryBatch(c *golden) outcome { return mapStateBy(c, c.BatchMS) }

// expiresLater holds if checking timeouts less often changes the case.
func expiresLater(c *golden) bool {
	_, ok := mapStateOf(c, 0)
	return ok && c.has("timeout_ms") && !cmp.Equal(mapStateBy(c, checkInterval(c)), checkedEveryBatch(c))
}

// streams are the operations with state, by the names that cases have for them.
var streams = map[string]func(in ints){
	"updateStateByKey": func(in ints) {
		print(tidemill.UpdateStateByKey(self(in), "state", sumState))
	},
	"mapWithState": func(in ints) {
		print(tidemill.MapWithState(self(in), "state", tidemill.StateSpec[int64, int64]{}, func(_ tidemill.BatchTime, _ int64, v opt64, s *tidemill.State[int64]) (int64, bool) {
			s.Update(s.GetOption().Or(0) + v.Value)
			return s.Get(), true
		}).DStream)
	},
	"reduceByKeyAndWindow_inverse": func(in ints) {
		print(tidemill.ReduceByKeyAndWindow(self(in), "state", sum64, diff64, 2*in.Slide(), in.Slide()))
	},
	"reduceByWindow_inverse": func(in ints) {
		print(tidemill.ReduceByWindow(in, "state", sum64, diff64, 2*in.Slide(), in.Slide()))
	},
	"countByWindow": func(in ints) {
		print(tidemill.CountByWindow(in, "state", 2*in.Slide(), in.Slide()))
	},
	"countByValueAndWindow": func(in ints) {
		print(tidemill.CountByValueAndWindow(in, "state", 2*in.Slide(), in.Slide()))
	},
}

// runStream shows how long the stream of a case is kept.
func runStream(t *testing.T, c *golden) outcome {
	return job{build: func(ssc *tidemill.StreamingContext, _ *recorder) error {
		byName(c, "stream", streams)(tidetest.Script(ssc, "in", [][]int64{{1}}))
		return nil
	}, also: func(t *testing.T, run *tidetest.Running, o outcome) {
		run.Advance(2)
		if err := run.Err(); err != nil {
			t.Error(err)
		}
		for _, s := range run.Context().Remembered() {
			if s.Name == "state" {
				o.add("result", "kept for %d ms, held %d", s.Remember.Milliseconds(), len(s.Held))
			}
		}
	}}.run(t, c)
}

// keptForABatch is the result of that: nothing but the running batch, whatever
// interval is asked for.
func keptForABatch(c *golden) outcome {
	return outcome{"result": {fmt.Sprintf("kept for %d ms, held 1", c.BatchMS)}}
}
