package receiver

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// burst is how long unused permits are kept: enough to make up for late timers.
const burst = 100 * time.Millisecond

// limiter holds all store paths of one receiver to a rate of records and one
// of bytes. Callers draw a ticket in order and wait until the permits reach it,
// so a call of any size waits in proportion and none is too large.
type limiter struct {
	on       atomic.Bool // whether there is any limit
	maxRecs  float64
	maxBytes float64

	mu      sync.Mutex
	recs    bucket
	bytes   bucket
	changed chan struct{} // closed when a rate changes
}

func newLimiter(records, bytes float64) *limiter {
	l := &limiter{maxRecs: records, maxBytes: bytes, changed: make(chan struct{})}
	now := time.Now()
	l.recs.setRate(now, records)
	l.bytes.setRate(now, bytes)
	l.on.Store(records > 0 || bytes > 0)
	return l
}

// setRate changes the limit of records per second. The configured maximum
// stays in force; what is not positive is ignored.
func (l *limiter) setRate(r float64) {
	if !(r > 0) {
		return
	}
	if l.maxRecs > 0 {
		r = min(r, l.maxRecs)
	}
	if math.IsInf(r, 1) {
		r = 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r == l.recs.rate {
		return
	}
	l.recs.setRate(time.Now(), r)
	l.on.Store(r > 0 || l.maxBytes > 0)
	close(l.changed)
	l.changed = make(chan struct{})
}

// wait returns when records and bytes may pass, or with an error when ctx or
// the start that the caller belongs to ends.
func (l *limiter) wait(ctx, start context.Context, records, bytes int64) error {
	l.mu.Lock()
	now := time.Now()
	l.recs.refill(now) // before the draw, or it would raise the bound of what was kept
	l.bytes.refill(now)
	rt, bt := l.recs.reserve(records), l.bytes.reserve(bytes)
	for ; ; now = time.Now() {
		d := max(l.recs.delay(now, rt), l.bytes.delay(now, bt))
		changed := l.changed
		l.mu.Unlock()
		if d <= 0 {
			return nil
		}
		err := sleepUntil(ctx, start, d, changed)
		l.mu.Lock()
		if err != nil {
			l.recs.giveBack(records)
			l.bytes.giveBack(bytes)
			l.mu.Unlock()
			return err
		}
	}
}

// charge takes permits for bytes that have passed already; later callers wait
// for them. The size of a single record is known only once it is encoded.
func (l *limiter) charge(bytes int64) {
	l.mu.Lock()
	l.bytes.reserve(bytes)
	l.mu.Unlock()
}

// within returns how many records may pass within d at the present rate, and
// at least one. A receiver that cuts its batches like this waits often and
// briefly instead of rarely and long.
func (l *limiter) within(d time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recs.rate == 0 {
		return math.MaxInt
	}
	return int(max(1, min(l.recs.rate*d.Seconds(), math.MaxInt32)))
}

func sleepUntil(ctx, start context.Context, d time.Duration, changed <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-ctx.Done():
		return storeError(ctx, start)
	case <-start.Done():
		return ErrStopped
	}
	return nil
}

// bucket counts permits given and drawn since it was made. A ticket is the
// number of permits drawn up to and with its owner's.
type bucket struct {
	rate  float64 // 0 is no limit
	drawn int64
	given int64
	part  float64 // of the next permit
	at    time.Time
}

func (b *bucket) setRate(now time.Time, rate float64) {
	if b.rate == 0 {
		b.given, b.part = b.drawn+1, 0
	} else {
		b.refill(now)
	}
	b.rate, b.at = rate, now
}

func (b *bucket) reserve(n int64) int64 {
	b.drawn += n
	return b.drawn
}

// giveBack undoes a reserve: it moves those who wait forward by n.
func (b *bucket) giveBack(n int64) { b.given += n }

func (b *bucket) refill(now time.Time) {
	whole, part := math.Modf(b.part + b.rate*now.Sub(b.at).Seconds())
	b.given += int64(min(whole, math.MaxInt64/4))
	b.part, b.at = part, now
	if most := b.drawn + max(1, int64(b.rate*burst.Seconds())); b.given > most {
		b.given, b.part = most, 0
	}
}

// delay says how long the owner of a ticket must wait yet.
func (b *bucket) delay(now time.Time, ticket int64) time.Duration {
	if b.rate == 0 {
		return 0
	}
	b.refill(now)
	if ticket <= b.given {
		return 0
	}
	s := (float64(ticket-b.given) - b.part) / b.rate
	return time.Duration(math.Ceil(min(s, 3600) * 1e9))
}
