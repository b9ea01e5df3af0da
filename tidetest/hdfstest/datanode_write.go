package hdfstest

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// Stages in which a pipeline can be set up here. Hadoop's others repair one
// whose datanode failed.
const (
	setupAppend = 0
	setupCreate = 6
)

const (
	// setupPatience is how long a datanode waits for the next one of a new pipeline.
	setupPatience = 65 * time.Second
	// unknownSeqno is that of an acknowledgement that tells of a failed datanode.
	unknownSeqno = -2
	heartbeat    = -1
)

// A writer is one datanode's part in a pipeline.
type writer struct {
	d       *datanode
	up      *link
	mirror  *link // nil for the last
	replica *replica
	block   message
	table   *crc32.Table
	acks    chan packet   // received, to be acknowledged in order
	done    chan struct{} // closed to stop
	stopped bool          // under Cluster.mu
}

// stop ends the writer. It is called under the cluster's mutex.
func (w *writer) stop() {
	if !w.stopped {
		w.stopped = true
		close(w.done)
		w.d.c.changed.Broadcast()
	}
}

// write takes part in a pipeline until it ends.
func (d *datanode) write(l *link, r *bufio.Reader) error {
	op := hdfsMessage("OpWriteBlockProto")
	if err := readDelimited(r, op); err != nil {
		return err
	}
	w := &writer{d: d, up: l, block: op.sub("header").sub("baseHeader").sub("block"), acks: make(chan packet, 1024), done: make(chan struct{})}
	sums := op.sub("requestedChecksum")
	var ok bool
	if w.table, ok = checksums(sums.num("type")); !ok || sums.num("bytesPerChecksum") != chunkSize {
		return respond(l, response(statusErrorUnsupported, "", "only CRC32 and CRC32C of 512 bytes"))
	}
	if s := op.num("stage"); s != setupAppend && s != setupCreate {
		return respond(l, response(statusErrorUnsupported, "", fmt.Sprintf("pipeline stage %d is not supported", s)))
	}
	if err := d.open(w, op); err != nil {
		return err // Hadoop closes the connection without a word
	}
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer d.shut(w)
	if targets := op.list("targets"); len(targets) > 0 {
		if bad, err := d.extend(w, op, targets, &helpers); err != nil {
			return errors.Join(err, respond(l, response(statusError, bad, "")))
		}
	}
	helpers.Go(w.closeWhenStopped)
	if err := respond(l, response(statusSuccess, "", "")); err != nil {
		return err
	}
	helpers.Go(w.acknowledge)
	err := w.receive(r)
	close(w.acks)
	if err == nil {
		// The end of the block is acknowledged before the connection ends.
		<-w.done
		return io.EOF
	}
	return err
}

// open makes the replica, or opens the finished one.
func (d *datanode) open(w *writer, op message) error {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	id, stamp := uint64(w.block.num("blockId")), w.block.num("generationStamp")
	r := d.replicas[id]
	switch {
	case !d.alive(w.up.life):
		return errDied
	case d.full:
		return errors.New("hdfstest: no space left")
	case op.num("stage") == setupCreate && r != nil:
		return fmt.Errorf("hdfstest: replica blk_%d exists", id)
	case op.num("stage") == setupCreate:
		r = &replica{stamp: stamp}
		d.replicas[id] = r
	case r == nil || r.state != finalized || r.stamp != stamp || int64(len(r.data)) != op.num("minBytesRcvd"):
		return fmt.Errorf("hdfstest: no finished replica blk_%d_%d of %d bytes", id, stamp, op.num("minBytesRcvd"))
	default:
		r.stamp = max(stamp, op.num("latestGenerationStamp"))
	}
	// Of what it had when it was finished, all was acknowledged.
	r.state, r.acked, r.writer, w.replica = beingWritten, int64(len(r.data)), w, r
	return nil
}

// shut ends what is left of the writer.
func (d *datanode) shut(w *writer) {
	d.c.mu.Lock()
	w.stop()
	if w.replica.writer == w {
		w.replica.writer = nil
	}
	d.c.mu.Unlock()
}

