package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/internal/sched"
)

// job asks for a node's partitions to be computed and used in one way.
type job struct {
	batch  base.BatchTime
	node   *plan.Node
	parts  []int
	kind   rpc.TaskKind
	limit  int
	output base.UID

	id       base.JobID
	stages   []plan.Stage
	results  map[int]rpc.TaskDone
	cause    error // of the last failure of a task, in full
	restarts int
	done     chan struct{}
	err      error
	cancel   string // why it is being cancelled
}

// maxRestarts bounds how often a job is cut into stages anew because a kept
// partition that it counted on was gone.
const maxRestarts = 4

// scheduler is the shell around sched.State: one goroutine, the loop, owns
// all of it and runs the effects.
type scheduler struct {
	d     *Driver
	state *sched.State

	jobs    map[base.JobID]*job
	nextJob base.JobID
	kept    map[plan.CacheKey]base.ExecutorID
	byset   map[base.DataSet]*setFacts
	places  map[base.DataSet][][]plan.Place // of what sources gave, by partition
	batch   []*rpc.StageTasks               // launches of the running event, grouped
	to      []base.ExecutorID               // the executor of each group

	mu     sync.Mutex
	queue  []func()
	closed bool
	wake   chan struct{}
	ended  chan struct{}
}

// setFacts is what the scheduler forgets when a data set is released.
type setFacts struct {
	shuffles map[string]bool
	kept     []plan.CacheKey
	hashes   map[string]uint64 // content hashes, in checked mode
}

func newScheduler(d *Driver, cfg sched.Config) *scheduler {
	s := &scheduler{
		d: d, state: sched.New(cfg), jobs: map[base.JobID]*job{},
		kept: map[plan.CacheKey]base.ExecutorID{}, byset: map[base.DataSet]*setFacts{},
		places: map[base.DataSet][][]plan.Place{},
		wake:   make(chan struct{}, 1), ended: make(chan struct{}),
	}
	go s.run()
	return s
}

// do queues f for the loop. After close it does nothing and reports false.
func (s *scheduler) do(f func()) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	s.queue = append(s.queue, f)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

func (s *scheduler) run() {
	defer close(s.ended)
	for range s.wake {
		for {
			s.mu.Lock()
			fs := s.queue
			s.queue = nil
			closed := s.closed
			s.mu.Unlock()
			if len(fs) == 0 {
				if closed {
					for id := range s.jobs {
						s.finish(id, base.ErrStopped)
					}
					return
				}
				break
			}
			for _, f := range fs {
				f()
			}
		}
	}
}

// close ends the loop once all that was queued is done, and the jobs that are left.
func (s *scheduler) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	<-s.ended
}

// runJob runs a job to its end, or not at all if ctx has ended already. When
// ctx or the driver ends first the job is cancelled. After a failure or a cancellation tasks of it may still run: they
// have been told to stop, their slots are taken until they do, and what they
// return is dropped. What they write must be kept apart by attempt.
func (s *scheduler) runJob(ctx context.Context, j *job) (map[int]rpc.TaskDone, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	j.done = make(chan struct{})
	j.results = map[int]rpc.TaskDone{}
	if !s.do(func() { s.submit(j) }) {
		return nil, base.ErrStopped
	}
	var cause error
	select {
	case <-j.done:
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-s.d.hard.Done():
		cause = context.Cause(s.d.hard)
	}
	if cause != nil {
		s.do(func() {
			j.cancel = fmt.Sprint(cause)
			s.apply(s.state.Cancel(j.id, j.cancel))
		})
		<-j.done
		if j.err != nil {
			return nil, cause
		}
	}
	if j.err != nil {
		return nil, &computeError{j.err}
	}
	return j.results, nil
}

// computeError says that a data set could not be computed.
type computeError struct{ error }

func (e *computeError) Unwrap() error { return e.error }

// submit cuts the job into stages and hands it to the scheduler.
func (s *scheduler) submit(j *job) {
	s.nextJob++
	j.id = s.nextJob
	s.jobs[j.id] = j
	j.stages = plan.Stages(j.node, j.parts, s.isKept)
	sj := sched.Job{ID: j.id}
	for _, st := range j.stages {
		ss := sched.Stage{ID: st.ID, Parts: st.Parts, Reads: st.Reads, Prefers: s.prefers(st)}
		if st.Shuffle != nil {
			ss.Shuffle = st.Shuffle.ID
			s.facts(st.Shuffle.Set).shuffles[ss.Shuffle] = true
		}
		if st.Shuffle == nil && j.kind == rpc.AdvanceTask {
			ss.Pins = s.d.states.owners(j.output, st.Parts)
		}
		sj.Stages = append(sj.Stages, ss)
	}
	s.apply(s.state.Submit(sj))
}

