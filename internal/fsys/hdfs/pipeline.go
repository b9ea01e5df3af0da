package hdfs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// heartbeat is the sequence number of packets that only keep a connection up.
	heartbeat = -1
	// firstInjected is the sequence number of the first packet of our own, far
	// above the library's. Datanodes give back what they got and compare nothing.
	firstInjected = 1 << 40
	// longestReply bounds what a datanode answers, in bytes.
	longestReply = 1 << 20

	transferVersion = 0x1c
	opWriteBlock    = 0x50
)

// pipeline is the library's connection to the first datanode of a block that is
// being written. It sees every packet that goes out and every acknowledgement.
// To the library it acknowledges each packet at once, so that its own window of
// six packets bounds nothing and it never meets an error that it would hide: only
// the answer to the last packet of a block is the datanodes' own. Connections for
// anything but writing a block, and those that begin with a SASL handshake, are
// passed through.
type pipeline struct {
	net.Conn
	s    *stream
	gate *gate
	in   *bufio.Reader // only the goroutine that reads, or Read before it runs

	write sync.Mutex // one packet at a time: the library's heartbeats come from a goroutine of their own

	mu       sync.Mutex
	told     sync.Cond // of what follows
	phase    phase
	reply    []byte // what the library reads next
	quiet    int    // packets acknowledged to the library that it was not woken for
	sent     []packet
	injected int64
	offset   int64 // of the next byte in the block
	closed   bool  // by the library
	aborted  bool  // by the stream's failure
}

type phase int

const (
	atStart   phase = iota
	passing         // not ours
	inSetup         // the request is out, its answer is not read
	inPackets       // acknowledgements come in
)

// packet is one that is not acknowledged.
type packet struct {
	seqno int64
	last  bool
}

func newPipeline(c net.Conn, g *gate) *pipeline {
	p := &pipeline{Conn: c, s: g.stream, gate: g, in: bufio.NewReader(c), injected: firstInjected}
	p.told.L = &p.mu
	return p
}

// SetDeadline does nothing: the file that writes has the stream fail in time.
func (p *pipeline) SetDeadline(time.Time) error { return nil }

// Close ends the connection and what reads it. The library calls it when it is
// done with the block.
func (p *pipeline) Close() error {
	p.mu.Lock()
	p.closed = true
	p.told.Broadcast()
	p.mu.Unlock()
	p.gate.forget(p)
	return p.Conn.Close()
}

// abort ends the connection to the datanode, not the one to the library: that is
// answered until it has come to an end by itself.
func (p *pipeline) abort() {
	p.mu.Lock()
	p.aborted = true
	for _, k := range p.sent {
		if k.last {
			p.reply = appendAck(p.reply, k.seqno)
		}
	}
	p.sent = nil
	p.told.Broadcast()
	p.mu.Unlock()
	_ = p.Conn.Close() // it is given up
}

