package receiver

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
)

// Sink is what one start of a receiver stores its records in. It may be used
// by many goroutines. When Receive has returned every store call on its Sink
// gives ErrStopped, so goroutines left over from it can't add to the next start.
type Sink[T any] struct {
	run     *execution[T]
	ctx     context.Context // ends with this start
	from    []byte
	reached atomic.Bool
}

// maxPosition bounds a position, which the driver logs with every block.
const maxPosition = 1 << 20

// From returns where the source is to be read from: the newest position that
// came with a record of an added block, by this start or any before it, even on
// another executor. Nil means from the begin, or that no position was given.
// What was accepted before this start and has a position is in an added block
// by now, so a source that can seek gives each record exactly once. The bytes
// must not be changed.
func (s *Sink[T]) From() []byte { return s.from }

// Store puts v into the open block. It is held to the rate limit, and waits
// while the queue of blocks is full; it does not wait until v is stored. After
// nil v will be in an added block unless the receiver fails or is cut off; an
// error means that v is not taken. v is encoded before Store returns.
//
// ctx matters only to the waiting: a Store that need not wait succeeds until
// Receive has returned, so that records in hand can be stored while stopping.
func (s *Sink[T]) Store(ctx context.Context, v T) error { return s.StoreAt(ctx, v, nil) }

// StoreAt is Store for a source that can seek. position says where the source
// goes on after v and everything stored before, in the receiver's own words; a
// later start reads it by From once a block with v, or with a later record, is
// added. It stands for the whole receiver: goroutines that share a Sink must
// order their calls as their positions are. It holds at most 1 MiB, is copied,
// and nil means none.
func (s *Sink[T]) StoreAt(ctx context.Context, v T, position []byte) error {
	if err := s.checkPosition(position); err != nil {
		return err
	}
	limited := s.run.limit.on.Load()
	if limited {
		if err := s.run.limit.wait(ctx, s.ctx, 1, 0); err != nil {
			return err
		}
	}
	n, err := s.run.gen.store(ctx, s, v, position)
	if err != nil {
		return err
	}
	if limited {
		s.run.limit.charge(int64(n))
	}
	if !s.reached.Load() {
		s.Ready()
	}
	return nil
}

// StoreMany makes one block of vs, behind everything stored before, and
// returns nil only after it is stored at its level and the driver's log has it
// (Invariant 1). It is held to the rate limit: a batch waits in proportion to
// its size before it is stored.
//
// After an error the batch may be stored or not. Once the stop of the stream
// has begun, a block that was queued is waited for even though ctx has ended;
// Config.StopTimeout bounds that. An empty vs does nothing.
func (s *Sink[T]) StoreMany(ctx context.Context, vs []T) error { return s.StoreManyAt(ctx, vs, nil) }

// StoreManyAt is StoreMany for a source that can seek: position, as StoreAt
// has it, belongs after the last of vs. Records and position are in the
// driver's log together or not at all.
func (s *Sink[T]) StoreManyAt(ctx context.Context, vs []T, position []byte) error {
	if err := s.checkPosition(position); err != nil || len(vs) == 0 {
		return err
	}
	w := codec.NewFrameWriter(s.run.codec)
	for i, v := range vs {
		if err := w.Append(v); err != nil {
			return fmt.Errorf("receiver %q: record %d of %d: %w", s.run.env.Stream, i+1, len(vs), err)
		}
	}
	if s.run.limit.on.Load() {
		if err := s.run.limit.wait(ctx, s.ctx, int64(len(vs)), int64(w.Size())); err != nil {
			return err
		}
	}
	done, err := s.enqueue(ctx, w, position)
	if err != nil {
		return err
	}
	return s.await(ctx, done)
}

func (s *Sink[T]) checkPosition(position []byte) error {
	if len(position) > maxPosition {
		return fmt.Errorf("receiver %q: a position of %d bytes: the limit is %d", s.run.env.Stream, len(position), maxPosition)
	}
	return nil
}

// StoreSeq stores what seq yields in blocks cut at Config.MaxBlockBytes and
// returns nil only after all of them are stored and in the driver's log
// (Invariant 1). Records are held to the rate limit one by one. After an error
// the blocks cut before it may be stored or not; the rest is not.
func (s *Sink[T]) StoreSeq(ctx context.Context, seq iter.Seq[T]) error {
	var done <-chan error
	w := codec.NewFrameWriter(s.run.codec)
	i := 0
	for v := range seq {
		i++
		limited := s.run.limit.on.Load()
		if limited {
			if err := s.run.limit.wait(ctx, s.ctx, 1, 0); err != nil {
				return err
			}
		}
		before := w.Size()
		if err := w.Append(v); err != nil {
			return fmt.Errorf("receiver %q: record %d of a sequence: %w", s.run.env.Stream, i, err)
		}
		if limited {
			s.run.limit.charge(int64(w.Size() - before))
		}
		if w.Size() >= s.run.gen.maxBytes {
			var err error
			if done, err = s.enqueue(ctx, w, nil); err != nil {
				return err
			}
		}
	}
	if w.Count() > 0 {
		var err error
		if done, err = s.enqueue(ctx, w, nil); err != nil {
			return err
		}
	}
	if done == nil {
		return nil
	}
	// Blocks are pushed in order and none after a failed one, so the last speaks for all.
	return s.await(ctx, done)
}

// enqueue cuts what w holds. After an error nothing of it is stored, and none
// will be.
func (s *Sink[T]) enqueue(ctx context.Context, w *codec.FrameWriter[T], position []byte) (<-chan error, error) {
	done := make(chan error, 1)
	f := frame{records: w.Count(), done: done}
	if len(position) > 0 {
		f.position = bytes.Clone(position)
	}
	f.data = w.Finish()
	if err := s.run.gen.enqueue(ctx, s, f); err != nil {
		return nil, err
	}
	s.Ready()
	return done, nil
}

func (s *Sink[T]) await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if s.ctx.Err() == nil {
		return fmt.Errorf("receiver %q: not known whether the block was stored: %w", s.run.env.Stream, context.Cause(ctx))
	}
	// The drain settles every queued block. An answer spares the source a redelivery.
	return <-done
}

// storeError is the error of a store call whose wait was ended by ctx.
func storeError(ctx, start context.Context) error {
	if start.Err() != nil {
		return ErrStopped
	}
	return context.Cause(ctx)
}

// ReportError shows err at the driver and in the log; receiving goes on.
func (s *Sink[T]) ReportError(err error) { s.run.reportError(err) }

// Ready says that the source has been reached. A store that succeeds says so
// too. A stream that was never Ready ends the job after Config.StartAttempts
// failures in a row; one that was is started again for ever.
func (s *Sink[T]) Ready() { s.ready("") }

// ReadyAt is Ready for a receiver that others come to: where, the address it
// listens on, is shown at the driver and in the log.
func (s *Sink[T]) ReadyAt(where string) {
	s.run.env.Log.Info("listening", "stream", s.run.env.Stream, "address", where)
	s.ready("listening on " + where)
}

func (s *Sink[T]) ready(message string) {
	if s.reached.CompareAndSwap(false, true) {
		s.run.reached.Store(true)
		s.run.event(Event{Kind: Started, Message: message})
	}
}

// Stream returns the name of the stream.
func (s *Sink[T]) Stream() base.UID { return s.run.env.Stream }

// Epoch returns the epoch of this receiver; a later run has a higher one.
func (s *Sink[T]) Epoch() base.Epoch { return s.run.env.Epoch }

// Executor returns the executor that the receiver runs in.
func (s *Sink[T]) Executor() base.ExecutorID { return s.run.env.Executor }