// extend connects to the next datanode, which does the same. It returns the
// address of the one that failed.
func (d *datanode) extend(w *writer, op message, targets []message, helpers *sync.WaitGroup) (string, error) {
	id := targets[0].sub("id")
	address := net.JoinHostPort(id.str("ipAddr"), strconv.FormatInt(id.num("xferPort"), 10))
	next := d.c.find(address)
	if next == nil {
		return address, fmt.Errorf("hdfstest: no datanode at %s", address)
	}
	c, err := next.dial(d.transfer.addr, d.c.opts.Latency)
	if err != nil {
		return address, err
	}
	m := d.attach(c)
	if m == nil {
		return address, errors.Join(errDied, c.Close())
	}
	w.mirror = m
	helpers.Go(func() {
		<-w.done
		d.detach(m)
	})
	op.m.Clear(op.field("targets"))
	op.add("targets", targets[1:]...)
	b, err := appendDelimited([]byte{0, transferVersion, opWriteBlock}, op)
	if err != nil {
		return address, err
	}
	if _, err := m.Write(b); err != nil {
		return address, err
	}
	_ = c.SetReadDeadline(time.Now().Add(setupPatience * time.Duration(len(targets))))
	answer := response(statusError, "", "")
	// Nothing follows the answer before this datanode sends a packet, so the
	// reader holds no byte of an acknowledgement.
	if err := readDelimited(bufio.NewReader(m), answer); err != nil {
		return address, err
	}
	_ = c.SetReadDeadline(time.Time{})
	if answer.num("status") != statusSuccess {
		if bad := answer.str("firstBadLink"); bad != "" {
			address = bad
		}
		return address, fmt.Errorf("hdfstest: pipeline: bad link %s", address)
	}
	return "", nil
}

func (w *writer) closeWhenStopped() {
	<-w.done
	_ = w.up.Close()
}

// receive stores packets and passes them on, until the last.
func (w *writer) receive(r *bufio.Reader) error {
	forwarding := w.mirror != nil
	for {
		p, err := readPacketFrom(r)
		if err != nil {
			return err
		}
		// Only the last of a pipeline looks at checksums.
		p.at, p.corrupt = time.Now(), w.mirror == nil && !w.intact(p)
		if err := w.store(p); err != nil {
			return err
		}
		if forwarding {
			b, err := p.encode()
			if err != nil {
				return err
			}
			// If the next one is gone, this one goes on storing; the reader of
			// acknowledgements tells the client.
			if _, err := w.mirror.Write(b); err != nil {
				forwarding = false
			}
		}
		select {
		case w.acks <- p:
		case <-w.done:
			return errDied
		}
		if p.last || p.corrupt {
			return nil
		}
	}
}

// intact verifies the checksums.
func (w *writer) intact(p packet) bool {
	return string(appendSums(nil, p.data, w.table)) == string(p.sums)
}

// store adds to the replica what is new in a packet, which may begin with the
// last, partial chunk. Hadoop takes one that begins within a chunk and ends in
// another, and then cannot read the block; here it ends the pipeline.
func (w *writer) store(p packet) error {
	c, d, r := w.d.c, w.d, w.replica
	c.mu.Lock()
	defer c.mu.Unlock()
	have, size := int64(len(r.data)), int64(len(p.data))
	switch within := p.offset % chunkSize; {
	case w.stopped || !d.alive(w.up.life):
		return errDied
	case p.seqno == heartbeat || p.corrupt:
		return nil
	case d.full && size > 0:
		return errors.New("hdfstest: no space left")
	case p.offset < 0 || p.offset > have:
		return fmt.Errorf("hdfstest: packet for offset %d of a replica of %d bytes", p.offset, have)
	case p.offset+size <= have:
	case within != 0 && (p.offset < have || within+size > chunkSize):
		return fmt.Errorf("hdfstest: packet for offset %d with %d bytes begins within a chunk and ends in another", p.offset, size)
	default:
		r.data = append(r.data, p.data[have-p.offset:]...)
	}
	if p.sync {
		d.syncs++
	}
	return nil
}