// Read gives the library the answer to its request, and then acknowledgements.
func (p *pipeline) Read(b []byte) (int, error) {
	p.mu.Lock()
	if p.phase == passing {
		p.mu.Unlock()
		return p.in.Read(b)
	}
	if p.phase == inSetup && len(p.reply) == 0 {
		p.mu.Unlock()
		if err := p.setUp(); err != nil {
			return 0, err
		}
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	for len(p.reply) == 0 {
		if p.closed {
			return 0, net.ErrClosed
		}
		p.told.Wait()
	}
	n := copy(b, p.reply)
	p.reply = p.reply[n:]
	return n, nil
}

// setUp reads the answer to the request to write a block. After that the
// connection carries acknowledgements, which a goroutine reads until it is closed.
func (p *pipeline) setUp() error {
	msg, err := readMessage(p.in, nil)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reply = append(binary.AppendUvarint(nil, uint64(len(msg))), msg...)
	p.phase = inPackets
	go p.acks()
	return nil
}

// Write sends what the library sends: first a request, then one packet a call.
func (p *pipeline) Write(b []byte) (int, error) {
	p.mu.Lock()
	phase := p.phase
	write := phase == atStart && len(b) > 2 && b[1] == transferVersion && b[2] == opWriteBlock
	switch {
	case write:
		p.phase = inSetup
	case phase == atStart:
		p.phase = passing
	}
	p.mu.Unlock()
	if write {
		// The namenode may hand out fewer datanodes than were asked for. Before
		// any of them has data another choice costs nothing.
		n, err := pipelineLength(b[3:])
		if err == nil && n < p.s.least {
			err = fmt.Errorf("%w: the namenode hands out %d, at least %d must acknowledge", ErrReplicas, n, p.s.least)
		}
		if err != nil {
			return 0, err
		}
		p.s.attach(p)
	}
	if phase != inPackets {
		return p.Conn.Write(b)
	}
	h, err := parsePacket(b)
	if err != nil {
		p.s.fail(err)
		return len(b), nil
	}
	// An error is the stream's. The library goes on as if nothing was wrong until
	// the file closes it, which ends its goroutines.
	p.send(h, b, false)
	if h.seqno != heartbeat && !h.last {
		p.tell(h.seqno, false)
	}
	return len(b), nil
}

// pipelineLength reads from a request to write a block how many datanodes it is
// for: OpWriteBlockProto names those behind the first in field 2.
func pipelineLength(b []byte) (int, error) {
	n, k := protowire.ConsumeVarint(b)
	if k < 0 || n > uint64(len(b)-k) {
		return 0, errPacket
	}
	length := 1
	for b = b[k : k+int(n)]; len(b) > 0; {
		num, typ, k := protowire.ConsumeTag(b)
		if k < 0 {
			return 0, errPacket
		}
		if num == 2 {
			length++
		}
		m := protowire.ConsumeFieldValue(num, typ, b[k:])
		if m < 0 {
			return 0, errPacket
		}
		b = b[k+m:]
	}
	return length, nil
}

// send brings a packet on its way.
func (p *pipeline) send(h packetHeader, b []byte, sync bool) {
	if h.seqno != heartbeat {
		var err error
		if sync, err = p.s.begin(h.last, sync); err != nil {
			if h.last {
				p.tell(h.seqno, true)
			}
			return
		}
	}
	p.write.Lock()
	defer p.write.Unlock()
	if h.seqno != heartbeat && !p.expect(h) {
		return
	}
	if err := p.put(b, sync); err != nil {
		p.fail(fmt.Errorf("write to datanode %s: %w", p.RemoteAddr(), err))
	}
}

// expect notes that an acknowledgement of the packet is due. It is false after
// the stream's failure.
func (p *pipeline) expect(h packetHeader) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aborted {
		if h.last {
			p.reply = appendAck(p.reply, h.seqno)
			p.told.Broadcast()
		}
		return false
	}
	p.sent = append(p.sent, packet{seqno: h.seqno, last: h.last})
	p.offset = h.offset + int64(h.data)
	return true
}

// put writes a packet, with the flag that asks for a sync if need be: field 5 of
// its header, which the length before it counts and the one before that does not.
func (p *pipeline) put(b []byte, sync bool) error {
	if !sync {
		_, err := p.Conn.Write(b)
		return err
	}
	n := int(binary.BigEndian.Uint16(b[4:6]))
	out := make([]byte, 0, len(b)+len(syncField))
	out = append(out, b[:4]...)
	out = binary.BigEndian.AppendUint16(out, uint16(n+len(syncField)))
	out = append(out, b[6:6+n]...)
	out = append(out, syncField...)
	out = append(out, b[6+n:]...)
	_, err := p.Conn.Write(out)
	return err
}

// syncField is syncBlock = true of a packet's header.
var syncField = protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), 1)

// inject sends a packet without data that asks for a sync. Nobody may write to
// the file meanwhile.
func (p *pipeline) inject() error {
	p.mu.Lock()
	h := packetHeader{seqno: p.injected, offset: p.offset}
	p.injected++
	ready := p.phase == inPackets && !p.closed
	p.mu.Unlock()
	if !ready {
		return errors.New("the block has ended with bytes that were not synced")
	}
	p.send(h, h.append(nil), true)
	return p.s.error()
}

// fail ends the stream with an error, unless the connection was closed first.
func (p *pipeline) fail(err error) {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return
	}
	p.s.fail(err)
	p.abort()
}

// mostQuiet is how many acknowledgements the library is not woken for: it sends on
// until six are due, and nothing else waits for them.
const mostQuiet = 4

// tell acknowledges a packet to the library, now or together with later ones.
func (p *pipeline) tell(seqno int64, now bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reply = appendAck(p.reply, seqno)
	if p.quiet++; now || p.quiet >= mostQuiet {
		p.quiet = 0
		p.told.Broadcast()
	}
}

// acks reads acknowledgements until the block ends, or the connection.
func (p *pipeline) acks() {
	var msg []byte
	for {
		var err error
		msg, err = readMessage(p.in, msg)
		last := false
		if err == nil {
			last, err = p.acked(msg)
		} else {
			err = fmt.Errorf("datanode %s: %w", p.RemoteAddr(), err)
		}
		if err != nil {
			p.fail(err)
		}
		if err != nil || last {
			return // after the last one the datanode hangs up
		}
	}
}

