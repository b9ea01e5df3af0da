package conformance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemill/tidemill"
)

// completed is a batch that ended.
type completed struct {
	TimeMS  int64      `json:"time_ms"`
	Records int64      `json:"records"`
	Outputs []outputOp `json:"output_ops"`
}

type outputOp struct {
	Op     int  `json:"op"`
	Failed bool `json:"failed"`
}

func (o outcome) completed(b completed) {
	line := fmt.Sprintf("%d records %d", b.TimeMS, b.Records)
	for _, op := range b.Outputs {
		line += fmt.Sprintf(", output %d failed %t", op.Op, op.Failed)
	}
	o.add("completed", "%s", line)
}

func sparkFailure(c *golden) outcome {
	o := outcome{}
	o.outputs("output", c, c.Output)
	o.outputs("output2", c, c.Output2)
	o.outputs(snapshots, c, c.Snapshots)
	var errs []struct {
		TimeMS    int64 `json:"time_ms"`
		Completed bool  `json:"batch_completed"`
	}
	c.get("errors", &errs)
	for _, e := range errs {
		o.add("errors", "%d completed %t", e.TimeMS, e.Completed)
	}
	var batches []completed
	c.get("completed_batches", &batches)
	for _, b := range batches {
		o.completed(b)
	}
	return o
}

// poison is the value at which the function of some cases fails.
const poison = -777

var errBoom = errors.New("boom")

// windowIn finds the window and slide, in seconds, in what a case does.
var windowIn = regexp.MustCompile(`indow\((?:sum, )?(?:diff, )?(\d+),? ?(\d+)\)`)

func windowOf(c *golden) (window, slide int64, ok bool) {
	m := windowIn.FindStringSubmatch(c.str("what"))
	if m == nil {
		return 0, 0, false
	}
	window, _ = strconv.ParseInt(m[1], 10, 64)
	slide, _ = strconv.ParseInt(m[2], 10, 64)
	return window * 1000, slide * 1000, true
}

func runFailure(t *testing.T, c *golden) outcome {
	what := c.str("what")
	bad := epoch + tidemill.BatchTime(c.num("bad_time_ms", 0))
	inTransform := strings.HasPrefix(what, "transform function throws")
	failing := func(in tidemill.DStream[int64]) tidemill.DStream[int64] {
		return failingAt(in, inTransform, bad, func(v int64) int64 { return v })
	}
	pairs := func(ssc *tidemill.StreamingContext) tidemill.DStream[pair] {
		return failingAt(input[pair](ssc, c, 0), inTransform, bad, func(p pair) int64 { return p.Value })
	}
	throw := func(d tidemill.DStream[int64], name string) {
		tidemill.ForeachBatch(d, name, func(_ context.Context, b *tidemill.Batch[int64]) error {
			if b.Time() == bad {
				return errBoom
			}
			return nil
		})
	}
	window, slide, windowed := windowOf(c)
	return job{onFailure: "continue", build: func(ssc *tidemill.StreamingContext, r *recorder) error {
		switch {
		case what == "two outputs; the first throws in batch bad":
			d := tidemill.Map(input[int64](ssc, c, 0), double)
			throw(d, "throws")
			watch(r, d, "output")
		case what == "two outputs; the second throws in batch bad":
			d := tidemill.Map(input[int64](ssc, c, 0), double)
			watch(r, d, "output")
			throw(d, "throws")
		case strings.HasSuffix(what, "then output"):
			watch(r, failing(input[int64](ssc, c, 0)), "output")
		case strings.HasSuffix(what, "then count"):
			watch(r, tidemill.Count(failing(input[int64](ssc, c, 0))), "output")
		case strings.Contains(what, "then reduceByKeyAndWindow(") && windowed:
			var inv func(a, b int64) int64
			if strings.Contains(what, "(sum, diff,") {
				inv = diff64
			}
			watch(r, tidemill.ReduceByKeyAndWindow(pairs(ssc), "reduced", sum64, inv, millis(window), millis(slide)), "output")
		case strings.HasPrefix(what, "union with a stream that has no RDD"):
			both := tidemill.Union(input[pair](ssc, c, 0), input[pair](ssc, c, 1))
			watch(r, tidemill.UpdateStateByKey(both, "state", sumState), "output")
		case strings.Contains(what, "then updateStateByKey(sum)"):
			watch(r, tidemill.UpdateStateByKey(pairs(ssc), "state", sumState), "output")
		case strings.HasSuffix(what, "then mapWithState(running_sum)"):
			mapped(r, c, pairs(ssc), mapping(steps["running_sum"]))
		case strings.Contains(what, "then window(") && windowed:
			watch(r, tidemill.Window(failing(input[int64](ssc, c, 0)), millis(window), millis(slide)), "output")
		case strings.HasSuffix(what, "then output2; output is an independent earlier map"):
			in := input[int64](ssc, c, 0)
			watch(r, tidemill.Map(in, double), "output")
			watch(r, failing(in), "output2")
		default:
			return fmt.Errorf("%q is not known", what)
		}
		return nil
	}, read: func(l *listener, o outcome) {
		for _, b := range l.completed {
			done := completed{TimeMS: caseTime(b.Time), Records: b.Records}
			for _, x := range b.Outputs {
				done.Outputs = append(done.Outputs, outputOp{x.Index, x.Err != nil})
			}
			o.completed(done)
			if b.Err != nil {
				o.add("errors", "%d completed true", done.TimeMS)
			}
		}
	}}.run(t, c)
}

// failingAt fails at the bad time, or on the poisonous value.
func failingAt[T any](in tidemill.DStream[T], inTransform bool, bad tidemill.BatchTime, valueOf func(T) int64) tidemill.DStream[T] {
	if inTransform {
		return tidemill.Transform(in, func(x tidemill.RDD[T], at tidemill.BatchTime) (tidemill.RDD[T], error) {
			if at == bad {
				return x, errBoom
			}
			return x, nil
		})
	}
	return tidemill.Map(in, func(v T) T {
		if valueOf(v) == poison {
			panic(errBoom)
		}
		return v
	})
}
