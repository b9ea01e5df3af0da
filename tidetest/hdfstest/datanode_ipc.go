package hdfstest

// protocol is what a datanode answers calls of. A client asks it what the
// namenode cannot know: how much there is of a block that is being written.
func (d *datanode) protocol() (string, map[string]method) {
	return "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol", map[string]method{
		"getReplicaVisibleLength": {
			request: "GetReplicaVisibleLengthRequestProto", response: "GetReplicaVisibleLengthResponseProto", do: d.getReplicaVisibleLength,
		},
	}
}

// execute runs a call while the datanode lives, which may have to go on first.
func (d *datanode) execute(life int, cl call, f Fault) (*message, error) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if err := d.running(life); err != nil {
		return nil, err
	}
	if f.kind == throw {
		return nil, refuse(f.class, "%s", f.text)
	}
	m, err := cl.method(d)
	if err != nil {
		return nil, err
	}
	out := hdfsMessage(m.response)
	return &out, m.do(cl, out)
}

func (d *datanode) getReplicaVisibleLength(cl call, out message) error {
	b := cl.request.sub("block")
	id, stamp := b.num("blockId"), b.num("generationStamp")
	r := d.replicas[uint64(id)]
	switch {
	case b.str("poolId") != blockPool:
		return refuse(retriable, "Datanode not registered. Try again later.")
	case r == nil:
		return refuse(replicaNotFound, "Replica does not exist %s:%d", blockPool, id)
	case r.stamp < stamp:
		return refuse(ioException, "replica.getGenerationStamp() < block.getGenerationStamp(), block=%s:blk_%d_%d, replica=blk_%d_%d", blockPool, id, stamp, id, r.stamp)
	}
	// The field is unsigned, and none at all is -1.
	out.setNum("length", r.visible())
	return nil
}

// visible is how many bytes a reader may see: -1 is not a single one, since it is
// not known what others have of the block, until a recovery.
func (r *replica) visible() int64 {
	switch r.state {
	case finalized:
		return int64(len(r.data))
	case beingWritten:
		return r.acked
	default:
		return -1
	}
}
