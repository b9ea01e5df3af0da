package driver_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
)

// rateScript plays stories of rate control, in which rates are records per second:
//
//	control STREAM... [interval=1] [initial=0] [max=0] [p=1] [i=0.2] [d=0] [min=100] [off=1]
//	batch END took=D [waited=D] [failed=1] STREAM=RECORDS...   the rates that it changes
//	rates                                                      those in force
//	share LIMIT [turn=0] LAG...
type rateScript struct{ c *driver.RateControl }

func (s *rateScript) do(words []string) ([]string, error) {
	if i := slices.Index(words, "#"); i >= 0 {
		words = words[:i]
	}
	plain, opts := options(words[1:])
	switch words[0] {
	case "control":
		cfg := driver.RateConfig{
			On: number(opts, "off", 0) == 0, Initial: float(opts, "initial", 0), Max: float(opts, "max", 0),
			Proportional: float(opts, "p", 1), Integral: float(opts, "i", 0.2), Derivative: float(opts, "d", 0),
			Min: float(opts, "min", 100),
		}
		var streams []base.UID
		for _, w := range plain {
			streams = append(streams, base.UID(w))
		}
		c, err := driver.NewRateControl(time.Duration(float(opts, "interval", 1)*float64(time.Second)), cfg, streams)
		if err != nil {
			return []string{"refused: " + err.Error()}, nil
		}
		s.c = c
		return rates(c.Rates()), nil
	case "batch":
		var b driver.BatchInfo
		b.Ended = at(plain[0]).Time()
		b.Started = b.Ended.Add(-seconds(opts["took"][0]))
		b.Submitted = b.Started
		for key, v := range opts {
			switch key {
			case "took":
			case "waited":
				b.Submitted = b.Started.Add(-seconds(v[0]))
			case "failed":
				b.Err = errors.New("failed")
			default:
				b.Inputs = append(b.Inputs, driver.InputInfo{Stream: base.UID(key), Records: number(opts, key, 0)})
			}
		}
		return rates(s.c.Completed(b)), nil
	case "rates":
		return rates(s.c.Rates()), nil
	case "share":
		var numbers []int64
		for _, w := range plain {
			n, err := strconv.ParseInt(w, 10, 64)
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, n)
		}
		shares := driver.ShareLimit(numbers[0], numbers[1:], number(opts, "turn", 0))
		return []string{strings.Trim(fmt.Sprint(shares), "[]")}, nil
	}
	return nil, errors.New("unknown command")
}

func rates(rs []driver.Rate) []string {
	if len(rs) == 0 {
		return []string{"-"}
	}
	var out []string
	for _, r := range rs {
		out = append(out, fmt.Sprintf("%s %s/s", r.Stream, strconv.FormatFloat(r.PerSecond, 'f', -1, 64)))
	}
	return []string{strings.Join(out, ", ")}
}

func float(opts map[string][]string, key string, def float64) float64 {
	if len(opts[key]) == 0 {
		return def
	}
	f, err := strconv.ParseFloat(opts[key][0], 64)
	if err != nil {
		panic(err)
	}
	return f
}

// rateConfig is on, with the defaults of the settings.
var rateConfig = driver.RateConfig{On: true, Proportional: 1, Integral: 0.2, Min: 100}

