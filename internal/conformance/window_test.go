package conformance

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/tidemill/tidemill"
)

func runWindow(t *testing.T, c *golden) outcome {
	w, s := millis(c.WindowMS), millis(c.SlideMS)
	return job{build: func(ssc *tidemill.StreamingContext, r *recorder) error {
		switch c.Op {
		case "reduceByKeyAndWindow", "reduceByKeyAndWindow_max":
			watch(r, tidemill.ReduceByKeyAndWindow(input[pair](ssc, c, 0), "reduced", reducer(c), nil, w, s), "output")
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

// nested returns the window and slide of a parameter that holds both.
func (c *golden) nested(param string) (window, slide time.Duration) {
	p := c.Params[param].(map[string]any)
	return millis(number(p["window_ms"].(json.Number))), millis(number(p["slide_ms"].(json.Number)))
}
