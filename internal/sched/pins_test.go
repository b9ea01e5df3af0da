package sched_test

import (
	"slices"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/sched"
)

func launches(effects []sched.Effect) (out []string) {
	for _, e := range effects {
		if l, ok := e.(sched.Launch); ok {
			out = append(out, l.TaskRef.String()+"@"+string(l.Executor))
		}
	}
	return out
}

// TestPinnedTaskWaitsForItsExecutorAndNoOther: state lives on one executor, so
// a task that changes it must run there while that lives; others pass it by.
func TestPinnedTaskWaitsForItsExecutorAndNoOther(t *testing.T) {
	s := sched.New(sched.Config{})
	s.AddExecutor("a", 1)
	s.AddExecutor("b", 2)
	job := sched.Job{ID: 1, Stages: []sched.Stage{{ID: 0, Parts: []int{0, 1, 2}, Pins: []base.ExecutorID{"a", "a", "b"}}}}
	if got, want := launches(s.Submit(job)), []string{"1/0/0#0@a", "1/0/2#0@b"}; !slices.Equal(got, want) {
		t.Fatalf("launched %v, want %v: partition 1 waits for a, partition 2 does not wait for partition 1", got, want)
	}
	if got, want := launches(s.TaskFailed(sched.TaskRef{Job: 1, Part: 0}, "a", sched.Failure{Message: "x"})), []string{"1/0/0#1@a"}; !slices.Equal(got, want) {
		t.Fatalf("a retry launched %v, want %v", got, want)
	}
	if got, want := launches(s.LoseExecutor("a", "gone")), []string{"1/0/0#2@b"}; !slices.Equal(got, want) {
		t.Fatalf("after the loss of a launched %v, want %v: anybody may run it now", got, want)
	}
}

func TestPinsThatDoNotFitThePartitionsAreRefused(t *testing.T) {
	s := sched.New(sched.Config{})
	for _, e := range s.Submit(sched.Job{ID: 1, Stages: []sched.Stage{{Parts: []int{0, 1}, Pins: []base.ExecutorID{"a"}}}}) {
		if f, ok := e.(sched.JobFailed); ok && f.Kind == sched.Final {
			return
		}
	}
	t.Error("a job with one pin for two partitions was taken")
}
