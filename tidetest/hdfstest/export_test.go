package hdfstest

import (
	"bufio"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strings"
)

const (
	protocol         = "org.apache.hadoop.hdfs.protocol.ClientProtocol"
	datanodeProtocol = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol"
)

// RawClient calls a node's methods one by one, those too that the client library
// has no function for.
type RawClient struct {
	// Protocol and Version are what is called.
	Protocol string
	Version  int
	// Kind is that of the calls' messages.
	Kind int

	conn net.Conn
	r    *bufio.Reader
	id   [16]byte
	next int64
}

// Fields is what a request holds: strings, bools, ints and []byte by name, and
// Fields for messages.
type Fields map[string]any

// Raw makes a client of a connection to a namenode.
func Raw(conn net.Conn) (*RawClient, error) { return raw(conn, protocol) }

// RawDatanode makes a client of a connection to a datanode's port for calls.
func RawDatanode(conn net.Conn) (*RawClient, error) { return raw(conn, datanodeProtocol) }

// RawWithoutContext makes one that does not say who it is.
func RawWithoutContext(conn net.Conn) (*RawClient, error) {
	c := newRaw(conn, datanodeProtocol)
	_, err := conn.Write([]byte(hello))
	return c, err
}

const hello = "hrpc\x09\x00\x00"

func newRaw(conn net.Conn, protocol string) *RawClient {
	c := &RawClient{Protocol: protocol, Version: protocolVersion, Kind: protobufCall, conn: conn, r: bufio.NewReader(conn)}
	// A namenode answers the same call of the same client from a cache.
	binary.BigEndian.PutUint64(c.id[:], rand.Uint64())
	return c
}

func raw(conn net.Conn, protocol string) (*RawClient, error) {
	c := newRaw(conn, protocol)
	header := commonMessage("RpcRequestHeaderProto").setNum("rpcKind", 2).setNum("rpcOp", 0).
		setNum("callId", contextCall).setRaw("clientId", c.id[:])
	context := commonMessage("IpcConnectionContextProto").setStr("protocol", protocol).
		setSub("userInfo", commonMessage("UserInformationProto").setStr("effectiveUser", "tester"))
	if _, err := conn.Write([]byte(hello)); err != nil {
		return nil, err
	}
	return c, c.send(header, context)
}

func (c *RawClient) send(parts ...message) error {
	b := make([]byte, 4)
	for _, p := range parts {
		var err error
		if b, err = appendDelimited(b, p); err != nil {
			return err
		}
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err := c.conn.Write(b)
	return err
}

// Close closes the connection.
func (c *RawClient) Close() error { return c.conn.Close() }

// Call does one call. A refusal is an *Refusal.
func (c *RawClient) Call(method string, fields Fields) (Answer, error) {
	c.next++
	what := commonMessage("RequestHeaderProto").setStr("methodName", method).
		setStr("declaringClassProtocolName", c.Protocol).setNum("clientProtocolVersion", int64(c.Version))
	base := strings.ToUpper(method[:1]) + method[1:]
	request := hdfsMessage(base + "RequestProto")
	fill(request, fields)
	header := commonMessage("RpcRequestHeaderProto").setNum("rpcKind", int64(c.Kind)).setNum("rpcOp", 0).setNum("callId", c.next).setRaw("clientId", c.id[:])
	if err := c.send(header, what, request); err != nil {
		return Answer{}, err
	}
	var size uint32
	if err := binary.Read(c.r, binary.BigEndian, &size); err != nil {
		return Answer{}, err
	}
	packet := make([]byte, size)
	if _, err := io.ReadFull(c.r, packet); err != nil {
		return Answer{}, err
	}
	answer := commonMessage("RpcResponseHeaderProto")
	rest, err := cutDelimited(packet, answer)
	if err != nil {
		return Answer{}, err
	}
	if answer.num("status") != 0 {
		text, _, _ := strings.Cut(answer.str("errorMsg"), "\n")
		return Answer{}, &Refusal{Class: answer.str("exceptionClassName"), Text: text}
	}
	out := hdfsMessage(base + "ResponseProto")
	_, err = cutDelimited(rest, out)
	return Answer{out}, err
}

func fill(m message, fields Fields) {
	for name, v := range fields {
		switch v := v.(type) {
		case string:
			m.setStr(name, v)
		case bool:
			m.setFlag(name, v)
		case int:
			m.setNum(name, int64(v))
		case []byte:
			m.setRaw(name, v)
		case Answer:
			m.setSub(name, v.m)
		case Fields:
			sub := message{m.m.NewField(m.field(name)).Message()}
			fill(sub, v)
			m.setSub(name, sub)
		}
	}
}

// Refusal is an exception of the namenode.
type Refusal struct{ Class, Text string }

func (e *Refusal) Error() string { return e.Class + ": " + e.Text }

// Answer is a message that a namenode sent.
type Answer struct{ m message }

func (a Answer) Has(name string) bool      { return a.m.has(name) }
func (a Answer) Flag(name string) bool     { return a.m.flag(name) }
func (a Answer) Num(name string) int64     { return a.m.num(name) }
func (a Answer) Str(name string) string    { return a.m.str(name) }
func (a Answer) Sub(name string) Answer    { return Answer{a.m.sub(name)} }
func (a Answer) List(name string) []Answer { return answers(a.m.list(name)) }

func answers(ms []message) []Answer {
	out := make([]Answer, len(ms))
	for i, m := range ms {
		out[i] = Answer{m}
	}
	return out
}

// Summary is the result if there is one, else "ok" and the fields that are set.
func (a Answer) Summary() string {
	fields := a.m.m.Descriptor().Fields()
	if fd := fields.ByName("result"); fd != nil {
		return a.m.m.Get(fd).String()
	}
	out := "ok"
	for i := range fields.Len() {
		if a.m.m.Has(fields.Get(i)) {
			out += " " + string(fields.Get(i).Name())
		}
	}
	return out
}

// Again makes the next call have the id of the one before.
func (c *RawClient) Again() { c.next-- }
