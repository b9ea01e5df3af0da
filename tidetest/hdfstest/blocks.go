package hdfstest

import (
	"fmt"
	"slices"
	"time"
)

const (
	blockPool = "BP-1-127.0.0.1-1"
	// diskSize is what a datanode says to have; no file gets there.
	diskSize = 1 << 40
)

// writing returns the file that client is writing, by its id if the call has
// one: a rename does not stop the writer.
func (c *Cluster) writing(src, client string, id uint64) (*inode, error) {
	var n *inode
	if id != 0 {
		n = c.ns.byID[id]
	} else {
		var err error
		if n, err = c.ns.find(src); err != nil {
			return nil, err
		}
	}
	at := fmt.Sprintf("%s (inode %d) %s", src, id, c.holdings(client))
	switch {
	case n == nil:
		return nil, refuse(fileNotFound, "File does not exist: %s", at)
	case n.dir:
		return nil, refuse(leaseExpired, "INode is not a regular file: %s", at)
	case !n.open():
		return nil, refuse(leaseExpired, "File is not open for writing: %s", at)
	case n.holder != client:
		return nil, refuse(leaseExpired, "Client (=%s) is not the lease owner (=%s: %s", client, n.holder, at)
	}
	return n, nil
}

// holdings says what a client has open.
func (c *Cluster) holdings(client string) string {
	open := 0
	for _, n := range c.ns.byID {
		if n.holder == client {
			open++
		}
	}
	if open == 0 {
		return fmt.Sprintf("Holder %s does not have any open files.", client)
	}
	return fmt.Sprintf("[Lease.  Holder: %s, pending creates: %d]", client, open)
}

func (c *Cluster) addBlock(cl call, out message) error {
	req := cl.request
	src := req.str("src")
	n, err := c.writing(src, req.str("clientName"), uint64(req.num("fileId")))
	if err != nil {
		return err
	}
	last := n.last()
	if prev := req.sub("previous"); req.has("previous") && last != nil && uint64(prev.num("blockId")) == last.id {
		if err := c.commit(last, prev); err != nil {
			return err
		}
		c.settle(last)
	} else if again, err := repeated(n, req); err != nil {
		return err
	} else if again {
		out.setSub("block", c.located(last, n.length()-last.size, last.pipeline))
		return nil
	}
	if last != nil && last.state != complete {
		return refuse(notReplicatedYet, "Not replicated yet: %s", src)
	}
	if err := n.parent.room(0, n.blockSize*int64(n.replication), nil); err != nil {
		return err
	}
	pipeline, err := c.choose(src, n.replication, req.list("excludeNodes"))
	if err != nil {
		return err
	}
	b := &block{id: c.nextBlock, stamp: c.stamp(), pipeline: pipeline}
	c.nextBlock++
	n.blocks = append(n.blocks, b)
	out.setSub("block", c.located(b, n.length(), pipeline))
	return nil
}

// repeated tells a call for a block that was given out already, its answer
// lost, from one that does not fit the file.
func repeated(n *inode, req message) (bool, error) {
	last := n.last()
	var prev, before uint64
	if req.has("previous") {
		prev = uint64(req.sub("previous").num("blockId"))
	}
	if len(n.blocks) > 1 {
		before = n.blocks[len(n.blocks)-2].id
	}
	switch {
	case last == nil && prev == 0:
		return false, nil
	case last != nil && prev == 0 && last.state == complete && last.size >= n.blockSize:
		return false, nil // the first block after an append to full ones
	case last == nil || prev != before:
		return false, refuse(ioException, "Cannot allocate block in %s: passed 'previous' block does not match actual last block in file", n.path())
	case last.size != 0 || last.state == complete:
		return false, refuse(ioException, "Request looked like a retry to allocate block blk_%d but it already contains %d bytes", last.id, last.size)
	}
	return true, nil
}

// commit takes the length that a client gives its last block.
func (c *Cluster) commit(b *block, said message) error {
	if b.state == complete {
		return nil
	}
	if said.num("generationStamp") != b.stamp {
		return refuse(ioException, "Commit block with mismatching GS. NN has blk_%d_%d, client submits blk_%d_%d",
			b.id, b.stamp, b.id, said.num("generationStamp"))
	}
	b.size, b.state = said.num("numBytes"), committed
	return nil
}

