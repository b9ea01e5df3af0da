package hdfstest

import (
	"bufio"
	"hash/crc32"
	"net"
)

// RawBlock writes a block packet by packet.
type RawBlock struct {
	conn net.Conn
	r    *bufio.Reader
}

// Packet is one that RawBlock sends.
type Packet struct {
	Offset, Seqno int64
	Last, Sync    bool
	Corrupt       bool // its checksums are wrong
	Data          []byte
}

// WriteBlock begins to write a located block, to its first datanode. It returns
// the bad link if the pipeline could not be set up.
func WriteBlock(conn net.Conn, located Answer) (b *RawBlock, badLink string, err error) {
	targets := located.m.list("locs")
	op := hdfsMessage("OpWriteBlockProto").
		setSub("header", hdfsMessage("ClientOperationHeaderProto").setStr("clientName", "raw").
			setSub("baseHeader", hdfsMessage("BaseHeaderProto").setSub("block", located.m.sub("b")))).
		setNum("stage", setupCreate).setNum("pipelineSize", int64(len(targets))).
		setNum("minBytesRcvd", 0).setNum("maxBytesRcvd", 0).setNum("latestGenerationStamp", 0).
		setSub("requestedChecksum", hdfsMessage("ChecksumProto").setNum("type", checksumCRC32C).setNum("bytesPerChecksum", chunkSize))
	op.add("targets", targets[1:]...)
	body, err := appendDelimited([]byte{0, transferVersion, opWriteBlock}, op)
	if err != nil {
		return nil, "", err
	}
	if _, err := conn.Write(body); err != nil {
		return nil, "", err
	}
	b = &RawBlock{conn: conn, r: bufio.NewReader(conn)}
	answer := hdfsMessage("BlockOpResponseProto")
	err = readDelimited(b.r, answer)
	return b, answer.str("firstBadLink"), err
}

// Close closes the connection.
func (b *RawBlock) Close() error { return b.conn.Close() }

// Send sends packets.
func (b *RawBlock) Send(ps ...Packet) error {
	for _, p := range ps {
		out := packet{offset: p.Offset, seqno: p.Seqno, last: p.Last, sync: p.Sync, data: p.Data}
		out.sums = appendSums(nil, p.Data, crc32.MakeTable(crc32.Castagnoli))
		if p.Corrupt {
			out.sums[0] ^= 1
		}
		body, err := out.encode()
		if err != nil {
			return err
		}
		if _, err := b.conn.Write(body); err != nil {
			return err
		}
	}
	return nil
}

// Ack is an acknowledgement: a status of each datanode.
type Ack struct {
	Seqno    int64
	Statuses []int64
}

// Ack reads the next one.
func (b *RawBlock) Ack() (Ack, error) {
	m := hdfsMessage("PipelineAckProto")
	err := readDelimited(b.r, m)
	return Ack{m.num("seqno"), m.nums("reply")}, err
}
