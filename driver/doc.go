// Package driver runs one job: it cuts time into batches, plans each batch
// before it runs, schedules its tasks on executors, tracks received blocks,
// and places receivers.
//
// The order is the point. A plan is in the log before any task of its batch
// starts (Invariant 3); a block is in the log before the receiver hears so
// (Invariant 1); a batch is done in the log before anything that it alone
// needed is released (Invariant 5). The log is an interface; memory changes
// only after an append succeeded (Invariant 14).
//
// [Journal] is the durable log: events in a write-ahead log, and snapshots of
// the [Facts] that they add up to. A driver that goes on where an earlier one
// was gets facts by [Driver.GoOn]: it opens its epoch in the log (Invariant 7),
// runs pending batches first, as they were planned, without the outputs that
// are done (Invariants 3, 4), and starts receivers behind the newest added
// block. [ReadFacts] and [SkipBatch] are for a job that does not run.
//
// Pure cores decide: [Generator] says which batch comes next, [Tracker] keeps
// the received blocks, [RateControl] their rates, Facts the log's meaning,
// package sched the tasks. Thin shells run them, with one goroutine each: the
// planner asks sources and appends plans, the runner takes planned batches one
// at a time, the scheduler's loop owns sched.State, the journal makes
// snapshots, and the listener bus calls listeners. User code of the driver runs
// on goroutines of its own, so that it can be left behind when it does not end.
//
// Where the input of a batch is, on which executors and hosts, is a hint to the
// scheduler: found out when the batch is planned, kept in memory, in no plan.
//
// Locks are taken in the order lineage (lmu), tables (mu), tracker (tmu). The
// journal's own lock gives events their order, and the state book's comes
// before it: a merge is in the log and in the book at once. None is held across IO, a wait, or a call of user code, but for Transform
// functions, which run under the lineage lock; messages to executors are
// queued without waiting, so plans are sent under it, in order.
package driver
