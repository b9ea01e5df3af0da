package driver

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/tidemill/tidemill/internal/base"
)

// RateConfig says how the rate of the sources follows what the job can do.
// Rates are records per second and stream. The zero value is off.
type RateConfig struct {
	On      bool
	Initial float64 // holds until the first estimate; 0 is none
	Max     float64 // no rate is above it, whatever Initial and Min are; 0 is no limit

	// What an estimate changes for the distance to the speed of the last batch,
	// for what waits, and for how fast the distance changes.
	Proportional, Integral, Derivative float64
	Min                                float64 // no estimate is below it
}

// Validate returns an error that names the first field whose value breaks its
// rule. What is off breaks none.
func (c RateConfig) Validate() error {
	if !c.On {
		return nil
	}
	for _, f := range []struct {
		name string
		v    float64
	}{{"initial rate", c.Initial}, {"maximum rate", c.Max}} {
		if !(f.v >= 0) || math.IsInf(f.v, 1) {
			return fmt.Errorf("driver: rate control: %s is %v: must be 0 (none) or a positive number", f.name, f.v)
		}
	}
	return c.checkEstimator()
}

func (c RateConfig) checkEstimator() error {
	for _, f := range []struct {
		name string
		v    float64
	}{{"proportional weight", c.Proportional}, {"integral weight", c.Integral}, {"derivative weight", c.Derivative}} {
		if !(f.v >= 0) || math.IsInf(f.v, 1) {
			return fmt.Errorf("driver: rate control: %s is %v: must be 0 or a positive number", f.name, f.v)
		}
	}
	if !(c.Min > 0) || math.IsInf(c.Min, 1) {
		return fmt.Errorf("driver: rate control: minimum rate is %v: must be a positive number", c.Min)
	}
	return nil
}

// RateEstimator estimates how many records per second a stream may give, as
// Spark 4.2's PID estimator does. It is a pure core.
type RateEstimator struct {
	interval time.Duration
	weights  RateConfig

	begun bool
	last  time.Time // of the last batch that counted
	rate  float64
	err   float64 // how far the rate was above the speed of that batch
}

// NewRateEstimator returns an estimator for batches of the given interval. Of
// the settings it uses the weights and Min.
func NewRateEstimator(interval time.Duration, c RateConfig) (*RateEstimator, error) {
	if err := base.CheckInterval("driver: rate control: batch interval", interval); err != nil {
		return nil, err
	}
	if err := c.checkEstimator(); err != nil {
		return nil, err
	}
	// Spark begins one millisecond before the epoch.
	return &RateEstimator{interval: interval, weights: c, last: time.UnixMilli(-1)}, nil
}

// Estimate takes in a batch that ended at a time, and returns the rate for
// those to come. The first batch that counts gives none. A batch without
// records says nothing of what the job can do, nor does one that took no time
// or ended no later than the last; it changes nothing, not even what is first.
func (e *RateEstimator) Estimate(ended time.Time, records int64, processing, scheduling time.Duration) (rate float64, ok bool) {
	if !ended.After(e.last) || records <= 0 || processing <= 0 {
		return 0, false
	}
	// In milliseconds and in this order the results are Spark's to the last bit.
	// The conversions of products keep the compiler from fusing them into sums.
	speed := float64(records) / inMillis(processing) * 1000
	off := e.rate - speed
	waiting := inMillis(scheduling) * speed / inMillis(e.interval)
	trend := (off - e.err) / (inMillis(ended.Sub(e.last)) / 1000)
	e.last = ended
	if !e.begun {
		e.begun, e.rate, e.err = true, speed, 0
		return 0, false
	}
	w := e.weights
	next := e.rate - float64(w.Proportional*off) - float64(w.Integral*waiting) - float64(w.Derivative*trend)
	if !(next > w.Min) { // so that not a number is none, either
		next = w.Min
	}
	// Infinity would be read as no limit, and is left by no finite step.
	e.rate, e.err = min(next, math.MaxFloat64), off
	return e.rate, true
}

// inMillis is exact for whole milliseconds.
func inMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Rate is the rate of a stream in records per second. It is positive.
type Rate struct {
	Stream    base.UID
	PerSecond float64
}

// RateControl keeps the rates of several streams. It is a pure core.
type RateControl struct {
	cfg     RateConfig
	streams []*controlled
}

type controlled struct {
	Rate      // 0 while there is none
	estimator *RateEstimator
}

// NewRateControl returns the control of the given streams in batches of the
// given interval. If it is off, no stream ever has a rate.
func NewRateControl(interval time.Duration, cfg RateConfig, streams []base.UID) (*RateControl, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &RateControl{cfg: cfg}
	if !cfg.On {
		return c, nil
	}
	for _, s := range streams {
		e, err := NewRateEstimator(interval, cfg)
		if err != nil {
			return nil, err
		}
		first := cfg.Max
		if cfg.Initial > 0 {
			first = c.capped(cfg.Initial)
		}
		c.streams = append(c.streams, &controlled{Rate{s, first}, e})
	}
	return c, nil
}