// acked takes in one acknowledgement. Last says that it ends the block.
func (p *pipeline) acked(msg []byte) (last bool, err error) {
	a, err := parseAck(msg)
	if err != nil {
		return false, err
	}
	if a.bad >= 0 {
		return false, fmt.Errorf("datanode %d of the %d of %s answered status %d", a.bad+1, a.replicas, p.RemoteAddr(), a.status)
	}
	if a.seqno == heartbeat {
		return false, nil
	}
	p.mu.Lock()
	if len(p.sent) == 0 || p.sent[0].seqno != a.seqno {
		p.mu.Unlock()
		return false, fmt.Errorf("datanode %s acknowledged packet %d out of turn", p.RemoteAddr(), a.seqno)
	}
	k := p.sent[0]
	p.sent = p.sent[1:]
	p.mu.Unlock()
	if err := p.s.end(a.replicas, k.last); err != nil {
		return false, err
	}
	if k.last {
		p.tell(k.seqno, true)
	}
	return k.last, nil
}

// readMessage reads a message with its length in front, into b if that is large
// enough.
func readMessage(r *bufio.Reader, b []byte) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	if n > longestReply {
		return nil, fmt.Errorf("answer of %d bytes: not an HDFS datanode", n)
	}
	if uint64(cap(b)) < n {
		b = make([]byte, n)
	}
	b = b[:n]
	_, err = io.ReadFull(r, b)
	return b, err
}

// packetHeader is what leads a packet: PacketHeaderProto.
type packetHeader struct {
	seqno, offset int64
	last          bool
	data          int32
}

var errPacket = errors.New("hdfs: the library sent a packet of another form than version 2.4.0")

func parsePacket(b []byte) (h packetHeader, err error) {
	if len(b) < 6 {
		return h, errPacket
	}
	n := int(binary.BigEndian.Uint16(b[4:6]))
	if len(b) < 6+n {
		return h, errPacket
	}
	for f := b[6 : 6+n]; len(f) > 0; {
		num, typ, n := protowire.ConsumeTag(f)
		if n < 0 {
			return h, errPacket
		}
		f = f[n:]
		switch {
		case num == 1 && typ == protowire.Fixed64Type && len(f) >= 8:
			h.offset = int64(binary.LittleEndian.Uint64(f))
		case num == 2 && typ == protowire.Fixed64Type && len(f) >= 8:
			h.seqno = int64(binary.LittleEndian.Uint64(f))
		case num == 3 && typ == protowire.VarintType && len(f) >= 1:
			h.last = f[0] != 0
		case num == 4 && typ == protowire.Fixed32Type && len(f) >= 4:
			h.data = int32(binary.LittleEndian.Uint32(f))
		}
		if n = protowire.ConsumeFieldValue(num, typ, f); n < 0 {
			return h, errPacket
		}
		f = f[n:]
	}
	return h, nil
}

// append adds a packet of this header and no data.
func (h packetHeader) append(b []byte) []byte {
	var f []byte
	f = protowire.AppendFixed64(protowire.AppendTag(f, 1, protowire.Fixed64Type), uint64(h.offset))
	f = protowire.AppendFixed64(protowire.AppendTag(f, 2, protowire.Fixed64Type), uint64(h.seqno))
	f = protowire.AppendVarint(protowire.AppendTag(f, 3, protowire.VarintType), protowire.EncodeBool(h.last))
	f = protowire.AppendFixed32(protowire.AppendTag(f, 4, protowire.Fixed32Type), uint32(h.data))
	b = binary.BigEndian.AppendUint32(b, 4)
	b = binary.BigEndian.AppendUint16(b, uint16(len(f)))
	return append(b, f...)
}

// ack is what the datanodes of a pipeline say of a packet: PipelineAckProto.
type ack struct {
	seqno    int64
	replicas int
	bad      int // index of the first datanode without success, or -1
	status   uint64
}

var errAck = errors.New("hdfs: an acknowledgement can't be read")

func parseAck(b []byte) (a ack, err error) {
	a.bad = -1
	status := func(v uint64) {
		if v != 0 && a.bad < 0 {
			a.bad, a.status = a.replicas, v
		}
		a.replicas++
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return a, errAck
		}
		b = b[n:]
		switch {
		case num == 1 && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(b)
			a.seqno = protowire.DecodeZigZag(v)
		case num == 2 && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(b)
			status(v)
		case num == 2 && typ == protowire.BytesType:
			for list, _ := protowire.ConsumeBytes(b); len(list) > 0; {
				v, n := protowire.ConsumeVarint(list)
				if n < 0 {
					return a, errAck
				}
				status(v)
				list = list[n:]
			}
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return a, errAck
		}
		b = b[n:]
	}
	return a, nil
}

// appendAck adds an acknowledgement of one datanode, as the library reads it.
func appendAck(b []byte, seqno int64) []byte {
	var m []byte
	m = protowire.AppendVarint(protowire.AppendTag(m, 1, protowire.VarintType), protowire.EncodeZigZag(seqno))
	m = protowire.AppendVarint(protowire.AppendTag(m, 2, protowire.VarintType), 0)
	b = binary.AppendUvarint(b, uint64(len(m)))
	return append(b, m...)
}
