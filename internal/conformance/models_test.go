package conformance

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// model computes the records of one batch from those of the sources, in the
// plainest way. A source without data set counts as empty.
type model func(c *golden, at int64, ins [][]any) []any

func models() map[string]model {
	return map[string]model{
		"count":     func(_ *golden, _ int64, ins [][]any) []any { return []any{num(int64(len(ins[0])))} },
		"transform": modelTransform,
		"union":     modelUnion, "StreamingContext.union": modelUnion, "StreamingContext.transform": modelUnion,
		"join": modelJoin(false, false), "leftOuterJoin": modelJoin(true, false),
		"rightOuterJoin": modelJoin(false, true), "fullOuterJoin": modelJoin(true, true),
		"transformWith_join": modelJoin(false, false),
		"cogroup":            modelCogroup, "transformWith_subtractByKey": modelSubtract,
	}
}

func modelTransform(c *golden, at int64, ins [][]any) []any {
	switch out := slices.Clone(ins[0]); c.str("fn") {
	case "identity":
		return out
	case "sort_descending":
		slices.SortStableFunc(out, func(a, b any) int { return compareTrees(b, a) })
		return out
	case "(batch_time_ms,x)":
		for i, v := range out {
			out[i] = []any{num(at), v}
		}
		return out
	case "one_record_with_count":
		return []any{num(int64(len(out)))}
	}
	return nil
}

func modelUnion(c *golden, _ int64, ins [][]any) []any {
	if c.str("streams") == "same stream twice" {
		ins = append(ins, ins[0])
	}
	return slices.Concat(ins...)
}

func key(record any) any   { return record.([]any)[0] }
func value(record any) any { return record.([]any)[1] }

// of returns the values of a key.
func of(records []any, k any) []any {
	vs := []any{}
	for _, r := range records {
		if key(r) == k {
			vs = append(vs, value(r))
		}
	}
	return vs
}

func keysOf(ins [][]any) []any {
	var keys []any
	for _, r := range slices.Concat(ins...) {
		if !slices.Contains(keys, key(r)) {
			keys = append(keys, key(r))
		}
	}
	return keys
}

// modelJoin keeps keys that only one side has, if left or right asks for it.
func modelJoin(left, right bool) model {
	return func(_ *golden, _ int64, ins [][]any) []any {
		var out []any
		for _, k := range keysOf(ins) {
			vs, ws := of(ins[0], k), of(ins[1], k)
			if left && len(ws) == 0 {
				ws = []any{nil}
			}
			if right && len(vs) == 0 {
				vs = []any{nil}
			}
			for _, v := range vs {
				for _, w := range ws {
					out = append(out, []any{k, []any{v, w}})
				}
			}
		}
		return out
	}
}

func modelCogroup(_ *golden, _ int64, ins [][]any) []any {
	var out []any
	for _, k := range keysOf(ins) {
		groups := [2][]any{of(ins[0], k), of(ins[1], k)}
		for _, g := range groups {
			slices.SortStableFunc(g, compareTrees)
		}
		out = append(out, []any{k, []any{groups[0], groups[1]}})
	}
	return out
}

func modelSubtract(_ *golden, _ int64, ins [][]any) []any {
	return slices.DeleteFunc(slices.Clone(ins[0]), func(r any) bool { return len(of(ins[1], key(r))) > 0 })
}

// absentAsEmpty is the output of every batch when a source without data set
// counts as empty.
func absentAsEmpty(c *golden) outcome {
	o := outcome{}
	o.outputs("output", c, modelled(c, models()[c.Op]))
	return o
}

func modelled(c *golden, m model) []entry {
	var out []entry
	for i := 1; i <= c.Batches; i++ {
		ins := make([][]any, len(c.inputs()))
		for k, in := range c.inputs() {
			if i <= len(in) {
				ins[k] = in[i-1]
			}
		}
		at := int64(i) * c.BatchMS
		out = append(out, entry{TimeMS: at, Records: append([]any{}, m(c, at, ins)...)})
	}
	return out
}

