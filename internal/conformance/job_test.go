package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/tidetest"
)

// epoch is when the clock of a bubble starts, which is 0 on that of a case.
var epoch = tidemill.BatchTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())

// caseTime turns a batch time into one of the case.
func caseTime(t tidemill.BatchTime) int64 { return int64(t - epoch) }

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// recorder keeps what the outputs of a job got. Build runs once in the driver
// and once in every executor; all of them record here.
type recorder struct {
	c *golden
	// hold runs before an output is recorded, and may keep it until ctx ends;
	// nil holds nothing.
	hold func(ctx context.Context, output string, at int64) error

	mu   sync.Mutex
	outs map[string][]entry
}

func newRecorder(c *golden) *recorder { return &recorder{c: c, outs: map[string][]entry{}} }

// watch declares an output that is recorded.
func watch[T any](r *recorder, d tidemill.DStream[T], name string) {
	tidemill.ForeachBatch(d, name, func(ctx context.Context, b *tidemill.Batch[T]) error {
		parts, err := b.CollectPartitions(ctx)
		if err != nil {
			return err
		}
		e := entryOf(b.Time(), parts, r.c.Order == "multiset")
		if r.hold != nil {
			if err := r.hold(ctx, name, e.TimeMS); err != nil {
				return err
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.outs[name] = append(r.outs[name], e)
		return nil
	})
}

// of returns what an output got.
func (r *recorder) of(output string) []entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.outs[output])
}

func entryOf[T any](at tidemill.BatchTime, parts [][]T, sort bool) entry {
	n := len(parts)
	e := entry{TimeMS: caseTime(at), Count: &n, Records: trees(slices.Concat(parts...), sort)}
	for _, p := range parts {
		e.Partitions = append(e.Partitions, trees(p, sort))
	}
	return e
}

func entries[T any](out *tidetest.Capture[T], sort bool) []entry {
	var es []entry
	for _, b := range out.Batches() {
		es = append(es, entryOf(b.Time, b.Partitions, sort))
	}
	return es
}

// input is the scripted source i of a case.
func input[T any](ssc *tidemill.StreamingContext, c *golden, i int) tidemill.DStream[T] {
	return tidetest.Script(ssc, fmt.Sprintf("in%d", i), batchesOf[T](c, i), int(c.num("input_partitions", 2)))
}

// listener keeps what happened to batches.
type listener struct {
	mu        sync.Mutex
	failedAt  []int64 // one entry per failed output
	errs      []error // of them
	completed []tidemill.BatchInfo
}

func (l *listener) OnOutputCompleted(o tidemill.OutputInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.Err != nil {
		l.failedAt, l.errs = append(l.failedAt, caseTime(o.Time)), append(l.errs, o.Err)
	}
}

func (l *listener) OnBatchCompleted(b tidemill.BatchInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.completed = append(l.completed, b)
}

// job runs the graph that build makes of a case.
type job struct {
	build func(ssc *tidemill.StreamingContext, r *recorder) error
	// onFailure is what a failed batch does: stop, as Spark's awaitTermination
	// does, or continue.
	onFailure string
	// also runs after the last batch, in the bubble.
	also func(t *testing.T, run *tidetest.Running, o outcome)
	// read adds what the family looks at beside outputs and errors.
	read func(l *listener, o outcome)
}

// run runs the batches of a case.
func (j job) run(t *testing.T, c *golden) outcome {
	o := outcome{}
	tidetest.Run(t, func(t *testing.T) {
		r := newRecorder(c)
		l := &listener{}
		run := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{
				BatchInterval: millis(c.BatchMS), MaxTaskFailures: 1,
				OnBatchFailure: j.onFailure, CatchUp: "all",
			},
			Build:     func(ssc *tidemill.StreamingContext) error { return j.build(ssc, r) },
			Listeners: []any{l},
		})
		run.Advance(c.Batches)
		for _, name := range []string{"output", "output2", snapshots} {
			o.outputs(name, c, r.of(name))
		}
		err := run.Err()
		switch {
		case err != nil && len(l.failedAt) == 0:
			t.Errorf("the job failed, but no output did: %v", err)
		case err != nil:
			o.add("error", "run %d", l.failedAt[0])
		case j.onFailure != "continue" && len(l.failedAt) > 0:
			t.Errorf("an output failed at %d, but the job did not", l.failedAt[0])
		}
		if j.also != nil {
			j.also(t, run, o)
		}
		if j.read != nil {
			j.read(l, o)
		}
	})
	return o
}

// Functions that the cases name.

func sum64(a, b int64) int64  { return a + b }
func diff64(a, b int64) int64 { return a - b }
func max64(a, b int64) int64  { return max(a, b) }
func double(v int64) int64    { return 2 * v }
func even(v int64) bool       { return v%2 == 0 }

// pair is the keyed record of the cases.
type pair = tidemill.Pair[string, int64]

// byName looks a function of a case up.
func byName[F any](c *golden, param string, known map[string]F) F {
	f, ok := known[c.str(param)]
	if !ok {
		panic(fmt.Sprintf("case %s: %s %q is not known", c.Name, param, c.str(param)))
	}
	return f
}
