package wal

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// StoreWriter appends to one log of a store at one epoch.
type StoreWriter struct {
	s   *Store
	w   *Writer
	key epochKey
}

// Writer claims the directory of an epoch of a log and opens it for writing. The
// log's lower epochs are sealed. [ErrFenced] says that this epoch or a higher one
// exists already (Invariant 7).
func (s *Store) Writer(ctx context.Context, log string, epoch base.Epoch) (*StoreWriter, error) {
	name, err := escape(log)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("wal: claim epoch %s of %q: %w", epoch, log, err)
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("wal: store %q: %w", s.cfg.Dir, ErrClosed)
	}
	dir, err := s.claim(ctx, join(s.cfg.Dir, name), epoch)
	if err != nil {
		return nil, fmt.Errorf("wal: claim epoch %s of %q: %w", epoch, log, err)
	}
	sw := &StoreWriter{s: s, key: epochKey{log: log, epoch: epoch}}
	sw.w, err = create(s.cfg.Config, dir, log, epoch, 1, watcher{queued: sw.queued, committed: sw.committed, closed: sw.closed})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	closed = s.closed
	if !closed {
		s.logs[log] = true
		s.epochs[sw.key] = &epochState{}
		s.writers[sw] = struct{}{}
	}
	s.mu.Unlock()
	if closed {
		sw.w.Kill()
		return nil, fmt.Errorf("wal: store %q: %w", s.cfg.Dir, ErrClosed)
	}
	return sw, nil
}

func (s *Store) claim(ctx context.Context, parent string, epoch base.Epoch) (dir string, err error) {
	fs := s.cfg.FS
	if err := fsys.MakeDirs(fs, parent); err != nil {
		return "", err
	}
	if err := sealEpochs(fs, parent, func(e base.Epoch) bool { return e < epoch }); err != nil {
		return "", err
	}
	epochs, err := Epochs(fs, parent)
	if err != nil {
		return "", err
	}
	if n := len(epochs); n > 0 && epochs[n-1].Epoch >= epoch {
		return "", fmt.Errorf("%w: %q exists", ErrFenced, epochs[n-1].Dir)
	}
	if err := endWriting(ctx, fs, epochs); err != nil {
		return "", err
	}
	dir = join(parent, epochDir(epoch))
	if err := fs.Mkdir(dir); errors.Is(err, iofs.ErrExist) {
		return "", fmt.Errorf("%w: %w", ErrFenced, err)
	} else if err != nil {
		return "", err
	}
	return dir, fs.SyncDir(parent)
}

// Start is [Writer.Start].
func (w *StoreWriter) Start(rec []byte) *Ticket { return w.w.Start(rec) }

// Append is [Writer.Append]. The record is live until it is released. After an
// error nobody will know its handle, so it is released should it arrive.
func (w *StoreWriter) Append(ctx context.Context, rec []byte) (base.Handle, error) {
	t := w.w.Start(rec)
	h, err := t.Wait(ctx)
	if err != nil {
		w.forsake(t)
	}
	return h, err
}

func (w *StoreWriter) forsake(t *Ticket) {
	w.s.mu.Lock()
	dead := false
	if t.given {
		dead = w.s.release(t.handle(t.at))
	}
	t.orphan = true
	w.s.mu.Unlock()
	if dead {
		w.s.poke()
	}
}

// Roll is [Writer.Roll]: it makes what was written so far readable by others,
// and deletable.
func (w *StoreWriter) Roll(ctx context.Context) error { return w.w.Roll(ctx) }

// Close is [Writer.Close].
func (w *StoreWriter) Close() error {
	err := w.w.Close()
	w.ended()
	return err
}

// Kill is [Writer.Kill].
func (w *StoreWriter) Kill() {
	w.w.Kill()
	w.ended()
}

func (w *StoreWriter) ended() {
	s := w.s
	s.mu.Lock()
	delete(s.writers, w)
	if e := s.epochs[w.key]; e != nil {
		e.closed = true
	}
	s.mu.Unlock()
	s.poke()
}

// queued keeps a record that is acknowledged before it is written. The writer's
// lock is held, which comes before the store's.
func (w *StoreWriter) queued(t *Ticket) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.queued[t.handle(t.promised)] = t.rec
}

// committed counts records as live, before anybody can know their handles and
// before their segment can be closed.
func (w *StoreWriter) committed(tickets []*Ticket) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tickets {
		t.given = true
		if t.early {
			promised := t.handle(t.promised)
			if _, ok := s.queued[promised]; !ok {
				continue // released in the meantime
			}
			delete(s.queued, promised)
			if t.at != t.promised {
				s.moved[promised] = t.handle(t.at)
			}
		}
		if !t.orphan {
			s.segment(segmentKey{epochKey: w.key, number: t.at.segment}).add(t.at.offset, int64(len(t.rec)))
		}
	}
}

// closed makes a segment deletable.
func (w *StoreWriter) closed(number uint64, length int64) {
	s := w.s
	s.mu.Lock()
	seg := s.segment(segmentKey{epochKey: w.key, number: number})
	seg.bytes, seg.closed = length, true
	dead := len(seg.live) == 0
	s.mu.Unlock()
	s.files.forget(segmentKey{epochKey: w.key, number: number})
	if dead {
		s.poke()
	}
}

// segment finds or adds one. Mu is held.
func (s *Store) segment(key segmentKey) *segmentState {
	seg := s.segments[key]
	if seg == nil {
		seg = &segmentState{live: map[int64]int64{}}
		s.segments[key] = seg
		s.epochs[key.epochKey].segments++
	}
	return seg
}
