package sched_test

import (
	"fmt"

	"github.com/tidemill/tidemill/internal/sched"
)

// A shell that believes every task to succeed at once.
func Example() {
	s := sched.New(sched.Config{})
	s.AddExecutor("a", "", 2)
	todo := s.Submit(sched.Job{ID: 1, Stages: []sched.Stage{
		{ID: 0, Shuffle: "words", Parts: []int{0, 1, 2}},
		{ID: 1, Parts: []int{0}, Reads: []string{"words"}},
	}})
	for len(todo) > 0 {
		e := todo[0]
		todo = todo[1:]
		fmt.Println(e)
		if l, ok := e.(sched.Launch); ok {
			todo = append(todo, s.TaskDone(l.TaskRef, l.Executor)...)
		}
	}
	fmt.Println(s.Locations("words"))
	// Output:
	// stage 1/0 started, 3 tasks
	// launch 1/0/0#0 on a
	// launch 1/0/1#0 on a
	// accepted 1/0/0#0 from a
	// launch 1/0/2#0 on a
	// accepted 1/0/1#0 from a
	// accepted 1/0/2#0 from a
	// stage 1/0 done
	// stage 1/1 started, 1 tasks
	// launch 1/1/0#0 on a
	// accepted 1/1/0#0 from a
	// stage 1/1 done
	// job 1 done
	// [a a a]
}
