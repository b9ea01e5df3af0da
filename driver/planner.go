package driver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
)

// planAll is the planner's goroutine: it waits for batch times, plans batches
// and hands them to the runner, until the job stops.
func (d *Driver) planAll() {
	defer close(d.planned)
	if err := d.planTicks(); err != nil {
		d.fail(err)
		return
	}
	if d.hard.Err() != nil {
		return
	}
	// A graceful stop: what the receivers have accepted becomes blocks, the
	// blocks become batches, usually one. Offset and file sources take part in
	// the first. Boundaries of long slides that were missed come before that.
	d.stopReceivers()
	for first := true; d.awaitRoom(); first = false {
		d.mu.Lock()
		t, missed := d.gen.Drain(base.TimeOf(time.Now()))
		d.mu.Unlock()
		if blocks, _ := d.waiting(); blocks == 0 && !missed {
			return
		}
		if err := d.plan(t, first); err != nil {
			d.fail(err)
			return
		}
	}
}

// awaitRoom waits until one more batch may be pending; it returns false when
// the job has ended.
func (d *Driver) awaitRoom() bool {
	for d.hard.Err() == nil {
		d.mu.Lock()
		full := d.gen.Full()
		d.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-d.slot:
		case <-d.hard.Done():
		}
	}
	return false
}

func (d *Driver) planTicks() error {
	alarmed := false
	for {
		now := base.TimeOf(time.Now())
		d.mu.Lock()
		step := d.gen.Next(now)
		behind := d.gen.Behind(now)
		last := d.gen.Last()
		d.mu.Unlock()
		if behind && !alarmed {
			d.alarm(Alarm{Kind: "clock", Batch: last, Message: fmt.Sprintf("the clock says %s, more than a batch interval before the last batch %s: no batch starts until it has caught up", now, last)})
		}
		alarmed = behind
		var timer *time.Timer
		var tick <-chan time.Time
		switch {
		case step.Ready:
			if step.Skipped > 0 {
				d.alarm(Alarm{Kind: "skipped", Batch: step.Plan, Message: fmt.Sprintf("%d ticks before batch %s got no batch of their own: the job is behind, its sources wait", step.Skipped, step.Plan)})
			}
			if err := d.plan(step.Plan, true); err != nil {
				return err
			}
			if d.stopping() {
				return nil
			}
			continue
		case !step.Full:
			timer = time.NewTimer(time.Until(step.Wait.Time()))
			tick = timer.C
		}
		select {
		case <-tick:
		case <-d.slot:
		case <-d.stop:
		case <-d.hard.Done():
		}
		if timer != nil {
			timer.Stop()
		}
		if d.stopping() {
			return nil
		}
	}
}

// plan makes the plan of t, durable, and queues it (Invariant 3). planners
// says whether sources without receiver take part.
func (d *Driver) plan(t base.BatchTime, planners bool) error {
	b := &plan.Batch{Time: t}
	d.turns++
	limits := d.limits(d.turns)
	for i, s := range d.g.Sources {
		b.Inputs = append(b.Inputs, d.input(s, t, limits[i], planners))
	}
	for _, v := range d.g.Values {
		data, err := d.makeValue(v, t)
		if err != nil {
			return err
		}
		b.Values = append(b.Values, plan.Value{UID: v.UID, Data: data})
	}
	if err := d.append(d.hard, BatchPlanned{Batch: *b}); err != nil {
		return fmt.Errorf("batch %s: %w", t, err)
	}
	// What the log was given stays as it is.
	b.Inputs = slices.Clone(b.Inputs)
	// The log has it: now memory may change.
	for i, s := range d.g.Sources {
		in := b.Inputs[i]
		if s.Planner != nil {
			if planners && !in.Absent {
				s.Planner.Planned(t, in)
			}
			continue
		}
		d.allocate(&b.Inputs[i])
	}
	d.locate(b)
	d.mu.Lock()
	d.gen.Planned(t)
	d.pending = append(d.pending, t)
	d.mu.Unlock()
	at := time.Now()
	info := d.batchInfo(b, at)
	tell(d.hard, d.bus, func(l BatchSubmittedListener) { l.OnBatchSubmitted(info) })
	select {
	case d.planned <- &planned{plan: b, at: at}:
	case <-d.hard.Done():
	}
	return nil
}

// input asks one source for its part. A source that can't plan is no batch
// failure: its position stays, the batch goes on without it, an alarm is raised.
func (d *Driver) input(s *graph.Source, t base.BatchTime, limit graph.Limit, planners bool) plan.Input {
	uid := s.Op.UID
	if s.Planner == nil {
		return d.received(uid, limit)
	}
	if !planners {
		return plan.Input{UID: uid, Absent: true}
	}
	at := base.TaskError{Set: base.DataSet{UID: uid, Time: t}, Operator: s.Op.Display}
	var planned plan.Input
	err := d.userCode(at, func() (err error) {
		planned, err = s.Planner.Plan(d.hard, t, limit)
		return err
	})
	if err != nil {
		return d.cannotPlan(uid, t, err)
	}
	planned.UID = uid
	return planned
}

