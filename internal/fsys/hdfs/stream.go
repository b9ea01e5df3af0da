package hdfs

import (
	"fmt"
	"sync"
)

// window is how many packets may be on their way, of 64 KiB at most. Java's
// client has 80.
const window = 64

// stream is what the datanodes have acknowledged of one file. Its first error is
// its last: nothing of the file can be trusted after that but what was
// acknowledged before.
type stream struct {
	least int // how many datanodes must acknowledge a packet

	gate     *gate // set before anything is sent
	mu       sync.Mutex
	changed  sync.Cond // of what follows
	failing  bool
	err      error
	sent     uint64 // packets, in all blocks
	acked    uint64
	untold   bool // a pipeline's last packet is not acknowledged
	unsynced bool // a packet went out that none has synced
	current  *pipeline
}

func newStream(least int) *stream {
	s := &stream{least: least}
	s.changed.L = &s.mu
	return s
}

// fail ends the stream. The gate is shut before the library is told anything, so
// that it can't complete the file on the namenode with a length that no datanode
// has acknowledged (Invariant 1).
func (s *stream) fail(err error) {
	s.mu.Lock()
	first := !s.failing
	s.failing = true
	s.mu.Unlock()
	if !first {
		return
	}
	s.gate.shut(err)
	s.mu.Lock()
	s.err = err
	s.changed.Broadcast()
	s.mu.Unlock()
}

func (s *stream) error() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// await returns once everything sent is acknowledged, or with the error that
// ended the stream. Who calls it sees to it that the stream fails in time.
func (s *stream) await() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.acked < s.sent {
		s.changed.Wait()
	}
	return s.err
}

// begin counts a packet before it is sent, once there is room in the window. It
// says whether the packet has to ask for a sync: if it is there for that, and if
// it is the last of a block that nobody will be able to sync later.
func (s *stream) begin(last, sync bool) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.sent-s.acked >= window {
		s.changed.Wait()
	}
	if s.err != nil {
		return false, s.err
	}
	s.sent++
	s.untold = s.untold || last
	sync = sync || last && s.unsynced
	s.unsynced = !sync
	return sync, nil
}

// end counts an acknowledgement with the given number of statuses.
func (s *stream) end(replicas int, last bool) error {
	if replicas < s.least {
		return fmt.Errorf("%w: %d acknowledged, at least %d must", ErrReplicas, replicas, s.least)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked++
	if last {
		s.untold = false
	}
	if s.acked == s.sent || s.sent-s.acked == window-1 {
		s.changed.Broadcast()
	}
	return nil
}

// reset makes the stream that of another file.
func (s *stream) reset() {
	s.mu.Lock()
	s.sent, s.acked, s.unsynced, s.current = 0, 0, false, nil
	s.mu.Unlock()
}

// tracked reports whether acknowledgements are read.
func (s *stream) tracked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current != nil
}

// finished reports whether every block was ended and acknowledged.
func (s *stream) finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && !s.untold && s.acked == s.sent
}

// syncAll asks the datanodes to sync what went out, with a packet of no data, as
// Java's hsync does if it has none to send. The packets before it are unmarked:
// which of them is the last is known too late, and each that asks costs a sync.
func (s *stream) syncAll() error {
	s.mu.Lock()
	p, needed := s.current, s.unsynced && s.err == nil
	s.mu.Unlock()
	if !needed || p == nil {
		return nil
	}
	return p.inject()
}

// attach makes p the pipeline of the block that is being written.
func (s *stream) attach(p *pipeline) {
	s.mu.Lock()
	s.current = p
	s.mu.Unlock()
}

// nothingSent reports whether no datanode can have any of the file.
func (s *stream) nothingSent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent == 0
}
