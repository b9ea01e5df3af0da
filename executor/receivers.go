package executor

import (
	"context"
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/receiver"
)

// hosted is a receiver that runs here.
type hosted struct {
	epoch base.Epoch
	stop  chan struct{}
}

// startReceiver hosts a stream's receiver. A start of a lower or equal epoch
// than the one that runs is ignored (Invariant 7).
func (e *Executor) startReceiver(m rpc.StartReceiver) {
	runner := e.runner(m.Stream)
	if runner == nil {
		e.driver.ReceiverEvent(rpc.ReceiverEvent{
			Stream: m.Stream, Epoch: m.Epoch, Executor: e.cfg.ID, Kind: receiver.Failed.String(),
			Message: fmt.Sprintf("stream %q has no receiver in this graph", m.Stream), Fatal: true, Ended: true,
		})
		return
	}
	h := &hosted{epoch: m.Epoch, stop: make(chan struct{})}
	e.mu.Lock()
	old := e.receivers[m.Stream]
	if e.closed || old != nil && old.epoch >= m.Epoch {
		e.mu.Unlock()
		return
	}
	e.receivers[m.Stream] = h
	e.hosting++
	e.mu.Unlock()
	if old != nil {
		close(old.stop)
	}
	env := receiver.Env{
		Stream: m.Stream, Epoch: m.Epoch, Executor: e.cfg.ID,
		Blocks: e.store, Driver: reporter{e}, Config: e.cfg.Receiver, Stop: h.stop,
		Log: e.cfg.Log,
	}
	e.wg.Go(func() {
		err := runner.Run(e.ctx, env)
		e.mu.Lock()
		if e.receivers[m.Stream] == h {
			delete(e.receivers, m.Stream)
		}
		e.hosting--
		e.mu.Unlock()
		if e.silent() {
			return
		}
		ev := rpc.ReceiverEvent{Stream: m.Stream, Epoch: m.Epoch, Executor: e.cfg.ID, Kind: "ended", Ended: true}
		if err != nil {
			ev.Message = err.Error()
		}
		e.driver.ReceiverEvent(ev)
	})
}

func (e *Executor) stopReceiver(m rpc.StopReceiver) {
	e.mu.Lock()
	h := e.receivers[m.Stream]
	if h != nil && h.epoch == m.Epoch {
		delete(e.receivers, m.Stream)
	} else {
		h = nil
	}
	e.mu.Unlock()
	if h != nil {
		close(h.stop)
	}
}

func (e *Executor) runner(stream base.UID) receiver.Runner {
	for _, s := range e.g.Sources {
		if s.Op.UID == stream {
			r, _ := s.Receiver.(receiver.Runner)
			return r
		}
	}
	return nil
}

// reporter is the driver as receivers see it.
type reporter struct{ e *Executor }

// AddBlock implements [receiver.Driver].
func (r reporter) AddBlock(ctx context.Context, b receiver.Block) error {
	if r.e.silent() {
		return errKilled
	}
	return r.e.driver.AddBlock(ctx, rpc.AddBlock{Block: plan.Block{
		ID: b.ID, Key: b.Key, Records: b.Records, Bytes: b.Bytes, Executor: b.Executor,
	}})
}

// ReceiverEvent implements [receiver.Driver].
func (r reporter) ReceiverEvent(ev receiver.Event) {
	if r.e.silent() {
		return
	}
	r.e.driver.ReceiverEvent(rpc.ReceiverEvent{
		Stream: ev.Stream, Epoch: ev.Epoch, Executor: ev.Executor,
		Kind: ev.Kind.String(), Message: ev.Message, Fatal: ev.Fatal, Lost: ev.Lost,
	})
}
