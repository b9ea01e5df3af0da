package hdfs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"
)

// failer is a test, a fuzz target or a check of rapid.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// packetOf is a packet as the library makes it, with a header that its own
// message type wrote.
func packetOf(t failer, h packetHeader, body []byte) []byte {
	t.Helper()
	m, err := newMessage("hadoop.hdfs.PacketHeaderProto")
	if err != nil {
		t.Fatal(err)
	}
	set := func(name protoreflect.Name, v any) {
		m.Set(m.Descriptor().Fields().ByName(name), protoreflect.ValueOf(v))
	}
	set("offsetInBlock", h.offset)
	set("seqno", h.seqno)
	set("lastPacketInBlock", h.last)
	set("dataLen", h.data)
	head, err := proto.Marshal(m.Interface())
	if err != nil {
		t.Fatal(err)
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(head)))
	return append(append(b, head...), body...)
}

// written is a connection that keeps what is written.
type written struct {
	net.Conn
	bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) { return w.Buffer.Write(b) }
func (w *written) Read(b []byte) (int, error)  { return w.Buffer.Read(b) }

// A packet is read as the library means it, and the mark for a sync changes
// nothing else of it.
func TestPacketsAreReadAndMarked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := packetHeader{
			seqno: rapid.Int64().Draw(t, "seqno"), offset: rapid.Int64().Draw(t, "offset"),
			last: rapid.Bool().Draw(t, "last"), data: rapid.Int32().Draw(t, "data"),
		}
		body := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "body")
		plain := packetOf(t, want, body)
		if got, err := parsePacket(plain); err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
		for _, sync := range []bool{false, true} {
			to := &written{}
			p := newPipeline(to, &gate{})
			if err := p.put(plain, sync); err != nil {
				t.Fatal(err)
			}
			out := to.Bytes()
			if !sync && !bytes.Equal(out, plain) {
				t.Fatalf("sent %x, want %x", out, plain)
			}
			if got, err := parsePacket(out); err != nil || got != want {
				t.Fatalf("sent %+v, %v, want %+v", got, err, want)
			}
			n := int(binary.BigEndian.Uint16(out[4:]))
			if !bytes.Equal(out[6+n:], body) || binary.BigEndian.Uint32(out) != uint32(4+len(body)) {
				t.Fatalf("the body or its length changed: %x", out)
			}
			if synced(t, out[6:6+n]) != sync {
				t.Fatalf("sync %v: header %x", sync, out[6:6+n])
			}
		}
		own := want.append(nil)
		want.data = 0
		own[len(own)-1], own[len(own)-2], own[len(own)-3], own[len(own)-4] = 0, 0, 0, 0
		if got, err := parsePacket(own); err != nil || got != want {
			t.Fatalf("own packet %+v, %v, want %+v", got, err, want)
		}
	})
}

// synced is what Hadoop reads of a header.
func synced(t failer, header []byte) bool {
	t.Helper()
	m, err := newMessage("hadoop.hdfs.PacketHeaderProto")
	if err == nil {
		err = proto.Unmarshal(header, m.Interface())
	}
	if err != nil {
		t.Fatal(err)
	}
	return get(m, "syncBlock").Bool()
}

// The acknowledgement of Hadoop's own message type, and the one given to the
// library.
func TestAcknowledgementsAreRead(t *testing.T) {
	for _, c := range []struct {
		statuses []int32
		bad      int
	}{{nil, -1}, {[]int32{0}, -1}, {[]int32{0, 0, 0}, -1}, {[]int32{1, 0, 0}, 0}, {[]int32{0, 5, 1}, 1}, {[]int32{0, 0, 2}, 2}} {
		for _, packed := range []bool{false, true} {
			for _, seqno := range []int64{0, 1, -1, -2, firstInjected, math.MaxInt64, math.MinInt64} {
				b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), protowire.EncodeZigZag(seqno))
				var list []byte
				for _, s := range c.statuses {
					list = protowire.AppendVarint(list, uint64(s))
					if !packed {
						b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(s))
					}
				}
				if packed {
					b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), list)
				}
				b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), 12345) // nanoseconds
				a, err := parseAck(b)
				if err != nil || a.seqno != seqno || a.replicas != len(c.statuses) || a.bad != c.bad {
					t.Errorf("%v packed %v: %+v, %v", c.statuses, packed, a, err)
				}
				if c.bad >= 0 && a.status != uint64(c.statuses[c.bad]) {
					t.Errorf("%v: status %d", c.statuses, a.status)
				}
			}
		}
	}
	msg, err := readMessage(bufio.NewReader(bytes.NewReader(appendAck(nil, 77))), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := parseAck(msg); err != nil || a != (ack{seqno: 77, replicas: 1, bad: -1}) {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := parseAck([]byte{0x0a, 0xff}); err == nil {
		t.Error("a field that is cut was read")
	}
	if _, err := readMessage(bufio.NewReader(bytes.NewReader(binary.AppendUvarint(nil, longestReply+1))), nil); err == nil || err == io.EOF {
		t.Errorf("an answer of more than %d bytes: %v", longestReply, err)
	}
}

// What the datanodes say is decided by a stream's first error.
func TestStreamCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStream(2)
		s.gate = &gate{}
		sent, acked := 0, 0
		unsynced := false
		var ends []bool // of those on their way
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if sent-acked < window && rapid.Bool().Draw(t, "send") {
				last, sync := rapid.Bool().Draw(t, "last"), rapid.Bool().Draw(t, "sync")
				got, err := s.begin(last, sync)
				if want := sync || last && unsynced; err != nil || got != want {
					t.Fatalf("packet %d asks for a sync: %v, %v, want %v", sent, got, err, want)
				}
				unsynced, ends = !got, append(ends, last)
				sent++
			} else if acked < sent {
				if err := s.end(2, ends[0]); err != nil {
					t.Fatal(err)
				}
				acked, ends = acked+1, ends[1:]
			}
			if s.nothingSent() != (sent == 0) {
				t.Fatalf("%d sent, nothing sent: %v", sent, s.nothingSent())
			}
		}
		for ; acked < sent; acked++ {
			if s.finished() {
				t.Fatalf("finished with %d of %d", acked, sent)
			}
			if err := s.end(3, ends[0]); err != nil {
				t.Fatal(err)
			}
			ends = ends[1:]
		}
		if err := s.end(1, false); !errors.Is(err, ErrReplicas) {
			t.Fatalf("one of two replicas: %v", err)
		}
		if err := s.await(); err != nil || !s.finished() {
			t.Fatalf("await: %v, finished %v", err, s.finished())
		}
		s.fail(io.EOF)
		s.fail(io.ErrClosedPipe)
		if _, err := s.begin(false, false); err != io.EOF || s.await() != io.EOF || s.finished() {
			t.Fatalf("after a failure: %v", err)
		}
	})
}

