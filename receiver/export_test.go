package receiver

import (
	"context"
	"testing"
)

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

// EncodeTailPosition encodes how far each file was read.
func EncodeTailPosition(p map[string]int64) []byte { return tailPosition(p).append(nil) }

// ParseTailPosition decodes what EncodeTailPosition made.
func ParseTailPosition(b []byte) (map[string]int64, error) {
	p, err := parseTailPosition(b)
	return p, err
}

// TailPosition is ParseTailPosition of a good one.
func TailPosition(t *testing.T, b []byte) map[string]int64 {
	t.Helper()
	p, err := parseTailPosition(b)
	if err != nil {
		t.Error(err)
	}
	return p
}