// withoutFailed is what we do with a batch that fails: what depends on it has
// no output at that time, the batch is completed as failed, and windows that
// reach back to it take its data set as empty.
func withoutFailed(c *golden) outcome {
	o := sparkFailure(c)
	delete(o, "output")
	delete(o, snapshots)
	delete(o, "completed")
	bad := c.num("bad_time_ms", 0)
	_, slide, ok := windowOf(c)
	if !ok {
		slide = c.BatchMS
	}
	o["errors"] = nil
	o.add("errors", "%d completed true", bad)
	out, states := dependent(c, bad)
	var independent []entry
	for i := 1; i <= c.Batches; i++ {
		at := int64(i) * c.BatchMS
		input := c.records(at)
		done := completed{TimeMS: at, Records: int64(len(input))}
		if c.has2() {
			independent = append(independent, entry{TimeMS: at, Records: doubled(input)})
			done.Outputs = append(done.Outputs, outputOp{0, false})
		}
		if at%slide == 0 {
			done.Outputs = append(done.Outputs, outputOp{len(done.Outputs), at == bad})
		}
		if states != nil {
			done.Outputs = append(done.Outputs, outputOp{len(done.Outputs), at == bad})
		}
		o.completed(done)
	}
	o.outputs(snapshots, c, states)
	if !c.has2() {
		o.outputs("output", c, out)
		return o
	}
	delete(o, "output2")
	o.outputs("output", c, independent)
	o.outputs("output2", c, out)
	return o
}

// dependent is the output that depends on what failed: there is none at the
// bad time, and what comes later is as if that batch had been empty.
func dependent(c *golden, bad int64) (out, states []entry) {
	what := c.str("what")
	window, slide, ok := windowOf(c)
	good := func(at int64) []any {
		if at == bad {
			return nil
		}
		return c.records(at)
	}
	switch {
	case strings.Contains(what, "mapWithState"):
		m := mapState{f: steps["running_sum"], bad: bad}
		if out, states = m.run(c.end(), c.BatchMS, c.records); c.Snapshots == nil {
			states = nil
		}
		return out, states
	case strings.Contains(what, "(sum, diff,"):
		out, _ = reducing{window: window, slide: slide, every: c.BatchMS, in: good}.run(c.end())
	default:
		if strings.Contains(what, "updateStateByKey") {
			window = c.end() // sums from the first batch on
		} else if !ok {
			window = c.BatchMS
		}
		for at := int64(0); at <= c.end(); at += max(slide, c.BatchMS) {
			if at > 0 {
				out = append(out, entry{TimeMS: at, Records: inWindow(c, at-window, at, bad)})
			}
		}
	}
	return slices.DeleteFunc(out, func(e entry) bool { return e.TimeMS == bad }), nil
}

// absentUnited is what we do with a source that has no data set at the bad
// time in a union that state is kept of.
func absentUnited(c *golden) outcome {
	o := outcome{}
	var out []entry
	for at := c.BatchMS; at <= c.end(); at += c.BatchMS {
		out = append(out, entry{TimeMS: at, Records: inWindow(c, 0, at, 0)})
		o.completed(completed{TimeMS: at, Records: int64(len(c.records(at))), Outputs: []outputOp{{0, false}}})
	}
	o.outputs("output", c, out)
	return o
}

// has2 reports whether the case has an independent first output.
func (c *golden) has2() bool { return c.Output2 != nil }

func doubled(records []any) []any {
	out := []any{}
	for _, r := range records {
		out = append(out, num(2*number(r.(json.Number))))
	}
	return out
}

// inWindow returns the records of the batches in (after, to] without those of
// the bad one; if the case reduces by key, the sums of their values.
func inWindow(c *golden, after, to, bad int64) []any {
	records := []any{}
	for at := c.BatchMS; at <= to; at += c.BatchMS {
		if at > after && at != bad {
			records = append(records, c.records(at)...)
		}
	}
	switch what := c.str("what"); {
	case strings.Contains(what, "ByKey"):
		return sumsOf(records)
	case strings.HasSuffix(what, "then count"):
		return []any{num(int64(len(records)))}
	}
	return records
}

