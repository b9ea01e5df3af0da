package hdfstest

import "time"

// A namenode answers calls from the namespace, which it shares with its standby
// as with a journal: all that was ever answered is there.
type namenode struct {
	node
	ipc       *door
	index     int
	safeUntil time.Time // of the safe mode after a start
}

// A method is one call of a protocol.
type method struct {
	request, response string
	write             bool // refused in safe mode
	once              bool // a call that succeeded is answered from the retry cache when it comes again
	do                func(cl call, out message) error
}

// clientProtocol is what is answered. Calls run under the cluster's mutex.
func (c *Cluster) clientProtocol() map[string]method {
	proto := func(name string, write bool, do func(call, message) error) method {
		return method{request: name + "RequestProto", response: name + "ResponseProto", write: write, do: do}
	}
	once := func(name string, do func(call, message) error) method {
		m := proto(name, true, do)
		m.once = true
		return m
	}
	stats := proto("GetFsStats", false, c.getFsStats)
	stats.request = "GetFsStatusRequestProto"
	return map[string]method{
		"abandonBlock":           proto("AbandonBlock", true, c.abandonBlock),
		"addBlock":               proto("AddBlock", true, c.addBlock),
		"append":                 once("Append", c.appendFile),
		"complete":               proto("Complete", true, c.complete),
		"create":                 once("Create", c.create),
		"delete":                 once("Delete", c.delete),
		"fsync":                  proto("Fsync", true, c.fsync),
		"getBlockLocations":      proto("GetBlockLocations", false, c.getBlockLocations),
		"getContentSummary":      proto("GetContentSummary", false, c.getContentSummary),
		"getDatanodeReport":      proto("GetDatanodeReport", false, c.getDatanodeReport),
		"getFileInfo":            proto("GetFileInfo", false, c.getFileInfo),
		"getFsStats":             stats,
		"getListing":             proto("GetListing", false, c.getListing),
		"getServerDefaults":      proto("GetServerDefaults", false, c.getServerDefaults),
		"getXAttrs":              proto("GetXAttrs", false, c.getXAttrs),
		"isFileClosed":           proto("IsFileClosed", false, c.isFileClosed),
		"mkdirs":                 proto("Mkdirs", true, c.mkdirs),
		"recoverLease":           proto("RecoverLease", true, c.recoverLease),
		"rename2":                once("Rename2", c.rename2),
		"renewLease":             proto("RenewLease", true, c.renewLease),
		"setOwner":               proto("SetOwner", true, c.setOwner),
		"setPermission":          proto("SetPermission", true, c.setPermission),
		"setReplication":         proto("SetReplication", true, c.setReplication),
		"setSafeMode":            proto("SetSafeMode", false, c.setSafeMode),
		"setTimes":               proto("SetTimes", true, c.setTimes),
		"setXAttr":               once("SetXAttr", c.setXAttr),
		"updateBlockForPipeline": proto("UpdateBlockForPipeline", true, c.updateBlockForPipeline),
	}
}

func (n *namenode) protocol() (string, map[string]method) {
	return "org.apache.hadoop.hdfs.protocol.ClientProtocol", n.c.methods
}

// execute runs a call while the namenode lives, which may have to go on first.
func (n *namenode) execute(life int, cl call, f Fault) (*message, error) {
	c := n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := n.running(life); err != nil {
		return nil, err
	}
	if c.active != n.index {
		return nil, refuse(standby, "Operation category READ is not supported in state standby. Visit https://s.apache.org/sbnn-error")
	}
	if f.kind == throw {
		return nil, refuse(f.class, "%s", f.text)
	}
	m, err := cl.method(n)
	if err != nil {
		return nil, err
	}
	c.expireLeases()
	if m.write && n.inSafeMode() {
		return nil, n.safeModeException(cl.name)
	}
	id := callID{string(cl.header.raw("clientId")), cl.header.num("callId")}
	if a, ok := c.answered[id]; ok && m.once && time.Since(a.at) < retryCacheFor {
		return &a.message, nil
	}
	cl.fault = f
	out := hdfsMessage(m.response)
	if err := m.do(cl, out); err != nil {
		return nil, err
	}
	if m.once {
		c.answered[id] = answered{out, time.Now()}
	}
	return &out, nil
}

// retryCacheFor is for how long a namenode knows what it has answered. A client
// that sends a call again, with its id, is told the same.
const retryCacheFor = 10 * time.Minute

type callID struct {
	client string
	call   int64
}

type answered struct {
	message message
	at      time.Time
}

// inSafeMode also holds for a recovery of leases, which waits.
func (n *namenode) inSafeMode() bool { return n.c.safe || time.Now().Before(n.safeUntil) }

// safeModeException is what Hadoop throws: with a standby, after a start, one
// that tells clients to retry.
func (n *namenode) safeModeException(name string) error {
	text := "Cannot " + name + ". Name node is in safe mode."
	if len(n.c.namenodes) > 1 && !n.c.safe {
		return refuse(retriable, "%s: %s", safeMode, text)
	}
	return refuse(safeMode, "%s", text)
}

// serving returns the namenode that can do work of its own, nil if none.
func (c *Cluster) serving() *namenode {
	if c.active < 0 {
		return nil
	}
	n := c.namenodes[c.active]
	if !n.runs() || n.inSafeMode() {
		return nil
	}
	return n
}

func (c *Cluster) getServerDefaults(_ call, out message) error {
	out.setSub("serverDefaults", hdfsMessage("FsServerDefaultsProto").
		setNum("blockSize", c.opts.BlockSize).setNum("bytesPerChecksum", chunkSize).setNum("writePacketSize", 64<<10).
		setNum("replication", int64(c.opts.Replication)).setNum("fileBufferSize", 4<<10).setNum("checksumType", checksumCRC32C))
	return nil
}

func (c *Cluster) getFsStats(_ call, out message) error {
	var used int64
	for _, d := range c.datanodes {
		used += d.used()
	}
	capacity := int64(len(c.datanodes)) * diskSize
	out.setNum("capacity", capacity).setNum("used", used).setNum("remaining", capacity-used)
	for _, name := range []string{"under_replicated", "corrupt_blocks", "missing_blocks"} {
		out.setNum(name, 0)
	}
	return nil
}

func (c *Cluster) getDatanodeReport(cl call, out message) error {
	const all, live, dead = 1, 2, 3
	kind := cl.request.num("type")
	for _, d := range c.datanodes {
		if kind == all || kind == live && !c.dead(d) || kind == dead && c.dead(d) {
			out.add("di", d.info())
		}
	}
	return nil
}

func (c *Cluster) setSafeMode(cl call, out message) error {
	const leave, enter = 1, 2
	n := c.namenodes[c.active]
	switch cl.request.num("action") {
	case leave:
		c.safe, n.safeUntil = false, time.Time{}
	case enter:
		c.safe = true
	}
	out.setFlag("result", n.inSafeMode())
	return nil
}