func (s *scheduler) facts(ds base.DataSet) *setFacts {
	f := s.byset[ds]
	if f == nil {
		f = &setFacts{shuffles: map[string]bool{}, hashes: map[string]uint64{}}
		s.byset[ds] = f
	}
	return f
}

func (s *scheduler) isKept(n *plan.Node) bool {
	for p := range n.Parts {
		if s.kept[plan.CacheKey{Node: n.ID, Part: p}] == "" {
			return false
		}
	}
	return true
}

// apply runs effects in order.
func (s *scheduler) apply(effects []sched.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case sched.Launch:
			s.launch(e)
			continue
		case sched.CancelTask:
			s.flush()
			if x := s.d.executor(e.Executor); x != nil {
				_ = x.Send(rpc.CancelTask{Job: e.Job, Stage: e.Stage, Task: rpc.TaskRef{Part: e.Part, Attempt: e.Attempt}})
			}
		case sched.JobDone:
			s.finish(e.Job, nil)
		case sched.JobFailed:
			s.flush()
			s.failed(e)
		case sched.Waiting:
			s.d.cfg.Log.Warn("a job waits: there is no executor", "job", e.Job)
		}
	}
	s.flush()
}

// launch adds a task to the messages that the running event sends.
func (s *scheduler) launch(e sched.Launch) {
	ref := rpc.TaskRef{Part: e.Part, Attempt: e.Attempt}
	for i, m := range s.batch {
		if s.to[i] == e.Executor && m.Job == e.Job && m.Stage == e.Stage {
			m.Tasks = append(m.Tasks, ref)
			s.addState(m, e)
			return
		}
	}
	j := s.jobs[e.Job]
	st := j.stages[e.Stage]
	m := &rpc.StageTasks{
		Batch: j.batch, Job: e.Job, Stage: e.Stage, Kind: j.kind, Node: st.Root.ID,
		Limit: j.limit, Output: j.output, Tasks: []rpc.TaskRef{ref},
	}
	if st.Shuffle != nil {
		m.Kind, m.Shuffle, m.Reader = rpc.MapTask, st.Shuffle.ID, st.Shuffle.Set
	}
	for _, id := range st.Reads {
		m.Inputs = append(m.Inputs, rpc.ShuffleAt{Shuffle: id, At: s.state.Locations(id)})
	}
	m.Kept = s.keptBy(st.Root)
	m.Emissions = s.d.states.emissionsOf(emitted(st.Root))
	s.addState(m, e)
	s.batch, s.to = append(s.batch, m), append(s.to, e.Executor)
}

// addState says which state a task of an advancing stage starts from.
func (s *scheduler) addState(m *rpc.StageTasks, e sched.Launch) {
	if m.Kind == rpc.AdvanceTask {
		m.States = append(m.States, s.d.states.at(m.Output, e.Part))
	}
}

// emitted lists what tasks computing n read of what stateful operators put aside.
func emitted(n *plan.Node) []plan.CacheKey {
	var out []plan.CacheKey
	visitNarrow(n, func(n *plan.Node) {
		if n.Kind == plan.Emitted {
			for p := range n.Parts {
				out = append(out, plan.CacheKey{Node: n.ID, Part: p})
			}
		}
	})
	return out
}

// visitNarrow visits n and what its own tasks compute, each once.
func visitNarrow(n *plan.Node, visit func(*plan.Node)) {
	seen := map[plan.ID]bool{}
	var walk func(*plan.Node)
	walk = func(n *plan.Node) {
		if seen[n.ID] {
			return
		}
		seen[n.ID] = true
		visit(n)
		for _, p := range n.Narrow {
			walk(p)
		}
	}
	walk(n)
}

// missing lists the partitions of an emission that no executor holds, the one
// that was not found included.
func (s *scheduler) missing(ds base.DataSet, parts, notFound int) []int {
	found := make(chan []int, 1)
	ok := s.do(func() {
		var out []int
		for p := range parts {
			key := plan.CacheKey{Node: plan.ID{Set: ds}, Part: p}
			if p == notFound {
				delete(s.kept, key)
			}
			if s.kept[key] == "" {
				out = append(out, p)
			}
		}
		found <- out
	})
	if !ok {
		return nil
	}
	return <-found
}

