package receiver

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
)

// runner implements Runner.
type runner[T any] struct {
	name  string
	open  func() Receiver[T]
	codec *codec.Codec[T]
	opts  Options
}

func (r *runner[T]) Name() string             { return r.name }
func (r *runner[T]) Level() base.StorageLevel { return r.opts.Level }
func (r *runner[T]) PreferredHost() string    { return r.opts.PreferredHost }

// execution is one Run.
type execution[T any] struct {
	*runner[T]
	env   Env // with defaults
	gen   *generator[T]
	limit *limiter
	push  pusher

	ctx     context.Context // of the pusher; ends when everything must end at once
	abort   context.CancelCauseFunc
	recv    context.Context // of Receive; ends when the stop has begun
	endRecv context.CancelCauseFunc

	reached atomic.Bool  // the source was reached by some start
	starts  atomic.Int64 // so far
	over    atomic.Bool  // the last event was sent

	deadline time.Time // of the stop, once supervise or drain has seen it begin

	pushed  chan struct{} // closed by the pusher, after its last write to the following
	failure error         // that the pusher ended with
	lost    int64         // records that it could not push
}

func (r *runner[T]) Run(ctx context.Context, env Env) error {
	if err := env.validate(); err != nil {
		return &FailedError{Stream: env.Stream, Err: err, Fatal: true}
	}
	env.Config = env.Config.withDefaults()
	if env.Log == nil {
		env.Log = hclog.NewNullLogger()
	}
	x := &execution[T]{
		runner: r,
		env:    env,
		gen:    newGenerator(r.codec, env.Config),
		limit:  newLimiter(env.Config.MaxRate, env.Config.MaxByteRate),
		pushed: make(chan struct{}),
	}
	x.push = pusher{env: env, level: r.opts.Level, report: x.reportError, position: env.From}
	x.ctx, x.abort = context.WithCancelCause(ctx)
	x.recv, x.endRecv = context.WithCancelCause(x.ctx)

	var owned sync.WaitGroup
	owned.Go(x.clock)
	err := x.openHandler()
	if err == nil {
		owned.Go(x.pushAll)
		err = x.supervise()
		if drainErr := x.drain(); drainErr != nil {
			err = drainErr
		}
	} else if x.recv.Err() != nil {
		err = nil // it was told to end before it had begun
	}
	x.abort(nil)
	owned.Wait()
	if x.push.handler != nil {
		// Not before the last block is stored.
		if closeErr := x.push.handler.close(); closeErr != nil {
			x.reportError(fmt.Errorf("close the log: %w", closeErr))
		}
	}
	if x.failure != nil {
		err = x.failure
	}
	return x.end(ctx, err)
}

// openHandler opens what blocks are stored in. A log can't be opened a second
// time in one epoch, so there is no second try.
func (x *execution[T]) openHandler() error {
	if x.env.OpenLog == nil {
		x.push.handler = &blockManagerHandler{blocks: x.env.Blocks, level: x.opts.Level, cfg: x.env.Config, report: x.reportError}
		return nil
	}
	log, err := x.env.OpenLog(x.recv)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	x.push.handler = &writeAheadLogHandler{log: log, blocks: x.env.Blocks, level: x.opts.Level, cfg: x.env.Config, report: x.reportError}
	return nil
}

// clock cuts blocks by time and takes in requests from outside.
func (x *execution[T]) clock() {
	t := time.NewTicker(x.env.Config.BlockInterval)
	defer t.Stop()
	stop, rate := x.env.Stop, x.env.Rate
	for {
		select {
		case <-t.C:
			x.gen.tick()
		case r, ok := <-rate:
			if !ok {
				rate = nil
			}
			x.limit.setRate(r)
		case <-stop:
			x.endRecv(ErrStopped)
			stop = nil
		case <-x.ctx.Done():
			return
		}
	}
}

// pushAll is the pusher's goroutine. When it ends early it ends everything.
func (x *execution[T]) pushAll() {
	defer close(x.pushed)
	for {
		f, ok := x.gen.next(x.ctx)
		if !ok {
			break
		}
		if f.data == nil {
			f.settle(nil)
			continue
		}
		err := x.push.push(x.ctx, f)
		x.lost += f.settle(err)
		if err != nil {
			if x.ctx.Err() == nil {
				x.failure = err
			}
			x.abort(err)
			break
		}
	}
	if x.ctx.Err() != nil {
		x.lost += x.gen.abandon(context.Cause(x.ctx))
	}
}

