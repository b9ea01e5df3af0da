package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
)

// runAll is the runner's goroutine: it runs planned batches one at a time.
func (d *Driver) runAll() {
	for _, p := range d.recovered { // first, as they were planned (Invariant 3)
		if d.hard.Err() != nil {
			break
		}
		if err := d.runBatch(p); err != nil {
			d.fail(err)
		}
	}
	for p := range d.planned {
		if d.hard.Err() != nil {
			continue // an immediate stop leaves planned batches, and says so
		}
		if err := d.runBatch(p); err != nil {
			d.fail(err)
		}
	}
	d.mu.Lock()
	d.report.Graceful = d.hard.Err() == nil
	d.mu.Unlock()
	// Nothing more comes: what runs still in the background may end.
	d.cancel(base.ErrStopped)
}

// batchRun is one run of a batch.
type batchRun struct {
	d    *Driver
	plan *plan.Batch
	info BatchInfo
	// failed holds the data sets that failed in this run, why says of each.
	failed  []base.DataSet
	why     map[base.DataSet]error
	outputs []base.UID
	// applied holds the stateful operators that all their partitions advanced.
	applied map[base.UID]bool
}

// runBatch runs the outputs of a batch in the order of declaration and ends
// it in the log. Its error ends the job.
func (d *Driver) runBatch(p *planned) error {
	r := &batchRun{d: d, plan: p.plan, info: d.batchInfo(p.plan, p.at), why: map[base.DataSet]error{}, applied: map[base.UID]bool{}}
	t := p.plan.Time
	r.info.Started = time.Now()
	d.mu.Lock()
	d.batchCounters, d.batchCountersOf = nil, t
	d.mu.Unlock()
	// Transform functions run in there.
	at := base.TaskError{Set: base.DataSet{Time: t}, Operator: "the building of data sets"}
	if err := d.userCode(at, r.prepare); err != nil {
		return err
	}
	started := r.info
	tell(d.hard, d.bus, func(l BatchStartedListener) { l.OnBatchStarted(started) })
	if err := r.advance(); err != nil {
		return err
	}
	for i, o := range d.g.Outputs {
		if slices.Contains(p.outputs, o.UID) {
			continue // Invariant 4: recorded as done before the driver was started anew
		}
		if err := r.output(i, o); err != nil {
			return err
		}
		if d.hard.Err() != nil {
			return context.Cause(d.hard)
		}
	}
	if err := r.end(); err != nil {
		return err
	}
	r.settle()
	r.info.Ended = time.Now()
	d.mu.Lock()
	r.info.Counters = maps.Clone(d.batchCounters)
	d.mu.Unlock()
	done := r.info
	tell(d.hard, d.bus, func(l BatchCompletedListener) { l.OnBatchCompleted(done) })
	if err := d.rated(done); err != nil {
		return err
	}
	d.batchOver(t, done.Err != nil)
	return d.release(t)
}

// prepare hands the plan to the lineage and the executors.
func (r *batchRun) prepare() error {
	d := r.d
	d.lmu.Lock()
	defer d.lmu.Unlock()
	started := d.startedOps()
	d.lineage.SetStarted(started)
	if err := d.lineage.Add(r.plan); err != nil {
		return err
	}
	if d.first == 0 {
		d.first = r.plan.Time
	}
	var inputs []*plan.Op
	for _, o := range d.g.Outputs {
		inputs = append(inputs, o.Input)
	}
	// Invariant 3: the plan is durable, only now do executors hear of it.
	d.broadcast(rpc.Plan{Batch: *r.plan, Failed: d.lineage.Failed(), Started: started, Hash: d.lineage.Hash(r.plan.Time, inputs)})
	for _, op := range d.g.Ops {
		if op.Advance == nil {
			continue
		}
		if n, err := d.lineage.DataSet(op.Parents[0], r.plan.Time); n != nil || err != nil {
			if _, ok := d.begun[op.UID]; !ok {
				d.begun[op.UID] = r.plan.Time
			}
		}
	}
	return nil
}

// output runs one output, if it has a data set.
func (r *batchRun) output(i int, o *graph.Output) error {
	d, t := r.d, r.plan.Time
	d.lmu.Lock()
	node, err := d.lineage.DataSet(o.Input, t)
	d.lmu.Unlock()
	if err == nil && node == nil {
		err = r.failedBefore(o.Input, t)
		if err == nil {
			return nil // no data set, no job
		}
	}
	info := OutputInfo{Index: i, Output: o.UID, Time: t, Start: time.Now()}
	begun := info
	tell(d.hard, d.bus, func(l OutputStartedListener) { l.OnOutputStarted(begun) })
	if err == nil {
		node, err = r.run(o, node)
	}
	if err != nil && d.hard.Err() != nil {
		return context.Cause(d.hard) // stopped in the middle: the plan stays
	}
	if err == nil {
		// Not waited for: an output looks for its own marker before it writes.
		if err := d.post(OutputDone{Time: t, Output: o.UID}); err != nil {
			return err
		}
	} else {
		r.fail(o, node, err)
	}
	info.End, info.Err = time.Now(), err
	r.info.Outputs = append(r.info.Outputs, info)
	tell(d.hard, d.bus, func(l OutputCompletedListener) { l.OnOutputCompleted(info) })
	if err != nil && d.cfg.OnBatchFailure != PolicyContinue {
		return fmt.Errorf("batch %s failed: output %q: %w", t, o.UID, err)
	}
	return nil
}

