package sched_test

import (
	"fmt"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/sched"
)

// BenchmarkTwoStages schedules a job of 1000 map and 1000 result tasks on 50
// executors of 4 slots.
func BenchmarkTwoStages(b *testing.B) {
	const tasks = 1000
	s := sched.New(sched.Config{})
	for i := range 50 {
		s.AddExecutor(base.ExecutorID(fmt.Sprintf("e%d", i)), 4)
	}
	job := sched.Job{Stages: []sched.Stage{
		{ID: 0, Shuffle: "x", Parts: upTo(tasks)},
		{ID: 1, Parts: upTo(tasks), Reads: []string{"x"}},
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
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*tasks), "ns/task")
}
