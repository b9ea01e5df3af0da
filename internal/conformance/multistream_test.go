package conformance

import (
	"fmt"
	"testing"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/rdd"
)

func runMultiStream(t *testing.T, c *golden) outcome {
	return job{build: func(ssc *tidemill.StreamingContext, r *recorder) error {
		switch c.Op {
		case "join", "leftOuterJoin", "rightOuterJoin", "fullOuterJoin", "cogroup", "transformWith_join", "transformWith_subtractByKey":
			left := input[pair](ssc, c, 0)
			if stringValues(c.inputs()[1]) {
				return joined(r, c, left, input[tidemill.Pair[string, string]](ssc, c, 1))
			}
			return joined(r, c, left, input[pair](ssc, c, 1))
		case "map,filter":
			in := input[int64](ssc, c, 0)
			watch(r, tidemill.Map(in, double), "output")
			watch(r, tidemill.Filter(in, even), "output2")
			return nil
		}
		var ins []tidemill.DStream[int64]
		for i := range c.inputs() {
			ins = append(ins, input[int64](ssc, c, i))
		}
		return together(r, c, ins)
	}}.run(t, c)
}

// stringValues tells of what type the values of pairs are.
func stringValues(batches [][]any) bool {
	for _, b := range batches {
		for _, rec := range b {
			_, ok := rec.([]any)[1].(string)
			return ok
		}
	}
	return false
}

func joined[W any](r *recorder, c *golden, left tidemill.DStream[pair], right tidemill.DStream[tidemill.Pair[string, W]]) error {
	hash := rdd.Hash[string](2)
	switch c.Op {
	case "join":
		watch(r, tidemill.Join(left, right), "output")
	case "leftOuterJoin":
		watch(r, tidemill.LeftOuterJoin(left, right), "output")
	case "rightOuterJoin":
		watch(r, tidemill.RightOuterJoin(left, right), "output")
	case "fullOuterJoin":
		watch(r, tidemill.FullOuterJoin(left, right), "output")
	case "cogroup":
		watch(r, tidemill.Cogroup(left, right), "output")
	case "transformWith_join":
		watch(r, tidemill.TransformWith(left, right, func(a tidemill.RDD[pair], b tidemill.RDD[tidemill.Pair[string, W]], _ tidemill.BatchTime) (tidemill.RDD[tidemill.Pair[string, tidemill.Joined[int64, W]]], error) {
			return rdd.Join(a, b, hash), nil
		}), "output")
	case "transformWith_subtractByKey":
		watch(r, tidemill.TransformWith(left, right, func(a tidemill.RDD[pair], b tidemill.RDD[tidemill.Pair[string, W]], _ tidemill.BatchTime) (tidemill.RDD[pair], error) {
			return rdd.SubtractByKey(a, b, hash), nil
		}), "output")
	}
	return nil
}

func together(r *recorder, c *golden, ins []tidemill.DStream[int64]) error {
	switch c.Op {
	case "union", "StreamingContext.union":
		if c.has("streams") && c.str("streams") == "same stream twice" {
			ins = append(ins, ins[0])
		}
		watch(r, tidemill.Union(ins[0], ins[1:]...), "output")
	case "StreamingContext.transform":
		f := byName(c, "fn", map[string]func([]tidemill.RDD[int64]) tidemill.RDD[int64]{
			"union_of_all": func(xs []tidemill.RDD[int64]) tidemill.RDD[int64] { return rdd.UnionOf(xs[0], xs[1:]...) },
		})
		watch(r, tidemill.TransformAll(ins, func(xs []tidemill.RDD[int64], _ tidemill.BatchTime) (tidemill.RDD[int64], error) {
			return f(xs), nil
		}), "output")
	case "transformWith":
		if c.str("fn") == "cartesian" {
			watch(r, tidemill.TransformWith(ins[0], ins[1], func(a, b tidemill.RDD[int64], _ tidemill.BatchTime) (tidemill.RDD[tidemill.Joined[int64, int64]], error) {
				return rdd.Cartesian(a, b), nil
			}), "output")
			return nil
		}
		hash := rdd.Hash[int64](2)
		f := byName(c, "fn", map[string]func(a, b tidemill.RDD[int64]) tidemill.RDD[int64]{
			"union":        func(a, b tidemill.RDD[int64]) tidemill.RDD[int64] { return rdd.UnionOf(a, b) },
			"intersection": func(a, b tidemill.RDD[int64]) tidemill.RDD[int64] { return rdd.Intersection(a, b, hash) },
			"subtract":     func(a, b tidemill.RDD[int64]) tidemill.RDD[int64] { return rdd.Subtract(a, b, hash) },
		})
		watch(r, tidemill.TransformWith(ins[0], ins[1], func(a, b tidemill.RDD[int64], _ tidemill.BatchTime) (tidemill.RDD[int64], error) {
			return f(a, b), nil
		}), "output")
	default:
		return fmt.Errorf("operation %q is not known", c.Op)
	}
	return nil
}
