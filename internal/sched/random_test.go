package sched_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/sched"
)

// TestRandomEventsKeepTheRules runs random jobs under random events against a
// model that knows the rules of the package by other means: it recomputes
// everything from where outputs are and what runs.
func TestRandomEventsKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 120).Draw(t, "events") {
			w.randomEvent()
		}
		w.finish()
	})
}

// world is the model.
type world struct {
	*rapid.T
	cfg       sched.Config
	s, twin   *sched.State // given the same events; must give the same effects
	stages    []sched.Stage
	executors []*host
	jobs      []*liveJob
	shuffles  map[string]*shuffle
	running   []place // what executors run, cancelled ones included
	late      []place // what lost executors ran
	used      map[sched.TaskRef]bool
	avoid     map[task]base.ExecutorID // where it just failed, or was lost
	nextJob   base.JobID
	nextHost  int

	// Of the current event.
	done     place          // the attempt reported done, if it may be accepted
	failed   sched.FailKind // the kind reported
	cancel   base.JobID
	accepted int
}

type host struct {
	id    base.ExecutorID
	name  string
	slots int
}

// task is a part of a shuffle, or of the result of a job.
type task struct {
	output string
	part   int
}

type shuffle struct {
	at     []base.ExecutorID
	seen   []bool
	forget bool
}

type place struct {
	ref       sched.TaskRef
	at        base.ExecutorID
	cancelled bool
}

type liveJob struct {
	spec    sched.Job
	results map[int]bool                    // accepted parts of the result stage
	counts  map[base.StageID]map[[2]int]int // stage -> (part, kind) -> failures
	fetches map[base.StageID]int            // stage -> fetch failures
	waiting bool
}

func newWorld(t *rapid.T) *world {
	w := &world{
		T: t,
		cfg: sched.Config{
			MaxTaskFailures:  rapid.IntRange(1, 4).Draw(t, "failures"),
			MaxStageAttempts: rapid.IntRange(1, 4).Draw(t, "rounds"),
		},
		shuffles: make(map[string]*shuffle),
		used:     make(map[sched.TaskRef]bool),
		avoid:    make(map[task]base.ExecutorID),
		cancel:   -1,
	}
	w.s, w.twin = sched.New(w.cfg), sched.New(w.cfg)
	for i := range rapid.IntRange(0, 4).Draw(t, "shuffles") {
		st := sched.Stage{ID: base.StageID(i), Shuffle: string(rune('u' + i)), Parts: upTo(rapid.IntRange(0, 3).Draw(t, "maps"))}
		for _, parent := range w.stages {
			if rapid.Bool().Draw(t, "reads") {
				st.Reads = append(st.Reads, parent.Shuffle)
			}
		}
		w.stages = append(w.stages, st)
	}
	return w
}

