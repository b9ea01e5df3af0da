package hdfstest

import (
	"bufio"
	"hash/crc32"
	"slices"
)

// readPacket is how many bytes of data one packet to a reader has.
const readPacket = 64 << 10

// bytes copies a part of a replica, which may be one being written: up to the
// chunk that holds the last byte asked for, as far as there is anything.
func (d *datanode) bytes(b message, from, to int64) ([]byte, error) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	id, stamp := b.num("blockId"), b.num("generationStamp")
	r := d.replicas[uint64(id)]
	switch {
	case r == nil:
		return nil, refuse(ioException, "Replica not found for %s:blk_%d_%d", blockPool, id, stamp)
	case r.visible() < 0:
		return nil, refuse(ioException, "Replica is not readable, block=%s:blk_%d_%d", blockPool, id, stamp)
	case from < 0 || to < from || to > int64(len(r.data)):
		return nil, refuse(ioException, " Offset %d and length %d don't match block blk_%d_%d ( blockLen %d )", from, to-from, id, stamp, len(r.data))
	}
	return slices.Clone(r.data[from:min(roundUp(to), int64(len(r.data)))]), nil
}

func roundUp(n int64) int64 { return (n + chunkSize - 1) / chunkSize * chunkSize }

// read sends a part of a replica, whole chunks with their checksums.
func (d *datanode) read(l *link, r *bufio.Reader) error {
	op := hdfsMessage("OpReadBlockProto")
	if err := readDelimited(r, op); err != nil {
		return err
	}
	offset := op.num("offset")
	from := offset / chunkSize * chunkSize
	data, err := d.bytes(op.sub("header").sub("baseHeader").sub("block"), from, offset+op.num("len"))
	if err != nil {
		return respond(l, response(statusError, "", "opReadBlock received exception "+err.Error()))
	}
	err = respond(l, response(statusSuccess, "", "").setSub("readOpChecksumInfo", hdfsMessage("ReadOpChecksumInfoProto").
		setSub("checksum", hdfsMessage("ChecksumProto").setNum("type", checksumCRC32C).setNum("bytesPerChecksum", chunkSize)).
		setNum("chunkOffset", from)))
	if err != nil {
		return err
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	for seqno := int64(0); ; seqno++ {
		n := min(readPacket, len(data))
		p := packet{offset: from, seqno: seqno, last: n == 0, data: data[:n]}
		p.sums = appendSums(nil, p.data, table)
		b, err := p.encode()
		if err != nil {
			return err
		}
		if _, err := l.Write(b); err != nil {
			return err
		}
		if p.last {
			break
		}
		data, from = data[n:], from+int64(n)
	}
	// Java's client says how it went and uses the connection again.
	return readDelimited(r, hdfsMessage("ClientReadStatusProto"))
}
