package wal

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// maxQueued bounds what LevelMemory acknowledges before it is written
// (Invariant 9).
const maxQueued = 64 << 20

// Writer appends records to one log at one epoch. Its methods may be called
// concurrently.
type Writer struct {
	cfg   Config
	dir   string
	name  string
	epoch base.Epoch
	head  int64 // bytes of a segment's header
	watch watcher
	away  func(dir string) bool // no file can be made now

	wake     chan struct{} // something to do; buffers one
	closing  chan struct{} // closed by Close
	killed   chan struct{} // closed by Kill
	finished chan struct{} // closed by the goroutine at its end

	covered atomic.Uint64 // what Covered said last

	mu    sync.Mutex
	next  uint64
	plan  place  // where the next record goes
	queue *group // what the goroutine takes next
	bytes int64  // of the records that are not written
	ended error  // why Start refuses
	fate  error  // what Close returns

	// What follows belongs to the goroutine.
	open     *segment
	acked    uint64 // lowest sequence that is not acknowledged
	synced   uint64 // lowest sequence that is not known to be on disk
	unsynced error  // why Sync can't be answered any more
	doubtful uint64 // lowest sequence that unsynced says nothing of
	retiring chan error
	buf      []byte
	delay    time.Duration
	lastTry  bool
	taken    int // segment numbers that were in use
}

// watcher is how a Store follows its writers; any may be nil.
type watcher struct {
	queued    func(*Ticket)   // acknowledged before it is written; called with Writer.mu held
	committed func([]*Ticket) // written, not acknowledged yet, their segment still open
	closed    func(number uint64, length int64)
}

// place is a position in the log.
type place struct {
	segment uint64
	offset  int64
}

// group is what is written and acknowledged together.
type group struct {
	tickets []*Ticket
	asks    []ask
	done    chan struct{}
	err     error // set before done is closed
}

func newGroup(tickets []*Ticket) *group { return &group{tickets: tickets, done: make(chan struct{})} }

func (g *group) finish(err error) {
	g.err = err
	close(g.done)
	for _, a := range g.asks {
		if err != nil {
			a.answer <- err
		}
	}
}

// failed is a group that was never queued.
func failed(err error) *group {
	g := newGroup(nil)
	g.finish(err)
	return g
}

// ask is a Sync or a Roll, answered after the records queued before it.
type ask struct {
	sync   bool
	answer chan error // buffers one
}

// Create opens the log called name at epoch for writing in dir, an existing
// epoch directory that the caller has claimed. Next is the sequence of its first
// record; sequences count from 1, and 0 is taken as that. Create does no IO: the
// first segment is made with the first record, exclusively and without parents.
func Create(cfg Config, dir, name string, epoch base.Epoch, next uint64) (*Writer, error) {
	return create(cfg, dir, name, epoch, next, watcher{})
}

func create(cfg Config, dir, name string, epoch base.Epoch, next uint64, watch watcher) (*Writer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkLog(name); err != nil {
		return nil, err
	}
	next = max(next, 1)
	w := &Writer{
		cfg: cfg, dir: dir, name: name, epoch: epoch, head: headerLength(name), watch: watch,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), killed: make(chan struct{}), finished: make(chan struct{}),
		away: func(string) bool { return false },
		next: next, plan: place{segment: 1, offset: headerLength(name)}, queue: newGroup(nil),
		acked: next, synced: next, delay: cfg.RetryDelay,
	}
	if serves, err := fsys.For(cfg.FS, dir); err == nil { // else the first write says it
		if r, ok := serves.(fsys.Remote); ok {
			w.away = r.Away
		}
	}
	go w.run()
	return w, nil
}

// Ticket is a record on its way into the log.
type Ticket struct {
	w     *Writer
	group *group
	rec   []byte
	seq   uint64
	sum   uint32 // of the payload
	early bool   // acknowledged when it was queued

	// promised is where Start planned the record, and at where it is planned
	// now. They differ after a failed write. At changes with Writer.mu held,
	// until the group is done.
	promised, at place

	// Of a Store's records: nobody waits any more. Guarded by Store.mu.
	given, orphan bool
}