func upTo(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

var kinds = []string{
	"done", "done", "done", "done", "done", "done", "submit", "submit", "add", "add",
	"user", "user", "fetch", "fetch", "lose", "cancelled", "final", "cancel", "forget", "late", "noise",
}

func (w *world) randomEvent() {
	switch kind := rapid.SampledFrom(kinds).Draw(w.T, "event"); kind {
	case "submit":
		w.submit()
	case "add":
		w.addExecutor()
	case "lose":
		if len(w.executors) > 0 {
			w.lose(rapid.SampledFrom(w.executors).Draw(w.T, "lost").id)
		}
	case "cancel":
		if len(w.jobs) > 0 {
			w.cancel = rapid.SampledFrom(w.jobs).Draw(w.T, "job").spec.ID
			id := w.cancel
			w.event(func(s *sched.State) []sched.Effect { return s.Cancel(id, "test") })
			if w.job(id) != nil {
				w.Fatalf("job %d survived Cancel", id)
			}
		}
	case "forget":
		if len(w.stages) > 0 {
			w.forget(rapid.SampledFrom(w.stages).Draw(w.T, "shuffle").Shuffle)
		}
	case "late":
		if len(w.late) > 0 {
			w.mustIgnore(rapid.SampledFrom(w.late).Draw(w.T, "late"))
		}
	case "noise":
		p := place{at: base.ExecutorID(fmt.Sprintf("e%d", rapid.IntRange(0, 5).Draw(w.T, "at")))}
		p.ref.Job = base.JobID(rapid.IntRange(0, 9).Draw(w.T, "job"))
		p.ref.Stage = base.StageID(rapid.IntRange(-1, 5).Draw(w.T, "stage"))
		p.ref.Part = rapid.IntRange(-1, 4).Draw(w.T, "part")
		p.ref.Attempt = base.Attempt(rapid.IntRange(-1, 3).Draw(w.T, "attempt"))
		if !slices.ContainsFunc(w.running, func(r place) bool { return r.ref == p.ref && r.at == p.at }) {
			w.mustIgnore(p)
		}
	default:
		if len(w.running) > 0 {
			i := rapid.IntRange(0, len(w.running)-1).Draw(w.T, "task")
			if kind == "done" {
				w.taskDone(i)
			} else {
				w.taskFailed(i, kind)
			}
		}
	}
}

func (w *world) submit() {
	job := sched.Job{ID: w.nextJob}
	w.nextJob++
	result := sched.Stage{ID: base.StageID(len(w.stages))}
	for part := range 4 {
		if rapid.Bool().Draw(w.T, "result") {
			result.Parts = append(result.Parts, part)
		}
	}
	want := make(map[string]bool)
	for _, st := range w.stages {
		if rapid.Bool().Draw(w.T, "read") {
			result.Reads = append(result.Reads, st.Shuffle)
			want[st.Shuffle] = true
		}
	}
	job.Stages = []sched.Stage{result}
	for _, st := range slices.Backward(w.stages) {
		// A shuffle that is known may be read without bringing its writer.
		if !want[st.Shuffle] || w.shuffles[st.Shuffle] != nil && rapid.IntRange(0, 3).Draw(w.T, "bring") == 0 {
			continue
		}
		job.Stages = slices.Insert(job.Stages, 0, st)
		for _, r := range st.Reads {
			want[r] = true
		}
	}
	for k := range job.Stages {
		job.Stages[k].Prefers = w.prefers(len(job.Stages[k].Parts))
	}
	for _, st := range job.Stages {
		if st.Shuffle != "" && w.shuffles[st.Shuffle] == nil {
			w.shuffles[st.Shuffle] = &shuffle{at: make([]base.ExecutorID, len(st.Parts)), seen: make([]bool, len(st.Parts))}
		}
		if st.Shuffle != "" {
			w.shuffles[st.Shuffle].forget = false
		}
		for _, r := range st.Reads {
			w.shuffles[r].forget = false
		}
	}
	w.jobs = append(w.jobs, &liveJob{
		spec: job, results: make(map[int]bool),
		counts: make(map[base.StageID]map[[2]int]int), fetches: make(map[base.StageID]int),
	})
	w.event(func(s *sched.State) []sched.Effect { return s.Submit(job) })
}

var places = []string{"h0", "h1", "h2", "e0", "e1", "e2", "e3", ""}

// prefers draws the places that the tasks of a stage prefer.
func (w *world) prefers(parts int) [][]string {
	if rapid.Bool().Draw(w.T, "no preference") {
		return nil
	}
	out := make([][]string, parts)
	for i := range out {
		out[i] = rapid.SliceOfN(rapid.SampledFrom(places), 0, 3).Draw(w.T, "places")
	}
	return out
}

func (w *world) addExecutor() {
	h := &host{
		id:    base.ExecutorID(fmt.Sprintf("e%d", w.nextHost)),
		name:  rapid.SampledFrom([]string{"h0", "h1", ""}).Draw(w.T, "host"),
		slots: rapid.IntRange(1, 3).Draw(w.T, "slots"),
	}
	w.nextHost++
	w.executors = append(w.executors, h)
	for _, j := range w.jobs {
		j.waiting = false
	}
	w.event(func(s *sched.State) []sched.Effect { return s.AddExecutor(h.id, h.name, h.slots) })
}

func (w *world) lose(id base.ExecutorID) {
	w.executors = slices.DeleteFunc(w.executors, func(h *host) bool { return h.id == id })
	var keep []place
	for _, p := range w.running {
		if p.at != id {
			keep = append(keep, p)
			continue
		}
		w.late = append(w.late, p)
		w.count(p, sched.ExecutorLost)
	}
	w.running = keep
	for _, sh := range w.shuffles {
		for i := range sh.at {
			if sh.at[i] == id {
				sh.at[i] = ""
			}
		}
	}
	w.event(func(s *sched.State) []sched.Effect { return s.LoseExecutor(id, "test") })
}

func (w *world) forget(id string) {
	if sh := w.shuffles[id]; sh != nil {
		sh.forget = true
	}
	w.event(func(s *sched.State) []sched.Effect { return s.Forget(id) })
}

func (w *world) taskDone(i int) {
	p := w.running[i]
	w.running = slices.Delete(w.running, i, i+1)
	want := 0
	if w.job(p.ref.Job) != nil {
		w.done, want = p, 1
	}
	w.event(func(s *sched.State) []sched.Effect { return s.TaskDone(p.ref, p.at) })
	if w.accepted != want {
		w.Fatalf("%v done: accepted %d times, want %d", p.ref, w.accepted, want)
	}
}

func (w *world) taskFailed(i int, kind string) {
	p := w.running[i]
	w.running = slices.Delete(w.running, i, i+1)
	f := sched.Failure{Message: "test"}
	switch kind {
	case "user":
		f.Kind = sched.UserError
	case "cancelled":
		f.Kind = sched.Cancelled
	case "final":
		f.Kind = sched.Final
	case "fetch":
		f.Kind = sched.FetchFailed
		if len(w.stages) > 0 {
			f.Shuffle = rapid.SampledFrom(w.stages).Draw(w.T, "shuffle").Shuffle
		}
		f.MapPart = rapid.IntRange(-1, 3).Draw(w.T, "part")
		if rapid.Bool().Draw(w.T, "named") {
			f.From = base.ExecutorID(fmt.Sprintf("e%d", rapid.IntRange(0, w.nextHost).Draw(w.T, "from")))
		}
		if sh := w.shuffles[f.Shuffle]; sh != nil && f.MapPart >= 0 && f.MapPart < len(sh.at) {
			if at := sh.at[f.MapPart]; at != "" && (f.From == "" || f.From == at) {
				sh.at[f.MapPart] = ""
				w.avoid[task{f.Shuffle, f.MapPart}] = at
			}
		}
		if j := w.job(p.ref.Job); j != nil {
			j.fetches[p.ref.Stage]++
		}
	}
	w.failed = f.Kind
	if w.job(p.ref.Job) != nil {
		w.avoid[w.task(p.ref)] = p.at
	}
	w.count(p, f.Kind)
	w.event(func(s *sched.State) []sched.Effect { return s.TaskFailed(p.ref, p.at, f) })
	if f.Kind == sched.Final && w.job(p.ref.Job) != nil {
		w.Fatalf("job %d survived a final failure", p.ref.Job)
	}
}

// mustIgnore reports an attempt that does not run at p.at, in both ways.
func (w *world) mustIgnore(p place) {
	before := w.s.Size()
	effects := slices.Concat(w.s.TaskDone(p.ref, p.at), w.s.TaskFailed(p.ref, p.at, sched.Failure{Kind: sched.Final}))
	if len(effects) > 0 || w.s.Size() != before {
		w.Fatalf("late or unknown %v at %s had effects %v", p.ref, p.at, effects)
	}
}

func (w *world) count(p place, kind sched.FailKind) {
	j := w.job(p.ref.Job)
	if j == nil {
		return
	}
	if kind == sched.Cancelled {
		kind = sched.ExecutorLost // counted together
	}
	m := j.counts[p.ref.Stage]
	if m == nil {
		m = make(map[[2]int]int)
		j.counts[p.ref.Stage] = m
	}
	m[[2]int{p.ref.Part, int(kind)}]++
}

func (w *world) job(id base.JobID) *liveJob {
	for _, j := range w.jobs {
		if j.spec.ID == id {
			return j
		}
	}
	return nil
}

// event gives an event to both schedulers, checks the effects one by one, and
// then that nothing was left undone.
func (w *world) event(give func(*sched.State) []sched.Effect) {
	w.accepted = 0
	effects := give(w.s)
	if d := cmp.Diff(effects, give(w.twin)); d != "" {
		w.Fatalf("same events, other effects:\n%s", d)
	}
	for _, e := range effects {
		w.Logf("  %v", e)
		w.check(e)
	}
	w.done, w.failed, w.cancel = place{}, 0, -1
	w.settled()
}

// finish lets every running task succeed: all jobs must end, and nothing remain.
func (w *world) finish() {
	if len(w.executors) == 0 {
		w.addExecutor()
	}
	for len(w.running) > 0 {
		w.taskDone(0) // each either ends an old attempt or makes a part for good
	}
	if len(w.jobs) > 0 {
		w.Fatalf("job %d never ended", w.jobs[0].spec.ID)
	}
	for _, st := range w.stages {
		w.forget(st.Shuffle)
	}
	for len(w.executors) > 0 {
		w.lose(w.executors[0].id)
	}
	if n := w.s.Size(); n != 0 {
		w.Fatalf("%d things remain in the state", n)
	}
}
