package hdfstest

import (
	"bufio"
	"slices"
	"time"
)

// acknowledge answers packets until the last, or the pipeline breaks.
func (w *writer) acknowledge() {
	if lostMirror := w.answer(); !lostMirror {
		w.end()
	}
	for range w.acks {
		// Without the next datanode this one stores what comes, unanswered.
		continue
	}
	w.end()
}

func (w *writer) end() {
	w.d.c.mu.Lock()
	w.stop()
	w.d.c.mu.Unlock()
}

// answer acknowledges packets in the order they came, each after the next
// datanode has. It tells whether that one was lost.
func (w *writer) answer() bool {
	var down *bufio.Reader
	if w.mirror != nil {
		down = bufio.NewReader(w.mirror)
	}
	for {
		var below []int64
		if down != nil {
			ack := hdfsMessage("PipelineAckProto")
			if err := readDelimited(down, ack); err != nil {
				w.send(unknownSeqno, []int64{statusSuccess, statusError})
				return true
			}
			below = ack.nums("reply")
			switch {
			case len(below) > 0 && below[0] == statusErrorChecksum:
				return false // the bytes that this one sent were damaged, so it is the bad one
			case ack.num("seqno") == unknownSeqno:
				w.send(unknownSeqno, append([]int64{statusSuccess}, below...))
				return true
			}
		}
		p, ok := <-w.acks
		if !ok {
			return false
		}
		mine, ok := w.turn(p, below)
		if !ok || !w.send(p.seqno, append([]int64{mine}, below...)) || p.last || p.corrupt {
			return false
		}
	}
}

// turn waits as the test has it, finishes the replica after the last packet,
// and returns this datanode's status. What it and all behind it have is visible
// before anyone is told so.
func (w *writer) turn(p packet, below []int64) (int64, bool) {
	c, d := w.d.c, w.d
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait := d.ackDelay - time.Since(p.at); wait > 0 {
		c.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-w.done:
			timer.Stop()
		}
		c.mu.Lock()
	}
	for d.holdAcks && !w.stopped {
		c.changed.Wait()
	}
	status := d.ackStatus
	if p.corrupt {
		status = statusErrorChecksum
	}
	if p.last && status == statusSuccess && !w.stopped {
		w.replica.state = finalized
	}
	if failed := func(s int64) bool { return s != statusSuccess }; !w.stopped && p.seqno != heartbeat && !failed(status) && !slices.ContainsFunc(below, failed) {
		w.replica.acked = max(w.replica.acked, p.offset+int64(len(p.data)))
	}
	return status, !w.stopped
}

// send sends an acknowledgement, unless the pipeline was ended: what breaks
// then is not told.
func (w *writer) send(seqno int64, statuses []int64) bool {
	w.d.c.mu.Lock()
	stopped := w.stopped
	w.d.c.mu.Unlock()
	if stopped {
		return false
	}
	ack := hdfsMessage("PipelineAckProto").setNum("seqno", seqno).addNum("reply", statuses...).
		setNum("downstreamAckTimeNanos", 0).addNum("flag", statuses...)
	b, err := appendDelimited(nil, ack)
	if err == nil {
		_, err = w.up.Write(b)
	}
	return err == nil
}
