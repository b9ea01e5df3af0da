package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/receiver"
	"github.com/tidemill/tidemill/wal"
)

// BlockLogs are the write-ahead logs of receivers, one a stream.
type BlockLogs struct{ Store *wal.Store }

// OpenLog opens the log of a receiver epoch. Lower epochs of the stream are
// sealed (Invariant 7).
func (b BlockLogs) OpenLog(ctx context.Context, stream base.UID, epoch base.Epoch) (receiver.Log, error) {
	w, err := b.Store.Writer(ctx, string(stream), epoch)
	if err != nil {
		return nil, fmt.Errorf("write-ahead log of receiver %q: %w", stream, fenced(err))
	}
	return blockLog{w, b.Store}, nil
}

// Read returns a block.
func (b BlockLogs) Read(ctx context.Context, h base.Handle) ([]byte, error) {
	return b.Store.Read(ctx, h)
}

// Hosts returns the hosts that hold the segment of a block; see [wal.Store.Hosts].
func (b BlockLogs) Hosts(h base.Handle) ([]string, error) { return b.Store.Hosts(h) }

// Release says that blocks are not needed any more.
func (b BlockLogs) Release(hs ...base.Handle) { b.Store.Release(hs...) }

type blockLog struct {
	*wal.StoreWriter
	store *wal.Store
}

func (l blockLog) Append(ctx context.Context, rec []byte) (base.Handle, error) {
	h, err := l.StoreWriter.Append(ctx, rec)
	return h, fenced(err)
}

// Release implements [receiver.Log].
func (l blockLog) Release(hs ...base.Handle) { l.store.Release(hs...) }

// fenced says in the receiver's words that another epoch has the log.
func fenced(err error) error {
	if errors.Is(err, wal.ErrFenced) {
		return fmt.Errorf("%w: %w", receiver.ErrFenced, err)
	}
	return err
}

// StateLog is the state log: a [state.Storage] in a write-ahead log, for all
// operators of all executors that share it.
type StateLog struct {
	store *wal.Store
	w     *wal.StoreWriter
}

// OpenStateLog opens the state log of a driver epoch.
func OpenStateLog(ctx context.Context, s *wal.Store, epoch base.Epoch) (*StateLog, error) {
	w, err := s.Writer(ctx, "state", epoch)
	if err != nil {
		return nil, fmt.Errorf("state log: %w", err)
	}
	return &StateLog{s, w}, nil
}

// Put implements [state.Storage].
func (l *StateLog) Put(ctx context.Context, data []byte) (base.Handle, error) {
	return l.w.Append(ctx, data)
}

// Get implements [state.Storage].
func (l *StateLog) Get(ctx context.Context, h base.Handle) ([]byte, error) {
	return l.store.Read(ctx, h)
}

// Drop implements [state.Storage]. The store removes a closed segment when
// nothing in it is needed.
func (l *StateLog) Drop(hs ...base.Handle) { l.store.Release(hs...) }

// Sparse reports whether a file lies in a segment that holds little else that
// is needed.
func (l *StateLog) Sparse(h base.Handle) bool { return l.store.Sparse(h) }
