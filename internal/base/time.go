package base

import (
	"fmt"
	"time"
)

// BatchTime is the time of a batch: milliseconds since the Unix epoch, a
// multiple of the batch interval.
type BatchTime int64

// TimeOf returns the batch time of a wall-clock instant, cut to milliseconds.
func TimeOf(t time.Time) BatchTime { return BatchTime(t.UnixMilli()) }

// Time returns the instant in UTC.
func (t BatchTime) Time() time.Time { return time.UnixMilli(int64(t)).UTC() }

// Add returns t moved by d, which is cut to milliseconds.
func (t BatchTime) Add(d time.Duration) BatchTime { return t + BatchTime(d.Milliseconds()) }

// Sub returns the duration from u to t.
func (t BatchTime) Sub(u BatchTime) time.Duration { return time.Duration(t-u) * time.Millisecond }

// String gives the time as people read it, with milliseconds, in UTC.
func (t BatchTime) String() string { return t.Time().Format("2006-01-02T15:04:05.000Z") }

// Floor returns the last multiple of d that is not after t, counted from the
// Unix epoch. Like Spark 4.2 it rounds toward zero for negative times.
func (t BatchTime) Floor(d time.Duration) BatchTime {
	ms := BatchTime(d.Milliseconds())
	return t / ms * ms
}

// FloorFrom is Floor with boundaries counted from zero instead of the epoch.
func (t BatchTime) FloorFrom(d time.Duration, zero BatchTime) BatchTime {
	return (t - zero).Floor(d) + zero
}

// IsMultipleOf reports whether t lies on a boundary of d, which is cut to
// milliseconds, since the epoch.
func (t BatchTime) IsMultipleOf(d time.Duration) bool {
	ms := BatchTime(d.Milliseconds())
	return ms != 0 && t%ms == 0
}

// IsMultiple reports whether a is a whole multiple of b. A zero b, which has
// no multiples, gives false.
func IsMultiple(a, b time.Duration) bool { return b != 0 && a%b == 0 }

// Until lists the times from t, included, to end, excluded, in steps.
func (t BatchTime) Until(end BatchTime, step time.Duration) []BatchTime {
	return t.upTo(end-1, step)
}

// Through is Until with end included.
func (t BatchTime) Through(end BatchTime, step time.Duration) []BatchTime {
	return t.upTo(end, step)
}

func (t BatchTime) upTo(last BatchTime, step time.Duration) []BatchTime {
	var out []BatchTime
	for ; step >= time.Millisecond && t <= last; t = t.Add(step) {
		out = append(out, t)
	}
	return out
}

// NextBoundary returns the first boundary of d, counted from zero, that is
// strictly after t.
func (t BatchTime) NextBoundary(d time.Duration, zero BatchTime) BatchTime {
	f := t.FloorFrom(d, zero)
	if f > t { // before zero, Floor rounds up
		return f
	}
	return f.Add(d)
}

// CeilBoundary returns the first boundary of d since the epoch at or after t.
func (t BatchTime) CeilBoundary(d time.Duration) BatchTime {
	f := t.Floor(d)
	if f < t {
		f = f.Add(d)
	}
	return f
}

// CheckInterval returns an error that names the value unless d is a positive
// whole number of milliseconds.
func CheckInterval(what string, d time.Duration) error {
	switch {
	case d <= 0:
		return fmt.Errorf("%s is %v: must be positive", what, d)
	case d%time.Millisecond != 0:
		return fmt.Errorf("%s is %v: must be a whole number of milliseconds", what, d)
	}
	return nil
}
