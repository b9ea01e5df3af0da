package hdfstest

import (
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// KillDatanode ends datanode i as SIGKILL would: connections are reset, new
// ones refused. Its replicas are there again after a restart.
func (c *Cluster) KillDatanode(i int) {
	c.mu.Lock()
	d := c.datanodes[i]
	closing := d.kill()
	c.mu.Unlock()
	closeAll(closing)
}

func (d *datanode) kill() []io.Closer {
	for _, r := range d.replicas {
		if r.state == beingWritten {
			r.state = lostWriter
		}
	}
	d.stopWriters()
	return d.die()
}

// RestartDatanode starts datanode i again, after killing it if it runs. It
// fails only if its port on loopback was taken meanwhile.
func (c *Cluster) RestartDatanode(i int) error {
	c.KillDatanode(i)
	c.mu.Lock()
	d := c.datanodes[i]
	d.up = !c.closed
	c.report(d)
	c.changed.Broadcast()
	c.mu.Unlock()
	return d.listen()
}

// PauseDatanode stops datanode i as SIGSTOP would: connections stay, nothing
// moves, new ones are taken and not answered.
func (c *Cluster) PauseDatanode(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.datanodes[i].pause()
}

// ResumeDatanode lets a paused datanode go on.
func (c *Cluster) ResumeDatanode(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.datanodes[i]
	c.report(d)
	d.resume()
}

// FillDatanode says whether datanode i has no space left: it gets no new
// blocks, and what is being written there fails.
func (c *Cluster) FillDatanode(i int, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.datanodes[i].full = full
}

// WipeDatanode removes all replicas of datanode i, as the loss of its disks.
func (c *Cluster) WipeDatanode(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.datanodes[i]
	for id := range d.replicas {
		d.remove(id)
	}
}

// ShortPipeline makes new blocks get at most n datanodes, as HDFS does at
// times without a word. Zero ends that.
func (c *Cluster) ShortPipeline(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.short = n
}

// AckError makes datanode i answer packets with a status of Hadoop's, such as
// "ERROR", until it is told "SUCCESS". It stores them all the same.
func (c *Cluster) AckError(i int, status string) error {
	v := hdfsMessage("BlockOpResponseProto").field("status").Enum().Values().ByName(protoreflect.Name(status))
	if v == nil {
		return fmt.Errorf("hdfstest: status %q is not one of Hadoop's", status)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.datanodes[i].ackStatus = int64(v.Number())
	return nil
}

// AckDelay makes datanode i acknowledge a packet only after d.
func (c *Cluster) AckDelay(i int, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.datanodes[i].ackDelay = d
}

// HoldAcks makes datanode i store packets without acknowledging any, until it
// is told otherwise.
func (c *Cluster) HoldAcks(i int, hold bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.datanodes[i].holdAcks = hold
	c.changed.Broadcast()
}

// KillNamenode ends namenode i. Whatever it answered is there after a restart;
// open files keep their blocks and leases.
func (c *Cluster) KillNamenode(i int) {
	c.mu.Lock()
	closing := c.namenodes[i].die()
	c.mu.Unlock()
	closeAll(closing)
}

// RestartNamenode starts namenode i again, in safe mode for
// [Options].SafeModeFor, after killing it if it runs. It is what it was, active
// or standby. It fails only if its port on loopback was taken meanwhile.
func (c *Cluster) RestartNamenode(i int) error {
	c.KillNamenode(i)
	c.mu.Lock()
	n := c.namenodes[i]
	n.up, n.safeUntil = !c.closed, time.Now().Add(c.opts.SafeModeFor)
	if c.active == i {
		c.renewAll()
	}
	c.changed.Broadcast()
	c.mu.Unlock()
	return n.listen()
}

// renewAll is what a namenode that takes over does: it cannot know who was heard.
func (c *Cluster) renewAll() {
	for client := range c.leases {
		c.leases[client] = time.Now()
	}
}

// PauseNamenode stops namenode i as SIGSTOP would.
func (c *Cluster) PauseNamenode(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namenodes[i].pause()
}

// ResumeNamenode lets a paused namenode go on.
func (c *Cluster) ResumeNamenode(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namenodes[i].resume()
}

// Activate makes namenode i the active one and the other a standby.
func (c *Cluster) Activate(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active != i {
		c.active = c.namenodes[i].index
		c.renewAll()
	}
}

// StandbyAll makes all namenodes standbys: every call is refused.
func (c *Cluster) StandbyAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = -1
}

// SafeMode says whether the namenodes refuse all that changes something.
func (c *Cluster) SafeMode(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.safe = on
}

// SetQuota limits the directory dir: names in it and below, itself included,
// and bytes, counted with replicas. Zero is no limit.
func (c *Cluster) SetQuota(dir string, names, bytes int64) error {
	return c.change(dir, func(n *inode) { n.maxNames, n.maxBytes = names, bytes })
}

// Deny refuses, with AccessControlException, whatever would change dir or
// something below.
func (c *Cluster) Deny(dir string) error {
	return c.change(dir, func(n *inode) { n.denied = true })
}

// Allow takes back [Cluster.Deny].
func (c *Cluster) Allow(dir string) error {
	return c.change(dir, func(n *inode) { n.denied = false })
}

func (c *Cluster) change(dir string, f func(*inode)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.ns.find(dir)
	if err != nil {
		return fmt.Errorf("hdfstest: %w", err)
	}
	if n == nil || !n.dir {
		return fmt.Errorf("hdfstest: %s is not a directory", dir)
	}
	f(n)
	return nil
}
