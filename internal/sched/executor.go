package sched

import (
	"slices"

	"github.com/tidemill/tidemill/internal/base"
)

type executor struct {
	id      base.ExecutorID
	slots   int
	running []attempt // in launch order, those of ended jobs included
}

// attempt is a task in a slot.
type attempt struct {
	ref   TaskRef
	round int // of its stage, when it was launched
}

func (e *executor) free() int { return e.slots - len(e.running) }

// release frees the slot of an attempt. It reports false if it does not run here.
func (e *executor) release(ref TaskRef) (attempt, bool) {
	i := slices.IndexFunc(e.running, func(a attempt) bool { return a.ref == ref })
	if i < 0 {
		return attempt{}, false
	}
	a := e.running[i]
	e.running = slices.Delete(e.running, i, i+1)
	return a, true
}

func (s *State) executor(id base.ExecutorID) *executor {
	for _, e := range s.executors {
		if e.id == id {
			return e
		}
	}
	return nil
}

// release frees the slot of an attempt that an executor reports. It reports
// false if the report is not to be heard.
func (s *State) release(ref TaskRef, from base.ExecutorID) (attempt, bool) {
	e := s.executor(from)
	if e == nil {
		return attempt{}, false
	}
	return e.release(ref)
}

// pick returns the executor with the most free slots, the one to avoid only if
// no other has any, and nil if all slots are taken.
func (s *State) pick(avoid base.ExecutorID) *executor {
	var best, last *executor
	for _, e := range s.executors {
		switch {
		case e.free() == 0:
		case e.id == avoid:
			last = e
		case best == nil || e.free() > best.free():
			best = e
		}
	}
	if best == nil {
		return last
	}
	return best
}