// supervise starts the receiver again and again until the stop begins (nil),
// the source ends for good (ErrDone), or it can't go on.
func (x *execution[T]) supervise() error {
	cfg := x.env.Config
	wait := backoff{next: cfg.RestartDelay, most: cfg.RestartDelayMax}
	failures := 0
	for {
		began := time.Now()
		stored, err := x.start()
		switch {
		case errors.Is(err, errStuck), errors.Is(err, ErrDone):
			return err
		case x.recv.Err() != nil:
			return nil // whatever Receive says now comes of the stop
		}
		if err == nil {
			failures = 0
			err = errors.New("Receive has returned")
		} else if failures++; failures >= cfg.StartAttempts && !x.reached.Load() {
			return &unreachedError{attempts: failures, last: err}
		}
		if stored || time.Since(began) >= cfg.RestartDelayMax {
			wait.next = cfg.RestartDelay
		}
		x.restarting(err, min(wait.next, wait.most))
		if !wait.sleep(x.recv) || !x.settle() {
			return nil
		}
	}
}

// settle waits until all blocks are added, if records came with positions: the
// next start must read on behind what this Run has accepted, or it would come
// twice. It returns false if that can't be, or the stop has begun.
func (x *execution[T]) settle() bool {
	done := x.gen.settled()
	if done == nil {
		return true
	}
	select {
	case err := <-done:
		return err == nil
	case <-x.recv.Done():
		return false
	}
}

var errStuck = errors.New("Receive has not returned after its context ended")

// start opens a receiver and runs it to its end. It says whether it stored records.
func (x *execution[T]) start() (stored bool, err error) {
	if x.recv.Err() != nil {
		return false, nil
	}
	ctx, cancel := context.WithCancelCause(x.recv)
	defer cancel(ErrStopped)
	s := &Sink[T]{run: x, ctx: ctx, from: x.push.position} // the pusher is idle if there are positions
	x.starts.Add(1)
	before := x.gen.setOwner(s)
	done := make(chan error, 1)
	go func() {
		err := errors.New("Receive has ended its goroutine")
		defer func() { done <- err }()
		err = contain(func() error { return x.open().Receive(ctx, s) })
	}()
	select {
	case err = <-done:
	case <-x.recv.Done():
		limit := time.NewTimer(x.untilDeadline() - x.env.Config.StopTimeout/2) // the other half is for the drain
		defer limit.Stop()
		select {
		case err = <-done:
		case <-limit.C:
			err = errStuck
		}
	}
	return x.gen.setOwner(nil) > before, err
}

// contain turns a panic of f into an error.
func contain(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	return f()
}

// drain cuts the last block and waits until the pusher is through with all,
// from the begin of a stop no longer than its timeout.
func (x *execution[T]) drain() error {
	x.gen.close()
	select {
	case <-x.pushed:
		return nil
	case <-x.recv.Done():
	}
	limit := time.NewTimer(x.untilDeadline())
	defer limit.Stop()
	select {
	case <-x.pushed:
		return nil
	case <-limit.C:
	}
	err := fmt.Errorf("blocks were not added within the stop timeout of %v", x.env.Config.StopTimeout)
	x.abort(err)
	<-x.pushed
	return err
}

// untilDeadline returns how long the stop may last yet.
func (x *execution[T]) untilDeadline() time.Duration {
	if x.deadline.IsZero() {
		x.deadline = time.Now().Add(x.env.Config.StopTimeout)
	}
	return time.Until(x.deadline)
}

// end sends the last event and makes the result of Run.
func (x *execution[T]) end(ctx context.Context, err error) error {
	e := Event{Kind: Stopped, Lost: x.lost}
	switch {
	case errors.Is(err, ErrDone):
		e.Message, err = err.Error(), nil
	case err == nil && ctx.Err() != nil:
		err = context.Cause(ctx)
		e.Message = "cut off: " + err.Error()
	case err != nil:
		f := &FailedError{Stream: x.env.Stream, Err: err, Lost: x.lost}
		f.Fatal = errors.As(err, new(*unreachedError))
		e.Kind, e.Message, e.Fatal = Failed, f.Error(), f.Fatal
		err = f
	}
	x.event(e)
	x.over.Store(true)
	return err
}

func (x *execution[T]) restarting(err error, delay time.Duration) {
	x.env.Log.Warn("receiver restarts", "stream", x.env.Stream, "error", err, "starts", x.starts.Load(), "delay", delay)
	x.event(Event{Kind: Restarting, Message: fmt.Sprintf("next start in %v: %v", delay, err)})
}

func (x *execution[T]) reportError(err error) {
	x.env.Log.Warn("receiver", "stream", x.env.Stream, "error", err)
	x.event(Event{Kind: Error, Message: err.Error()})
}

func (x *execution[T]) event(e Event) {
	if x.over.Load() {
		return // from a goroutine that Receive left behind
	}
	e.Stream, e.Epoch, e.Executor = x.env.Stream, x.env.Epoch, x.env.Executor
	e.Starts = int(x.starts.Load())
	x.env.Driver.ReceiverEvent(e)
}
