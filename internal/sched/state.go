package sched

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tidemill/tidemill/internal/base"
)

// State is the scheduler. Make it with [New]; use it from one goroutine.
type State struct {
	cfg       Config
	executors []*executor        // in order of addition
	jobs      []*job             // running ones, oldest first
	shuffles  map[string]*output // until forgotten
	effects   []Effect           // of the current event
}

// New returns a scheduler without executors and jobs.
func New(cfg Config) *State {
	return &State{cfg: cfg.withDefaults(), shuffles: make(map[string]*output)}
}

// Locations returns the executor that holds each map output of a shuffle, by
// map partition, "" for those missing. It is nil for an unknown shuffle.
func (s *State) Locations(shuffle string) []base.ExecutorID {
	o := s.shuffles[shuffle]
	if o == nil {
		return nil
	}
	at := make([]base.ExecutorID, len(o.parts))
	for i, p := range o.parts {
		at[i] = p.at
	}
	return at
}

// AddExecutor adds an executor that may run as many tasks at once as it has
// slots. Host is where it runs, "" if that is unknown. An id that is there
// already, an empty one, and one without slots are ignored.
func (s *State) AddExecutor(id base.ExecutorID, host string, slots int) []Effect {
	if id == "" || slots < 1 || s.executor(id) != nil {
		return nil
	}
	s.executors = append(s.executors, &executor{id: id, host: host, slots: slots})
	for _, j := range s.jobs {
		j.waiting = false
	}
	return s.settle()
}

// LoseExecutor removes an executor with its map outputs. What ran there runs
// again elsewhere; whatever it still reports is ignored.
func (s *State) LoseExecutor(id base.ExecutorID, reason string) []Effect {
	e := s.executor(id)
	if e == nil {
		return nil
	}
	s.executors = slices.DeleteFunc(s.executors, func(x *executor) bool { return x == e })
	for _, o := range s.shuffles { // any order: no effects come of it
		o.loseAll(id)
	}
	for _, a := range e.running { // all, before one of them fails its job
		s.stop(a.ref)
	}
	for _, a := range e.running {
		s.countLoss(a.ref, ExecutorLost, fmt.Sprintf("executor %q lost: %s", id, reason))
	}
	return s.settle()
}

// Submit starts a job. One that makes no sense fails with kind [Final]; one
// with the id of a running job is ignored.
func (s *State) Submit(spec Job) []Effect {
	if s.job(spec.ID) != nil {
		return nil
	}
	msg := spec.check(s.shuffles)
	if msg == "" && s.runsTaskOf(spec.ID) {
		msg = "tasks of an earlier job with this id still run"
	}
	if msg != "" {
		return []Effect{JobFailed{Job: spec.ID, Stage: -1, Part: -1, Kind: Final, Message: msg}}
	}
	s.jobs = append(s.jobs, s.newJob(spec))
	return s.settle()
}

// TaskDone is an executor's report that an attempt has succeeded. Only an
// attempt that runs there, of a running job, is accepted.
func (s *State) TaskDone(ref TaskRef, from base.ExecutorID) []Effect {
	if _, ok := s.release(ref, from); !ok {
		return nil
	}
	if j := s.job(ref.Job); j != nil {
		st, i := j.task(ref)
		st.tasks[i].failures, st.tasks[i].losses = 0, 0
		again := st.out.accept(i, from)
		s.emit(Accepted{TaskRef: ref, Executor: from, Again: again})
	}
	return s.settle()
}

// TaskFailed is an executor's report that an attempt has failed.
func (s *State) TaskFailed(ref TaskRef, from base.ExecutorID, f Failure) []Effect {
	a, ok := s.release(ref, from)
	if !ok {
		return nil
	}
	if f.Kind == FetchFailed {
		s.loseFetched(f) // true even if the job that found it has ended
	}
	j := s.job(ref.Job)
	if j == nil {
		return s.settle()
	}
	st, i := j.task(ref)
	st.out.stop(i)
	st.out.parts[i].avoid = from
	switch f.Kind {
	case Cancelled:
		s.countLoss(ref, Cancelled, fmt.Sprintf("executor %q gave the task up: %s", from, f.Message))
	case Final:
		s.fail(j, st, i, Final, f.Message)
	case FetchFailed:
		if a.round == st.round {
			st.round++
		}
		if st.round >= s.cfg.MaxStageAttempts {
			s.fail(j, st, i, FetchFailed, f.fetchMessage())
		}
	default: // UserError, and kinds that no executor should report
		st.tasks[i].failures++
		if st.tasks[i].failures >= s.cfg.MaxTaskFailures {
			s.fail(j, st, i, f.Kind, f.Message)
		}
	}
	return s.settle()
}

