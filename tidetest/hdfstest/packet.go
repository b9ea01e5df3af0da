package hdfstest

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// maxPacket bounds a packet's length, as Hadoop does.
const maxPacket = 16 << 20

// A packet carries bytes of a block.
type packet struct {
	offset, seqno int64
	last, sync    bool
	sums, data    []byte

	at      time.Time // received
	corrupt bool      // the sums do not fit the data
}

func (p packet) encode() ([]byte, error) {
	header, err := hdfsMessage("PacketHeaderProto").setNum("offsetInBlock", p.offset).setNum("seqno", p.seqno).
		setFlag("lastPacketInBlock", p.last).setNum("dataLen", int64(len(p.data))).setFlag("syncBlock", p.sync).marshal()
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 6+len(header)+len(p.sums)+len(p.data))
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(p.sums)+len(p.data)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(header)))
	b = append(b, header...)
	b = append(b, p.sums...)
	return append(b, p.data...), nil
}

// readPacketFrom reads a packet and checks that its lengths fit together.
func readPacketFrom(r io.Reader) (packet, error) {
	var lengths [6]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return packet{}, err
	}
	payload, headerSize := int64(binary.BigEndian.Uint32(lengths[:]))-4, int64(binary.BigEndian.Uint16(lengths[4:]))
	if payload < 0 || payload > maxPacket {
		return packet{}, fmt.Errorf("hdfstest: packet of %d bytes, may have %d", payload, maxPacket)
	}
	body := make([]byte, headerSize+payload)
	if _, err := io.ReadFull(r, body); err != nil {
		return packet{}, err
	}
	h := hdfsMessage("PacketHeaderProto")
	if err := h.unmarshal(body[:headerSize]); err != nil {
		return packet{}, err
	}
	body = body[headerSize:]
	size := h.num("dataLen")
	if size < 0 || size > payload || payload-size != 4*chunks(int(size)) {
		return packet{}, fmt.Errorf("hdfstest: packet of %d bytes with %d of data", payload, size)
	}
	return packet{
		offset: h.num("offsetInBlock"), seqno: h.num("seqno"), last: h.flag("lastPacketInBlock"), sync: h.flag("syncBlock"),
		sums: body[:payload-size], data: body[payload-size:],
	}, nil
}