// settle completes a committed block that a datanode has in full.
func (c *Cluster) settle(b *block) {
	if b.state == committed && slices.ContainsFunc(c.datanodes, func(d *datanode) bool {
		r := d.replicas[b.id]
		return r != nil && r.state == finalized && r.stamp == b.stamp && int64(len(r.data)) == b.size
	}) {
		b.state = complete
	}
}

func (c *Cluster) complete(cl call, out message) error {
	req := cl.request
	n, err := c.writing(req.str("src"), req.str("clientName"), uint64(req.num("fileId")))
	if err != nil {
		if c.completed(req) {
			out.setFlag("result", true)
			return nil
		}
		return err
	}
	b := n.last()
	if said := req.sub("last"); req.has("last") {
		if b == nil || b.id != uint64(said.num("blockId")) {
			return refuse(ioException, "Trying to commit inconsistent block: blk_%d is not the last of %s", said.num("blockId"), n.path())
		}
		if err := c.commit(b, said); err != nil {
			return err
		}
	}
	done := true
	for _, b := range n.blocks {
		c.settle(b)
		done = done && b.state == complete
	}
	if done = done && cl.fault.kind != answerFalse; done {
		n.close()
	}
	out.setFlag("result", done)
	return nil
}

// completed tells whether the call is one more of a complete that succeeded.
// Who asks does not matter to Hadoop.
func (c *Cluster) completed(req message) bool {
	n := c.ns.byID[uint64(req.num("fileId"))]
	if n == nil {
		n, _ = c.ns.find(req.str("src"))
	}
	if n == nil || n.dir || n.open() {
		return false
	}
	b, said := n.last(), req.sub("last")
	if b == nil {
		return !req.has("last")
	}
	return b.id == uint64(said.num("blockId")) && b.stamp == said.num("generationStamp")
}

func (n *inode) close() {
	n.holder, n.recovering, n.mtime = "", false, time.Now()
}

func (c *Cluster) fsync(cl call, _ message) error {
	n, err := c.writing(cl.request.str("src"), cl.request.str("client"), uint64(cl.request.num("fileId")))
	if err != nil {
		return err
	}
	// -1 leaves the length as it is.
	if size := cl.request.num("lastBlockLength"); size > 0 && n.last() != nil && n.last().state == underConstruction {
		n.last().size = size
	}
	return nil
}

func (c *Cluster) abandonBlock(cl call, _ message) error {
	n, err := c.writing(cl.request.str("src"), cl.request.str("holder"), uint64(cl.request.num("fileId")))
	if err != nil {
		return err
	}
	if b := n.last(); b != nil && b.state != complete && b.id == uint64(cl.request.sub("b").num("blockId")) {
		n.blocks = n.blocks[:len(n.blocks)-1]
		c.drop([]*block{b})
	}
	return nil
}

// updateBlockForPipeline gives out a new generation stamp. The block has it
// only after updatePipeline, which is not there: nothing repairs pipelines here.
func (c *Cluster) updateBlockForPipeline(cl call, out message) error {
	said, client := cl.request.sub("block"), cl.request.str("clientName")
	id := uint64(said.num("blockId"))
	for _, n := range c.ns.byID {
		b := n.last()
		if b == nil || b.id != id {
			continue
		}
		if _, err := c.writing(n.path(), client, n.id); err != nil {
			return err
		}
		if b.state == complete {
			break
		}
		out.setSub("block", c.located(b, n.length()-b.size, b.pipeline))
		out.sub("block").sub("b").setNum("generationStamp", c.stamp())
		return nil
	}
	return refuse(ioException, "blk_%d does not exist or is not under Construction", id)
}

func (c *Cluster) stamp() int64 {
	c.nextStamp++
	return c.nextStamp - 1
}

// drop removes blocks from the datanodes.
func (c *Cluster) drop(blocks []*block) {
	for _, b := range blocks {
		for _, d := range c.datanodes {
			d.remove(b.id)
		}
	}
}

