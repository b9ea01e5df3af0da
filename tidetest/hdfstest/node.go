package hdfstest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// errDied ends what a node's process did when it was killed.
var errDied = errors.New("hdfstest: the node was killed")

// A node is a process of the cluster: it runs, stands still or is dead. Its
// fields are the cluster's, under Cluster.mu.
type node struct {
	c     *Cluster
	name  string
	doors []*door

	up, paused bool
	// life counts its starts. What belongs to another one is dead.
	life int
	// silent is when it was last heard, if it does not run.
	silent time.Time
	links  map[*link]struct{}
}

// A link is a node's end of a connection. Reads and writes wait while the node
// stands still and fail when it is dead.
type link struct {
	net.Conn
	n    *node
	life int
}

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if gone := l.n.gate(l.life); gone != nil {
		return 0, gone
	}
	return n, err
}

func (l *link) Write(b []byte) (int, error) {
	if err := l.n.gate(l.life); err != nil {
		return 0, err
	}
	return l.Conn.Write(b)
}

// kill ends the connection as the death of the process would.
func (l *link) kill() {
	switch c := l.Conn.(type) {
	case *conn:
		c.abort()
	case *net.TCPConn:
		_ = c.SetLinger(0) // reset, even if all was read
		_ = c.Close()
	}
}

// gate waits until the node runs.
func (n *node) gate(life int) error {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return n.running(life)
}

// running is gate under the cluster's mutex, which it gives up to wait.
func (n *node) running(life int) error {
	for n.paused && n.alive(life) {
		n.c.changed.Wait()
	}
	if !n.alive(life) {
		return errDied
	}
	return nil
}

func (n *node) alive(life int) bool { return n.up && n.life == life && !n.c.closed }

// runs tells whether it can answer now.
func (n *node) runs() bool { return n.up && !n.paused }

// silence is for how long nothing was heard of it.
func (n *node) silence() time.Duration {
	if n.runs() {
		return 0
	}
	return time.Since(n.silent)
}

// attach makes an end of a connection the node's own, nil if it is dead.
func (n *node) attach(c net.Conn) *link {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if n.c.closed || !n.up {
		return nil
	}
	l := &link{Conn: c, n: n, life: n.life}
	n.links[l] = struct{}{}
	return l
}

func (n *node) detach(l *link) {
	n.c.mu.Lock()
	delete(n.links, l)
	n.c.mu.Unlock()
	_ = l.Close()
}

// die is SIGKILL. It returns what has to be closed without the mutex.
func (n *node) die() []io.Closer {
	if !n.up {
		return nil
	}
	if !n.paused {
		n.silent = time.Now()
	}
	n.up, n.paused = false, false
	n.life++
	var closing []io.Closer
	for l := range n.links {
		closing = append(closing, closer(l.kill))
	}
	clear(n.links)
	for _, d := range n.doors {
		if d.listener != nil {
			closing = append(closing, d.listener)
			d.listener = nil
		}
	}
	n.c.changed.Broadcast()
	return closing
}

type closer func()

func (f closer) Close() error {
	f()
	return nil
}

func closeAll(closing []io.Closer) {
	for _, c := range closing {
		_ = c.Close()
	}
}

func (n *node) pause() {
	if n.runs() {
		n.paused, n.silent = true, time.Now()
		n.c.changed.Broadcast()
	}
}

func (n *node) resume() {
	n.paused = false
	n.c.changed.Broadcast()
}

// listen serves the node on loopback too, on the ports it had before if any.
func (n *node) listen() error {
	for _, d := range n.doors {
		if err := d.listen(); err != nil {
			return fmt.Errorf("hdfstest: listen for %s: %w", n.name, err)
		}
	}
	return nil
}
