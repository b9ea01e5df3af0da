package hdfs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lib "github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// errShut is what a client's connections say once it is closed.
var errShut = errors.New("client closed")

// client is one client of the library: a connection to a namenode, a name that
// leases are held by, and the connections to datanodes it made.
type client struct {
	*lib.Client
	rpc  executor
	gate *gate
	once sync.Once
}

// executor is the library's connection to the namenode. It is not exported, and
// the only way to calls that the library lacks which also works under Kerberos.
type executor interface {
	Execute(method string, req, resp proto.Message) error
}

// newClient connects to the first namenode that answers. A client that writes
// gets the stream whose packets are tracked, and keeps its connections.
func newClient(cfg Config, first int, away *atomic.Bool, s *stream) (*client, error) {
	g := &gate{cfg: cfg, away: away, stream: s}
	if s != nil {
		s.gate = g
	}
	o := cfg.options
	o.User = cfg.User
	o.Addresses = append(append([]string(nil), cfg.Addresses[first:]...), cfg.Addresses[:first]...)
	o.NamenodeDialFunc, o.DatanodeDialFunc = g.dialNamenode, g.dialDatanode
	c, err := lib.NewClient(o)
	if err != nil {
		g.shut(errShut)
		return nil, err
	}
	x, err := executorOf(c)
	if err != nil {
		g.shut(errShut)
		return nil, errors.Join(err, c.Close())
	}
	return &client{Client: c, rpc: x, gate: g}, nil
}

func executorOf(c *lib.Client) (executor, error) {
	f := reflect.ValueOf(c).Elem().FieldByName("namenode")
	if f.IsValid() && f.Kind() == reflect.Pointer {
		if x, ok := reflect.NewAt(f.Type().Elem(), f.UnsafePointer()).Interface().(executor); ok {
			return x, nil
		}
	}
	return nil, fmt.Errorf("hdfs: the library has no connection where version 2.4.0 has it: %T", c)
}

// close ends the client: calls under way fail, leases are not renewed any more.
func (c *client) close() {
	c.once.Do(func() {
		c.gate.shut(errShut)
		_ = c.Client.Close() // its connection is closed already
	})
}

// arg is a field of a request.
type arg struct {
	name  protoreflect.Name
	value any
}

// call executes a method of the namenode that the library does not offer.
func (c *client) call(method string, args ...arg) (protoreflect.Message, error) {
	base := "hadoop.hdfs." + strings.ToUpper(method[:1]) + method[1:]
	req, err := newMessage(base + "RequestProto")
	if err != nil {
		return nil, err
	}
	resp, err := newMessage(base + "ResponseProto")
	if err != nil {
		return nil, err
	}
	for _, a := range args {
		fd := req.Descriptor().Fields().ByName(a.name)
		if fd == nil {
			return nil, fmt.Errorf("hdfs: %s has no field %s", req.Descriptor().FullName(), a.name)
		}
		req.Set(fd, protoreflect.ValueOf(a.value))
	}
	if err := c.rpc.Execute(method, req.Interface(), resp.Interface()); err != nil {
		return nil, err
	}
	return resp, nil
}

// newMessage makes a message of the protocol by name: the library registers all
// of them, though its Go types are internal.
func newMessage(name string) (protoreflect.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return nil, fmt.Errorf("hdfs: the library has no message %s: %w", name, err)
	}
	return t.New(), nil
}

// get reads a field; of a message that is not set, its default.
func get(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(name))
}

func has(m protoreflect.Message, name protoreflect.Name) bool {
	return m.Has(m.Descriptor().Fields().ByName(name))
}

// permission is the message for a mode.
func permission(mode uint32) (protoreflect.Message, error) {
	m, err := newMessage("hadoop.hdfs.FsPermissionProto")
	if err != nil {
		return nil, err
	}
	m.Set(m.Descriptor().Fields().ByName("perm"), protoreflect.ValueOfUint32(mode))
	return m, nil
}

// gate is where the connections of a client are made, and ended.
type gate struct {
	cfg    Config
	away   *atomic.Bool // the namenode did not answer the last time it was asked
	stream *stream      // nil for a client that only reads

	mu     sync.Mutex
	closed error
	conns  map[conn]struct{}
}

// conn is a connection that can be given up.
type conn interface {
	net.Conn
	abort()
}

// shut closes all connections and lets nobody make another.
func (g *gate) shut(err error) {
	g.mu.Lock()
	if g.closed == nil {
		g.closed = err
	}
	conns := g.conns
	g.conns = nil
	g.mu.Unlock()
	for c := range conns {
		c.abort()
	}
}

// admit registers a connection.
func (g *gate) admit(c conn) error {
	g.mu.Lock()
	err := g.closed
	if err == nil {
		if g.conns == nil {
			g.conns = map[conn]struct{}{}
		}
		g.conns[c] = struct{}{}
	}
	g.mu.Unlock()
	if err != nil {
		c.abort() // it came too late
	}
	return err
}

func (g *gate) forget(c conn) {
	g.mu.Lock()
	delete(g.conns, c)
	g.mu.Unlock()
}

func (g *gate) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := g.err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()
	return g.cfg.Dial(ctx, network, addr)
}

func (g *gate) dialNamenode(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := g.dial(ctx, network, addr)
	if err != nil {
		if !errors.Is(err, errShut) {
			g.away.Store(true)
		}
		return nil, err
	}
	nn := &namenodeConn{Conn: c, gate: g}
	return nn, g.admit(nn)
}

func (g *gate) dialDatanode(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := g.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if g.stream == nil {
		// Not registered: the library forgets to close some, and then the
		// garbage collector does.
		return &dataConn{Conn: c, timeout: g.cfg.Timeout}, nil
	}
	p := newPipeline(c, g)
	return p, g.admit(p)
}

// namenodeConn gives every call a deadline. After a failed read the connection is
// closed: the library would take the answer that comes late for that of the next
// call.
type namenodeConn struct {
	net.Conn
	gate *gate
}

func (c *namenodeConn) Write(b []byte) (int, error) {
	// A deadline that can't be set is a closed connection, which the write shows.
	_ = c.SetDeadline(time.Now().Add(c.gate.cfg.Timeout))
	return c.Conn.Write(b)
}

func (c *namenodeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		if c.gate.err() == nil {
			c.gate.away.Store(true)
		}
		_ = c.Close() // the error says more
		return n, err
	}
	if c.gate.away.Load() {
		c.gate.away.Store(false)
	}
	return n, nil
}

func (c *namenodeConn) abort() { _ = c.Conn.Close() } // it is given up

func (c *namenodeConn) Close() error {
	c.gate.forget(c)
	return c.Conn.Close()
}

// dataConn gives every read and write a deadline of its own. The deadlines that
// the library sets are ignored: it does not set them before it asks a datanode to
// begin, and its heartbeats fail on those of earlier writes.
type dataConn struct {
	net.Conn
	timeout time.Duration
}

func (c *dataConn) SetDeadline(time.Time) error { return nil }

func (c *dataConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.timeout)) // a closed connection, which the write shows
	return c.Conn.Write(b)
}

func (c *dataConn) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.timeout)) // a closed connection, which the read shows
	return c.Conn.Read(b)
}