// Cancel ends a running job; it fails with kind [Cancelled].
func (s *State) Cancel(id base.JobID, reason string) []Effect {
	j := s.job(id)
	if j == nil {
		return nil
	}
	s.end(j, JobFailed{Job: id, Stage: -1, Part: -1, Kind: Cancelled, Message: reason})
	return s.settle()
}

// Forget drops the outputs of a shuffle: at once, or when the last running job
// that writes or reads it ends. A job that reads it and comes before that end
// takes the request back.
func (s *State) Forget(shuffle string) []Effect {
	if o := s.shuffles[shuffle]; o != nil {
		o.forget = true
		s.dropForgotten()
	}
	return nil
}

// stop returns a task that no longer runs to the idle ones.
func (s *State) stop(ref TaskRef) {
	if j := s.job(ref.Job); j != nil {
		st, i := j.task(ref)
		st.out.stop(i)
	}
}

// countLoss fails the job of a task whose executor stopped running it if that
// has happened to the task too often.
func (s *State) countLoss(ref TaskRef, kind FailKind, msg string) {
	j := s.job(ref.Job)
	if j == nil {
		return
	}
	st, i := j.task(ref)
	st.tasks[i].losses++
	if st.tasks[i].losses >= s.cfg.MaxTaskFailures {
		s.fail(j, st, i, kind, msg)
	}
}

// loseFetched forgets the output that could not be fetched. Its next attempt
// avoids the executor that did not serve it.
func (s *State) loseFetched(f Failure) {
	o := s.shuffles[f.Shuffle]
	if o == nil || f.MapPart < 0 || f.MapPart >= len(o.parts) {
		return
	}
	at := o.parts[f.MapPart].at
	if at == "" || f.From != "" && f.From != at {
		return
	}
	o.lose(f.MapPart)
	o.parts[f.MapPart].avoid = at
}

func (f Failure) fetchMessage() string {
	e := base.FetchError{Shuffle: f.Shuffle, MapPart: f.MapPart, From: f.From, Reason: f.Message}
	return e.Error()
}

// fail ends a job because of a task. Part i is an index into st.parts, or -1
// if the stage as a whole is at fault.
func (s *State) fail(j *job, st *stage, i int, kind FailKind, msg string) {
	f := JobFailed{Job: j.id, Stage: st.id, Part: -1, Kind: kind, Message: msg}
	if i >= 0 {
		f.Part, f.Attempts = st.parts[i], int(st.tasks[i].next)
	}
	s.end(j, f)
}

// end removes a job and cancels what it still runs; those attempts keep their
// slots. The last effect is how it ended.
func (s *State) end(j *job, how Effect) {
	s.jobs = slices.DeleteFunc(s.jobs, func(x *job) bool { return x == j })
	for _, e := range s.executors {
		for _, a := range e.running {
			if a.ref.Job == j.id {
				st, i := j.task(a.ref)
				st.out.stop(i)
				s.emit(CancelTask{TaskRef: a.ref, Executor: e.id})
			}
		}
	}
	s.emit(how)
	s.dropForgotten()
}

func (s *State) dropForgotten() {
	maps.DeleteFunc(s.shuffles, func(_ string, o *output) bool {
		return o.forget && !slices.ContainsFunc(s.jobs, func(j *job) bool { return j.uses(o) })
	})
}

func (s *State) runsTaskOf(id base.JobID) bool {
	return slices.ContainsFunc(s.executors, func(e *executor) bool {
		return slices.ContainsFunc(e.running, func(a attempt) bool { return a.ref.Job == id })
	})
}

func (s *State) job(id base.JobID) *job {
	for _, j := range s.jobs {
		if j.id == id {
			return j
		}
	}
	return nil
}

func (s *State) emit(e Effect) { s.effects = append(s.effects, e) }
