package receiver

import "context"

// CutLines feeds chunks to a line cutter and ends it.
func CutLines(limit int, chunks ...[]byte) (lines []string, long []int64) {
	l := lineCutter{
		max:     limit,
		emit:    func(b []byte) error { lines = append(lines, string(b)); return nil },
		tooLong: func(n int64) { long = append(long, n) },
	}
	for _, c := range chunks {
		_, _ = l.feed(c)
	}
	_ = l.end()
	return lines, long
}

// AppendValid is appendValid.
var AppendValid = appendValid

// Limiter is the rate limiter alone.
type Limiter struct{ l *limiter }

// NewLimiter returns a limiter.
func NewLimiter(records, bytes float64) Limiter { return Limiter{newLimiter(records, bytes)} }

// Wait is the limiter's wait for a start that never ends.
func (l Limiter) Wait(ctx context.Context, records, bytes int64) error {
	return l.l.wait(ctx, context.Background(), records, bytes)
}

// SetRate is the limiter's setRate.
func (l Limiter) SetRate(r float64) { l.l.setRate(r) }
