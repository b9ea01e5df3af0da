package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
)

// OutputRun is the driver's side of an output, called once per run of a batch
// in which the output has a data set.
type OutputRun func(ctx context.Context, b *OutputBatch) error

// OutputBatch is an output's view of one batch. It may be used until the
// output's run returns.
type OutputBatch struct {
	d    *Driver
	out  *graph.Output
	node *plan.Node
	t    base.BatchTime

	failed atomic.Bool // a job on the data set
}

// note keeps in mind whether a job failed. One that the caller cancelled did not.
func (b *OutputBatch) note(err error) {
	if failed := (*computeError)(nil); errors.As(err, &failed) {
		b.failed.Store(true)
	}
}

// Time is the batch time.
func (b *OutputBatch) Time() base.BatchTime { return b.t }

// Parts is the number of partitions.
func (b *OutputBatch) Parts() int { return b.node.Parts }

// Key is the same for all runs of this output at this batch: (job, run,
// operator, batch time).
func (b *OutputBatch) Key() string {
	return fmt.Sprintf("%s/%s/%s/%d", b.d.cfg.Job, b.d.cfg.Run, b.out.UID, int64(b.t))
}

// Stdout is where Print writes.
func (b *OutputBatch) Stdout() io.Writer { return b.d.cfg.Stdout }

// FS is the file system of outputs.
func (b *OutputBatch) FS() fsys.FS { return b.d.cfg.FS }

// Collect returns the records of every partition as frames.
func (b *OutputBatch) Collect(ctx context.Context) ([][]byte, error) {
	frames, err := b.d.collect(ctx, b.t, b.node, plan.All(b.node.Parts), -1)
	b.note(err)
	return frames, err
}

// Take returns frames that hold at least the first n records, if there are as
// many: it computes few partitions first, and more if those hold too little.
func (b *OutputBatch) Take(ctx context.Context, n int, count func(frames [][]byte) int) ([][]byte, error) {
	frames, err := b.d.take(ctx, b.t, b.node, n, count)
	b.note(err)
	return frames, err
}

// Count returns the number of records.
func (b *OutputBatch) Count(ctx context.Context) (int64, error) {
	n, err := b.d.countRecords(ctx, b.t, b.node)
	b.note(err)
	return n, err
}

// RunTasks runs the output's task on every partition and returns the results
// of the chosen attempts.
func (b *OutputBatch) RunTasks(ctx context.Context) ([][]byte, error) {
	j := &job{batch: b.t, node: b.node, parts: plan.All(b.node.Parts), kind: rpc.OutputTask, output: b.out.UID}
	out, err := results(b.d.sched.runJob(ctx, j))(j.parts)
	b.note(err)
	return out, err
}

func results(done map[int]rpc.TaskDone, err error) func(parts []int) ([][]byte, error) {
	return func(parts []int) ([][]byte, error) {
		if err != nil {
			return nil, err
		}
		out := make([][]byte, len(parts))
		for i, p := range parts {
			out[i] = done[p].Result
		}
		return out, nil
	}
}

func (d *Driver) collect(ctx context.Context, t base.BatchTime, n *plan.Node, parts []int, limit int) ([][]byte, error) {
	return results(d.sched.runJob(ctx, &job{batch: t, node: n, parts: parts, kind: rpc.CollectTask, limit: limit}))(parts)
}

func (d *Driver) take(ctx context.Context, t base.BatchTime, n *plan.Node, want int, count func([][]byte) int) ([][]byte, error) {
	var frames [][]byte
	for at, step := 0, 1; at < n.Parts && count(frames) < want; step *= 4 {
		to := min(n.Parts, at+step)
		more, err := d.collect(ctx, t, n, plan.All(to)[at:], want)
		if err != nil {
			return nil, err
		}
		frames = append(frames, more...)
		at = to
	}
	return frames, nil
}

func (d *Driver) countRecords(ctx context.Context, t base.BatchTime, n *plan.Node) (int64, error) {
	done, err := d.sched.runJob(ctx, &job{batch: t, node: n, parts: plan.All(n.Parts), kind: rpc.CountTask})
	var sum int64
	for _, r := range done {
		sum += r.Count
	}
	return sum, err
}

// Set is a remembered data set, as Slice gives it.
type Set struct {
	d    *Driver
	node *plan.Node
}

// Time is the batch time of the data set.
func (s Set) Time() base.BatchTime { return s.node.ID.Set.Time }

// Collect returns the records of every partition as frames.
func (s Set) Collect(ctx context.Context) ([][]byte, error) {
	return s.d.collect(ctx, s.Time(), s.node, plan.All(s.node.Parts), -1)
}

// Take is as [OutputBatch.Take].
func (s Set) Take(ctx context.Context, n int, count func(frames [][]byte) int) ([][]byte, error) {
	return s.d.take(ctx, s.Time(), s.node, n, count)
}

// Count returns the number of records.
func (s Set) Count(ctx context.Context) (int64, error) {
	return s.d.countRecords(ctx, s.Time(), s.node)
}

// Slice returns the data sets of op in [from, to]. Both ends are floored to
// the operator's slide (Spark 4.2). Times that were no batch, and future ones,
// give nothing; a forgotten one is an error.
func (d *Driver) Slice(uid base.UID, from, to base.BatchTime) ([]Set, error) {
	op := d.g.Op(uid)
	if op == nil {
		return nil, fmt.Errorf("slice: no operator %q", uid)
	}
	d.lmu.Lock()
	defer d.lmu.Unlock()
	from, to = from.Floor(op.Slide), to.Floor(op.Slide)
	if f := d.lineage.Forgotten(op); from <= to && d.first > 0 && max(from, d.first.CeilBoundary(op.Slide)) <= min(to, f) {
		return nil, fmt.Errorf("slice of %q from %s: data sets up to %s are forgotten, it remembers them for %v; call Remember with a longer duration", uid, from, f, op.Remember)
	}
	var out []Set
	for _, t := range d.lineage.Held(op) {
		if t < from || t > to {
			continue
		}
		n, err := d.lineage.DataSet(op, t)
		if err != nil {
			return nil, err
		}
		if n != nil {
			out = append(out, Set{d, n})
		}
	}
	return out, nil
}

// Remembered tells how long an operator's data sets are kept, and which are
// held now.
type Remembered struct {
	UID      base.UID
	Slide    int64 // milliseconds
	Remember int64 // milliseconds
	Held     []base.BatchTime
}

// Remembered tells of every operator.
func (d *Driver) Remembered() []Remembered {
	d.lmu.Lock()
	defer d.lmu.Unlock()
	var out []Remembered
	for _, op := range d.g.Ops {
		out = append(out, Remembered{UID: op.UID, Slide: op.Slide.Milliseconds(), Remember: op.Remember.Milliseconds(), Held: d.lineage.Held(op)})
	}
	return out
}