func mustControl(t interface{ Fatal(...any) }, cfg driver.RateConfig, streams ...base.UID) *driver.RateControl {
	c, err := driver.NewRateControl(time.Second, cfg, streams)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ran is a batch that ended at a second, without delay.
func ran(end int, took time.Duration, stream base.UID, records int64) driver.BatchInfo {
	ended := time.Unix(int64(end), 0)
	return driver.BatchInfo{
		Submitted: ended.Add(-took), Started: ended.Add(-took), Ended: ended,
		Inputs: []driver.InputInfo{{Stream: stream, Records: records}},
	}
}

func TestB40aEmptyBatchesGiveNoEstimateAndABurstIsRead(t *testing.T) {
	c := mustControl(t, rateConfig, "a")
	c.Completed(ran(1, time.Second, "a", 5000))
	c.Completed(ran(2, time.Second, "a", 5000))
	before := c.Rates()
	if want := []driver.Rate{{Stream: "a", PerSecond: 5000}}; !slices.Equal(before, want) {
		t.Fatalf("before: %v, want %v", before, want)
	}
	for i := range 60 {
		if got := c.Completed(ran(3+i, 10*time.Millisecond, "a", 0)); got != nil {
			t.Fatalf("empty batch %d changed %v", i, got)
		}
	}
	if got := c.Rates(); !slices.Equal(got, before) {
		t.Errorf("after 60 empty batches %v, want %v", got, before)
	}
	want := []driver.Rate{{Stream: "a", PerSecond: 8000}}
	if got := c.Completed(ran(63, time.Second, "a", 8000)); !slices.Equal(got, want) {
		t.Errorf("after the burst %v, want %v", got, want)
	}
}

func TestB40bTinyLimitServesAllPartitionsInTurn(t *testing.T) {
	lags := slices.Repeat([]int64{1_000_000}, 100)
	for _, limit := range []int64{1, 3, 10, 99} {
		served := make([]int64, len(lags))
		last := make([]int64, len(lags))
		for turn := range int64(len(lags)) {
			var sum int64
			for i, share := range driver.ShareLimit(limit, lags, turn) {
				if share > 0 {
					if gap := turn - last[i]; gap > 3*int64(len(lags))/limit {
						t.Errorf("limit %d: partition %d waited for %d turns", limit, i, gap)
					}
					last[i] = turn
				}
				sum += share
				served[i] += share
			}
			if sum != limit {
				t.Fatalf("limit %d, turn %d: %d records", limit, turn, sum)
			}
		}
		// Over as many turns as there are partitions all got the same.
		if want := slices.Repeat([]int64{limit}, len(lags)); !slices.Equal(served, want) {
			t.Errorf("limit %d: served %v", limit, served)
		}
	}
}

func TestB40cBacklogGetsItsPartAndNoneStarves(t *testing.T) {
	lags := slices.Repeat([]int64{1000}, 32)
	lags[7] = 1_000_000
	shares := driver.ShareLimit(100_000, lags, 5)
	var sum int64
	for i, share := range shares {
		sum += share
		if i != 7 && (share < 95 || share > 100) {
			t.Errorf("partition %d gets %d", i, share)
		}
	}
	if got := shares[7]; got < 96_900 || got > 97_100 {
		t.Errorf("the late one gets %d, want 97 %%", got)
	}
	if sum != 100_000 {
		t.Errorf("%d records", sum)
	}
}

func TestB40dInitialRateHoldsUntilTheFirstEstimate(t *testing.T) {
	cfg := rateConfig
	cfg.Initial = 1000
	c := mustControl(t, cfg, "a")
	inForce := func(when string, want float64) {
		t.Helper()
		if got := c.Rates(); len(got) != 1 || got[0].PerSecond != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	inForce("at the start", 1000)
	if got := driver.ShareLimit(int64(c.Rates()[0].PerSecond), []int64{10_000_000}, 0); got[0] != 1000 {
		t.Errorf("the first batch takes %d of the backlog", got[0])
	}
	c.Completed(ran(1, 10*time.Millisecond, "a", 0))
	inForce("after an empty batch", 1000)
	if got := c.Completed(ran(2, 250*time.Millisecond, "a", 1000)); got != nil {
		t.Errorf("the first batch changed %v", got)
	}
	inForce("after the first batch that counts", 1000)
	c.Completed(ran(3, 250*time.Millisecond, "a", 1000))
	inForce("after the second", 4000)
}

func TestB40eWrongRatesAreRefused(t *testing.T) {
	set := map[string]func(c *driver.RateConfig, v float64){
		"initial rate":        func(c *driver.RateConfig, v float64) { c.Initial = v },
		"maximum rate":        func(c *driver.RateConfig, v float64) { c.Max = v },
		"proportional weight": func(c *driver.RateConfig, v float64) { c.Proportional = v },
		"integral weight":     func(c *driver.RateConfig, v float64) { c.Integral = v },
		"derivative weight":   func(c *driver.RateConfig, v float64) { c.Derivative = v },
		"minimum rate":        func(c *driver.RateConfig, v float64) { c.Min = v },
	}
	for name, f := range set {
		for _, v := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
			c := rateConfig
			f(&c, v)
			_, err := driver.NewRateControl(time.Second, c, []base.UID{"a"})
			if allowed := v == 0 && name != "minimum rate"; allowed {
				if err != nil {
					t.Errorf("%s 0: %v", name, err)
				}
				continue
			}
			if want := fmt.Sprintf("%s is %v: must be", name, v); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	for _, interval := range []time.Duration{0, -time.Second, 1500 * time.Microsecond} {
		_, err := driver.NewRateControl(interval, rateConfig, []base.UID{"a"})
		if want := fmt.Sprintf("batch interval is %v: must be", interval); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := (driver.RateConfig{}).Validate(); err != nil {
		t.Errorf("the zero value is off: %v", err)
	}
}

// Whatever batches come, a rate is a number that can be given to a limiter: one
// above 0, finite, not above the maximum, and an estimate not below the minimum.
func TestRatesStayWithinBounds(t *testing.T) {
	weights := rapid.OneOf(rapid.Float64Range(0, 3), rapid.SampledFrom([]float64{0, 1e10, math.MaxFloat64}))
	rapid.Check(t, func(t *rapid.T) {
		cfg := driver.RateConfig{
			On:           true,
			Max:          rapid.SampledFrom([]float64{0, 0.5, 1e6}).Draw(t, "max"),
			Proportional: weights.Draw(t, "p"), Integral: weights.Draw(t, "i"), Derivative: weights.Draw(t, "d"),
			Min: rapid.SampledFrom([]float64{1e-9, 1, 100}).Draw(t, "min"),
		}
		c := mustControl(t, cfg, "a", "b")
		end := time.Unix(0, 0)
		for range rapid.IntRange(1, 60).Draw(t, "batches") {
			end = end.Add(time.Duration(rapid.Int64Range(-2, 1e10).Draw(t, "gap")))
			b := driver.BatchInfo{Ended: end}
			b.Started = end.Add(-time.Duration(rapid.Int64Range(-5, 1e10).Draw(t, "took")))
			b.Submitted = b.Started.Add(-time.Duration(rapid.Int64Range(-5, 1e12).Draw(t, "waited")))
			for _, s := range []base.UID{"a", "b"} {
				b.Inputs = append(b.Inputs, driver.InputInfo{Stream: s, Records: rapid.Int64Range(-1, math.MaxInt64).Draw(t, "records")})
			}
			for _, r := range c.Completed(b) {
				low, high := cfg.Min, math.MaxFloat64
				if cfg.Max > 0 {
					low, high = min(low, cfg.Max), cfg.Max
				}
				if !(r.PerSecond >= low && r.PerSecond <= high) {
					t.Fatalf("%s: %v is not within %v and %v", r.Stream, r.PerSecond, low, high)
				}
			}
		}
	})
}

// A weight that makes the estimate swing wider with every batch drives it out
// of the numbers; it must come back.
func TestEstimateComesBackFromOverflow(t *testing.T) {
	cfg := driver.RateConfig{Proportional: 2, Integral: 1, Derivative: 1, Min: 0.5}
	e, err := driver.NewRateEstimator(100*time.Millisecond, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var highest, last float64
	for i := range 2000 {
		// It swings only while batches wait; then they do not any more.
		waited := time.Duration(0)
		if i < 1000 {
			waited = 50 * time.Millisecond
		}
		r, ok := e.Estimate(time.UnixMilli(int64(i)*100), 1000, 50*time.Millisecond, waited)
		if ok != (i > 0) || ok && !(r >= 0.5 && r <= math.MaxFloat64) {
			t.Fatalf("batch %d: %v, %v", i, r, ok)
		}
		highest, last = max(highest, r), r
	}
	if highest != math.MaxFloat64 {
		t.Errorf("the highest was %v: the test shows nothing", highest)
	}
	if !(last >= 0.5) {
		t.Errorf("the last was %v", last)
	}
}

func TestSharesKeepTheLimitAndStarveNobody(t *testing.T) {
	lag := rapid.OneOf(rapid.Int64Range(-1, 5), rapid.Int64Range(-1, 1_000_000), rapid.Int64Range(0, math.MaxInt64))
	limits := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 1_000_000), rapid.Int64Range(1, math.MaxInt64))
	rapid.Check(t, func(t *rapid.T) {
		lags := rapid.SliceOfN(lag, 1, 40).Draw(t, "lags")
		limit, turn := limits.Draw(t, "limit"), rapid.Int64().Draw(t, "turn")
		given := slices.Clone(lags)
		shares := driver.ShareLimit(limit, lags, turn)
		if d := cmp.Diff(given, lags); d != "" {
			t.Fatalf("the lags were changed:\n%s", d)
		}
		var sum, waiting int64
		for _, s := range shares {
			sum += s
		}
		if sum != limit {
			t.Fatalf("shares %v add up to %d", shares, sum)
		}
		known, all := slices.Min(lags) >= 0, int64(0)
		for _, l := range lags {
			if l != 0 {
				waiting++
			}
			if l = max(l, 0); l > math.MaxInt64-all {
				known, l = false, 0 // lags whose sum is no int64 are bounded
			}
			all += l
		}
		more := all > limit
		for i, s := range shares {
			switch {
			case s < 0:
				t.Fatalf("share %d is %d", i, s)
			case lags[i] > 0 && limit >= waiting && s == 0:
				t.Fatalf("%d of %d starves: %v", i, waiting, shares)
			case known && more && s > lags[i]:
				t.Fatalf("share %d is more than waits: %v", i, shares)
			case known && !more && s < lags[i]:
				t.Fatalf("share %d is less than waits, with room: %v", i, shares)
			}
			for j, other := range shares {
				if known && lags[i] > lags[j] && s < other-1 {
					t.Fatalf("%d has more waiting than %d and gets less: %v", i, j, shares)
				}
			}
		}
	})
}

// Whatever the limits are from turn to turn, everyone that waits is served at
// least once in as many turns as there are of them.
func TestChangingLimitsStarveNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 50).Draw(t, "n")
		lags := slices.Repeat([]int64{1000}, n)
		served := make([]int64, n)
		turn := rapid.Int64Range(-1000, math.MaxInt64-1000).Draw(t, "turn")
		for k := range n {
			limit := rapid.Int64Range(1, int64(n)).Draw(t, "limit")
			for i, s := range driver.ShareLimit(limit, lags, turn+int64(k)) {
				served[i] += s
			}
		}
		if slices.Min(served) == 0 {
			t.Fatalf("served %v", served)
		}
	})
}

func TestNothingToShare(t *testing.T) {
	for _, limit := range []int64{0, -1, math.MinInt64} {
		if got := driver.ShareLimit(limit, []int64{5, 0, -1}, 3); !slices.Equal(got, []int64{0, 0, 0}) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
	if got := driver.ShareLimit(10, nil, 0); len(got) != 0 {
		t.Errorf("nobody: %v", got)
	}
}
