package sched

import "github.com/tidemill/tidemill/internal/base"

// output is what the tasks of a stage make: the map outputs of a shuffle, which
// stages of several jobs share, or the results of one result stage.
//
// Two rules hold between events: missing counts the parts without a place, and
// a part that runs is missing.
type output struct {
	shuffle string // "" for results, which no lost executor takes away
	parts   []part
	missing int
	running int
	first   int  // no part below it is idle
	forget  bool // to be dropped once no running job uses it
}

type part struct {
	at      base.ExecutorID // where the accepted output is; "" if missing
	running bool            // in some running job
	seen    bool            // was accepted at least once
	avoid   base.ExecutorID // where it just failed
}

func newOutput(shuffle string, parts int) *output {
	return &output{shuffle: shuffle, parts: make([]part, parts), missing: parts}
}

// idle counts the parts that are neither there nor being made.
func (o *output) idle() int { return o.missing - o.running }

// next returns the lowest idle part that is not below from, or -1.
func (o *output) next(from int) int {
	for ; o.first < len(o.parts) && !o.isIdle(o.first); o.first++ {
	}
	for i := max(from, o.first); i < len(o.parts); i++ {
		if o.isIdle(i) {
			return i
		}
	}
	return -1
}

func (o *output) isIdle(i int) bool { return o.parts[i].at == "" && !o.parts[i].running }

func (o *output) start(i int) {
	o.parts[i].running = true
	o.running++
}

// stop returns a part that ran to the idle ones.
func (o *output) stop(i int) {
	o.parts[i].running = false
	o.running--
	o.first = min(o.first, i)
}

// accept records where a part that ran is. It reports whether it had been
// accepted before.
func (o *output) accept(i int, at base.ExecutorID) (again bool) {
	p := &o.parts[i]
	again = p.seen
	*p = part{at: at, seen: true}
	o.running--
	o.missing--
	return again
}

// lose forgets where part i is.
func (o *output) lose(i int) {
	o.parts[i].at = ""
	o.missing++
	o.first = min(o.first, i)
}

// loseAll forgets what is on an executor.
func (o *output) loseAll(id base.ExecutorID) {
	for i := range o.parts {
		if o.parts[i].at == id {
			o.lose(i)
		}
	}
}
