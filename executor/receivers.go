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
	rate  chan float64 // holds the newest limit until the receiver takes it
}

// LogOpener opens the write-ahead log of one epoch of a stream's receiver. The
// receiver closes it.
type LogOpener interface {
	OpenLog(ctx context.Context, stream base.UID, epoch base.Epoch) (receiver.Log, error)
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
	h := &hosted{epoch: m.Epoch, stop: make(chan struct{}), rate: make(chan float64, 1)}
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
		Blocks: e.store, Driver: reporter{e}, Config: e.cfg.Receiver, From: m.From,
		Stop: h.stop, Rate: h.rate, Log: e.cfg.Log,
	}
	if e.cfg.Logs != nil {
		env.OpenLog = func(ctx context.Context) (receiver.Log, error) {
			return e.cfg.Logs.OpenLog(ctx, m.Stream, m.Epoch)
		}
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

// limitReceiver hands a limit on. Only the inbox goroutine sends, so that one
// of few tries succeeds: it never waits for the receiver.
func (e *Executor) limitReceiver(m rpc.RateLimit) {
	e.mu.Lock()
	h := e.receivers[m.Stream]
	e.mu.Unlock()
	for h != nil {
		select {
		case h.rate <- m.Rate:
			return
		default:
		}
		select {
		case <-h.rate: // overtaken
		default:
		}
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
		Handle: b.Handle, Position: b.Position,
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
