package hdfstest

import (
	"cmp"
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// A door is an address where a node takes connections, all of one protocol. Its
// fields are the cluster's, under Cluster.mu.
type door struct {
	n     *node
	addr  addr // in memory
	serve func(*link)

	port     addr // on loopback, "" before Listen
	listener net.Listener
}

// newDoor gives the node one more door.
func (n *node) newDoor(at addr, serve func(*link)) *door {
	d := &door{n: n, addr: at, serve: serve}
	n.doors = append(n.doors, d)
	return d
}

// public is the address that clients are told.
func (d *door) public() addr { return cmp.Or(d.port, d.addr) }

// accept serves one connection, false if the node is dead.
func (d *door) accept(c net.Conn) bool {
	l := d.n.attach(c)
	if l == nil {
		return false
	}
	return d.n.c.start(func() {
		defer d.n.detach(l)
		d.serve(l)
	})
}

// dial connects in memory.
func (d *door) dial(from addr, latency time.Duration) (*conn, error) {
	mine, theirs := pipe(from, d.addr, latency)
	if !d.accept(theirs) {
		return nil, refused(d.addr)
	}
	return mine, nil
}

func refused(to addr) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// listen takes connections on loopback too, on the port it had before if any.
func (d *door) listen() error {
	c := d.n.c
	c.mu.Lock()
	at := string(cmp.Or(d.port, "127.0.0.1:0"))
	wanted := c.listening && d.n.up && d.listener == nil
	c.mu.Unlock()
	if !wanted {
		return nil
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	c.mu.Lock()
	d.listener, d.port = l, addr(l.Addr().String())
	c.mu.Unlock()
	if !c.start(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if !d.accept(conn) {
				_ = conn.Close()
			}
		}
	}) {
		return errors.Join(net.ErrClosed, l.Close())
	}
	return nil
}