// A datanode that acknowledges another packet than the one that is due is not to
// be trusted.
func TestAcknowledgementsOutOfTurn(t *testing.T) {
	for _, c := range []struct {
		sent  []packet
		seqno int64
		ok    bool
	}{
		{nil, 1, false},
		{nil, heartbeat, true},
		{[]packet{{seqno: 1}, {seqno: 2}}, 2, false},
		{[]packet{{seqno: 1}, {seqno: 2}}, 1, true},
		{[]packet{{seqno: 1}}, firstInjected, false},
		{[]packet{{seqno: 1}}, heartbeat, true},
	} {
		here, there := net.Pipe()
		s := newStream(1)
		s.gate = &gate{stream: s}
		p := newPipeline(here, s.gate)
		s.sent, p.sent = uint64(len(c.sent)), c.sent
		msg, err := readMessage(bufio.NewReader(bytes.NewReader(appendAck(nil, c.seqno))), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.acked(msg); (err == nil) != c.ok {
			t.Errorf("%d for %v: %v", c.seqno, c.sent, err)
		}
		there.Close()
		here.Close()
	}
}

// No more packets than the window are on their way.
func TestStreamWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream(1)
		s.gate = &gate{}
		begun := 0
		done := make(chan error, 1)
		go func() {
			for {
				if _, err := s.begin(false, false); err != nil {
					done <- err
					return
				}
				begun++
			}
		}()
		for acked := range 5 {
			synctest.Wait()
			if begun != window+acked {
				t.Fatalf("%d begun, %d acknowledged, the window is %d", begun, acked, window)
			}
			if err := s.end(1, false); err != nil {
				t.Fatal(err)
			}
		}
		s.fail(io.EOF)
		if err := <-done; err != io.EOF {
			t.Errorf("got %v", err)
		}
	})
}

// Whatever a datanode answers, nothing panics, and success needs all statuses.
func FuzzAck(f *testing.F) {
	f.Add(appendAck(nil, 1)[1:])
	f.Add([]byte{0x08, 0x02, 0x12, 0x03, 0, 0, 1})
	f.Add([]byte{0x12, 0x01, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAck(b)
		if err != nil {
			return
		}
		if a.bad >= a.replicas || a.bad >= 0 == (a.status == 0) {
			t.Fatalf("%+v", a)
		}
		m, merr := newMessage("hadoop.hdfs.PipelineAckProto")
		if merr != nil {
			t.Fatal(merr)
		}
		if proto.Unmarshal(b, m.Interface()) != nil {
			return // a required field is missing
		}
		if n := get(m, "reply").List().Len(); n != a.replicas {
			t.Fatalf("%d statuses, Hadoop's own type has %d", a.replicas, n)
		}
		if seqno := get(m, "seqno").Int(); seqno != a.seqno {
			t.Fatalf("packet %d, Hadoop's own type has %d", a.seqno, seqno)
		}
	})
}

// Whatever the library sends, nothing panics, and what is read can be marked.
func FuzzPacket(f *testing.F) {
	f.Add(packetOf(f, packetHeader{seqno: 1, offset: 512, data: 100}, make([]byte, 104)))
	f.Add(packetHeader{seqno: 2, last: true}.append(nil))
	f.Add([]byte{0, 0, 0, 4, 0, 1, 0x19})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parsePacket(b)
		if err != nil || len(b) > 6+60000 {
			return
		}
		to := &written{}
		if err := newPipeline(to, &gate{}).put(b, true); err != nil {
			t.Fatal(err)
		}
		if again, err := parsePacket(to.Bytes()); err != nil || again != h {
			t.Fatalf("marked %+v, %v, before %+v", again, err, h)
		}
	})
}
