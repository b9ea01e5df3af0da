package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/receiver"
)

// placed says where a stream's receiver runs.
type placed struct {
	source *graph.Source
	epoch  base.Epoch
	at     base.ExecutorID
	ended  bool // for good
}

// placeAll starts the receivers of a job that begins, unless it is stopped
// meanwhile.
func (d *Driver) placeAll() {
	defer close(d.placing)
	for _, s := range d.g.Sources {
		d.tmu.Lock()
		draining := d.draining
		d.tmu.Unlock()
		if s.Receiver != nil && !draining && d.hard.Err() == nil {
			d.place(s)
		}
	}
}

// place starts a stream's receiver on the executor with the fewest receivers.
// Older epochs are refused before the registration goes into the log, and their
// blocks that are on the way are waited for: the start is sent when the log has
// both, with the source position after them (Invariant 7).
func (d *Driver) place(s *graph.Source) {
	stream := s.Op.UID
	for {
		at := d.leastLoaded(preferredHost(s))
		if at == nil {
			return // executorLost fails the job when none is left
		}
		d.tmu.Lock()
		epoch := d.tracker.NextEpoch(stream)
		d.tracker.Register(stream, epoch)
		d.tmu.Unlock()
		d.flights[stream].Wait()
		d.tmu.Lock()
		from := d.tracker.Position(stream)
		d.tmu.Unlock()
		if err := d.append(d.hard, ReceiverRegistered{Stream: stream, Epoch: epoch, From: from}); err != nil {
			d.fail(err)
			return
		}
		d.tmu.Lock()
		p := &placed{source: s, epoch: epoch, at: at.ID()}
		d.receivers[stream] = p
		d.tmu.Unlock()
		sent := at.Send(rpc.StartReceiver{Stream: stream, Epoch: epoch, From: from}) == nil
		if r := d.rateOf(stream); r > 0 {
			_ = at.Send(rpc.RateLimit{Stream: stream, Rate: r})
		}
		there := d.executor(at.ID()) != nil
		d.tmu.Lock()
		draining := d.draining
		ours := d.receivers[stream] == p && p.at == at.ID()
		d.tmu.Unlock()
		if !sent && !there && ours {
			continue // its loss was dealt with before p was there; else that finds a new place
		}
		if draining { // the request of stopReceivers may have come too early
			_ = at.Send(rpc.StopReceiver{Stream: stream, Epoch: epoch})
		}
		return
	}
}

// preferredHost is where a receiver would best be, or empty.
func preferredHost(s *graph.Source) string {
	if r, ok := s.Receiver.(interface{ PreferredHost() string }); ok {
		return r.PreferredHost()
	}
	return ""
}

// leastLoaded is the executor with the fewest receivers, of those on a host if
// there are any.
func (d *Driver) leastLoaded(host string) rpc.Executor {
	load := map[base.ExecutorID]int{}
	d.tmu.Lock()
	for _, p := range d.receivers {
		if !p.ended {
			load[p.at]++
		}
	}
	d.tmu.Unlock()
	var best rpc.Executor
	there := false // best is on the host
	for _, e := range d.live() {
		on := host != "" && plan.HostName(e.Host()) == plan.HostName(host)
		switch {
		case best != nil && there && !on:
		case best == nil, on && !there, load[e.ID()] < load[best.ID()]:
			best, there = e, on
		}
	}
	return best
}

// replace finds new places for the receivers of a lost executor.
func (d *Driver) replace(lost base.ExecutorID) {
	d.tmu.Lock()
	var again []*graph.Source
	for _, p := range d.receivers {
		if p.at == lost && !p.ended {
			again = append(again, p.source)
			p.at = ""
		}
	}
	d.tmu.Unlock()
	stopping := d.stopping()
	for _, s := range again {
		if stopping {
			d.receiverEnded(s.Op.UID)
		} else {
			d.place(s)
		}
	}
}

func (d *Driver) stopping() bool {
	select {
	case <-d.stop:
		return true
	case <-d.hard.Done():
		return true
	default:
		return false
	}
}

func (d *Driver) receiverEnded(stream base.UID) {
	d.tmu.Lock()
	if p := d.receivers[stream]; p != nil {
		p.ended = true
	}
	d.tmu.Unlock()
	select {
	case d.someEnded <- struct{}{}:
	default:
	}
}

