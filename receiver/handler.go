package receiver

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemill/tidemill/internal/base"
)

// handler is where the pusher stores a block before the driver hears of it.
type handler interface {
	// store returns when the block is as durable as it gets here. After an error
	// nothing of it is kept, and no further block may be stored.
	store(ctx context.Context, key string, data []byte) (base.Handle, error)
	// forget undoes a store of a block that is in nobody's log.
	forget(key string, h base.Handle)
	close() error
}

// blockManagerHandler keeps blocks in the executor's block store.
type blockManagerHandler struct {
	blocks BlockStore
	level  base.StorageLevel
	cfg    Config
	report func(error)
}

// store gives up after Config.PushAttempts: another executor may do better.
func (h *blockManagerHandler) store(ctx context.Context, key string, data []byte) (base.Handle, error) {
	wait := backoff{next: h.cfg.PushDelay, most: h.cfg.PushDelayMax}
	for try := 1; ; try++ {
		once, cancel := context.WithTimeout(ctx, h.cfg.PushTimeout)
		err := h.blocks.Put(once, key, data, h.level)
		cancel()
		if err == nil {
			return base.Handle{}, nil
		}
		err = fmt.Errorf("store block %s, attempt %d of %d: %w", key, try, h.cfg.PushAttempts, err)
		if ctx.Err() == nil && try < h.cfg.PushAttempts {
			h.report(err)
			if wait.sleep(ctx) {
				continue
			}
		}
		h.blocks.Drop(key) // even if a part was kept
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return base.Handle{}, err
	}
}

func (h *blockManagerHandler) forget(key string, _ base.Handle) { h.blocks.Drop(key) }
func (h *blockManagerHandler) close() error                     { return nil }

// writeAheadLogHandler appends blocks to a log, and puts the same bytes into
// the block store meanwhile. The log suffices: a block that the store does not
// take is read from the log later.
type writeAheadLogHandler struct {
	log    Log
	blocks BlockStore
	level  base.StorageLevel
	cfg    Config
	report func(error)

	missing int             // blocks in a row that the store did not take
	late    <-chan appended // of an append that was not waited for, the last one
}

// appended is the outcome of an append.
type appended struct {
	h   base.Handle
	err error
}

// store waits for the log, however long that takes, since an append that is
// given up may still happen (Invariant 14). The block store gets a block
// interval longer than the log: beyond that it would hold the source back.
func (h *writeAheadLogHandler) store(ctx context.Context, key string, data []byte) (base.Handle, error) {
	outcome := make(chan appended, 1)
	go func() { // ends with the log at the latest
		handle, err := h.log.Append(context.WithoutCancel(ctx), data)
		outcome <- appended{handle, err}
	}()
	putting, cancel := context.WithCancel(ctx)
	defer cancel()
	put := make(chan error, 1)
	go func() { put <- h.blocks.Put(putting, key, data, h.level) }()

	a, err := h.await(ctx, key, outcome)
	if err != nil {
		cancel()
		<-put
		h.blocks.Drop(key)
		return base.Handle{}, err
	}
	patience := time.AfterFunc(h.cfg.BlockInterval, cancel)
	defer patience.Stop()
	h.count(key, <-put)
	return a, nil
}

// await waits for an append. One that takes long is reported, again and again.
func (h *writeAheadLogHandler) await(ctx context.Context, key string, outcome <-chan appended) (base.Handle, error) {
	began := time.Now()
	slow := time.NewTicker(h.cfg.PushTimeout)
	defer slow.Stop()
	for {
		select {
		case a := <-outcome:
			if a.err != nil {
				return base.Handle{}, fmt.Errorf("append block %s to the log: %w", key, a.err)
			}
			return a.h, nil
		case <-slow.C:
			h.report(fmt.Errorf("append block %s to the log: no answer for %v", key, time.Since(began)))
		case <-ctx.Done():
			h.late = outcome
			return base.Handle{}, context.Cause(ctx)
		}
	}
}

// count reports the begin of a time in which the store takes no blocks.
func (h *writeAheadLogHandler) count(key string, err error) {
	if err == nil {
		h.missing = 0
		return
	}
	h.blocks.Drop(key) // even if a part was kept
	if h.missing++; h.missing == 1 {
		h.report(fmt.Errorf("block %s, and those after it until there is room, are read from the log: %w", key, err))
	}
}

func (h *writeAheadLogHandler) forget(key string, handle base.Handle) {
	h.blocks.Drop(key)
	h.log.Release(handle)
}

func (h *writeAheadLogHandler) close() error {
	err := h.log.Close()
	if h.late == nil {
		return err
	}
	if a := <-h.late; a.err == nil {
		h.log.Release(a.h)
	}
	return err
}
