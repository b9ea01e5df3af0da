package hdfstest

import (
	"fmt"
	"time"
)

// recoverer holds a file while its lease is being recovered.
const recoverer = "HDFS_NameNode"

func (c *Cluster) renewLease(cl call, _ message) error {
	client := cl.request.str("clientName")
	if _, ok := c.leases[client]; ok {
		c.leases[client] = time.Now()
	}
	return nil
}

// heldBy refuses a call for a file that is open. After the soft limit it also
// begins to take the file away from its holder.
func (c *Cluster) heldBy(n *inode, op, client string) error {
	failed := fmt.Sprintf("Failed to %s %s for %s on %s", op, n.path(), client, machine)
	switch {
	case n.holder == client:
		return refuse(alreadyBeingCreated, "%s because %s is already the current lease holder.", failed, client)
	case n.recovering:
		return refuse(recoveryInProgress, "%s because another recovery is in progress by %s on %s", failed, n.holder, machine)
	case time.Since(c.leases[n.holder]) > c.opts.SoftLimit:
		if c.release(n) {
			return refuse(recoveryInProgress, "%s because the lease was recovered just now. Try again.", failed)
		}
		return refuse(recoveryInProgress, "%s because lease recovery is in progress. Try again later.", failed)
	}
	return refuse(alreadyBeingCreated, "%s because this file lease is currently owned by %s on %s", failed, n.holder, machine)
}

func (c *Cluster) isFileClosed(cl call, out message) error {
	n, err := c.file(cl.request.str("src"))
	if err == nil {
		out.setFlag("result", !n.open())
	}
	return err
}

func (c *Cluster) recoverLease(cl call, out message) error {
	n, err := c.file(cl.request.str("src"))
	if err != nil {
		return err
	}
	if err := c.ns.allowed(n.path(), cl.user); err != nil {
		return err
	}
	out.setFlag("result", !n.open() || c.release(n))
	return nil
}

// expireLeases begins the recovery of files whose holder was not heard of
// within the hard limit.
func (c *Cluster) expireLeases() {
	for client, renewed := range c.leases {
		if time.Since(renewed) < c.opts.HardLimit {
			continue
		}
		delete(c.leases, client)
		for _, n := range c.ns.byID {
			if n.holder == client {
				c.release(n)
			}
		}
	}
}

// release takes an open file from its holder. It is closed at once if all its
// blocks are complete, else after a recovery.
func (c *Cluster) release(n *inode) bool {
	for _, b := range n.blocks {
		c.settle(b)
	}
	if b := n.last(); b == nil || b.state == complete {
		n.close()
		return true
	}
	n.holder = recoverer
	if !n.recovering {
		n.recovering = true
		c.startLocked(func() { c.recoverFile(n) })
	}
	return false
}

// recoverFile tries at each heartbeat, by which datanodes get their orders.
func (c *Cluster) recoverFile(n *inode) {
	for {
		sinceBegin := time.Since(c.begin)
		wait := time.NewTimer(c.opts.Heartbeat - sinceBegin%c.opts.Heartbeat)
		select {
		case <-wait.C:
		case <-c.stop:
			wait.Stop()
			return
		}
		if c.tryRecovery(n) {
			return
		}
	}
}

// tryRecovery makes the last block the same on all datanodes that can be
// reached, and closes the file. Nobody who wrote it can go on.
func (c *Cluster) tryRecovery(n *inode) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := n.last()
	switch {
	case !n.recovering || c.ns.byID[n.id] != n || b == nil:
		return true
	case c.serving() == nil:
		return false
	}
	var reached []*datanode
	for _, d := range b.pipeline {
		if d.runs() {
			reached = append(reached, d)
		}
	}
	if len(reached) == 0 {
		return false
	}
	b.stamp = c.stamp()
	size := agree(b, reached)
	if size == 0 {
		n.blocks = n.blocks[:len(n.blocks)-1]
		c.drop([]*block{b})
	} else {
		b.size, b.state = size, complete
	}
	n.close()
	c.changed.Broadcast()
	return true
}

// agree cuts the best replicas to the shortest of them that has any bytes,
// which has all that was acknowledged, since those are on the whole pipeline.
// It removes the others.
func agree(b *block, from []*datanode) int64 {
	best := lostWriter
	for _, d := range from {
		d.stopWriter(b.id)
		if r := d.replicas[b.id]; r != nil && len(r.data) > 0 {
			best = max(best, r.state)
		}
	}
	size := int64(-1)
	for _, d := range from {
		if r := d.replicas[b.id]; r != nil && r.state == best && len(r.data) > 0 && (size < 0 || int64(len(r.data)) < size) {
			size = int64(len(r.data))
		}
	}
	for _, d := range from {
		r := d.replicas[b.id]
		if r == nil {
			continue
		}
		// A replica that was being written takes part beside finished ones if
		// it is as long.
		if size > 0 && (r.state == best && int64(len(r.data)) >= size || best == finalized && r.state == beingWritten && int64(len(r.data)) == size) {
			r.data, r.stamp, r.state = r.data[:size], b.stamp, finalized
		} else {
			d.remove(b.id)
		}
	}
	return max(size, 0)
}
