package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
)

// removing is the store's goroutine: it deletes what nobody needs. It ends after
// Close with one last round.
func (s *Store) removing() {
	defer close(s.swept)
	delay := s.cfg.RetryDelay
	var again <-chan time.Time
	for {
		select {
		case <-s.wake:
		case <-again:
		}
		last := s.lastRound()
		again = nil
		err := s.removeDead(s.ctx)
		if err != nil {
			s.cfg.Alarm(err)
		}
		switch {
		case last:
			return
		case err == nil:
			delay = s.cfg.RetryDelay
		default:
			again = time.After(delay)
			delay = min(2*delay, s.cfg.RetryDelayMax)
		}
	}
}

// lastRound is true once Close has closed the writers; it pokes after that.
func (s *Store) lastRound() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed && len(s.writers) == 0
}

// removeDead deletes the closed segments without live records, then the epoch
// directories that are left empty.
func (s *Store) removeDead(ctx context.Context) error {
	if dead := s.dead(); len(dead) > 0 {
		if s.cfg.BeforeRemove != nil {
			if err := s.cfg.BeforeRemove(ctx); err != nil {
				return fmt.Errorf("wal: store %q: %d segments are kept: %w", s.cfg.Dir, len(dead), err)
			}
		}
		var errs []error
		for _, key := range dead {
			errs = append(errs, s.removeSegment(key))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return s.removeEpochs()
}

// dead lists what can go. Nothing comes back to life: only a segment that is
// open gets records.
func (s *Store) dead() []segmentKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	var dead []segmentKey
	for key, seg := range s.segments {
		if seg.closed && len(seg.live) == 0 {
			dead = append(dead, key)
		}
	}
	slices.SortFunc(dead, func(a, b segmentKey) int {
		return cmp.Or(cmp.Compare(a.log, b.log), cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.number, b.number))
	})
	return dead
}

func (s *Store) removeSegment(key segmentKey) error {
	s.files.forget(key)
	dir, err := s.files.epochDir(key.epochKey)
	if err != nil {
		return err
	}
	for _, d := range []string{dir, dir + sealedSuffix} {
		if err := s.cfg.FS.Remove(join(d, segmentFile(key.number))); err != nil && !gone(err) {
			return fmt.Errorf("wal: store %q: %w", s.cfg.Dir, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.epochs[key.epochKey]; e != nil && s.segments[key] != nil {
		e.segments--
	}
	delete(s.segments, key)
	return nil
}

// removeEpochs removes the directories that nobody writes to and that are empty.
func (s *Store) removeEpochs() error {
	s.mu.Lock()
	var empty []epochKey
	for key, e := range s.epochs {
		if e.closed && e.segments == 0 {
			empty = append(empty, key)
			delete(s.epochs, key)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, key := range empty {
		if err := s.removeEpoch(key); err != nil {
			errs = append(errs, err)
			s.mu.Lock()
			s.epochs[key] = &epochState{closed: true}
			s.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

func (s *Store) removeEpoch(key epochKey) error {
	dir, err := s.files.epochDir(key)
	if err != nil {
		return err
	}
	for _, d := range []string{dir, dir + sealedSuffix} {
		if err := removeEpochDir(s.cfg.FS, d); err != nil {
			return fmt.Errorf("wal: store %q: %w", s.cfg.Dir, err)
		}
	}
	return nil
}

// removeEpochDir removes a directory of which no record is needed. Segments that
// are still there hold none: a creation that failed after it took effect left
// them, or a writer that did not know yet that it was fenced.
func removeEpochDir(fs fsys.FS, dir string) error {
	left, err := listSegments(fs, dir)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, in := range left {
		if err := fs.Remove(join(dir, in.Name)); err != nil && !gone(err) {
			return err
		}
	}
	for _, name := range []string{join(dir, recoveredFile), dir} {
		if err := fs.Remove(name); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}
