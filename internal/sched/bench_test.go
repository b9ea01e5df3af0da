package sched_test

import (
	"fmt"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/sched"
)

// BenchmarkTwoStages schedules a job of 1000 map and 1000 result tasks on 50
// executors of 4 slots.
func BenchmarkTwoStages(b *testing.B) { twoStages(b, nil) }

// BenchmarkPreferredHosts is that with three preferred hosts for each map task.
func BenchmarkPreferredHosts(b *testing.B) {
	prefers := make([][]string, benchTasks)
	for i := range prefers {
		for k := range 3 {
			prefers[i] = append(prefers[i], fmt.Sprintf("host%d", (i+17*k)%50))
		}
	}
	twoStages(b, prefers)
}

const benchTasks = 1000

func twoStages(b *testing.B, prefers [][]string) {
	s := sched.New(sched.Config{})
	for i := range 50 {
		s.AddExecutor(base.ExecutorID(fmt.Sprintf("e%d", i)), fmt.Sprintf("host%d", i), 4)
	}
	job := sched.Job{Stages: []sched.Stage{
		{ID: 0, Shuffle: "x", Parts: upTo(benchTasks), Prefers: prefers},
		{ID: 1, Parts: upTo(benchTasks), Reads: []string{"x"}},
	}}
	b.ReportAllocs()
	for b.Loop() {
		job.ID++
		done := false
		todo := s.Submit(job)
		for len(todo) > 0 {
			var next []sched.Effect
			for _, e := range todo {
				switch e := e.(type) {
				case sched.Launch:
					next = append(next, s.TaskDone(e.TaskRef, e.Executor)...)
				case sched.JobDone:
					done = true
				}
			}
			todo = next
		}
		if !done {
			b.Fatal("job is not done")
		}
		s.Forget("x")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*benchTasks), "ns/task")
}
