package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

const (
	// copyLimit is the longest record that is copied into the buffer; longer
	// ones are written from the caller's memory.
	copyLimit = 256 << 10
	// bufferLimit is when the buffer is written though more is queued.
	bufferLimit = 1 << 20
	// mostTaken is how many segment numbers in use are passed over without a
	// pause.
	mostTaken = 1000
)

// run is the writer's goroutine: it takes all that is queued, writes it, and
// wakes those who wait.
func (w *Writer) run() {
	defer close(w.finished)
	var spare []*Ticket
	for {
		g, last := w.take(spare)
		if g == nil {
			w.end(fmt.Errorf("wal: %q: %w", w.name, ErrClosed), nil, nil)
			return
		}
		if err := w.commit(g); err != nil {
			w.end(err, err, g)
			return
		}
		w.acknowledge(g)
		w.sealIfPlanned()
		w.answer(g)
		if last {
			w.end(fmt.Errorf("wal: %q: %w", w.name, ErrClosed), w.close(), nil)
			return
		}
		clear(g.tickets)
		spare, g.tickets = g.tickets[:0], nil
	}
}

// take waits for something to do. It returns nil after Kill; last says that
// nothing follows the group.
func (w *Writer) take(spare []*Ticket) (g *group, last bool) {
	for {
		if w.isKilled() {
			return nil, false
		}
		select {
		case <-w.closing:
			last = true
		default:
		}
		w.mu.Lock()
		aged := w.aged()
		if aged && w.plan.segment == w.open.number {
			w.startSegment()
		}
		if g = w.queue; len(g.tickets) > 0 || len(g.asks) > 0 || aged || last {
			w.queue = newGroup(spare)
			w.mu.Unlock()
			return g, last
		}
		w.mu.Unlock()
		w.idle()
	}
}

// aged reports whether it is time to roll. While no file can be made the open one
// goes on: what is due by age only can wait.
func (w *Writer) aged() bool {
	return w.open != nil && w.cfg.SegmentAge > 0 && time.Since(w.open.opened) >= w.cfg.SegmentAge && !w.away(w.dir)
}

// lookAgain is when a writer whose segment is due looks whether a file can be made.
const lookAgain = time.Second

// idle waits until there may be something to do.
func (w *Writer) idle() {
	var age <-chan time.Time
	if w.open != nil && w.cfg.SegmentAge > 0 {
		left := w.cfg.SegmentAge - time.Since(w.open.opened)
		if left <= 0 && w.away(w.dir) {
			left = lookAgain
		}
		timer := time.NewTimer(left)
		defer timer.Stop()
		age = timer.C
	}
	select {
	case <-w.wake:
	case <-age:
	case <-w.closing:
	case <-w.killed:
	}
}

func (w *Writer) isKilled() bool {
	select {
	case <-w.killed:
		return true
	default:
		return false
	}
}

// commit writes a group until it is as durable as the level says (Invariant
// 14). An error means that the writer has to end.
func (w *Writer) commit(g *group) error {
	rest := g.tickets
	for len(rest) > 0 {
		number := rest[0].at.segment
		n := 1
		for n < len(rest) && rest[n].at.segment == number {
			n++
		}
		if w.open != nil && w.open.number != number {
			w.seal()
		}
		if w.isKilled() {
			return fmt.Errorf("wal: %q: %w", w.name, ErrClosed)
		}
		err := w.write(number, rest[:n])
		if err == nil {
			if w.watch.committed != nil {
				w.watch.committed(rest[:n])
			}
			rest = rest[n:]
			w.delay = w.cfg.RetryDelay
			continue
		}
		if err := w.afterFailure(number, rest, err); err != nil {
			return err
		}
	}
	return nil
}

// afterFailure decides what follows a failed write: a new segment for the records
// that are not acknowledged, after a pause, or the end.
func (w *Writer) afterFailure(number uint64, rest []*Ticket, err error) error {
	made := w.open != nil
	w.abandon(err)
	switch {
	case w.isKilled():
		return fmt.Errorf("wal: %q: %w", w.name, ErrClosed)
	case errors.Is(err, errDirectoryGone):
		// Invariant 7: segments are made without parents, so the rename of
		// the directory is what a fenced writer meets.
		return fmt.Errorf("wal: %q: %w: %w", w.name, ErrFenced, err)
	case made:
		w.move(number, rest)
	case errors.Is(err, fs.ErrExist):
		// An attempt that seemed to fail made it, or an earlier writer. The
		// next number is free, or else something is wrong.
		w.move(number, rest)
		if w.taken++; w.taken%mostTaken != 0 {
			return nil
		}
	}
	w.cfg.Alarm(fmt.Errorf("wal: write segment %q: %w", w.path(number), err))
	if w.lastTry {
		return fmt.Errorf("wal: %q: %w: %d records not written: %w", w.name, ErrClosed, len(rest), err)
	}
	timer := time.NewTimer(w.delay)
	defer timer.Stop()
	w.delay = min(2*w.delay, w.cfg.RetryDelayMax)
	select {
	case <-timer.C:
	case <-w.closing:
		w.lastTry = true
	case <-w.killed:
	}
	return nil
}

// move plans the records of a segment that was given up, and all after them,
// into segments that were not planned before: a handle that was promised may
// lead nowhere, never to another record. Boundaries stay where they were.
func (w *Writer) move(number uint64, rest []*Ticket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	by := w.plan.segment - number + 1
	offset := w.head
	for _, list := range [][]*Ticket{rest, w.queue.tickets} {
		for _, t := range list {
			if t.at.segment == number {
				t.at.offset = offset
				offset += recordHeader + int64(len(t.rec))
			}
			t.at.segment += by
		}
	}
	if w.plan.segment == number {
		w.plan.offset = offset
	}
	w.plan.segment += by
}

// acknowledge wakes those who wait for the group.
func (w *Writer) acknowledge(g *group) {
	if len(g.tickets) > 0 {
		w.acked = g.tickets[len(g.tickets)-1].seq + 1
		if w.cfg.Level == LevelSync {
			w.synced = w.acked
		}
		var size int64
		for _, t := range g.tickets {
			size += recordHeader + int64(len(t.rec))
		}
		w.mu.Lock()
		w.bytes -= size
		w.mu.Unlock()
	}
	close(g.done)
}

// sealIfPlanned seals the open segment if the next record goes to another.
func (w *Writer) sealIfPlanned() {
	if w.open == nil {
		return
	}
	w.mu.Lock()
	over := w.plan.segment > w.open.number
	if queue := w.queue.tickets; len(queue) > 0 && queue[0].at.segment == w.open.number {
		over = false // what was queued meanwhile still goes there, as its handle may say
	}
	w.mu.Unlock()
	if over {
		w.seal()
	}
}

// answer serves the Sync and Roll calls that came with a group.
func (w *Writer) answer(g *group) {
	for _, a := range g.asks {
		if a.sync {
			a.answer <- w.syncAll()
			continue
		}
		w.settle()
		a.answer <- nil
	}
}

// close seals what is open and waits for its file.
func (w *Writer) close() error {
	if w.open != nil {
		w.seal()
	}
	w.settle()
	return nil
}

// end makes the writer refuse everything with err. Close returns fate.
func (w *Writer) end(err, fate error, g *group) {
	if w.open != nil {
		w.open.file.Close()
		w.closed(w.open)
		w.open = nil
	}
	w.settle()
	w.mu.Lock()
	w.ended, w.fate = err, fate
	queue := w.queue
	w.queue = newGroup(nil)
	w.mu.Unlock()
	if g != nil {
		g.finish(err)
	}
	queue.finish(err)
}
