package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
)

// errDirectoryGone marks an operation that found no directory to work in.
var errDirectoryGone = errors.New("the directory is gone")

// segment is the file being written.
type segment struct {
	number  uint64
	file    fsys.File
	first   uint64
	next    uint64 // sequence after the last record written
	length  int64  // bytes written
	opened  time.Time
	named   bool // its name is on disk
	dirty   bool // there is more than what a Sync covered
	badSync bool // a sync failed: what the file holds is not known
	kept    bool // it holds acknowledged records
}

func (w *Writer) path(number uint64) string { return join(w.dir, segmentFile(number)) }

// write appends records to a segment, which it makes if need be, and brings
// them to the level. It does not look at what is in the way of a second attempt.
func (w *Writer) write(number uint64, tickets []*Ticket) error {
	w.buf = w.buf[:0]
	if w.open == nil {
		file, err := w.cfg.FS.Create(w.path(number))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", errDirectoryGone, err)
		}
		if err != nil {
			return err
		}
		h := header{epoch: w.epoch, number: number, first: tickets[0].seq, log: w.name}
		w.open = &segment{number: number, file: file, first: h.first, next: h.first, opened: time.Now()}
		w.buf = h.append(w.buf)
	}
	s := w.open
	s.dirty = true
	acked := w.acked
	if w.cfg.Level == LevelMemory {
		acked = w.synced // what is acknowledged early is not promised to be here
	}
	for _, t := range tickets {
		w.buf = appendRecordHeader(w.buf, len(t.rec), t.sum, t.seq, acked)
		switch {
		case len(t.rec) > copyLimit:
			if err := w.drain(s); err != nil {
				return err
			}
			if err := w.put(s, t.rec); err != nil {
				return err
			}
		default:
			w.buf = append(w.buf, t.rec...)
			if len(w.buf) >= bufferLimit {
				if err := w.drain(s); err != nil {
					return err
				}
			}
		}
	}
	if err := w.drain(s); err != nil {
		return err
	}
	if w.isKilled() {
		return ErrClosed
	}
	if w.cfg.Level == LevelSync {
		if err := w.syncOpen(); err != nil {
			return err
		}
	} else if err := s.file.Flush(); err != nil {
		return err
	}
	s.next = tickets[len(tickets)-1].seq + 1
	s.kept = true
	return nil
}

func (w *Writer) drain(s *segment) error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.put(s, w.buf)
	w.buf = w.buf[:0]
	return err
}

func (w *Writer) put(s *segment, b []byte) error {
	if w.isKilled() {
		return ErrClosed
	}
	n, err := s.file.Write(b)
	s.length += int64(n)
	return err
}

// syncOpen makes the open segment durable, its name included.
func (w *Writer) syncOpen() error {
	s := w.open
	if s.dirty {
		if err := s.file.Sync(); err != nil {
			s.badSync = true
			return err
		}
		s.dirty = false
	}
	if s.named {
		return nil
	}
	err := w.cfg.FS.SyncDir(w.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errDirectoryGone, err)
	}
	s.named = err == nil
	return err
}

// abandon gives the open segment up after a failed operation: nothing is
// written to it again. One without acknowledged records is removed, since a
// device that is full for long would leave one for each attempt.
func (w *Writer) abandon(err error) {
	s := w.open
	if s == nil {
		return
	}
	w.open = nil
	if s.kept {
		w.retire(s)
		return
	}
	s.file.Close()
	w.closed(s)
	if !w.isKilled() && !errors.Is(err, errDirectoryGone) {
		if err := w.cfg.FS.Remove(w.path(s.number)); err != nil {
			w.cfg.Alarm(fmt.Errorf("wal: remove segment %q: %w", w.path(s.number), err))
		}
	}
}

// seal ends the open segment with a footer. The records in it are as durable as
// the level says already, so a seal that fails costs nothing but itself.
func (w *Writer) seal() {
	s := w.open
	w.open = nil
	if w.isKilled() {
		s.file.Close()
		w.closed(s)
		return
	}
	b := seal{count: s.next - s.first, last: s.next - 1, length: s.length}.append(w.buf[:0])
	n, err := s.file.Write(b)
	s.length += int64(n)
	s.dirty = true
	if err == nil {
		err = s.file.Flush()
	}
	if err != nil {
		w.cfg.Alarm(fmt.Errorf("wal: seal segment %q: %w", w.path(s.number), err))
	}
	w.retire(s)
}

// retire syncs and closes a file beside the writing of the next one, so that a
// later Sync need not. There is one such file at a time.
func (w *Writer) retire(s *segment) {
	w.settle()
	done := make(chan error, 1)
	w.retiring = done
	go func() {
		var err error
		switch {
		case s.badSync:
			// A second sync may say nil for what the first one lost. Whoever
			// made the first has told.
		case !w.isKilled():
			if err = s.file.Sync(); err == nil && !s.named {
				err = w.cfg.FS.SyncDir(w.dir)
			}
		}
		if cerr := s.file.Close(); err == nil {
			err = cerr
		}
		w.closed(s)
		if err != nil {
			err = fmt.Errorf("wal: sync segment %q: %w", w.path(s.number), err)
		}
		done <- err
	}()
}

// settle waits for the file that is being retired.
func (w *Writer) settle() {
	if w.retiring == nil {
		return
	}
	err := <-w.retiring
	w.retiring = nil
	if err == nil || w.isKilled() {
		return
	}
	w.cfg.Alarm(err)
	if w.cfg.Level != LevelSync {
		w.unsynced, w.doubtful = err, w.acked
	}
}

func (w *Writer) closed(s *segment) {
	if w.watch.closed != nil {
		w.watch.closed(s.number, s.length)
	}
}

// syncAll answers Sync.
func (w *Writer) syncAll() error {
	w.settle()
	if w.unsynced != nil && w.doubtful <= w.covered.Load()+1 {
		w.unsynced = nil
	}
	if w.unsynced != nil {
		return w.unsynced
	}
	if s := w.open; s != nil {
		if err := w.syncOpen(); err != nil {
			if w.cfg.Level != LevelSync {
				w.unsynced, w.doubtful = fmt.Errorf("wal: sync segment %q: %w", w.path(s.number), err), w.acked
			}
			w.cfg.Alarm(fmt.Errorf("wal: sync segment %q: %w", w.path(s.number), err))
			w.abandon(err)
			w.move(s.number, nil)
			if w.unsynced != nil {
				return w.unsynced
			}
		}
	}
	w.synced = w.acked
	return nil
}
