package conformance

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill/driver"
)

// estimate is a call of a rate estimator and what it gave, nil for none.
type estimate struct {
	TimeMS, Records, ProcessingMS, SchedulingMS int64
	Rate                                        *float64
}

func (c *golden) estimates() []estimate {
	var rows [][]json.RawMessage
	c.get("calls", &rows)
	out := make([]estimate, len(rows))
	for i, row := range rows {
		e := &out[i]
		for k, field := range []any{&e.TimeMS, &e.Records, &e.ProcessingMS, &e.SchedulingMS, &e.Rate} {
			if err := unmarshal(row[k], field); err != nil {
				panic("case " + c.Name + ": calls: " + err.Error())
			}
		}
	}
	return out
}

// estimates adds a line per call. The text of a float is one of that float only,
// so that rates must agree to the last bit.
func (o outcome) estimates(es []estimate) {
	for _, e := range es {
		o.add("calls", "at %d: %d records in %d ms after %d ms: %s", e.TimeMS, e.Records, e.ProcessingMS, e.SchedulingMS, text(e.Rate))
	}
}

// refusedFor names the parameter that an estimator was refused for. A message
// that names none stands for itself and agrees with no other.
func refusedFor(message string) string {
	for _, name := range []string{"batch interval", "proportional", "integral", "derivative", "minimum rate"} {
		if strings.Contains(strings.ToLower(message), name) {
			return name
		}
	}
	return message
}

func sparkRate(c *golden) outcome {
	o := outcome{}
	if f := c.failed(); f != nil {
		o.add("refused", "%s", refusedFor(f.Contains))
	}
	o.estimates(c.estimates())
	return o
}

func runRate(_ *testing.T, c *golden) outcome {
	o := outcome{}
	e, err := driver.NewRateEstimator(millis(c.num("batch_ms", 0)), driver.RateConfig{
		Proportional: c.real("proportional"), Integral: c.real("integral"), Derivative: c.real("derivative"),
		Min: c.real("min_rate"),
	})
	if err != nil {
		o.add("refused", "%s", refusedFor(err.Error()))
		return o
	}
	calls := c.estimates()
	for i := range calls {
		call := &calls[i]
		call.Rate = nil
		rate, ok := e.Estimate(time.UnixMilli(call.TimeMS), call.Records, millis(call.ProcessingMS), millis(call.SchedulingMS))
		if ok {
			call.Rate = &rate
		}
	}
	o.estimates(calls)
	return o
}

// real returns a parameter that is a float.
func (c *golden) real(param string) float64 {
	f, err := c.Params[param].(json.Number).Float64()
	if err != nil {
		panic("case " + c.Name + ": parameter " + param + ": " + err.Error())
	}
	return f
}