// keptBy lists where the kept partitions are that tasks computing n may use.
func (s *scheduler) keptBy(n *plan.Node) []rpc.KeptAt {
	if len(s.kept) == 0 {
		return nil
	}
	var out []rpc.KeptAt
	visitNarrow(n, func(n *plan.Node) {
		if n.Level == base.StorageNone && n.Kind != plan.Emitted {
			return
		}
		for p := range n.Parts {
			key := plan.CacheKey{Node: n.ID, Part: p}
			if at := s.kept[key]; at != "" {
				out = append(out, rpc.KeptAt{Key: key, At: at})
			}
		}
	})
	return out
}

// flush sends the gathered launches.
func (s *scheduler) flush() {
	for i, m := range s.batch {
		if x := s.d.executor(s.to[i]); x != nil {
			_ = x.Send(*m) // a lost executor's tasks are launched again when its Gone is seen
		}
	}
	s.batch, s.to = s.batch[:0], s.to[:0]
}

func (s *scheduler) finish(id base.JobID, err error) {
	j := s.jobs[id]
	delete(s.jobs, id)
	j.err = err
	close(j.done)
}

// failed ends a job, or starts it again where that can help.
func (s *scheduler) failed(e sched.JobFailed) {
	j := s.jobs[e.Job]
	if j.cancel == "" && e.Kind == sched.FetchFailed && j.restarts < maxRestarts && s.lostKept(j, e) {
		j.restarts++
		delete(s.jobs, e.Job)
		s.submit(j)
		return
	}
	err := j.cause
	if err == nil || e.Kind == sched.ExecutorLost || j.cancel != "" {
		err = errors.New(e.Message)
	}
	if e.Attempts > 1 {
		err = fmt.Errorf("%w (after %d attempts)", err, e.Attempts)
	}
	s.finish(e.Job, err)
}

// lostKept reports whether the stage that could not fetch was cut on the
// strength of a kept partition; those of the stage are then not counted on again.
func (s *scheduler) lostKept(j *job, e sched.JobFailed) bool {
	if int(e.Stage) < 0 || int(e.Stage) >= len(j.stages) {
		return false
	}
	any := false
	for _, k := range s.keptBy(j.stages[e.Stage].Root) {
		delete(s.kept, k.Key)
		any = true
	}
	return any || j.restarts == 0
}

// lose forgets what a lost executor held.
func (s *scheduler) lose(id base.ExecutorID) {
	for key, at := range s.kept {
		if at == id {
			delete(s.kept, key)
		}
	}
	s.apply(s.state.LoseExecutor(id, fmt.Sprintf("executor %s is lost", id)))
}

// release forgets the data sets that nothing reads any more, also those that
// failed.
func (s *scheduler) release(over func(base.DataSet) bool) {
	for ds, f := range s.byset {
		if !over(ds) {
			continue
		}
		for id := range f.shuffles {
			s.apply(s.state.Forget(id))
		}
		for _, k := range f.kept {
			delete(s.kept, k)
		}
		delete(s.byset, ds)
	}
	for ds := range s.places {
		if over(ds) {
			delete(s.places, ds)
		}
	}
}

// taskDone takes in the outcome of an attempt.
func (s *scheduler) taskDone(m rpc.TaskDone) {
	ref := sched.TaskRef{Job: m.Job, Stage: m.Stage, Part: m.Task.Part, Attempt: m.Task.Attempt}
	if m.Failure != nil {
		s.taskFailed(ref, m)
		return
	}
	effects := s.state.TaskDone(ref, m.Executor)
	j := s.jobs[m.Job]
	for _, e := range effects {
		if a, ok := e.(sched.Accepted); ok && j != nil {
			s.accepted(j, a, m)
		}
	}
	s.apply(effects)
}

