package conformance

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/tidetest"
)

// slice is a question about a stream and its answer.
type slice struct {
	FromMS int64   `json:"from_ms"`
	ToMS   int64   `json:"to_ms"`
	RDDs   [][]any `json:"rdds"`
}

// slices returns what is asked after the last batch. Where Spark failed before
// it had an answer, all batches are asked for.
func (c *golden) slices() []slice {
	var s []slice
	if c.Op == "slice" && !c.get("slices", &s) {
		s = append(s, slice{FromMS: c.BatchMS, ToMS: int64(max(1, c.Batches)) * c.BatchMS})
	}
	return s
}

func (o outcome) slice(c *golden, s slice) {
	sets := [][]any{}
	for _, set := range s.RDDs {
		sets = append(sets, ordered(c, set))
	}
	o.add("slices", "%d..%d %s", s.FromMS, s.ToMS, text(sets))
}

// remembered tells how long a stream keeps its data sets.
type remembered struct {
	RememberMS   int64   `json:"remember_ms"`
	SlideMS      int64   `json:"slide_ms"`
	CheckpointMS *int64  `json:"checkpoint_ms"`
	Held         []int64 `json:"held_times_ms"`
}

func (o outcome) remembered(name string, r remembered) {
	o.add("remembered "+name, "remember %d slide %d checkpoint %s held %s", r.RememberMS, r.SlideMS, text(r.CheckpointMS), text(r.Held))
}

func sparkSliceRemember(c *golden) outcome {
	o := outcome{}
	o.outputs("output", c, c.Output)
	if f := c.failed(); f != nil {
		o.add("error", "%s", f.Phase)
		return o
	}
	for _, s := range c.slices() {
		o.slice(c, s)
	}
	var all map[string]remembered
	c.get("remembered", &all)
	for name, r := range all {
		o.remembered(name, r)
	}
	return o
}

func runSliceRemember(t *testing.T, c *golden) outcome {
	if c.Op == "remember" {
		return runRemember(t, c)
	}
	var asked *tidemill.DStream[int64]
	build := func(ssc *tidemill.StreamingContext, r *recorder) error {
		if c.has("remember_ms") {
			ssc.Remember(millis(c.num("remember_ms", 0)))
		}
		d := input[int64](ssc, c, 0)
		if c.WindowMS > 0 {
			d = tidemill.Window(d, millis(c.WindowMS), millis(c.SlideMS))
		}
		if asked == nil { // executors build the graph too
			asked = &d
		}
		watch(r, d, "output")
		return nil
	}
	if c.Batches == 0 {
		return sliceBeforeStart(t, c, build, &asked)
	}
	return job{build: build, also: func(t *testing.T, _ *tidetest.Running, o outcome) {
		for _, s := range c.slices() {
			sets, err := tidemill.Slice(*asked, epoch+tidemill.BatchTime(s.FromMS), epoch+tidemill.BatchTime(s.ToMS))
			if err != nil {
				o.add("error", "setup")
				return
			}
			s.RDDs = nil
			for _, set := range sets {
				records, err := set.Collect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s.RDDs = append(s.RDDs, trees(records, true))
			}
			o.slice(c, s)
		}
	}}.run(t, c)
}

func sliceBeforeStart(t *testing.T, c *golden, build func(*tidemill.StreamingContext, *recorder) error, asked **tidemill.DStream[int64]) outcome {
	o := outcome{}
	tidetest.Run(t, func(t *testing.T) {
		r := newRecorder(c)
		if _, err := tidetest.New(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error { return build(ssc, r) }}); err != nil {
			t.Fatal(err)
		}
		if _, err := tidemill.Slice(**asked, epoch, epoch+tidemill.BatchTime(c.BatchMS)); err != nil {
			o.add("error", "setup")
		}
	})
	return o
}

// remembering are the graphs of the cases about what is kept: the streams in
// the order of declaration, and what makes them.
var remembering = map[string]struct {
	names []string
	build func(c *golden, ssc *tidemill.StreamingContext, r *recorder)
}{
	"input -> map(x*2) -> window(window_ms, slide_ms) -> output": {[]string{"input", "map", "window"}, func(c *golden, ssc *tidemill.StreamingContext, r *recorder) {
		watch(r, tidemill.Window(tidemill.Map(input[int64](ssc, c, 0), double), millis(c.WindowMS), millis(c.SlideMS)), "shown")
	}},
	"input pairs -> updateStateByKey(sum), checkpoint interval given -> output": {[]string{"input", "state"}, func(c *golden, ssc *tidemill.StreamingContext, r *recorder) {
		watch(r, tidemill.UpdateStateByKey(input[pair](ssc, c, 0), "state", sumState), "shown")
	}},
	"input pairs -> reduceByKeyAndWindow(sum, diff) -> output": {[]string{"input", "window"}, func(c *golden, ssc *tidemill.StreamingContext, r *recorder) {
		watch(r, tidemill.ReduceByKeyAndWindow(input[pair](ssc, c, 0), "window", sum64, diff64, millis(c.WindowMS), millis(c.SlideMS)), "shown")
	}},
}

func runRemember(t *testing.T, c *golden) outcome {
	graph := byName(c, "graph", remembering)
	return job{build: func(ssc *tidemill.StreamingContext, r *recorder) error {
		if d := c.num("context_remember_ms", 0); d > 0 {
			ssc.Remember(millis(d))
		}
		graph.build(c, ssc, r)
		return nil
	}, also: func(t *testing.T, run *tidetest.Running, o outcome) {
		all := run.Context().Remembered()
		if len(all) != len(graph.names) {
			t.Fatalf("the graph has %d streams, want %v", len(all), graph.names)
		}
		for i, s := range all {
			r := remembered{RememberMS: s.Remember.Milliseconds(), SlideMS: s.Slide.Milliseconds(), Held: []int64{}}
			for _, at := range s.Held {
				r.Held = append(r.Held, caseTime(at))
			}
			o.remembered(graph.names[i], r)
		}
	}}.run(t, c)
}

// onlyTheLast is what we keep of streams that state is made of: the newest
// data set, for the outputs of its batch.
func onlyTheLast(c *golden) outcome {
	o := outcome{}
	var all map[string]remembered
	c.get("remembered", &all)
	for name, r := range all {
		o.remembered(name, remembered{RememberMS: r.SlideMS, SlideMS: r.SlideMS, Held: []int64{c.end() - c.end()%r.SlideMS}})
	}
	return o
}

// slicesOfBatches is what we answer: the batches that were run, which are
// those that the output saw. Both ends are floored to the slide.
func slicesOfBatches(c *golden) outcome {
	o := outcome{}
	o.outputs("output", c, c.Output)
	slide := time.Duration(max(c.SlideMS, c.BatchMS)) * time.Millisecond
	for _, s := range c.slices() {
		from, to := tidemill.BatchTime(s.FromMS).Floor(slide), tidemill.BatchTime(s.ToMS).Floor(slide)
		s.RDDs = nil
		for _, e := range c.Output {
			if at := tidemill.BatchTime(e.TimeMS); at >= from && at <= to {
				s.RDDs = append(s.RDDs, slices.Clone(e.Records))
			}
		}
		o.slice(c, s)
	}
	return o
}
