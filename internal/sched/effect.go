package sched

import (
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
)

// Effect is something the shell is to do or to know, in the order given. It is
// one of the types of this file.
type Effect interface {
	fmt.Stringer
	effect()
}

// Launch asks to start an attempt on an executor. The places of its inputs are
// those that [State.Locations] gives before the next event.
type Launch struct {
	TaskRef
	Executor base.ExecutorID
}

// CancelTask asks an executor to give up an attempt. Its slot stays taken until
// the executor reports the attempt or is lost.
type CancelTask struct {
	TaskRef
	Executor base.ExecutorID
}

// Accepted says that this completion counts: its result is the one to use.
type Accepted struct {
	TaskRef
	Executor base.ExecutorID
	// Again is set if an earlier completion of the same map task, in this job
	// or another, had been accepted and its output was lost since. What is
	// merged once a task, such as counters, was merged then.
	Again bool
}

// StageSkipped says that nothing needs the stage to run, so far.
type StageSkipped struct {
	Job   base.JobID
	Stage base.StageID
}

// StageStarted says that the inputs of the stage are complete and how many
// tasks it misses; another job may be running some of them. It comes again, as
// does [StageDone], if outputs of a done or skipped stage were lost.
type StageStarted struct {
	Job   base.JobID
	Stage base.StageID
	Tasks int
}

// StageDone says that no task of a started stage is missing.
type StageDone struct {
	Job   base.JobID
	Stage base.StageID
}

// JobDone says that all tasks of the result stage were accepted.
type JobDone struct {
	Job base.JobID
}

// JobFailed says that the job ended without its result. Stage and Part are -1
// if none is at fault; Attempts counts the launches of the task.
type JobFailed struct {
	Job      base.JobID
	Stage    base.StageID
	Part     int
	Attempts int
	Kind     FailKind
	Message  string
}

// Waiting says that the job cannot go on because there is no executor. It comes
// once until one is added.
type Waiting struct {
	Job base.JobID
}

func (Launch) effect()       {}
func (CancelTask) effect()   {}
func (Accepted) effect()     {}
func (StageSkipped) effect() {}
func (StageStarted) effect() {}
func (StageDone) effect()    {}
func (JobDone) effect()      {}
func (JobFailed) effect()    {}
func (Waiting) effect()      {}

func (e Launch) String() string     { return fmt.Sprintf("launch %v on %s", e.TaskRef, e.Executor) }
func (e CancelTask) String() string { return fmt.Sprintf("cancel %v on %s", e.TaskRef, e.Executor) }

func (e Accepted) String() string {
	if e.Again {
		return fmt.Sprintf("accepted %v from %s, again", e.TaskRef, e.Executor)
	}
	return fmt.Sprintf("accepted %v from %s", e.TaskRef, e.Executor)
}

func (e StageSkipped) String() string { return fmt.Sprintf("stage %d/%d skipped", e.Job, e.Stage) }

func (e StageStarted) String() string {
	return fmt.Sprintf("stage %d/%d started, %d tasks", e.Job, e.Stage, e.Tasks)
}

func (e StageDone) String() string { return fmt.Sprintf("stage %d/%d done", e.Job, e.Stage) }
func (e JobDone) String() string   { return fmt.Sprintf("job %d done", e.Job) }
func (e Waiting) String() string   { return fmt.Sprintf("job %d waits for an executor", e.Job) }

func (e JobFailed) String() string {
	at := ""
	switch {
	case e.Part >= 0:
		at = fmt.Sprintf(" at stage %d, partition %d, after %d attempts", e.Stage, e.Part, e.Attempts)
	case e.Stage >= 0:
		at = fmt.Sprintf(" at stage %d", e.Stage)
	}
	return fmt.Sprintf("job %d failed%s (%v): %s", e.Job, at, e.Kind, e.Message)
}