// Start queues a record and returns at once. Sequence numbers are in the order
// of the calls. Rec must not change until the record is acknowledged.
func (w *Writer) Start(rec []byte) *Ticket {
	t := &Ticket{w: w, rec: rec}
	if int64(len(rec)) > w.cfg.MaxRecord {
		t.group = failed(fmt.Errorf("wal: append to %q: record of %d bytes, the limit is %d", w.name, len(rec), w.cfg.MaxRecord))
		return t
	}
	if w.cfg.Level == LevelMemory {
		// The caller may change it as soon as it is acknowledged.
		t.rec = bytes.Clone(rec)
	}
	t.sum = crc32.Checksum(rec, castagnoli)
	size := recordHeader + int64(len(rec))

	w.mu.Lock()
	if w.ended != nil {
		err := w.ended
		w.mu.Unlock()
		t.group = failed(err)
		return t
	}
	t.seq = w.next
	w.next++
	if w.plan.offset > w.head && w.plan.offset+size > w.cfg.SegmentBytes {
		w.plan = place{segment: w.plan.segment + 1, offset: w.head}
	}
	t.promised, t.at = w.plan, w.plan
	w.plan.offset += size
	w.bytes += size
	t.group = w.queue
	t.group.tickets = append(t.group.tickets, t)
	first := len(t.group.tickets) == 1
	if t.early = w.cfg.Level == LevelMemory && w.bytes <= maxQueued; t.early && w.watch.queued != nil {
		w.watch.queued(t)
	}
	w.mu.Unlock()
	if first {
		w.poke()
	}
	return t
}

func (w *Writer) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Seq is the record's sequence, 0 if it was refused.
func (t *Ticket) Seq() uint64 { return t.seq }

// Wait returns the record's handle once it is as durable as the log's level
// says. If ctx ends first the outcome is unknown, not failed: the record will be
// in the log unless the writer ends, and Wait may be called again. [ErrFenced]
// and [ErrClosed] say that the writer has ended.
//
// At LevelMemory the handle says where the record is going to be. A write that
// fails after that moves it; a Store knows where to.
func (t *Ticket) Wait(ctx context.Context) (base.Handle, error) {
	if t.early {
		return t.handle(t.promised), nil
	}
	select {
	case <-t.group.done:
	default:
		select {
		case <-t.group.done:
		case <-ctx.Done():
			return base.Handle{}, fmt.Errorf("wal: append %d to %q: outcome unknown: %w", t.seq, t.w.name, ctx.Err())
		}
	}
	if t.group.err != nil {
		return base.Handle{}, t.group.err
	}
	return t.handle(t.at), nil
}

func (t *Ticket) handle(at place) base.Handle {
	return base.Handle{Log: t.w.name, Epoch: t.w.epoch, Segment: at.segment, Offset: at.offset, Length: int64(len(t.rec))}
}

// Append is Start and Wait.
func (w *Writer) Append(ctx context.Context, rec []byte) (base.Handle, error) {
	return w.Start(rec).Wait(ctx)
}

// Next is the sequence of the next record to be queued.
func (w *Writer) Next() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next
}

// Sync returns nil once everything acknowledged so far is on disk, whatever the
// level. If the disk fails to sync what was acknowledged at a lower level, this
// and every later call returns why, until [Writer.Covered]: nobody may rely on
// those records.
func (w *Writer) Sync(ctx context.Context) error { return w.ask(ctx, true) }

// Covered says that what the records up to seq say is on disk elsewhere: a later
// Sync need not answer for them.
func (w *Writer) Covered(seq uint64) { w.covered.Store(seq) }

// Roll seals the open segment and returns when its file is closed. Later records
// go to a new one.
func (w *Writer) Roll(ctx context.Context) error { return w.ask(ctx, false) }

func (w *Writer) ask(ctx context.Context, sync bool) error {
	a := ask{sync: sync, answer: make(chan error, 1)}
	w.mu.Lock()
	if w.ended != nil {
		defer w.mu.Unlock()
		return w.ended
	}
	if !sync {
		w.startSegment()
	}
	w.queue.asks = append(w.queue.asks, a)
	w.mu.Unlock()
	w.poke()
	select {
	case err := <-a.answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wal: %q: outcome unknown: %w", w.name, ctx.Err())
	}
}

// startSegment plans the next record into a new segment. Mu is held.
func (w *Writer) startSegment() {
	if w.plan.offset > w.head {
		w.plan = place{segment: w.plan.segment + 1, offset: w.head}
	}
}

// Close writes what is queued, seals the open segment and waits. If writing
// fails, one more attempt is made; then Close returns the error, and the records
// that wait get [ErrClosed].
func (w *Writer) Close() error {
	w.mu.Lock()
	if w.ended == nil {
		w.ended = fmt.Errorf("wal: %q: %w", w.name, ErrClosed)
		close(w.closing)
	}
	w.mu.Unlock()
	<-w.finished
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fate
}

// Kill ends the writer as a crash would: nothing more is written or sealed. It
// waits for an operation under way. Those who wait get [ErrClosed].
func (w *Writer) Kill() {
	w.mu.Lock()
	select {
	case <-w.killed:
	default:
		close(w.killed)
	}
	if w.ended == nil {
		w.ended = fmt.Errorf("wal: %q: %w", w.name, ErrClosed)
	}
	w.mu.Unlock()
	<-w.finished
}
