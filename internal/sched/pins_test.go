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
	s.AddExecutor("a", "", 1)
	s.AddExecutor("b", "", 2)
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

// TestPinComesBeforePreferredPlaces: what holds the state counts, wherever the
// input is; without it the input does.
func TestPinComesBeforePreferredPlaces(t *testing.T) {
	s := sched.New(sched.Config{})
	s.AddExecutor("a", "h1", 1)
	s.AddExecutor("b", "h2", 1)
	s.AddExecutor("c", "h3", 2)
	job := sched.Job{ID: 1, Stages: []sched.Stage{{
		Parts:   []int{0, 1, 2},
		Pins:    []base.ExecutorID{"a", "gone", ""},
		Prefers: [][]string{{"h2"}, {"h2"}, {"h2"}},
	}}}
	if got, want := launches(s.Submit(job)), []string{"1/0/0#0@a", "1/0/1#0@b", "1/0/2#0@c"}; !slices.Equal(got, want) {
		t.Fatalf("launched %v, want %v", got, want)
	}
}

func TestPlacesThatDoNotFitThePartitionsAreRefused(t *testing.T) {
	for what, st := range map[string]sched.Stage{
		"one pin":               {Parts: []int{0, 1}, Pins: []base.ExecutorID{"a"}},
		"one list of preferred": {Parts: []int{0, 1}, Prefers: [][]string{{"a"}}},
	} {
		s := sched.New(sched.Config{})
		effects := s.Submit(sched.Job{ID: 1, Stages: []sched.Stage{st}})
		if f, ok := effects[0].(sched.JobFailed); !ok || f.Kind != sched.Final {
			t.Errorf("%s for two partitions: %v", what, effects)
		}
	}
}
