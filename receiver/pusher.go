package receiver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemill/tidemill/internal/base"
)

// pusher stores blocks and adds them to the driver's log, one after the other.
type pusher struct {
	env     Env // with defaults
	level   base.StorageLevel
	handler handler
	report  func(error)

	sequence uint64 // of the last block that was begun, for keys
	counter  uint64 // of the last block that was stored (Invariant 2)
	position []byte // of the source, after the blocks that were added
}

// push returns nil when f is stored and in the driver's log. After an error
// no further block may be pushed: the receiver is at its end.
func (p *pusher) push(ctx context.Context, f frame) error {
	p.sequence++
	b := Block{
		Key:      fmt.Sprintf("recv/%s/%d/%d", p.env.Stream, p.env.Epoch, p.sequence),
		Records:  f.records,
		Bytes:    int64(len(f.data)),
		Executor: p.env.Executor,
		Level:    p.level,
		Position: f.position,
	}
	var err error
	if b.Handle, err = p.handler.store(ctx, b.Key, f.data); err != nil {
		return err
	}
	p.counter++
	b.ID = base.BlockID{Stream: p.env.Stream, Epoch: p.env.Epoch, Counter: p.counter}
	if err := p.add(ctx, b); err != nil {
		return err
	}
	if f.position != nil {
		p.position = f.position
	}
	return nil
}

// add resends the block under one id until the driver gives a final answer
// (Invariant 2). Without one giving up would help nobody: the block is safe
// here, and a full queue holds the source back.
func (p *pusher) add(ctx context.Context, b Block) error {
	wait := backoff{next: p.env.Config.PushDelay, most: p.env.Config.PushDelayMax}
	for try := 1; ; try++ {
		once, cancel := context.WithTimeout(ctx, p.env.Config.PushTimeout)
		err := p.env.Driver.AddBlock(once, b)
		cancel()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("add block %s, attempt %d: %w", b.ID, try, err)
		if errors.Is(err, ErrFenced) || errors.Is(err, ErrStopped) {
			if try == 1 {
				// After an unknown outcome the block may be in the log: then it must stay.
				p.handler.forget(b.Key, b.Handle)
			}
			return err
		}
		if ctx.Err() == nil {
			p.report(err)
		}
		if !wait.sleep(ctx) {
			return context.Cause(ctx)
		}
	}
}

// backoff is a delay that doubles up to a maximum.
type backoff struct{ next, most time.Duration }

// take returns the delay and prepares the next.
func (b *backoff) take() time.Duration {
	d := min(b.next, b.most)
	b.next = min(2*d, b.most)
	return d
}

// sleep waits for the delay; it returns false if ctx has ended.
func (b *backoff) sleep(ctx context.Context) bool {
	t := time.NewTimer(b.take())
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
