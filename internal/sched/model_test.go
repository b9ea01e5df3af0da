package sched_test

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/sched"
)

// check holds one effect against the model, and applies it.
func (w *world) check(e sched.Effect) {
	switch e := e.(type) {
	case sched.Launch:
		w.checkLaunch(e)
	case sched.Accepted:
		w.checkAccepted(e)
	case sched.CancelTask:
		i := slices.IndexFunc(w.running, func(p place) bool { return p.ref == e.TaskRef && p.at == e.Executor })
		if i < 0 || w.running[i].cancelled || w.job(e.Job) == nil {
			w.Fatalf("%v: does not run, was cancelled before, or its job has ended", e)
		}
		w.running[i].cancelled = true
	case sched.StageStarted:
		j, st := w.stage(e.Job, e.Stage)
		missing := w.missing(j, st)
		if len(missing) != e.Tasks || e.Tasks > 0 && !w.readable(st) {
			w.Fatalf("%v: misses %v, inputs complete: %v", e, missing, w.readable(st))
		}
	case sched.StageDone:
		j, st := w.stage(e.Job, e.Stage)
		if missing := w.missing(j, st); len(missing) > 0 {
			w.Fatalf("%v: misses %v", e, missing)
		}
	case sched.StageSkipped:
		j, _ := w.stage(e.Job, e.Stage)
		if w.needed(j)[e.Stage] {
			w.Fatalf("%v: but it is needed", e)
		}
	case sched.JobDone:
		j := w.job(e.Job)
		if j == nil || len(j.results) != len(j.result().Parts) {
			w.Fatalf("%v: no such job, or results are missing", e)
		}
		w.end(e.Job)
	case sched.JobFailed:
		w.checkFailed(e)
		w.end(e.Job)
	case sched.Waiting:
		j := w.job(e.Job)
		if j == nil || j.waiting || len(w.executors) > 0 {
			w.Fatalf("%v: no such job, said before, or not so", e)
		}
		j.waiting = true
	}
}

func (w *world) checkLaunch(e sched.Launch) {
	todo := w.launchable()
	if len(todo) == 0 || todo[0] != (sched.TaskRef{Job: e.Job, Stage: e.Stage, Part: e.Part}) {
		w.Fatalf("%v: what may start, in this order: %v", e, todo)
	}
	if w.used[e.TaskRef] {
		w.Fatalf("%v: this attempt was launched before", e)
	}
	w.used[e.TaskRef] = true
	if w.free(e.Executor) < 1 {
		w.Fatalf("%v: lost, or no free slot", e)
	}
	if want := w.best(e.TaskRef); e.Executor != want {
		w.Fatalf("%v: want %s", e, want)
	}
	w.running = append(w.running, place{ref: e.TaskRef, at: e.Executor})
}

// best sorts the executors with a free slot by the rules: the one to avoid last,
// before that by place, then by free slots, then by age.
func (w *world) best(ref sched.TaskRef) base.ExecutorID {
	_, st := w.stage(ref.Job, ref.Stage)
	var prefers []string
	if st.Prefers != nil {
		prefers = st.Prefers[slices.Index(st.Parts, ref.Part)]
	}
	avoid := w.avoid[w.task(ref)]
	rank := func(h *host) int {
		i := slices.IndexFunc(prefers, func(p string) bool { return p != "" && (p == h.name || p == string(h.id)) })
		switch {
		case h.id == avoid:
			return len(prefers) + 1
		case i < 0:
			return len(prefers)
		}
		return i
	}
	able := slices.DeleteFunc(slices.Clone(w.executors), func(h *host) bool { return w.free(h.id) == 0 })
	slices.SortStableFunc(able, func(a, b *host) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(w.free(b.id), w.free(a.id)))
	})
	return able[0].id
}

func (w *world) task(ref sched.TaskRef) task {
	_, st := w.stage(ref.Job, ref.Stage)
	return task{w.outputKey(ref.Job, st), ref.Part}
}

