package hdfstest

import (
	"hash/crc32"
	"time"
)

const (
	// chunkSize is how many bytes one checksum covers.
	chunkSize      = 512
	checksumCRC32  = 1
	checksumCRC32C = 2
)

// A datanode holds replicas. Its fields are the cluster's, under Cluster.mu.
type datanode struct {
	node
	transfer *door // of blocks
	ipc      *door // of calls
	index    int
	replicas map[uint64]*replica

	full      bool
	ackStatus int64 // what it answers packets with
	ackDelay  time.Duration
	holdAcks  bool
	syncs     int64
}

// A replica is one datanode's copy of a block. It outlives the process.
type replica struct {
	stamp  int64
	data   []byte
	acked  int64 // of data, by this datanode and all behind it, while it is written
	state  replicaState
	writer *writer // nil if nobody writes
}

type replicaState int

// In the order in which a recovery prefers them.
const (
	lostWriter replicaState = iota // the datanode died while it was written
	beingWritten
	finalized
)

func (d *datanode) used() int64 {
	var sum int64
	for _, r := range d.replicas {
		sum += int64(len(r.data))
	}
	return sum
}

func (d *datanode) remove(id uint64) {
	d.stopWriter(id)
	delete(d.replicas, id)
}

// stopWriter ends the pipeline that writes a block: its client sees the end of
// the connection.
func (d *datanode) stopWriter(id uint64) {
	if r := d.replicas[id]; r != nil && r.writer != nil {
		r.writer.stop()
		r.writer = nil
	}
}

func (d *datanode) stopWriters() {
	for id := range d.replicas {
		d.stopWriter(id)
	}
}

// report is what a datanode tells the namenode when it comes back: replicas of
// blocks that are gone or have gone on without it are removed.
func (c *Cluster) report(d *datanode) {
	stamps := map[uint64]int64{}
	for _, n := range c.ns.byID {
		for _, b := range n.blocks {
			stamps[b.id] = b.stamp
		}
	}
	for id, r := range d.replicas {
		if stamp, ok := stamps[id]; !ok || r.stamp != stamp {
			d.remove(id)
		}
	}
}

// checksums returns the table for a type of checksum, false for unknown ones.
func checksums(kind int64) (*crc32.Table, bool) {
	switch kind {
	case checksumCRC32:
		return crc32.IEEETable, true
	case checksumCRC32C:
		return crc32.MakeTable(crc32.Castagnoli), true
	}
	return nil, false
}
