// Package sched is the task scheduler as a pure state machine: an event goes
// in, effects come out. It has no IO, clock, goroutine, lock or randomness, and
// the same events give the same effects in the same order. A State belongs to
// one goroutine, the driver's shell, which runs the effects and turns what
// executors say into events.
//
// # Jobs, stages, outputs
//
// A job is a list of stages, parents first. All but the last write a shuffle,
// one map output a partition; the last, the result stage, writes none. A stage
// may start when every shuffle it reads is complete, and its tasks run only if
// something unfinished needs them:
//
//   - The map outputs of a shuffle are known by the shuffle's id, outlive the
//     job that made them, and go with [State.Forget] or with their executor.
//     A stage whose shuffle is complete is skipped, and so are its parents
//     unless another stage needs them.
//   - A missing map output runs once, however many running jobs need it: in the
//     oldest of them. If that job ends first, the next one runs it.
//   - When outputs are lost and a reader stage still has unfinished tasks, only
//     the lost partitions run again. Tasks of the reader not yet started wait,
//     those running go on.
//
// # Order
//
// Older jobs first, in a job earlier stages, in a stage lower partitions. A
// task that is pinned goes where it is pinned to while that lives, and waits for
// it. Others go
//
//   - to an executor at the first of their preferred places ([Stage].Prefers)
//     that has a free slot;
//   - else to any. They do not wait for a preferred one that is busy: there is no
//     clock here, and a short batch gains less from near data than it loses by an
//     idle executor.
//
// Among several it is the one with the most free slots, and of those the one added
// earlier. A retried task goes elsewhere than where it just failed if another
// executor has a free slot, be that at a preferred place or not.
//
// # What counts
//
// A completion or failure is heard only if that very attempt runs on that very
// executor; all else (duplicates, reports of lost executors, unknown jobs) is
// ignored (Invariant 7). So each task is accepted once, and a map task once more
// only after its accepted output was lost (then [Accepted].Again is set).
//
// A cancelled task, and one of a job that ended, keeps its slot until its
// executor reports it or is lost. A report of either kind frees the slot; its
// result is dropped. Meanwhile another job may run the same map partition, and
// a lost executor may go on with what runs again elsewhere: what two attempts
// write must be kept apart.
//
// # When a job fails
//
//   - a task failed [Config].MaxTaskFailures times in user code, or as often
//     with its executor lost under it (it may be what kills them);
//   - a stage met fetch failures in [Config].MaxStageAttempts rounds. A round
//     counts once, though each of its tasks reports another lost output;
//   - a failure of kind [Final], [State.Cancel], a job that makes no sense, or
//     a shuffle lost that no running job can write again.
//
// [JobDone] or [JobFailed] is the last effect that names a job. It comes after
// a [CancelTask] for each task that still runs.
//
// # Example
//
//	s := sched.New(sched.Config{})
//	s.AddExecutor("a", "host-1", 2)
//	for _, e := range s.Submit(job) {
//		switch e := e.(type) {
//		case sched.Launch:
//			send(e.Executor, e.TaskRef, s.Locations("words@12:00:05"))
//		case sched.JobDone:
//			...
//		}
//	}
package sched