func (c *Cluster) getBlockLocations(cl call, out message) error {
	n, err := c.file(cl.request.str("src"))
	if err != nil {
		return err
	}
	begin := cl.request.num("offset")
	end := begin + cl.request.num("length")
	locations := hdfsMessage("LocatedBlocksProto").
		setFlag("underConstruction", n.open()).setFlag("isLastBlockComplete", false)
	var at int64
	listed := 0
	for i, b := range n.blocks {
		located := c.located(b, at, c.locations(b))
		// The block that holds the first byte, and those up to the last.
		if listed == 0 && at+b.size > begin || listed > 0 && at < end {
			locations.add("blocks", located)
			listed++
		}
		if i == len(n.blocks)-1 {
			locations.setSub("lastBlock", located).setFlag("isLastBlockComplete", b.state == complete)
		}
		if b.state == complete {
			at += b.size
		}
	}
	locations.setNum("fileLength", at)
	out.setSub("locations", locations)
	return nil
}

// locations returns the datanodes that are believed to have a block.
func (c *Cluster) locations(b *block) []*datanode {
	if b.state == underConstruction {
		return b.pipeline
	}
	var where []*datanode
	for _, d := range c.datanodes {
		if r := d.replicas[b.id]; r != nil && r.stamp == b.stamp && !c.dead(d) {
			where = append(where, d)
		}
	}
	return where
}

func (c *Cluster) located(b *block, offset int64, where []*datanode) message {
	m := hdfsMessage("LocatedBlockProto").
		setSub("b", hdfsMessage("ExtendedBlockProto").setStr("poolId", blockPool).
			setNum("blockId", int64(b.id)).setNum("generationStamp", b.stamp).setNum("numBytes", b.size)).
		setNum("offset", offset).setFlag("corrupt", false).
		setSub("blockToken", commonMessage("TokenProto").setRaw("identifier", nil).setRaw("password", nil).setStr("kind", "").setStr("service", ""))
	const disk = 1
	for _, d := range where {
		m.add("locs", d.info()).addNum("storageTypes", disk).addStr("storageIDs", "DS-"+d.name)
	}
	return m
}

// choose picks the datanodes of a new block, fewer than wanted if there are no
// more. It goes round, so that any of them comes first sometimes.
func (c *Cluster) choose(src string, want int, excluded []message) ([]*datanode, error) {
	var out []string
	for _, x := range excluded {
		out = append(out, x.sub("id").str("datanodeUuid"))
	}
	var fresh, usable []*datanode
	running := 0
	for i := range c.datanodes {
		d := c.datanodes[(c.turn+i)%len(c.datanodes)]
		if c.dead(d) {
			continue
		}
		running++
		if d.full || slices.Contains(out, d.name) {
			continue
		}
		usable = append(usable, d)
		if d.silence() < c.opts.StaleAfter {
			fresh = append(fresh, d)
		}
	}
	c.turn++
	// Too few others: stale ones are taken as if they were not.
	if len(fresh) < want {
		fresh = usable
	}
	if c.short > 0 {
		want = min(want, c.short)
	}
	if len(fresh) == 0 {
		return nil, refuse(ioException, "File %s could only be written to 0 of the 1 minReplication nodes. "+
			"There are %d datanode(s) running and %d node(s) are excluded in this operation.", src, running, len(excluded))
	}
	return fresh[:min(want, len(fresh))], nil
}

func (c *Cluster) dead(d *datanode) bool { return d.silence() >= c.opts.DeadAfter }

// info describes the datanode to a client.
func (d *datanode) info() message {
	id := hdfsMessage("DatanodeIDProto").
		setStr("ipAddr", d.transfer.public().host()).setStr("hostName", d.name).setStr("datanodeUuid", d.name).
		setNum("xferPort", d.transfer.public().number()).setNum("infoPort", 9864).setNum("ipcPort", d.ipc.public().number())
	used := d.used()
	remaining := int64(diskSize) - used
	if d.full {
		remaining = 0
	}
	return hdfsMessage("DatanodeInfoProto").setSub("id", id).
		setNum("capacity", diskSize).setNum("dfsUsed", used).setNum("remaining", remaining).setStr("location", "/default-rack")
}
