package sched

import (
	"fmt"
	"slices"

	"github.com/tidemill/tidemill/internal/base"
)

// job is a running job.
type job struct {
	id      base.JobID
	stages  []*stage
	waiting bool // said so, and no executor was added since
}

type stage struct {
	id      base.StageID
	out     *output
	reads   []*output
	parts   []int // partition of each place in out.parts and tasks, rising
	pins    []base.ExecutorID
	prefers [][]string
	tasks   []task // what this job knows of each
	phase   phase
	needed  bool // as of the last mark
	round   int  // rounds of fetch failures since it was last complete
}

type task struct {
	next     base.Attempt
	failures int // in user code, since it was last accepted
	losses   int // with its executor, since it was last accepted
}

type phase uint8

const (
	fresh phase = iota
	skipped
	started
	done
)

func (s *State) newJob(spec Job) *job {
	j := &job{id: spec.ID}
	for _, st := range spec.Stages {
		n := &stage{id: st.ID, parts: slices.Sorted(slices.Values(st.Parts)), tasks: make([]task, len(st.Parts))}
		n.pins, n.prefers = inOrder(n.parts, st.Parts, st.Pins), inOrder(n.parts, st.Parts, st.Prefers)
		if st.Shuffle == "" {
			n.out = newOutput("", len(st.Parts))
		} else {
			if s.shuffles[st.Shuffle] == nil {
				s.shuffles[st.Shuffle] = newOutput(st.Shuffle, len(st.Parts))
			}
			n.out = s.shuffles[st.Shuffle]
		}
		for _, id := range st.Reads {
			o := s.shuffles[id] // there: checked, and earlier stages have made theirs
			o.forget = false
			n.reads = append(n.reads, o)
		}
		j.stages = append(j.stages, n)
	}
	return j
}

// inOrder arranges what is said of each of the listed parts as the parts rise.
func inOrder[T any](rising, listed []int, of []T) []T {
	if of == nil || slices.Equal(rising, listed) {
		return of
	}
	out := make([]T, len(rising))
	for i, part := range listed {
		at, _ := slices.BinarySearch(rising, part)
		out[at] = of[i]
	}
	return out
}

// task returns the stage and place of a task of this job, which must be one
// that was launched.
func (j *job) task(ref TaskRef) (*stage, int) {
	k := slices.IndexFunc(j.stages, func(st *stage) bool { return st.id == ref.Stage })
	st := j.stages[k]
	i, _ := slices.BinarySearch(st.parts, ref.Part)
	return st, i
}

func (j *job) result() *stage { return j.stages[len(j.stages)-1] }

func (j *job) uses(o *output) bool {
	return slices.ContainsFunc(j.stages, func(st *stage) bool {
		return st.out == o || slices.Contains(st.reads, o)
	})
}

// mark finds out which stages are needed: the result stage, and the writers of
// what needed stages with unfinished tasks read, as far as it is incomplete.
func (j *job) mark() {
	for _, st := range j.stages {
		st.needed = false
	}
	j.result().needed = true
	for _, st := range slices.Backward(j.stages) {
		if !st.needed || st.out.missing == 0 {
			continue
		}
		for _, w := range j.stages {
			if w.out.missing > 0 && slices.Contains(st.reads, w.out) {
				w.needed = true
			}
		}
	}
}

// ready reports whether tasks of the stage may start.
func (st *stage) ready() bool {
	return st.out.missing == 0 || st.firstIncomplete() == nil
}

func (st *stage) firstIncomplete() *output {
	for _, o := range st.reads {
		if o.missing > 0 {
			return o
		}
	}
	return nil
}

// settle brings all jobs as far as they get without another event, and returns
// the effects of the current one.
func (s *State) settle() []Effect {
	for s.advance() {
	}
	s.launch()
	s.wait()
	out := s.effects
	s.effects = nil
	return out
}

// advance reports what has become of stages and jobs. It returns true when a
// job has ended, which may change what the others have to do.
func (s *State) advance() bool {
	for _, j := range s.jobs {
		j.mark()
	}
	for _, j := range s.jobs {
		for _, st := range j.stages {
			if s.advanceStage(j, st) {
				return true
			}
		}
		if j.result().out.missing == 0 {
			s.end(j, JobDone{Job: j.id})
			return true
		}
	}
	return false
}

func (s *State) advanceStage(j *job, st *stage) (ended bool) {
	if st.needed && st.phase != started && st.ready() {
		st.phase = started
		s.emit(StageStarted{Job: j.id, Stage: st.id, Tasks: st.out.missing})
	}
	if st.phase == started && st.out.missing == 0 {
		st.phase, st.round = done, 0
		s.emit(StageDone{Job: j.id, Stage: st.id})
	}
	if st.phase == fresh && !st.needed {
		st.phase = skipped
		s.emit(StageSkipped{Job: j.id, Stage: st.id})
	}
	// A stage of which all unfinished tasks run may yet succeed: they may have
	// read their input before it was lost.
	if !st.needed || st.out.idle() == 0 {
		return false
	}
	for _, o := range st.reads {
		if o.missing > 0 && !s.willWrite(o) {
			s.fail(j, st, -1, FetchFailed, fmt.Sprintf(
				"%d of %d map outputs of shuffle %q are gone and no running job writes it", o.missing, len(o.parts), o.shuffle))
			return true
		}
	}
	return false
}

// willWrite reports whether a running job is going to complete o.
func (s *State) willWrite(o *output) bool {
	return slices.ContainsFunc(s.jobs, func(j *job) bool {
		return slices.ContainsFunc(j.stages, func(st *stage) bool { return st.needed && st.out == o })
	})
}

// launch fills free slots. The marks are those of the last advance.
func (s *State) launch() {
	for _, j := range s.jobs {
		for _, st := range j.stages {
			if !st.needed || !st.ready() {
				continue
			}
			for i := st.out.next(0); i >= 0; i = st.out.next(i) {
				e, pinned := s.pinned(st, i)
				if !pinned {
					e = s.pick(st.preferred(i), st.out.parts[i].avoid)
				}
				switch {
				case e == nil && pinned:
					i++ // its executor is busy; another task's may not be
					continue
				case e == nil:
					return
				}
				ref := TaskRef{Job: j.id, Stage: st.id, Part: st.parts[i], Attempt: st.tasks[i].next}
				st.tasks[i].next++
				st.out.start(i)
				e.running = append(e.running, attempt{ref: ref, round: st.round})
				s.emit(Launch{TaskRef: ref, Executor: e.id})
			}
		}
	}
}

// preferred lists the places that hold the input of a task.
func (st *stage) preferred(i int) []string {
	if st.prefers == nil {
		return nil
	}
	return st.prefers[i]
}

// pinned returns the executor that must run a task, nil if that has no free
// slot; false if any may run it.
func (s *State) pinned(st *stage, i int) (*executor, bool) {
	if st.pins == nil || st.pins[i] == "" {
		return nil, false
	}
	e := s.executor(st.pins[i])
	switch {
	case e == nil:
		return nil, false
	case e.free() == 0:
		return nil, true
	}
	return e, true
}

func (s *State) wait() {
	if len(s.executors) > 0 {
		return
	}
	for _, j := range s.jobs {
		if !j.waiting {
			j.waiting = true
			s.emit(Waiting{Job: j.id})
		}
	}
}