// stopReceivers asks all receivers to end, and waits until they have stored
// what they accepted, or the job has ended.
func (d *Driver) stopReceivers() {
	d.tmu.Lock()
	d.draining = true
	d.tmu.Unlock()
	select {
	case <-d.placing:
	case <-d.hard.Done():
		return
	}
	for _, p := range d.receiving() {
		e := d.executor(p.at)
		if e == nil || e.Send(rpc.StopReceiver{Stream: p.source.Op.UID, Epoch: p.epoch}) != nil {
			d.receiverEnded(p.source.Op.UID)
		}
	}
	for len(d.receiving()) > 0 {
		select {
		case <-d.someEnded:
		case <-d.hard.Done():
			return
		}
	}
}

// receiving lists the receivers that have not ended for good.
func (d *Driver) receiving() []placed {
	d.tmu.Lock()
	defer d.tmu.Unlock()
	var out []placed
	for _, p := range d.receivers {
		if !p.ended {
			out = append(out, *p)
		}
	}
	return out
}

// ReceiverEvent implements [rpc.Driver].
func (d *Driver) ReceiverEvent(ev rpc.ReceiverEvent) {
	d.tmu.Lock()
	p := d.receivers[ev.Stream]
	current := p != nil && p.epoch == ev.Epoch
	d.tmu.Unlock()
	if !current {
		return // of a fenced epoch (Invariant 7)
	}
	info := ReceiverInfo{Stream: ev.Stream, Epoch: ev.Epoch, Executor: ev.Executor, Message: ev.Message}
	switch ev.Kind {
	case receiver.Started.String():
		tell(d.hard, d.bus, func(l ReceiverStartedListener) { l.OnReceiverStarted(info) })
	case receiver.Error.String(), receiver.Restarting.String():
		tell(d.hard, d.bus, func(l ReceiverErrorListener) { l.OnReceiverError(info) })
	case receiver.Failed.String():
		tell(d.hard, d.bus, func(l ReceiverErrorListener) { l.OnReceiverError(info) })
		if ev.Fatal {
			d.fail(errors.New(ev.Message))
		}
	case receiver.Stopped.String():
		tell(d.hard, d.bus, func(l ReceiverStoppedListener) { l.OnReceiverStopped(info) })
	}
	if ev.Lost > 0 {
		d.mu.Lock()
		d.report.Lost += ev.Lost
		d.mu.Unlock()
	}
	if !ev.Ended {
		return
	}
	if ev.Message == "" || d.stopping() { // a source that has ended for good, or a stop
		d.receiverEnded(ev.Stream)
		return
	}
	// It failed for a reason that another executor, or a little time, may mend.
	d.alarm(Alarm{Kind: "receiver", Subject: string(ev.Stream), Message: fmt.Sprintf("receiver %q ended on executor %s and is started again: %s", ev.Stream, ev.Executor, ev.Message)})
	d.watchers.Go(func() {
		select {
		case <-time.After(time.Second):
		case <-d.stop:
		case <-d.hard.Done():
		}
		if d.stopping() {
			d.receiverEnded(ev.Stream)
			return
		}
		d.tmu.Lock()
		current := d.receivers[ev.Stream] == p && p.at == ev.Executor
		d.tmu.Unlock()
		if current { // else its executor was lost since, and it has a new place
			d.place(p.source)
		}
	})
}

// AddBlock implements [rpc.Driver]. It waits for the log even if the receiver
// does not any more, since a block whose append nobody has seen end would be
// neither in nor out (Invariant 14).
func (d *Driver) AddBlock(_ context.Context, m rpc.AddBlock) error {
	d.tmu.Lock()
	already, err := d.tracker.Begin(m.Block)
	if already || err != nil {
		d.tmu.Unlock()
		return err
	}
	flights := d.flights[m.Block.ID.Stream]
	flights.Add(1)
	d.tmu.Unlock()
	defer flights.Done()
	err = d.append(d.hard, BlockAdded(m)) // Invariant 1: the log first
	d.tmu.Lock()
	if err == nil {
		d.tracker.Commit(m.Block)
	} else {
		d.tracker.Abort(m.Block)
	}
	d.tmu.Unlock()
	if err == nil {
		return nil
	}
	d.fail(err)
	return fmt.Errorf("%w: %w", base.ErrStopped, err) // a final answer: nothing is added any more
}

// received makes the part of a receiver stream in the next batch.
func (d *Driver) received(stream base.UID, limit graph.Limit) plan.Input {
	d.tmu.Lock()
	defer d.tmu.Unlock()
	in := plan.Input{UID: stream, Blocks: d.tracker.Peek(stream, limit)}
	in.Parts = len(in.Blocks)
	if d.cfg.MaxBlockParts > 0 { // many small blocks share partitions
		in.Parts = min(in.Parts, d.cfg.MaxBlockParts)
	}
	for _, b := range in.Blocks {
		in.Records += int64(b.Records)
		in.Bytes += b.Bytes
	}
	return in
}
