package sched

import (
	"slices"

	"github.com/tidemill/tidemill/internal/base"
)

type executor struct {
	id      base.ExecutorID
	host    string // "" if unknown
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

// pick returns the executor for a task, nil if all slots are taken: one at the
// first of the preferred places with a free slot, else the one with the most free
// slots; the one to avoid only if no other has any.
func (s *State) pick(places []string, avoid base.ExecutorID) *executor {
	for _, place := range places {
		if e := s.pickAt(place, avoid); e != nil {
			return e
		}
	}
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

// pickAt returns the executor with the most free slots at a place, nil if none
// but the one to avoid has any.
func (s *State) pickAt(place string, avoid base.ExecutorID) *executor {
	var best *executor
	for _, e := range s.executors {
		if e.isAt(place) && e.id != avoid && e.free() > 0 && (best == nil || e.free() > best.free()) {
			best = e
		}
	}
	return best
}

// isAt reports whether a place is the executor or its host.
func (e *executor) isAt(place string) bool {
	return place != "" && (place == string(e.id) || place == e.host)
}
