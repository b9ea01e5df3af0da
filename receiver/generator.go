package receiver

import (
	"bytes"
	"context"
	"sync"

	"github.com/tidemill/tidemill/internal/codec"
)

// frame is a cut block on its way to the pusher.
type frame struct {
	data     []byte // nil: only a mark in the queue, to be told when all before it is added
	records  int
	position []byte
	done     chan<- error // has room for the outcome; nil if nobody waits
}

// generator collects records into an open frame and keeps the queue of cut
// ones. Nothing in it waits while it holds mu: what finds the queue full gets
// a channel to wait on, and the clock leaves the open frame to the pusher.
type generator[T any] struct {
	maxBytes int
	maxQueue int
	work     chan struct{} // holds a token when the pusher should look

	mu       sync.Mutex
	open     *codec.FrameWriter[T]
	position []byte   // of the newest record in open that has one
	seekable bool     // some record or frame had a position
	owner    *Sink[T] // whose records are taken, nil for nobody's
	accepted uint64   // records so far
	queue    []frame  // up to maxQueue, more by an open frame that had to go with another, and a mark
	due      bool     // the open frame should have been cut but there was no room
	closed   bool     // nothing comes any more
	room     chan struct{}
}

func newGenerator[T any](c *codec.Codec[T], cfg Config) *generator[T] {
	return &generator[T]{
		maxBytes: int(cfg.MaxBlockBytes),
		maxQueue: cfg.QueueSize,
		work:     make(chan struct{}, 1),
		open:     codec.NewFrameWriter(c),
		queue:    make([]frame, 0, cfg.QueueSize+3),
	}
}

// setOwner says whose records are taken from now on and returns how many were
// accepted before.
func (g *generator[T]) setOwner(s *Sink[T]) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		s = nil
	}
	g.owner = s
	g.wakeLocked()
	return g.accepted
}

// store adds one record, and the position after it if there is one, to the
// open frame and returns its encoded size.
func (g *generator[T]) store(ctx context.Context, s *Sink[T], v T, position []byte) (int, error) {
	for {
		n, room, err := g.tryStore(s, v, position)
		if room == nil {
			return n, err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return 0, storeError(ctx, s.ctx)
		}
	}
}

// tryStore is one try of store. The lock is released by defer since encoders
// of user types may panic.
func (g *generator[T]) tryStore(s *Sink[T], v T, position []byte) (n int, room <-chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.owner != s {
		return 0, nil, ErrStopped
	}
	before := g.open.Size()
	if before >= g.maxBytes { // the queue is full, or it would have been cut
		return 0, g.roomLocked(), nil
	}
	if err := g.open.Append(v); err != nil {
		return 0, nil, err
	}
	g.accepted++
	if len(position) > 0 {
		g.position, g.seekable = append(g.position[:0], position...), true
	}
	n = g.open.Size() - before
	if g.open.Size() >= g.maxBytes {
		g.cutLocked() // without room the next record waits
	}
	return n, nil, nil
}

// enqueue puts a frame made elsewhere behind everything stored before it.
func (g *generator[T]) enqueue(ctx context.Context, s *Sink[T], f frame) error {
	for {
		room, err := g.tryEnqueue(s, f)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return storeError(ctx, s.ctx)
		}
	}
}

func (g *generator[T]) tryEnqueue(s *Sink[T], f frame) (room <-chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.owner != s:
		return nil, ErrStopped
	case len(g.queue) >= g.maxQueue:
		return g.roomLocked(), nil
	}
	g.finishLocked()
	g.accepted += uint64(f.records)
	g.seekable = g.seekable || f.position != nil
	g.queue = append(g.queue, f)
	g.signal()
	return nil, nil
}

// tick cuts the open frame, now or as soon as there is room.
func (g *generator[T]) tick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.due = g.open.Count() > 0 && !g.cutLocked()
}

// settled says when all that was accepted is in added blocks, or why it never
// will be. It cuts the open frame. Nil means that no position waits for that.
func (g *generator[T]) settled() <-chan error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.seekable {
		return nil
	}
	done := make(chan error, 1)
	if g.closed {
		done <- ErrStopped
		return done
	}
	g.finishLocked()
	g.queue = append(g.queue, frame{done: done})
	g.signal()
	return done
}

// close cuts the last block and refuses all further records.
func (g *generator[T]) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.finishLocked()
	g.closed, g.owner = true, nil
	g.wakeLocked()
	g.signal()
}

// abandon refuses further records and throws away what is there. It tells
// those who wait why, and returns the number of records nobody waited for.
func (g *generator[T]) abandon(why error) (lost int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.finishLocked()
	for _, f := range g.queue {
		lost += f.settle(why)
	}
	clear(g.queue)
	g.queue = g.queue[:0]
	g.closed, g.owner = true, nil
	g.wakeLocked()
	return lost
}

// settle tells the outcome of f to whoever waits for it. Without one it
// returns the records that a failure leaves unaccounted for.
func (f frame) settle(err error) (lost int64) {
	if f.done != nil {
		f.done <- err
	} else if err != nil {
		lost = int64(f.records)
	}
	return lost
}

// next takes the oldest frame, waiting for one. It returns false when the
// generator was closed and is empty, or ctx has ended.
func (g *generator[T]) next(ctx context.Context) (frame, bool) {
	for ctx.Err() == nil {
		f, ok, closed := g.take()
		if ok {
			return f, true
		}
		if closed {
			break
		}
		select {
		case <-g.work:
		case <-ctx.Done():
		}
	}
	return frame{}, false
}

func (g *generator[T]) take() (f frame, ok, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		return frame{}, false, g.closed
	}
	f = g.queue[0]
	n := copy(g.queue, g.queue[1:])
	g.queue[n] = frame{}
	g.queue = g.queue[:n]
	if g.due || g.open.Size() >= g.maxBytes {
		g.cutLocked()
	}
	g.wakeLocked()
	return f, true, false
}

// cutLocked moves the open frame to the queue if there is room.
func (g *generator[T]) cutLocked() bool {
	if len(g.queue) >= g.maxQueue {
		return false
	}
	g.finishLocked()
	return true
}

// finishLocked moves the open frame to the queue, room or not.
func (g *generator[T]) finishLocked() {
	g.due = false
	if n := g.open.Count(); n > 0 {
		f := frame{data: g.open.Finish(), records: n}
		if len(g.position) > 0 {
			f.position, g.position = bytes.Clone(g.position), g.position[:0]
		}
		g.queue = append(g.queue, f)
		g.signal()
	}
}

func (g *generator[T]) signal() {
	select {
	case g.work <- struct{}{}:
	default:
	}
}

// roomLocked returns a channel that is closed when a new try may succeed.
func (g *generator[T]) roomLocked() <-chan struct{} {
	if g.room == nil {
		g.room = make(chan struct{})
	}
	return g.room
}

func (g *generator[T]) wakeLocked() {
	if g.room != nil {
		close(g.room)
		g.room = nil
	}
}
