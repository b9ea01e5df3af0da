package hdfstest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Call ids that are not calls: of the connection's context, of a ping.
const (
	contextCall = -3
	pingCall    = -4
)

const rpcVersion = 9

// Of what kind a call is, and that it is all there.
const (
	protobufCall = 2
	wholeCall    = 0
)

// A service answers the calls of one protocol at a node's door.
type service interface {
	protocol() (name string, methods map[string]method)
	execute(life int, cl call, f Fault) (*message, error)
}

// protocolVersion is that of all of Hadoop's protocols. Those that came later are
// told by their names.
const protocolVersion = 1

// A callConn is a connection of a client to a service.
type callConn struct {
	*link
	s       service
	begun   bool // its context has arrived
	user    string
	answers chan []byte
	gone    chan struct{}
	calls   sync.WaitGroup
}

// A call is one request that has arrived.
type call struct {
	header, request message
	protocol        string
	version         int64
	name, user      string
	fault           Fault
}

// method is the one that is called.
func (cl call) method(s service) (method, error) {
	name, methods := s.protocol()
	m, ok := methods[cl.name]
	switch {
	case cl.protocol != name:
		return m, refuse(noSuchProtocol, "Unknown protocol: %s", cl.protocol)
	case cl.version != protocolVersion:
		return m, refuse(versionMismatch, "Protocol %s version mismatch. (client = %d, server = %d)", name, cl.version, protocolVersion)
	case !ok:
		return m, refuse(noSuchMethod, "Unknown method %s called on %s protocol.", cl.name, name)
	}
	return m, nil
}

// serveCalls answers a connection's calls, each on its own goroutine, since one
// may wait while others go on.
func serveCalls(l *link, s service) {
	c := &callConn{link: l, s: s, answers: make(chan []byte), gone: make(chan struct{})}
	c.calls.Go(c.answer)
	_ = c.read()
	close(c.gone)
	_ = l.Close()
	c.calls.Wait()
}

// answer writes answers, so that no two mix.
func (c *callConn) answer() {
	for {
		select {
		case b := <-c.answers:
			if _, err := c.Write(b); err != nil {
				_ = c.Close() // its reader ends too
			}
		case <-c.gone:
			return
		}
	}
}

func (c *callConn) read() error {
	r := bufio.NewReader(c)
	var hello [7]byte
	if _, err := io.ReadFull(r, hello[:]); err != nil {
		return err
	}
	if string(hello[:4]) != "hrpc" || hello[4] != rpcVersion || hello[6] != 0 {
		return fmt.Errorf("hdfstest: connection begins %x, want hrpc, version %d, no authentication", hello, rpcVersion)
	}
	for {
		var size uint32
		if err := binary.Read(r, binary.BigEndian, &size); err != nil {
			return err
		}
		if size > maxMessage {
			return fmt.Errorf("hdfstest: call of %d bytes, may have %d", size, maxMessage)
		}
		packet := make([]byte, size)
		if _, err := io.ReadFull(r, packet); err != nil {
			return err
		}
		header := commonMessage("RpcRequestHeaderProto")
		rest, err := cutDelimited(packet, header)
		if err != nil {
			return err
		}
		switch id := header.num("callId"); {
		case id == contextCall:
			context := commonMessage("IpcConnectionContextProto")
			if _, err := cutDelimited(rest, context); err != nil {
				return err
			}
			c.begun, c.user = true, context.sub("userInfo").str("effectiveUser")
		case id == pingCall:
		case id < 0:
			return fmt.Errorf("hdfstest: call id %d is not supported", id)
		case !c.begun || header.num("rpcKind") != protobufCall || header.num("rpcOp") != wholeCall:
			return fmt.Errorf("hdfstest: call %d is not one of protobuf messages on a connection with a context", id)
		default:
			if err := c.begin(header, rest); err != nil {
				return err
			}
		}
	}
}

func (c *callConn) begin(header message, body []byte) error {
	what := commonMessage("RequestHeaderProto")
	rest, err := cutDelimited(body, what)
	if err != nil {
		return err
	}
	cl := call{
		header: header, protocol: what.str("declaringClassProtocolName"), version: what.num("clientProtocolVersion"),
		name: what.str("methodName"), user: c.user,
	}
	if m, err := cl.method(c.s); err == nil {
		cl.request = hdfsMessage(m.request)
		if _, err := cutDelimited(rest, cl.request); err != nil {
			return err
		}
	}
	c.calls.Go(func() {
		if err := c.serve(cl); err != nil {
			_ = c.Close()
		}
	})
	return nil
}

// errDrop closes the connection as a node that dies would.
var errDrop = errors.New("hdfstest: the connection is to be dropped")

func (c *callConn) serve(cl call) error {
	fault := c.n.c.arrived(cl.name)
	if err := c.before(fault); err != nil {
		return err
	}
	response, err := c.s.execute(c.life, cl, fault)
	if errors.Is(err, errDied) {
		return err
	}
	if err := c.after(fault); err != nil {
		return err
	}
	packet, err := encodeAnswer(cl.header, response, err)
	if err != nil {
		return err
	}
	select {
	case c.answers <- packet:
		return nil
	case <-c.gone:
		return net.ErrClosed
	}
}

func (c *callConn) before(f Fault) error {
	switch f.kind {
	case dropBefore:
		return errDrop
	case hang:
		<-c.gone
		return net.ErrClosed
	default:
		return nil
	}
}

func (c *callConn) after(f Fault) error {
	switch f.kind {
	case dropAfter:
		return errDrop
	case delay:
		select {
		case <-time.After(f.wait):
			return nil
		case <-c.gone:
			return net.ErrClosed
		}
	default:
		return nil
	}
}

// stack ends the message of an exception as Java's would, so that nobody relies
// on a message of one line.
const stack = "\n\tat org.apache.hadoop.hdfs.server.namenode.FSNamesystem.checkOperation(FSNamesystem.java)"

func encodeAnswer(request message, response *message, failure error) ([]byte, error) {
	header := commonMessage("RpcResponseHeaderProto").
		setNum("callId", int64(uint32(request.num("callId")))).setNum("serverIpcVersionNum", rpcVersion).
		setRaw("clientId", request.raw("clientId")).setNum("retryCount", request.num("retryCount"))
	const success, failed = 0, 1
	header.setNum("status", success)
	if e := (*exception)(nil); errors.As(failure, &e) {
		header.setNum("status", failed).setNum("errorDetail", e.detail()).setStr("exceptionClassName", e.class).setStr("errorMsg", e.text+stack)
	} else if failure != nil {
		return nil, failure
	}
	packet, err := appendDelimited(make([]byte, 4), header)
	if err == nil && failure == nil {
		packet, err = appendDelimited(packet, *response)
	}
	if err != nil {
		return nil, fmt.Errorf("hdfstest: answer: %w", err)
	}
	binary.BigEndian.PutUint32(packet, uint32(len(packet)-4))
	return packet, nil
}
