package driver

import (
	"time"

	"github.com/tidemill/tidemill/internal/base"
)

// CatchUp says what becomes of ticks that were missed.
type CatchUp string

// Catch-up policies.
const (
	// CatchUpMerged gives the input of missed ticks to the next batches.
	CatchUpMerged CatchUp = "merged"
	// CatchUpAll makes a batch of every missed tick, as Spark 4.2 does.
	CatchUpAll CatchUp = "all"
)

// SlideRule is a slide longer than the batch interval, whose boundaries must
// not be lost when ticks are skipped.
type SlideRule struct {
	Slide  time.Duration
	Window time.Duration // 0 if nothing windowed hangs on it
}

// Generator decides which batch comes next. It is a pure core: it is told the
// time and never looks at a clock. The zero value is not usable.
type Generator struct {
	interval   time.Duration
	maxPending int
	catchUp    CatchUp
	rules      []SlideRule

	last    base.BatchTime // the newest time in the log, or the boundary before the first batch
	pending int            // planned and not done
	// missed holds, per rule, the boundaries that a stall swallowed and that
	// are still to be planned: a range, not a queue.
	missed  []missedRange
	skipped int64
}

// missedRange is [next, end) in steps of the rule's slide; until is the tick
// that ended the stall when it was first seen.
type missedRange struct{ next, end, until base.BatchTime }

// Step is what the generator wants.
type Step struct {
	// Plan is the batch to plan now, if Ready.
	Ready bool
	Plan  base.BatchTime
	// Wait says that nothing is due before this time, if neither Ready nor Full.
	Wait base.BatchTime
	// Full says that a batch is due and has to wait until another one is done.
	Full bool
	// Skipped counts the ticks that this step passes over.
	Skipped int64
}

// NewGenerator returns a generator for a job that starts at now: the first
// batch is the first boundary after it.
func NewGenerator(interval time.Duration, maxPending int, catchUp CatchUp, rules []SlideRule, now base.BatchTime) *Generator {
	return &Generator{
		interval: interval, maxPending: maxPending, catchUp: catchUp, rules: rules,
		last: now.Floor(interval), missed: make([]missedRange, len(rules)),
	}
}

// Resume goes on after a restart: last is the newest time in the log, and
// pending batches of it have not ended.
func (g *Generator) Resume(last base.BatchTime, pending int) {
	g.last, g.pending = last, pending
}

// Last returns the newest planned time.
func (g *Generator) Last() base.BatchTime { return g.last }

// Pending returns the number of batches that are planned and not done.
func (g *Generator) Pending() int { return g.pending }

// Next says what to do at now. It changes nothing but what it remembers of
// missed boundaries, so it may be asked again and again.
func (g *Generator) Next(now base.BatchTime) Step {
	t, skipped := g.due(now)
	switch {
	case t > now:
		return Step{Wait: t}
	case g.Full():
		return Step{Full: true}
	}
	return Step{Ready: true, Plan: t, Skipped: skipped}
}

// due returns the next batch time, which may lie in the future, and how many
// ticks are passed over to reach it.
func (g *Generator) due(now base.BatchTime) (base.BatchTime, int64) {
	next := g.last.Add(g.interval)
	latest := now.Floor(g.interval)
	if latest <= next {
		clear(g.missed)
		return next, 0
	}
	if g.catchUp == CatchUpAll {
		return next, 0
	}
	t, ok := g.boundary(latest)
	if !ok {
		t = latest
	}
	return t, int64(t-next) / g.interval.Milliseconds()
}

// boundary returns the oldest boundary of a longer slide that was missed
// before latest and is still to be planned.
func (g *Generator) boundary(latest base.BatchTime) (t base.BatchTime, ok bool) {
	for i, r := range g.rules {
		m := &g.missed[i]
		if m.until <= g.last { // a new stall: look at what it swallows
			m.until = latest
			m.next = g.last.NextBoundary(r.Slide, 0)
			// The batch at the first boundary takes in what came during the stall.
			// Windows that begin at or after it hold nothing that must be shown
			// now: at most Window/Slide boundaries are kept, at least one.
			m.end = m.next.Add(max(r.Slide, r.Window))
		}
		if m.next < m.end && m.next < latest && (!ok || m.next < t) {
			t, ok = m.next, true
		}
	}
	return t, ok
}

// Planned says that the log holds the plan of t.
func (g *Generator) Planned(t base.BatchTime) {
	if t <= g.last {
		panic("driver: batch times must increase") // the planner only takes times from Next and Drain
	}
	g.skipped += int64(t-g.last)/g.interval.Milliseconds() - 1
	g.last = t
	g.pending++
	for i, r := range g.rules {
		m := &g.missed[i]
		for m.next <= t && m.next < m.end {
			m.next = m.next.Add(r.Slide)
		}
		// The batch may have been one for a boundary of another rule; the window
		// of this one that holds it must end too.
		if b := t.CeilBoundary(r.Slide); m.until > t && b > t {
			if m.next >= m.end {
				m.next = b
			}
			m.end = max(m.end, b.Add(r.Slide))
		}
	}
}

// Done says that a planned batch is done or failed.
func (g *Generator) Done() { g.pending-- }

// Drain returns the batch time that a graceful stop uses next. It is a
// boundary of a longer slide that was missed, which has to be planned in any
// case, or the next batch time at once, though it may lie in the future.
func (g *Generator) Drain(now base.BatchTime) (t base.BatchTime, missed bool) {
	t = max(g.last.Add(g.interval), now.CeilBoundary(g.interval))
	if b, ok := g.boundary(t); ok {
		return b, true
	}
	return t, false
}

// Full reports whether no further batch may be planned until one is done.
func (g *Generator) Full() bool { return g.pending >= g.maxPending }

// Behind reports a clock that is behind the log by more than an interval.
func (g *Generator) Behind(now base.BatchTime) bool { return now < g.last.Add(-g.interval) }

// SkippedTicks returns how many ticks got no batch of their own.
func (g *Generator) SkippedTicks() int64 { return g.skipped }
