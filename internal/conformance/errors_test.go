package conformance

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/tidetest"
)

// sparkError reads where something failed, the facts besides, and the state of
// the context.
func sparkError(c *golden) outcome {
	o := outcome{}
	if f := c.failed(); f != nil {
		o.add("error", "%s", f.Phase)
	}
	var result any
	if c.get("result", &result) {
		if facts, ok := result.(map[string]any); ok {
			delete(facts, "first_error") // a class of Spark's
		}
		o.add("result", "%s", text(result))
	}
	var state string
	c.get("context_state_after", &state)
	o.add("state", "%s", state)
	return o
}

// ourWords are what our errors say for the part of Spark's text that is worth
// keeping, where it is not the same but for capital letters.
var ourWords = map[string]string{
	"must be multiple":                         "must be a multiple",
	"Failed to read checkpoint from directory": "none of 1 snapshots can be used",
	"Remember duration already set as":         "Remember: duration already set as",
	"Cannot change storage level of a DStream after streaming context has started": "cannot change the storage level of stream",
	"Cannot stop StreamingContext within listener bus thread":                      "cannot stop the StreamingContext within a listener's call",
}

// scene is a case of the errors family while it runs.
type scene struct {
	t   *testing.T
	c   *golden
	ssc *tidemill.StreamingContext // the one whose state is asked for
	l   *listener

	first *tidemill.DStream[int64] // the input of the context's own graph
	phase string                   // where it failed first
	err   error
	says  []string // values that the error must name
	asked string   // state of ssc, if the case asked before the end
	// options change what contexts get from their surroundings.
	options []tidemill.ContextOption
	result  any
}

func runError(t *testing.T, c *golden) outcome {
	var what string
	c.get("what", &what)
	act, ok := scenes()[what]
	if !ok {
		t.Fatalf("%q is not known", what)
	}
	o := outcome{}
	tidetest.Run(t, func(t *testing.T) {
		s := &scene{t: t, c: c, l: &listener{}}
		act(s)
		if s.err != nil {
			o.add("error", "%s", s.phase)
			s.checkText()
		}
		if s.result != nil {
			o.add("result", "%s", text(s.result))
		}
		o.add("state", "%s", s.state())
	})
	return o
}

// checkText checks that our error names the values and, where Spark fails too,
// holds the words that are worth keeping.
func (s *scene) checkText() {
	says := s.says
	if f := s.c.failed(); f != nil && f.Contains != "" {
		words, ok := ourWords[f.Contains]
		if !ok {
			words = f.Contains
		}
		says = append(says, words)
	}
	for _, words := range says {
		if !strings.Contains(strings.ToLower(s.err.Error()), strings.ToLower(words)) {
			s.t.Errorf("the error does not say %q: %v", words, s.err)
		}
	}
}

// state is that of the context; a graph that was refused has none, and nothing
// was started.
func (s *scene) state() string {
	if s.ssc == nil {
		return tidemill.Initialized.String()
	}
	if s.asked != "" {
		return s.asked
	}
	return s.ssc.State().String()
}

// fail notes an error and where it came.
func (s *scene) fail(phase string, err error) bool {
	if err != nil && s.err == nil {
		s.phase, s.err = phase, err
	}
	return err != nil
}

// make builds a context, which ends with the test.
func (s *scene) make(build func(ssc *tidemill.StreamingContext) error) *tidemill.StreamingContext {
	ssc, err := tidetest.New(s.t, tidetest.Job{
		Config:    tidemill.Config{BatchInterval: millis(s.c.BatchMS), MaxTaskFailures: 1, OnBatchFailure: "continue"},
		Build:     build,
		Listeners: []any{s.l},
		Options:   s.options,
	})
	if s.fail("build", err) {
		return nil
	}
	s.t.Cleanup(func() {
		if _, err := ssc.Stop(s.t.Context(), false); err != nil {
			s.t.Error(err)
		}
	})
	return ssc
}

// build makes the context of the case.
func (s *scene) build(build func(ssc *tidemill.StreamingContext) error) bool {
	s.ssc = s.make(build)
	return s.ssc != nil
}

// start starts it.
func (s *scene) start(phase string) bool { return !s.fail(phase, s.ssc.Start(s.t.Context())) }

func (s *scene) stop() {
	if _, err := s.ssc.Stop(s.t.Context(), false); err != nil {
		s.t.Error(err)
	}
}

// batches lets n batches pass and notes the first failure of an output.
func (s *scene) batches(n int) {
	pass(time.Duration(n) * millis(s.c.BatchMS))
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if len(s.l.errs) > 0 {
		s.fail("run", s.l.errs[0])
	}
}

// runs builds, starts, and lets n batches pass.
func (s *scene) runs(n int, build func(ssc *tidemill.StreamingContext) error) {
	if s.build(build) && s.start("start") {
		s.batches(n)
	}
}

// plain is a graph that has nothing wrong with it.
func (s *scene) plain(ssc *tidemill.StreamingContext) error {
	in := s.in(ssc)
	tidemill.Print(in, "print", 1)
	return nil
}

// in is a source with [1,2] [3] [].
func (s *scene) in(ssc *tidemill.StreamingContext) tidemill.DStream[int64] {
	d := tidetest.Script(ssc, "in", [][]int64{{1, 2}, {3}, {}})
	if s.first == nil { // executors build the graph too
		s.first = &d
	}
	return d
}

func (s *scene) window() time.Duration { return millis(s.c.num("window_ms", 0)) }
func (s *scene) slide() time.Duration  { return millis(s.c.num("slide_ms", 0)) }

// print adds an output.
func print[T any](d tidemill.DStream[T]) { tidemill.Print(d, "print", 1) }

// refusedAtBuild is what we do with values that Spark takes at first or for
// good: nothing is built.
func refusedAtBuild(*golden) outcome {
	return outcome{"error": {"build"}, "state": {"INITIALIZED"}}
}

// runsWell is what we do where Spark fails: the job runs.
func runsWell(*golden) outcome { return outcome{"state": {"ACTIVE"}} }

// bothActive is the result of two contexts in one process.
func bothActive(*golden) outcome {
	return outcome{"result": {`{"first":"ACTIVE","second":"ACTIVE"}`}, "state": {"ACTIVE"}}
}

// runsOn is the result of a start that has nothing to fail for, and of another.
func runsOn(*golden) outcome {
	return outcome{"result": {`{"state_after_failed_start":"ACTIVE"}`}, "state": {"ACTIVE"}}
}

// timedOutAtOnce is the result of a timeout that is checked in every batch.
func timedOutAtOnce(c *golden) outcome {
	m := mapState{f: steps["running_sum"], timeout: c.num("timeout_ms", 0), every: c.BatchMS}
	out, _ := m.run(2*c.BatchMS, c.BatchMS, func(at int64) []any {
		if at == c.BatchMS {
			return []any{[]any{"a", num(1)}}
		}
		return nil
	})
	return outcome{"result": {text(outputsOf(out))}, "state": {"ACTIVE"}}
}

// asRecorded is for what does not apply: the case without the thing that does
// not exist here ends in the recorded state and without a failure.
func asRecorded(c *golden) outcome {
	return outcome{"state": sparkError(c)["state"]}
}

var errNotCompiled = errors.New("does not compile")

func jsonOf(v any) any {
	var out any
	if err := unmarshal(json.RawMessage(text(v)), &out); err != nil {
		panic(err)
	}
	return out
}