func (d *Driver) cannotPlan(uid base.UID, t base.BatchTime, why error) plan.Input {
	if task := (*base.TaskError)(nil); errors.As(why, &task) && task.Stack != "" {
		d.cfg.Log.Error("user code failed", "batch", t, "source", uid, "error", why, "stack", task.Stack)
	}
	if d.hard.Err() == nil {
		d.alarm(Alarm{Kind: "source", Batch: t, Subject: string(uid), Message: fmt.Sprintf("source %q can't plan batch %s, which goes on without it: %v", uid, t, why)})
	}
	return plan.Input{UID: uid, Absent: true}
}

func (d *Driver) makeValue(v *graph.Value, t base.BatchTime) ([]byte, error) {
	at := base.TaskError{Set: base.DataSet{UID: v.UID, Time: t}, Operator: fmt.Sprintf("broadcast %q", v.UID)}
	var made []byte
	err := d.userCode(at, func() (err error) {
		made, err = v.Make(d.hard, t)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("broadcast value %q of batch %s: %w", v.UID, t, err)
	}
	return made, v.Set(t, made)
}

func (d *Driver) batchInfo(b *plan.Batch, at time.Time) BatchInfo {
	info := BatchInfo{Time: b.Time, Records: b.Records(), Submitted: at}
	for _, in := range b.Inputs {
		info.Inputs = append(info.Inputs, InputInfo{Stream: in.UID, Records: in.Records, Bytes: in.Bytes, Absent: in.Absent})
	}
	return info
}

// batchOver makes room for the next batch.
func (d *Driver) batchOver(t base.BatchTime, failed bool) {
	d.mu.Lock()
	d.gen.Done()
	d.pending = slices.DeleteFunc(d.pending, func(p base.BatchTime) bool { return p == t })
	d.report.Completed++
	if failed {
		d.report.Failed++
	}
	d.mu.Unlock()
	select {
	case d.slot <- struct{}{}:
	default:
	}
}

// release forgets what nothing after t needs. The log says so before anything
// is deleted or forgotten (Invariants 5 and 14). Only the runner of batches
// calls it.
func (d *Driver) release(t base.BatchTime) error {
	d.lmu.Lock()
	ending, _ := d.lineage.Ending(t)
	d.lmu.Unlock()
	m := rpc.Release{Done: t}
	var blocks []base.BlockID
	var handles []base.Handle
	for _, b := range ending {
		m.Batches = append(m.Batches, b.Time)
		for _, in := range b.Inputs {
			for _, bl := range in.Blocks {
				m.Blocks = append(m.Blocks, bl.Key)
				blocks = append(blocks, bl.ID)
				if !bl.Handle.IsZero() {
					handles = append(handles, bl.Handle)
				}
			}
		}
	}
	if len(ending) > 0 {
		e := Released{Done: t, Batches: m.Batches}
		for _, op := range d.g.Ops {
			e.Forgotten = append(e.Forgotten, Forgotten{op.UID, t.Add(-op.Remember)})
		}
		if err := d.append(d.hard, e); err != nil {
			return err
		}
	}
	d.lmu.Lock()
	d.lineage.Release(t)
	forgotten := make(map[base.UID]base.BatchTime, len(d.g.Ops))
	for _, op := range d.g.Ops {
		forgotten[op.UID] = d.lineage.Forgotten(op)
	}
	d.lmu.Unlock()
	if len(ending) > 0 {
		for _, v := range d.g.Values {
			v.Release(ending[len(ending)-1].Time)
		}
	}
	d.broadcast(m)
	if d.cfg.Blocks != nil {
		d.cfg.Blocks.Release(handles...)
	}
	d.tmu.Lock()
	for _, id := range blocks {
		delete(d.lost, id)
	}
	d.tmu.Unlock()
	over := func(ds base.DataSet) bool {
		if _, ok := plan.OfAdvance(ds); ok {
			return ds.Time <= t
		}
		return ds.Time <= forgotten[ds.UID]
	}
	d.states.release(over)
	d.sched.do(func() { d.sched.release(over) })
	return nil
}

// count merges the counters of one accepted task.
func (d *Driver) count(counters map[string]int64, t base.BatchTime) {
	if len(counters) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, n := range counters {
		d.counters[name] += n
	}
	if t != d.batchCountersOf {
		return // of a job on a slice
	}
	if d.batchCounters == nil {
		d.batchCounters = map[string]int64{}
	}
	for name, n := range counters {
		d.batchCounters[name] += n
	}
}