// Completed takes in a batch that is done and returns the rates that it
// changes, in the order of the streams. Every stream is measured by its own
// records in the time of the whole batch, so the rates of all fill one batch.
// A batch that failed is no measure: it may have ended before its work was done.
func (c *RateControl) Completed(b BatchInfo) []Rate {
	if b.Err != nil {
		return nil
	}
	records := make(map[base.UID]int64, len(b.Inputs))
	for _, in := range b.Inputs {
		records[in.Stream] = in.Records // -1 if the source does not count
	}
	var changed []Rate
	for _, s := range c.streams {
		r, ok := s.estimator.Estimate(b.Ended, records[s.Stream], b.ProcessingDelay(), b.SchedulingDelay())
		if r = c.capped(r); ok && r != s.PerSecond {
			s.PerSecond = r
			changed = append(changed, s.Rate)
		}
	}
	return changed
}

// Restore takes up the rate that a stream had before the driver was started
// anew; 0 is none.
func (c *RateControl) Restore(r Rate) {
	for _, s := range c.streams {
		if s.Stream == r.Stream && r.PerSecond > 0 {
			s.PerSecond = c.capped(r.PerSecond)
		}
	}
}

// Rates returns the rates in force, which a receiver is told when it starts.
// A stream that has none is not among them.
func (c *RateControl) Rates() []Rate {
	var out []Rate
	for _, s := range c.streams {
		if s.PerSecond > 0 {
			out = append(out, s.Rate)
		}
	}
	return out
}

func (c *RateControl) capped(r float64) float64 {
	if c.cfg.Max > 0 {
		return min(r, c.cfg.Max)
	}
	return r
}

// ShareLimit shares out what a batch may take among sources, or partitions of
// one, by how much waits in each (Invariant 9). A negative lag is one that is
// not known and counts as the mean of the others.
//
// The shares add up to the limit. When more waits than the limit, whoever has
// something waiting gets at least one and nobody gets more than waits; when not
// even one each is left, turn, which grows by one with every batch, says who is
// served, so that all are in turn. When less waits, what is left is spread
// evenly over all.
//
// A share of 0 is nothing in this batch. It must not be taken for the 0 of a
// setting or a [graph.Limit], which is no limit. A limit that is not positive
// shares out nothing.
func ShareLimit(limit int64, lags []int64, turn int64) []int64 {
	shares := make([]int64, len(lags))
	if len(lags) == 0 {
		return shares
	}
	lags, total := knownLags(lags)
	var waiting []int
	for i, lag := range lags {
		if lag > 0 {
			waiting = append(waiting, i)
		}
	}
	left := limit
	switch {
	case total <= limit:
		for i, lag := range lags {
			shares[i] = lag + (limit-total)/int64(len(lags))
			left -= shares[i]
		}
		waiting = waiting[:0]
		for i := range lags {
			waiting = append(waiting, i)
		}
	case int64(len(waiting)) < limit:
		left, waiting = shareByLag(shares, left, total, lags, waiting)
	}
	// One more for as many as are left.
	if left > 0 {
		n := int64(len(waiting))
		first := (turn%n + n) % n * stride(n) % n
		for k := range left {
			shares[waiting[(first+k)%n]]++
		}
	}
	return shares
}

// shareByLag shares out a limit that is more than one each and less than waits.
// Who would get less than one gets one. What rounding leaves over is returned,
// with those that it was taken from.
func shareByLag(shares []int64, limit, total int64, lags []int64, waiting []int) (left int64, cut []int) {
	// With each one that gets more than its part the part of the others shrinks.
	least := slices.Clone(waiting)
	slices.SortStableFunc(least, func(i, j int) int { return cmp.Compare(lags[i], lags[j]) })
	for _, i := range least {
		if part, _ := proportion(limit, lags[i], total); part > 0 {
			break
		}
		shares[i] = 1
		limit, total = limit-1, total-lags[i]
	}
	left = limit
	for _, i := range waiting {
		if shares[i] > 0 {
			continue
		}
		part, rest := proportion(limit, lags[i], total)
		shares[i] = part
		left -= part
		if rest > 0 {
			cut = append(cut, i)
		}
	}
	return left, cut
}

// proportion is limit * lag / total, with the remainder.
func proportion(limit, lag, total int64) (part, rest int64) {
	hi, lo := bits.Mul64(uint64(limit), uint64(lag)) // of bytes it may need more than 64 bits
	q, r := bits.Div64(hi, lo, uint64(total))
	return int64(q), int64(r)
}

// stride is how far the first one served moves with every turn. It has no
// factor in common with n, so that in n turns everyone is first once, however
// many are served each time; near the golden section of n, so that turns that
// follow each other lie far apart and nobody waits much longer than others.
func stride(n int64) int64 {
	s := max(1, int64(math.Round(float64(n)*(math.Sqrt(5)-1)/2)))
	for gcd(s, n) != 1 {
		s++
	}
	return s
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// knownLags fills in the lags that are not known, and bounds all of them so
// that their sum is an int64.
func knownLags(lags []int64) (known []int64, total int64) {
	most := math.MaxInt64 / int64(len(lags))
	known = make([]int64, len(lags))
	n := int64(0)
	for i, lag := range lags {
		if lag >= 0 {
			known[i] = min(lag, most)
			total += known[i]
			n++
		}
	}
	mean := max(1, total/max(1, n))
	for i, lag := range lags {
		if lag < 0 {
			known[i] = mean
			total += mean
		}
	}
	return known, total
}
