package sched

import (
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
)

// Config bounds retries. Values below 1 mean the default.
type Config struct {
	// MaxTaskFailures is the number of failures of one task that fails its
	// job. Failures in user code and losses of the executor under the task are
	// counted apart. Default 4.
	MaxTaskFailures int
	// MaxStageAttempts is the number of rounds of fetch failures of one stage,
	// since it last was complete, that fails the job. Default 4.
	MaxStageAttempts int
}

const defaultAttempts = 4

func (c Config) withDefaults() Config {
	if c.MaxTaskFailures < 1 {
		c.MaxTaskFailures = defaultAttempts
	}
	if c.MaxStageAttempts < 1 {
		c.MaxStageAttempts = defaultAttempts
	}
	return c
}

// Job is what [State.Submit] takes. Its id must differ from those of all jobs
// of which tasks still run.
type Job struct {
	ID     base.JobID
	Stages []Stage // parents before children; exactly one result stage, the last
}

// Stage is a set of tasks without a shuffle between them.
type Stage struct {
	ID      base.StageID
	Shuffle string   // id of the shuffle its tasks write; "" for the result stage
	Parts   []int    // partitions to run: 0..n-1 of a map stage, any subset of the result stage
	Reads   []string // ids of shuffles that its tasks read, from earlier stages or earlier jobs
	// Pins names, for each of Parts, the executor that must run the task as long
	// as it lives, because it holds what the task changes. Nil pins nothing.
	Pins []base.ExecutorID
	// Prefers names, for each of Parts, the places that hold the input of the task,
	// best first: ids of executors and names of hosts. Nil prefers none.
	Prefers [][]string
}

// TaskRef names one attempt of one task.
type TaskRef struct {
	Job     base.JobID
	Stage   base.StageID
	Part    int
	Attempt base.Attempt
}

// String gives job/stage/partition#attempt.
func (r TaskRef) String() string {
	return fmt.Sprintf("%d/%d/%d#%d", r.Job, r.Stage, r.Part, r.Attempt)
}

// FailKind says what kind of failure ended a task or a job.
type FailKind uint8

const (
	// UserError is an error or panic of user code. It counts toward
	// Config.MaxTaskFailures.
	UserError FailKind = iota
	// FetchFailed says that a map output could not be read. The output is
	// forgotten and made again; it counts toward Config.MaxStageAttempts.
	FetchFailed
	// Final fails the job at once: no retry can help.
	Final
	// Cancelled says that the task was given up. A report of it that nobody
	// asked for is retried, and counted as if the executor had been lost.
	Cancelled
	// ExecutorLost is the kind of a job that failed because a task lost its
	// executor too often. Executors do not report it.
	ExecutorLost
)

var kindNames = [...]string{"user-error", "fetch-failed", "final", "cancelled", "executor-lost"}

func (k FailKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("fail-kind-%d", uint8(k))
}

// Failure is why a task failed. Shuffle, From and MapPart are read for
// [FetchFailed] only.
type Failure struct {
	Kind    FailKind
	Shuffle string
	// From is the executor that should have had the output. The output is
	// forgotten only if it is still thought to be there: a late report must not
	// cost the copy made meanwhile. Empty means wherever it is.
	From    base.ExecutorID
	MapPart int
	Message string
}

// check returns why a job cannot be run, or "". Shuffles of earlier jobs are
// looked up in known.
func (j Job) check(known map[string]*output) string {
	if len(j.Stages) == 0 {
		return "job has no stages"
	}
	ids := make(map[base.StageID]bool, len(j.Stages))
	writers := make(map[string]int, len(j.Stages))
	for i, st := range j.Stages {
		if ids[st.ID] {
			return fmt.Sprintf("stage %d is listed twice", st.ID)
		}
		ids[st.ID] = true
		if st.Pins != nil && len(st.Pins) != len(st.Parts) {
			return fmt.Sprintf("stage %d has %d pins for %d partitions", st.ID, len(st.Pins), len(st.Parts))
		}
		if st.Prefers != nil && len(st.Prefers) != len(st.Parts) {
			return fmt.Sprintf("stage %d has preferred places for %d tasks and %d partitions", st.ID, len(st.Prefers), len(st.Parts))
		}
		last := i == len(j.Stages)-1
		switch {
		case last && st.Shuffle != "":
			return fmt.Sprintf("stage %d is the last but writes shuffle %q: the result stage must come last", st.ID, st.Shuffle)
		case !last && st.Shuffle == "":
			return fmt.Sprintf("stage %d writes no shuffle but is not the last: only the result stage may", st.ID)
		}
		if !last {
			if _, twice := writers[st.Shuffle]; twice {
				return fmt.Sprintf("shuffle %q is written by two stages", st.Shuffle)
			}
			writers[st.Shuffle] = i
		}
	}
	for i, st := range j.Stages {
		if msg := st.checkParts(known); msg != "" {
			return msg
		}
		for _, id := range st.Reads {
			writer, ours := writers[id]
			switch {
			case ours && writer >= i:
				return fmt.Sprintf("stage %d reads shuffle %q, written by stage %d: parents must come before children", st.ID, id, j.Stages[writer].ID)
			case !ours && known[id] == nil:
				return fmt.Sprintf("stage %d reads unknown shuffle %q", st.ID, id)
			}
		}
	}
	return ""
}

func (st Stage) checkParts(known map[string]*output) string {
	seen := make(map[int]bool, len(st.Parts))
	for i, p := range st.Parts {
		switch {
		case p < 0:
			return fmt.Sprintf("stage %d has partition %d: must not be negative", st.ID, p)
		case seen[p]:
			return fmt.Sprintf("stage %d has partition %d twice", st.ID, p)
		case st.Shuffle != "" && p != i:
			return fmt.Sprintf("stage %d has partition %d at place %d: a map stage must list 0..n-1", st.ID, p, i)
		}
		seen[p] = true
	}
	if o := known[st.Shuffle]; o != nil && len(o.parts) != len(st.Parts) {
		return fmt.Sprintf("stage %d writes %d partitions of shuffle %q, which has %d", st.ID, len(st.Parts), st.Shuffle, len(o.parts))
	}
	return ""
}
