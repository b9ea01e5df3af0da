package conformance

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/rdd"
)

func runStateless(t *testing.T, c *golden) outcome {
	return job{build: func(ssc *tidemill.StreamingContext, r *recorder) error {
		switch c.Op {
		case "groupByKey", "reduceByKey", "combineByKey", "mapValues", "flatMapValues", "reduceByKey+filter":
			return keyed(r, c, input[pair](ssc, c, 0))
		case "flatMap+reduceByKey":
			words := tidemill.FlatMap(input[string](ssc, c, 0), func(s string) iter.Seq[string] { return strings.SplitSeq(s, " ") })
			ones := tidemill.Map(words, func(w string) pair { return tidemill.KV(w, int64(1)) })
			watch(r, tidemill.ReduceByKey(ones, sum64), "output")
			return nil
		}
		return unkeyed(r, c, input[int64](ssc, c, 0))
	}}.run(t, c)
}

func unkeyed(r *recorder, c *golden, in tidemill.DStream[int64]) error {
	switch c.Op {
	case "map":
		if c.str("fn") == "to_string" {
			watch(r, tidemill.Map(in, func(v int64) string { return strconv.FormatInt(v, 10) }), "output")
			return nil
		}
		watch(r, tidemill.Map(in, byName(c, "fn", map[string]func(int64) int64{"x*2": double})), "output")
	case "filter":
		watch(r, tidemill.Filter(in, byName(c, "fn", map[string]func(int64) bool{
			"even": even, "false": func(int64) bool { return false },
		})), "output")
	case "flatMap":
		watch(r, tidemill.FlatMapSlice(in, byName(c, "fn", map[string]func(int64) []int64{
			"[x,x*2]":                    func(v int64) []int64 { return []int64{v, 2 * v} },
			"x_repeated_(x_mod_3)_times": func(v int64) []int64 { return slices.Repeat([]int64{v}, int((v%3+3)%3)) },
		})), "output")
	case "glom":
		watch(r, tidemill.Glom(in), "output")
	case "mapPartitions":
		watch(r, tidemill.MapPartitions(in, byName(c, "fn", map[string]func(*tidemill.Task, iter.Seq[int64], func(int64) bool) error{
			"sum":              sumOfPartition,
			"count_if_nonzero": countOfPartition,
		})), "output")
	case "repartition":
		watch(r, tidemill.Repartition(in, int(c.num("to", 0))), "output")
	case "count":
		watch(r, tidemill.Count(in), "output")
	case "countByValue":
		watch(r, tidemill.CountByValue(in), "output")
	case "reduce":
		watch(r, tidemill.Reduce(in, reducer(c)), "output")
	case "transform":
		transform(r, c, in)
	default:
		return fmt.Errorf("operation %q is not known", c.Op)
	}
	return nil
}

func reducer(c *golden) func(a, b int64) int64 {
	return byName(c, "fn", map[string]func(a, b int64) int64{"sum": sum64, "max": max64})
}

func sumOfPartition(_ *tidemill.Task, in iter.Seq[int64], emit func(int64) bool) error {
	var sum int64
	for v := range in {
		sum += v
	}
	emit(sum)
	return nil
}

func countOfPartition(_ *tidemill.Task, in iter.Seq[int64], emit func(int64) bool) error {
	var n int64
	for range in {
		n++
	}
	if n > 0 {
		emit(n)
	}
	return nil
}

func transform(r *recorder, c *golden, in tidemill.DStream[int64]) {
	if c.str("fn") == "(batch_time_ms,x)" {
		watch(r, tidemill.Transform(in, func(x tidemill.RDD[int64], at tidemill.BatchTime) (tidemill.RDD[tidemill.Pair[int64, int64]], error) {
			return rdd.Map(x, func(v int64) tidemill.Pair[int64, int64] { return tidemill.KV(caseTime(at), v) }), nil
		}), "output")
		return
	}
	f := byName(c, "fn", map[string]func(tidemill.RDD[int64]) tidemill.RDD[int64]{
		"identity": func(x tidemill.RDD[int64]) tidemill.RDD[int64] { return x },
		"sort_descending": func(x tidemill.RDD[int64]) tidemill.RDD[int64] {
			return rdd.Sort(x, func(a, b int64) int { return cmp.Compare(b, a) })
		},
		"one_record_with_count": rdd.Count[int64],
		"null":                  func(tidemill.RDD[int64]) tidemill.RDD[int64] { return tidemill.RDD[int64]{} },
	})
	watch(r, tidemill.Transform(in, func(x tidemill.RDD[int64], _ tidemill.BatchTime) (tidemill.RDD[int64], error) {
		return f(x), nil
	}), "output")
}

func keyed(r *recorder, c *golden, in tidemill.DStream[pair]) error {
	switch c.Op {
	case "groupByKey":
		watch(r, tidemill.GroupByKey(in), "output")
	case "reduceByKey":
		watch(r, tidemill.ReduceByKey(in, reducer(c), placed(c)...), "output")
	case "combineByKey":
		watch(r, tidemill.CombineByKey(in, byName(c, "fn", map[string]func(int64) tidemill.Joined[int64, int64]{
			"sum_count": func(v int64) tidemill.Joined[int64, int64] { return both(v, 1) },
		}), func(s tidemill.Joined[int64, int64], v int64) tidemill.Joined[int64, int64] {
			return both(s.Left+v, s.Right+1)
		}, func(a, b tidemill.Joined[int64, int64]) tidemill.Joined[int64, int64] {
			return both(a.Left+b.Left, a.Right+b.Right)
		}), "output")
	case "mapValues":
		watch(r, tidemill.MapValues(in, byName(c, "fn", map[string]func(int64) int64{
			"v+10": func(v int64) int64 { return v + 10 },
		})), "output")
	case "flatMapValues":
		watch(r, tidemill.FlatMapValues(in, byName(c, "fn", map[string]func(int64) iter.Seq[int64]{
			"[v,v+10]": func(v int64) iter.Seq[int64] { return slices.Values([]int64{v, v + 10}) },
		})), "output")
	case "reduceByKey+filter":
		keep := byName(c, "fn", map[string]func(pair) bool{"sum, v!=0": func(p pair) bool { return p.Value != 0 }})
		watch(r, tidemill.Filter(tidemill.ReduceByKey(in, sum64), keep), "output")
	}
	return nil
}

// both makes the tuple (a, b).
func both(a, b int64) tidemill.Joined[int64, int64] {
	return tidemill.Joined[int64, int64]{Left: a, Right: b}
}
