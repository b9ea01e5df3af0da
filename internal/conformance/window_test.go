package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
)

func runWindow(t *testing.T, c *golden) outcome {
	w, s := millis(c.WindowMS), millis(c.SlideMS)
	return job{build: func(ssc *tidemill.StreamingContext, r *recorder) error {
		switch c.Op {
		case "reduceByKeyAndWindow", "reduceByKeyAndWindow_max":
			watch(r, tidemill.ReduceByKeyAndWindow(input[pair](ssc, c, 0), "reduced", reducer(c), nil, w, s), "output")
			return nil
		case "reduceByKeyAndWindow_inverse":
			watch(r, tidemill.ReduceByKeyAndWindow(input[pair](ssc, c, 0), "reduced", reducer(c), inverse(c), w, s), "output")
			return nil
		case "reduceByKeyAndWindow_inverse_filter":
			keep := byName(c, "filter", map[string]func(string, int64) bool{"v!=0": func(_ string, v int64) bool { return v != 0 }})
			watch(r, tidemill.ReduceByKeyAndWindow(input[pair](ssc, c, 0), "reduced", reducer(c), inverse(c), w, s, tidemill.WithFilter(keep)), "output")
			return nil
		case "window+reduceByKeyAndWindow_inverse":
			w1, s1 := c.nested("first")
			w2, s2 := c.nested("second")
			first := tidemill.Window(input[pair](ssc, c, 0), w1, s1)
			watch(r, tidemill.ReduceByKeyAndWindow(first, "reduced", reducer(c), inverse(c), w2, s2), "output")
			return nil
		case "countByValueAndWindow":
			watch(r, tidemill.CountByValueAndWindow(input[string](ssc, c, 0), "counted", w, s), "output")
			return nil
		case "groupByKeyAndWindow":
			watch(r, tidemill.GroupByKeyAndWindow(input[pair](ssc, c, 0), w, s), "output")
			return nil
		case "window,window,join":
			slide := millis(c.num("slide_ms", 0))
			left := tidemill.Window(input[pair](ssc, c, 0), millis(c.num("left_window_ms", 0)), slide)
			right := tidemill.Window(input[pair](ssc, c, 1), millis(c.num("right_window_ms", 0)), slide)
			watch(r, tidemill.Join(left, right), "output")
			return nil
		}
		in := input[int64](ssc, c, 0)
		switch c.Op {
		case "window":
			if c.has("slide") {
				s = in.Slide() // left out: that of the parent
			}
			watch(r, tidemill.Window(in, w, s), "output")
		case "window+count":
			watch(r, tidemill.Count(tidemill.Window(in, w, s)), "output")
		case "reduceByWindow":
			watch(r, tidemill.ReduceByWindow(in, "reduced", reducer(c), nil, w, s), "output")
		case "reduceByWindow_inverse":
			watch(r, tidemill.ReduceByWindow(in, "reduced", reducer(c), inverse(c), w, s), "output")
		case "countByWindow":
			watch(r, tidemill.CountByWindow(in, "counted", w, s), "output")
		case "window+window":
			w1, s1 := c.nested("first")
			w2, s2 := c.nested("second")
			watch(r, tidemill.Window(tidemill.Window(in, w1, s1), w2, s2), "output")
		default:
			return fmt.Errorf("operation %q is not known", c.Op)
		}
		return nil
	}}.run(t, c)
}

func inverse(c *golden) func(a, b int64) int64 {
	return byName(c, "inverse", map[string]func(a, b int64) int64{"a-b": diff64})
}

// nested returns the window and slide of a parameter that holds both.
func (c *golden) nested(param string) (window, slide time.Duration) {
	p := c.Params[param].(map[string]any)
	return millis(number(p["window_ms"].(json.Number))), millis(number(p["slide_ms"].(json.Number)))
}

// reducing is a window whose cost does not depend on its length.
type reducing struct {
	window, slide int64
	// every is the slide of its parent.
	every int64
	// in has the pairs of the parent at a time.
	in func(at int64) []any
	// filtered: keys with 0 are not shown, and a key is gone with its last
	// value. Without, a key stays once it was in a window.
	filtered bool
}

// run sums the pairs in (T-window, T] per key, at each slide. lost is the first
// time at which the filter hides a key that has values in the window, end if
// there is none: Spark takes such a key for gone.
func (r reducing) run(end int64) (out []entry, lost int64) {
	var known []any
	lost = end
	for at := r.slide; at <= end; at += r.slide {
		sums := map[any]int64{}
		for t := at - r.window + r.every; t <= at; t += r.every {
			for _, p := range r.in(t) {
				if _, ok := sums[key(p)]; !ok && !slices.Contains(known, key(p)) {
					known = append(known, key(p))
				}
				sums[key(p)] += number(value(p).(json.Number))
			}
		}
		e := entry{TimeMS: at, Records: []any{}}
		for _, k := range known {
			sum, here := sums[k]
			switch {
			case sum != 0 || !r.filtered:
				e.Records = append(e.Records, []any{k, num(sum)})
			case here:
				lost = min(lost, at)
			}
		}
		out = append(out, e)
	}
	return out, lost
}

// reducingOf is the model of a case that reduces windows with an inverse.
func reducingOf(c *golden) (r reducing, ok bool) {
	r = reducing{window: c.WindowMS, slide: c.SlideMS, every: c.BatchMS, in: c.records}
	pairs := func(f func(v any) any) func(at int64) []any {
		return func(at int64) []any {
			var out []any
			for _, v := range c.records(at) {
				out = append(out, f(v))
			}
			return out
		}
	}
	switch c.Op {
	case "reduceByKeyAndWindow_inverse":
	case "reduceByKeyAndWindow_inverse_filter":
		r.filtered = true
	case "reduceByWindow_inverse":
		r.in = pairs(func(v any) any { return []any{nil, v} })
	case "countByWindow":
		r.in = pairs(func(any) any { return []any{nil, num(1)} })
	case "countByValueAndWindow":
		r.in, r.filtered = pairs(func(v any) any { return []any{v, num(1)} }), true
	case "window+reduceByKeyAndWindow_inverse":
		w1, s1 := c.nested("first")
		w2, s2 := c.nested("second")
		r = reducing{window: w2.Milliseconds(), slide: s2.Milliseconds(), every: s1.Milliseconds(), in: func(at int64) []any {
			return inWindow(c, at-w1.Milliseconds(), at, 0)
		}}
	default:
		return r, false
	}
	return r, true
}

// rightWindows is the output of a case that reduces windows with an inverse.
func rightWindows(c *golden) outcome {
	o := outcome{}
	r, _ := reducingOf(c)
	es, _ := r.run(c.end())
	if c.Op == "reduceByWindow_inverse" || c.Op == "countByWindow" {
		for i := range es {
			for j, p := range es[i].Records {
				es[i].Records[j] = value(p)
			}
		}
	}
	o.outputs("output", c, es)
	return o
}

// addsOthers holds if a window is shorter than its slide and Spark's result is
// no reduction of it: with an inverse it adds batches that are not in it.
func addsOthers(c *golden) bool {
	r, ok := reducingOf(c)
	return ok && r.window < r.slide && !cmp.Equal(sparkOutputs(c).clean(), rightWindows(c).clean())
}

// losesKeys holds if Spark fails or goes wrong after a filter has hidden a key
// that has values in the window.
func losesKeys(c *golden) bool {
	r, ok := reducingOf(c)
	if !ok || r.window < r.slide {
		return false
	}
	_, lost := r.run(c.end())
	return lost < c.end() && !cmp.Equal(sparkOutputs(c).clean(), rightWindows(c).clean())
}