func (w *world) checkAccepted(e sched.Accepted) {
	if w.done.ref != e.TaskRef || w.done.at != e.Executor || w.done.cancelled {
		w.Fatalf("%v: not what was reported", e)
	}
	w.accepted++
	delete(w.avoid, w.task(e.TaskRef))
	j, st := w.stage(e.Job, e.Stage)
	if !slices.Contains(w.missing(j, st), e.Part) {
		w.Fatalf("%v: accepted before, and not lost since", e)
	}
	if st.Shuffle == "" {
		j.results[e.Part] = true
		if e.Again {
			w.Fatalf("%v: a result is never accepted again", e)
		}
		return
	}
	sh := w.shuffles[st.Shuffle]
	if e.Again != sh.seen[e.Part] {
		w.Fatalf("%v: accepted before: %v", e, sh.seen[e.Part])
	}
	sh.at[e.Part], sh.seen[e.Part] = e.Executor, true
}

// checkFailed holds a failed job against what happened to its tasks. The counts
// of the model never start anew, so they are bounds only.
func (w *world) checkFailed(e sched.JobFailed) {
	j := w.job(e.Job)
	if j == nil {
		w.Fatalf("%v: no such job", e)
	}
	counted := func(k sched.FailKind) int { return j.counts[e.Stage][[2]int{e.Part, int(k)}] }
	ok := false
	switch e.Kind {
	case sched.UserError:
		ok = counted(sched.UserError) >= w.cfg.MaxTaskFailures
	case sched.ExecutorLost:
		ok = counted(sched.ExecutorLost) >= w.cfg.MaxTaskFailures
	case sched.Cancelled:
		ok = e.Job == w.cancel || counted(sched.ExecutorLost) >= w.cfg.MaxTaskFailures
	case sched.Final:
		ok = w.failed == sched.Final
	case sched.FetchFailed:
		ok = j.fetches[e.Stage] >= w.cfg.MaxStageAttempts || e.Part < 0 && w.orphaned(j, e.Stage)
	}
	if !ok {
		w.Fatalf("%v: no reason to fail; failures %v, fetch failures %v", e, j.counts, j.fetches)
	}
}

// orphaned reports whether a stage reads something incomplete that no stage of
// a job could make.
func (w *world) orphaned(j *liveJob, id base.StageID) bool {
	_, st := w.stage(j.spec.ID, id)
	return slices.ContainsFunc(st.Reads, func(r string) bool {
		return !w.complete(r) && !w.written(r)
	})
}

// written reports whether a needed stage of a running job writes a shuffle.
func (w *world) written(id string) bool {
	return slices.ContainsFunc(w.jobs, func(j *liveJob) bool {
		needed := w.needed(j)
		return slices.ContainsFunc(j.spec.Stages, func(st sched.Stage) bool { return st.Shuffle == id && needed[st.ID] })
	})
}

func (w *world) end(id base.JobID) {
	for _, p := range w.running {
		if p.ref.Job == id && !p.cancelled {
			w.Fatalf("job %d ended, but %v was not cancelled", id, p.ref)
		}
	}
	w.jobs = slices.DeleteFunc(w.jobs, func(j *liveJob) bool { return j.spec.ID == id })
}

// settled checks that all that could be done after an event was done.
func (w *world) settled() {
	for id, sh := range w.shuffles {
		if sh.forget && !slices.ContainsFunc(w.jobs, func(j *liveJob) bool { return j.names(id) }) {
			delete(w.shuffles, id)
			maps.DeleteFunc(w.avoid, func(t task, _ base.ExecutorID) bool { return t.output == id })
		}
	}
	for _, st := range w.stages {
		sh, got := w.shuffles[st.Shuffle], w.s.Locations(st.Shuffle)
		if (sh == nil) != (got == nil) || sh != nil && !slices.Equal(sh.at, got) {
			w.Fatalf("shuffle %q is at %q, want %+v", st.Shuffle, got, sh)
		}
	}
	for _, j := range w.jobs {
		if len(j.results) == len(j.result().Parts) {
			w.Fatalf("job %d has all results and is not done", j.spec.ID)
		}
		if len(w.executors) == 0 && !j.waiting {
			w.Fatalf("job %d does not say that it waits", j.spec.ID)
		}
	}
	for _, h := range w.executors {
		if todo := w.launchable(); w.free(h.id) > 0 && len(todo) > 0 {
			w.Fatalf("%s has %d free slots, and %v may start", h.id, w.free(h.id), todo)
		}
	}
}

