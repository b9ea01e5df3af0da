package driver

import (
	"context"
	"sync"
)

// Log is the driver's log. Its methods may be called by several goroutines.
type Log interface {
	// Append returns when the event is as durable as the log makes it; an error
	// means that the job can't go on (Invariant 14).
	Append(ctx context.Context, e Event) error
	// Post appends without waiting: the event is in the log before those that are
	// appended after it.
	Post(e Event) error
}

// MemLog is a log in memory, for jobs that keep nothing across a restart. It
// remembers the newest events only.
type MemLog struct {
	mu     sync.Mutex
	recent []Event
	total  int64
}

// memLogKeeps is the number of events that a MemLog remembers.
const memLogKeeps = 256

// Append implements [Log].
func (l *MemLog) Append(ctx context.Context, e Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.Post(e)
}

// Post implements [Log].
func (l *MemLog) Post(e Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.recent) == memLogKeeps {
		copy(l.recent, l.recent[1:])
		l.recent = l.recent[:memLogKeeps-1]
	}
	l.recent = append(l.recent, e)
	l.total++
	return nil
}

// Recent returns the remembered events, oldest first, and how many there ever were.
func (l *MemLog) Recent() ([]Event, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Event(nil), l.recent...), l.total
}