// failedBefore says why an operator has no data set, if this run met the
// failure before.
func (r *batchRun) failedBefore(op *plan.Op, t base.BatchTime) error {
	for _, ds := range r.failed {
		if ds.Time == t && dependsOn(op, ds.UID) {
			return fmt.Errorf("data set %s, which it depends on, failed: %w", ds, r.why[ds])
		}
	}
	return nil
}

func dependsOn(op *plan.Op, uid base.UID) bool {
	if op.UID == uid {
		return true
	}
	for _, p := range op.Parents {
		if dependsOn(p, uid) {
			return true
		}
	}
	return false
}

// run runs the driver's side of an output, which may be user code. It returns
// the data set again if that could not be computed: an output's own failure is
// no fault of what it reads, which other outputs and later batches read too.
func (r *batchRun) run(o *graph.Output, node *plan.Node) (blame *plan.Node, err error) {
	b := &OutputBatch{d: r.d, out: o, node: node, t: r.plan.Time}
	at := base.TaskError{Set: base.DataSet{UID: o.UID, Time: r.plan.Time}, Operator: fmt.Sprintf("%s %q", o.Kind, o.UID)}
	err = r.withEmissions(func() error {
		return r.d.userCode(at, func() error { return o.Run.(OutputRun)(r.d.hard, b) })
	})
	if b.failed.Load() {
		blame = node
	}
	return blame, err
}

// fail records a failed output and the data sets that are to blame, if it was
// not the output's own doing. Later readers take them as empty.
func (r *batchRun) fail(o *graph.Output, node *plan.Node, err error) {
	d := r.d
	if r.info.Err == nil {
		r.info.Err = fmt.Errorf("output %q: %w", o.UID, err)
	}
	r.outputs = append(r.outputs, o.UID)
	var task *base.TaskError
	var lost *base.LostBlocksError
	var sets []base.DataSet
	switch {
	case errors.As(err, &lost) && len(lost.Blocks) > 0:
		sets = append(sets, base.DataSet{UID: lost.Blocks[0].Stream, Time: lost.Batch})
	case errors.As(err, &task):
		if d.g.Op(task.Set.UID) != nil {
			sets = append(sets, task.Set)
		}
	case node != nil:
		sets = append(sets, node.ID.Set)
	}
	if node != nil && len(sets) > 0 && sets[0].Time != r.plan.Time {
		sets = append(sets, readersOf(node, sets[0])...)
	}
	d.lmu.Lock()
	for _, ds := range sets {
		d.lineage.Fail(ds)
	}
	d.lmu.Unlock()
	r.failed = append(r.failed, sets...)
	for _, ds := range sets {
		r.why[ds] = err
	}
	message := err.Error()
	if task != nil && task.Stack != "" {
		d.cfg.Log.Error("user code failed", "batch", r.plan.Time, "output", o.UID, "error", message, "stack", task.Stack)
	}
	if d.cfg.OnBatchFailure == PolicyContinue {
		d.alarm(Alarm{Kind: "batch-failed", Batch: r.plan.Time, Subject: string(o.UID), Message: fmt.Sprintf("batch %s: output %q failed, the job goes on: %s", r.plan.Time, o.UID, message)})
	}
}

// readersOf lists the data sets of n's batch that n is computed from and that
// are themselves computed from ds, of an earlier batch: they have failed too.
func readersOf(n *plan.Node, ds base.DataSet) []base.DataSet {
	reads := map[plan.ID]bool{}
	var find func(*plan.Node) bool
	find = func(x *plan.Node) bool {
		if found, ok := reads[x.ID]; ok {
			return found
		}
		found := x.ID.Set == ds
		for _, p := range x.Narrow {
			found = find(p) || found
		}
		for _, s := range x.Shuffles {
			found = find(s.Parent) || found
		}
		reads[x.ID] = found
		return found
	}
	find(n)
	var sets []base.DataSet
	for id, found := range reads {
		if found && id.Set.Time == n.ID.Set.Time && !slices.Contains(sets, id.Set) {
			sets = append(sets, id.Set)
		}
	}
	slices.SortFunc(sets, func(a, b base.DataSet) int { return cmp.Compare(a.UID, b.UID) })
	return sets
}

// end writes the end of the batch into the log (Invariant 4).
func (r *batchRun) end() error {
	d, t := r.d, r.plan.Time
	deltas, emissions, begun := d.states.deltas(r.applied), d.states.emitted(t), d.begunAt(t)
	var e Event = BatchDone{Time: t, States: deltas, Emissions: emissions, Begun: begun}
	if r.info.Err != nil {
		e = BatchFailed{Time: t, States: deltas, Emissions: emissions, Begun: begun, Sets: r.failed, Outputs: r.outputs, Reason: r.info.Err.Error()}
	}
	return d.append(d.hard, e)
}