// launchable lists what may start, in the order in which it should.
func (w *world) launchable() []sched.TaskRef {
	var out []sched.TaskRef
	taken := make(map[string]map[int]bool) // of shuffles, by running jobs
	for _, p := range w.running {
		if w.job(p.ref.Job) == nil {
			continue
		}
		_, st := w.stage(p.ref.Job, p.ref.Stage)
		key := w.outputKey(p.ref.Job, st)
		if taken[key] == nil {
			taken[key] = make(map[int]bool)
		}
		taken[key][p.ref.Part] = true
	}
	for _, j := range w.jobs {
		needed := w.needed(j)
		for _, st := range j.spec.Stages {
			if !needed[st.ID] || !w.readable(&st) {
				continue
			}
			for _, part := range w.missing(j, &st) {
				if !taken[w.outputKey(j.spec.ID, &st)][part] {
					out = append(out, sched.TaskRef{Job: j.spec.ID, Stage: st.ID, Part: part})
				}
			}
		}
	}
	return out
}

func (w *world) outputKey(job base.JobID, st *sched.Stage) string {
	if st.Shuffle != "" {
		return st.Shuffle
	}
	return "result of " + sched.TaskRef{Job: job}.String()
}

// needed walks from the result stage to the stages whose work it waits for.
func (w *world) needed(j *liveJob) map[base.StageID]bool {
	out := make(map[base.StageID]bool)
	var visit func(st *sched.Stage)
	visit = func(st *sched.Stage) {
		if out[st.ID] || len(w.missing(j, st)) == 0 {
			return
		}
		out[st.ID] = true
		for _, r := range st.Reads {
			for k := range j.spec.Stages {
				if j.spec.Stages[k].Shuffle == r {
					visit(&j.spec.Stages[k])
				}
			}
		}
	}
	visit(j.result())
	return out
}

func (w *world) missing(j *liveJob, st *sched.Stage) []int {
	var out []int
	for _, p := range st.Parts {
		if st.Shuffle == "" && !j.results[p] || st.Shuffle != "" && w.shuffles[st.Shuffle].at[p] == "" {
			out = append(out, p)
		}
	}
	return out
}

func (w *world) complete(id string) bool { return !slices.Contains(w.shuffles[id].at, "") }

func (w *world) readable(st *sched.Stage) bool {
	return !slices.ContainsFunc(st.Reads, func(r string) bool { return !w.complete(r) })
}

func (w *world) free(id base.ExecutorID) int {
	for _, h := range w.executors {
		if h.id != id {
			continue
		}
		n := h.slots
		for _, p := range w.running {
			if p.at == id {
				n--
			}
		}
		return n
	}
	return 0
}

// stage returns a stage of a running job.
func (w *world) stage(job base.JobID, id base.StageID) (*liveJob, *sched.Stage) {
	if j := w.job(job); j != nil {
		for k := range j.spec.Stages {
			if st := &j.spec.Stages[k]; st.ID == id {
				return j, st
			}
		}
	}
	w.Fatalf("no running job %d with stage %d", job, id)
	return nil, nil
}

func (j *liveJob) result() *sched.Stage { return &j.spec.Stages[len(j.spec.Stages)-1] }

func (j *liveJob) names(id string) bool {
	return slices.ContainsFunc(j.spec.Stages, func(st sched.Stage) bool {
		return st.Shuffle == id || slices.Contains(st.Reads, id)
	})
}
