package conformance

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
)

// table is a case of arithmetic: the last column is the result.
func (c *golden) table() [][]any {
	var rows [][]any
	c.get("rows", &rows)
	return rows
}

// timerStep is the calls that a timer had made when the clock came to a value.
type timerStep struct {
	clock int64
	calls []int64
}

func (c *golden) timerSteps() []timerStep {
	var raw [][]json.RawMessage
	c.get("steps_clock_and_calls_so_far", &raw)
	var steps []timerStep
	for _, r := range raw {
		var s timerStep
		if unmarshal(r[0], &s.clock) != nil || unmarshal(r[1], &s.calls) != nil {
			panic("case " + c.Name + ": steps")
		}
		steps = append(steps, s)
	}
	return steps
}

func (o outcome) timer(steps []timerStep, stopped int64, all []int64) {
	for _, s := range steps {
		o.add("steps", "clock %d calls %s", s.clock, text(s.calls))
	}
	o.add("stop", "returned %d, all calls %s", stopped, text(all))
}

func sparkTime(c *golden) outcome {
	o := outcome{}
	if c.Op == "timer_run" {
		var stopped int64
		var all []int64
		c.get("stop_returned", &stopped)
		c.get("all_calls", &all)
		o.timer(c.timerSteps(), stopped, all)
		return o
	}
	for _, row := range c.table() {
		if _, ok := row[len(row)-1].(map[string]any); ok {
			row[len(row)-1] = "error"
		}
		o.add("rows", "%s", text(row))
	}
	return o
}

func runTime(t *testing.T, c *golden) outcome {
	o := outcome{}
	if c.Op == "timer_run" {
		runTimer(c, o)
		return o
	}
	for _, row := range c.table() {
		var a []int64
		for _, v := range row[:len(row)-1] {
			a = append(a, number(v.(json.Number)))
		}
		row[len(row)-1] = arithmetic(t, c, a)
		o.add("rows", "%s", text(row))
	}
	return o
}

func arithmetic(t *testing.T, c *golden, a []int64) any {
	at := base.BatchTime(a[0])
	switch c.Op {
	case "time_floor":
		return at.Floor(millis(a[1]))
	case "time_floor_with_zero":
		return at.FloorFrom(millis(a[1]), base.BatchTime(a[2]))
	case "is_multiple_of":
		return base.IsMultiple(millis(a[0]), millis(a[1]))
	case "time_until":
		return append([]base.BatchTime{}, at.Until(base.BatchTime(a[1]), millis(a[2]))...)
	case "time_to":
		return append([]base.BatchTime{}, at.Through(base.BatchTime(a[1]), millis(a[2]))...)
	case "timer_start_time":
		return at.NextBoundary(millis(a[1]), 0)
	case "timer_restart_time":
		return at.NextBoundary(millis(a[1]), base.BatchTime(a[2]))
	}
	t.Fatalf("operation %q is not known", c.Op)
	return nil
}

// runTimer drives the core of the batch generator, which is what our timer is,
// with the clock of the case.
func runTimer(c *golden, o outcome) {
	period := c.num("period_ms", 0)
	before := base.BatchTime(c.num("start_ms", 0) - period)
	gen := driver.NewGenerator(millis(period), 1, driver.CatchUpAll, nil, before)
	calls := []int64{}
	var steps []timerStep
	for _, s := range c.timerSteps() {
		for {
			step := gen.Next(base.BatchTime(s.clock))
			if !step.Ready {
				break
			}
			gen.Planned(step.Plan)
			gen.Done()
			calls = append(calls, int64(step.Plan))
		}
		steps = append(steps, timerStep{s.clock, slices.Clone(calls)})
	}
	// A stop asks for nothing more, whether it interrupts or not.
	o.timer(steps, int64(gen.Last()), calls)
}

// noExtraTicks is what we do when a stop does not interrupt the timer: what
// had been called when stop was called is all.
func noExtraTicks(c *golden) outcome {
	o := outcome{}
	steps := c.timerSteps()
	calls := steps[len(steps)-1].calls
	o.timer(steps, calls[len(calls)-1], calls)
	return o
}

// zeroHasNoMultiples is the table with false where Spark divides by zero.
func zeroHasNoMultiples(c *golden) outcome {
	o := outcome{}
	for _, row := range c.table() {
		if number(row[1].(json.Number)) == 0 {
			row[2] = false
		}
		o.add("rows", "%s", text(row))
	}
	return o
}