func (s *scheduler) accepted(j *job, a sched.Accepted, m rpc.TaskDone) {
	st := j.stages[m.Stage]
	what := st.Root.ID.String()
	set := st.Root.ID.Set
	if st.Shuffle != nil {
		what, set = "shuffle "+st.Shuffle.ID, st.Shuffle.Set
	} else {
		j.results[m.Task.Part] = m
		what += fmt.Sprintf(" %d %s", j.kind, j.output)
	}
	facts := s.facts(set)
	for _, key := range m.Kept {
		s.kept[key] = m.Executor
		of := s.facts(key.Node.Set)
		of.kept = append(of.kept, key)
	}
	if !a.Again {
		s.d.count(m.Counters, j.batch)
	}
	if m.Hash != 0 && (st.Shuffle != nil || j.limit <= 0) { // a task with a limit sees a part of its input
		key := fmt.Sprintf("%s %d", what, m.Task.Part)
		if old, ok := facts.hashes[key]; ok && old != m.Hash && !s.d.lossy() {
			// Invariant 13: attempts at a partition must agree, record by record.
			s.d.fail(fmt.Errorf("batch %s: two attempts at partition %d of %s (%s) gave different records: functions must be deterministic",
				j.batch, m.Task.Part, st.Root.Op, what))
		}
		facts.hashes[key] = m.Hash
	}
	info := TaskInfo{Batch: j.batch, What: what, Partition: m.Task.Part, Attempt: m.Task.Attempt, Executor: m.Executor, Hash: m.Hash}
	tell(s.d.hard, s.d.bus, func(l TaskListener) { l.OnTaskCompleted(info) })
}

func (s *scheduler) taskFailed(ref sched.TaskRef, m rpc.TaskDone) {
	f := sched.Failure{Kind: sched.UserError, Message: m.Failure.Message}
	cause := error(m.Failure.Task)
	if m.Failure.Task == nil {
		cause = errors.New(m.Failure.Message)
	}
	switch m.Failure.Kind {
	case rpc.FetchFailure:
		f.Kind = sched.FetchFailed
		if x := m.Failure.Fetch; x != nil {
			f.Shuffle, f.From, f.MapPart = x.Shuffle, x.From, x.MapPart
			cause = x
		}
	case rpc.FinalFailure:
		f.Kind = sched.Final
	case rpc.EmissionFailure:
		f.Kind = sched.Final // the batch makes it again and runs a new job
		if m.Failure.Emitted != nil {
			cause = m.Failure.Emitted
		}
	case rpc.CancelledFailure:
		f.Kind = sched.Cancelled
	case rpc.LostFailure:
		if m.Failure.Lost != nil {
			cause = m.Failure.Lost
		}
		if s.d.cfg.OnLostBlocks != PolicySkip {
			f.Kind = sched.Final
			break
		}
		// The log hears of the loss before the task may go on without the
		// blocks. It is the same attempt then: nothing counts against the task.
		s.d.watchers.Go(func() {
			blocks := s.d.blocksOf(m.Failure.Lost)
			if len(blocks) == 0 { // of a batch that was released
				f.Kind = sched.Final
				s.do(func() { s.setCause(ref, cause); s.apply(s.state.TaskFailed(ref, m.Executor, f)) })
				return
			}
			s.d.giveUpPlanned(blocks, m.Failure.Lost.Reason)
			if x := s.d.executor(m.Executor); x != nil {
				_ = x.Send(rpc.BlocksLost{Blocks: blockIDs(blocks)}) // from now on it reads them as empty
			}
			s.do(func() { s.again(ref, m.Executor) })
		})
		return
	case rpc.UserFailure:
	}
	if f.Kind != sched.Cancelled {
		s.setCause(ref, cause)
		s.d.cfg.Log.Debug("task failed", "task", ref, "executor", m.Executor, "message", m.Failure.Message)
	}
	s.apply(s.state.TaskFailed(ref, m.Executor, f))
}

// again sends an attempt to its executor once more, unless nobody wants it by now.
func (s *scheduler) again(ref sched.TaskRef, at base.ExecutorID) {
	if s.jobs[ref.Job] == nil {
		s.apply(s.state.TaskFailed(ref, at, sched.Failure{Kind: sched.Cancelled}))
		return
	}
	s.launch(sched.Launch{TaskRef: ref, Executor: at})
	s.flush()
}

func (s *scheduler) setCause(ref sched.TaskRef, cause error) {
	if j := s.jobs[ref.Job]; j != nil {
		j.cause = cause
	}
}

// TaskDone implements [rpc.Driver].
func (d *Driver) TaskDone(m rpc.TaskDone) { d.sched.do(func() { d.sched.taskDone(m) }) }

func (d *Driver) executor(id base.ExecutorID) rpc.Executor {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.executors[id]
}