// sumsOf sums the values of pairs by key.
func sumsOf(records []any) []any {
	var sums []any
	for _, k := range keysOf([][]any{records}) {
		var sum int64
		for _, v := range of(records, k) {
			sum += number(v.(json.Number))
		}
		sums = append(sums, []any{k, num(sum)})
	}
	return sums
}

func num(v int64) json.Number { return json.Number(strconv.FormatInt(v, 10)) }

// TestModelsAgreeWithSpark holds every model against what Spark gave, as far
// as it got, so that a model is no second guess of the engine.
func TestModelsAgreeWithSpark(t *testing.T) {
	dir, _ := goldenDir()
	all := load(t, dir)
	var checked int
	for _, name := range []string{"stateless", "multi_stream"} {
		for _, c := range all[name] {
			m := models()[c.Op]
			if m == nil || c.str("fn") == "null" {
				continue
			}
			checked++
			want, got := outcome{}, outcome{}
			want.outputs("output", c, c.Output)
			got.outputs("output", c, modelled(c, m)[:len(c.Output)])
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: -Spark +model:\n%s", c.Name, diff)
			}
		}
	}
	for _, c := range all["failures"] {
		if later(c) != "" || strings.HasPrefix(c.str("what"), "two outputs") {
			continue
		}
		checked++
		spark, ours := sparkFailure(c), withoutFailed(c)
		if c.AllInputs != nil {
			ours = absentUnited(c)
		}
		for _, name := range []string{"output", "output2", snapshots, "completed"} {
			for _, line := range spark[name] {
				at, _, _ := strings.Cut(line, " ")
				if name == "completed" && (slices.Contains(spark["errors"], at+" completed true") || strings.HasSuffix(line, " records 0")) {
					continue // Spark failed again, or had no output and did not count
				}
				if !slices.Contains(ours[name], line) {
					t.Errorf("%s: %s has no line %s, but %q", c.Name, name, line, ours[name])
				}
			}
		}
	}
	for _, c := range all["slice_remember"] {
		if !asksForFuture(c) {
			continue
		}
		checked++
		spark, ours := sparkSliceRemember(c), slicesOfBatches(c)
		for i, s := range c.slices() {
			if s.ToMS <= int64(c.Batches)*c.BatchMS && spark["slices"][i] != ours["slices"][i] {
				t.Errorf("%s: Spark gave %s, the model %s", c.Name, spark["slices"][i], ours["slices"][i])
			}
		}
	}
	for _, c := range all["file_input"] {
		if c.failed() != nil {
			continue
		}
		checked++
		if diff := cmp.Diff(sparkFiles(c), filesBy(c, true)); diff != "" {
			t.Errorf("%s: -Spark +model of Spark:\n%s", c.Name, diff)
		}
	}
	for _, c := range all["window"] {
		r, ok := reducingOf(c)
		if !ok || r.window < r.slide {
			continue
		}
		checked++
		spark, ours := sparkOutputs(c), rightWindows(c)
		_, lost := r.run(c.end()) // Spark is right as far as this
		if n := lost / r.slide; losesKeys(c) {
			delete(spark, "error")
			spark["output"], ours["output"] = spark["output"][:n], ours["output"][:n]
		}
		if diff := cmp.Diff(spark, ours); diff != "" {
			t.Errorf("%s: -Spark +model:\n%s", c.Name, diff)
		}
	}
	for _, c := range all["recovery"] {
		if c.Op == "checkpoint_files" {
			continue
		}
		checked++
		checkOwed(t, c)
	}
	for _, c := range all["map_with_state"] {
		if _, ok := mapStateOf(c, 0); !ok || c.has("partitioner") {
			continue
		}
		checked++
		if diff := cmp.Diff(sparkMapWithState(c), mapStateBy(c, checkInterval(c))); diff != "" {
			t.Errorf("%s: -Spark +model of Spark:\n%s", c.Name, diff)
		}
	}
	if checked == 0 {
		t.Error("no case has a model")
	}
}
