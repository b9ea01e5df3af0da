package driver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
)

// Durable is what a driver goes on with, and where it keeps what it must not
// forget. A job that keeps nothing has a [MemLog], a [state.MemStorage] and no
// facts.
type Durable struct {
	Run      string     // of the job, the same after a new start
	Epoch    base.Epoch // of this driver
	Program  checkpoint.Job
	Accepted []Accepted // of older epochs' logs
	// Facts are those of the log so far; nil for a new job. They become the driver's.
	Facts *Facts
	// Missing names records of write-ahead logs that are gone though the facts name them.
	Missing []base.Handle

	// Drop names operators and sources whose state and data are forgotten.
	Drop []base.UID

	Events Log
	States state.Storage
	// Blocks is where receivers log their blocks; optional.
	Blocks interface {
		Release(handles ...base.Handle)
		// Hosts returns the hosts that hold the segment of a block, none if that
		// is not known.
		Hosts(h base.Handle) ([]string, error)
	}
	// Close ends all of it, after everything else has ended; optional.
	Close func() error
}

// GoOn sets what the driver goes on with. It is called before Start.
func (d *Driver) GoOn(x Durable) {
	d.cfg.Durable = x
	d.states.storage = x.States
}

// goOn opens the epoch in the log and takes up the facts before it.
func (d *Driver) goOn(ctx context.Context, now base.BatchTime) error {
	if d.badRates != nil {
		return d.badRates
	}
	d.states.storage = d.cfg.States
	f := d.cfg.Facts
	if f == nil {
		f = &Facts{}
	}
	e := DriverStarted{Epoch: d.cfg.Epoch, Run: d.cfg.Run, At: now, Job: d.cfg.Program, Accepted: d.cfg.Accepted, Dropped: d.cfg.Drop}
	blocks, states := f.Handles()
	if err := f.Apply(e); err != nil {
		return fmt.Errorf("driver: %w", err)
	}
	if err := d.append(ctx, e); err != nil {
		return err
	}
	if len(e.Dropped) > 0 {
		d.releaseDropped(f, blocks, states)
	}
	if err := d.giveUpGone(ctx, f); err != nil {
		return err
	}
	if err := d.repackAll(ctx, f); err != nil {
		return err
	}
	if err := d.restore(f); err != nil {
		return err
	}
	for _, s := range d.g.Sources {
		if s.Planner == nil {
			continue
		}
		if err := s.Planner.Open(ctx, f.Started); err != nil {
			return err
		}
		past := f.Past(s.Op.UID)
		if r, ok := s.Planner.(graph.Resumer); ok && len(past) > 0 {
			if err := r.Resume(past); err != nil {
				return fmt.Errorf("source %q can't go on where it was: %w", s.Op.UID, err)
			}
		}
	}
	return nil
}

// releaseDropped releases what the facts named before the user gave it up. The
// log has that by now (Invariant 5).
func (d *Driver) releaseDropped(f *Facts, blocks, states []base.Handle) {
	named := map[base.Handle]bool{}
	blocksLeft, statesLeft := f.Handles()
	for _, h := range append(blocksLeft, statesLeft...) {
		named[h] = true
	}
	isNamed := func(h base.Handle) bool { return named[h] }
	d.cfg.States.Drop(slices.DeleteFunc(states, isNamed)...)
	if d.cfg.Blocks != nil {
		d.cfg.Blocks.Release(slices.DeleteFunc(blocks, isNamed)...)
	}
}

// restore makes the facts the driver's memory.
func (d *Driver) restore(f *Facts) error {
	for _, s := range f.Streams {
		d.tracker.Restore(s)
		d.rates.Restore(Rate{s.Stream, s.Rate})
	}
	d.states.restore(f)
	for _, op := range f.Begun {
		d.begun[op] = 0
	}
	d.first = f.First
	if f.Lost > 0 {
		d.counters[CounterLostRecords] = f.Lost
	}
	for i := range f.Held {
		if err := d.lineage.Add(&f.Held[i]); err != nil {
			return err
		}
	}
	for _, b := range f.Batches() {
		if err := d.setValues(b); err != nil {
			return err
		}
	}
	for _, ds := range f.FailedIn {
		d.lineage.Fail(ds)
	}
	for _, o := range f.Forgotten {
		if op := d.g.Op(o.Op); op != nil {
			d.lineage.Forget(op, o.Time)
		}
	}
	if f.Last == 0 {
		return nil
	}
	at := time.Now()
	for i := range f.Pending {
		p := &f.Pending[i]
		d.recovered = append(d.recovered, &planned{plan: &p.Batch, at: at, outputs: p.Outputs})
		d.pending = append(d.pending, p.Batch.Time)
	}
	d.gen.Resume(f.Last, len(f.Pending))
	return nil
}

// setValues hands the broadcast values of a plan to the driver's graph. One
// that the program has no more is left alone.
func (d *Driver) setValues(b *plan.Batch) error {
	for _, v := range b.Values {
		for _, have := range d.g.Values {
			if have.UID == v.UID {
				if err := have.Set(b.Time, v.Data); err != nil {
					return fmt.Errorf("broadcast value %q of batch %s: %w", v.UID, b.Time, err)
				}
			}
		}
	}
	return nil
}

// giveUpGone deals with blocks that died with the process before: those that
// were in no write-ahead log, and those whose log is gone.
func (d *Driver) giveUpGone(ctx context.Context, f *Facts) error {
	missing := make(map[base.Handle]bool, len(d.cfg.Missing))
	for _, h := range d.cfg.Missing {
		missing[h] = true
	}
	var gone []plan.Block
	var records int64
	find := func(bs []plan.Block) {
		for _, b := range bs {
			if !b.Lost && (b.Handle.IsZero() || missing[b.Handle]) {
				gone = append(gone, b)
				records += int64(b.Records)
			}
		}
	}
	for _, s := range f.Streams {
		find(s.Waiting)
	}
	for _, p := range f.Pending {
		for _, in := range p.Batch.Inputs {
			find(in.Blocks)
		}
	}
	if d.readsThePast() {
		for _, b := range f.Held {
			for _, in := range b.Inputs {
				find(in.Blocks)
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	what := fmt.Sprintf("%d records in %d received blocks were kept by a process that has ended, or in a log that is gone", records, len(gone))
	if d.cfg.OnLostBlocks != PolicySkip {
		return fmt.Errorf("%s: set on-lost-blocks=skip to go on without them, and receiver-wal=on so that it does not happen again", what)
	}
	e := BlocksLost{Blocks: blockIDs(gone), Records: records, Reason: "the process that held them has ended"}
	if err := f.Apply(e); err != nil {
		return err
	}
	if err := d.append(ctx, e); err != nil { // Invariant 9: logged, counted, shown
		return err
	}
	d.alarm(Alarm{Kind: "blocks-lost", Message: what + ": they are left out"})
	return nil
}

// readsThePast says whether any operator reads data sets of earlier batches.
func (d *Driver) readsThePast() bool {
	for _, op := range d.g.Ops {
		if op.Window > 0 && op.Advance == nil {
			return true
		}
	}
	return false
}
