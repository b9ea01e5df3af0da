package hdfstest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// Options says what cluster to start. The zero value is one namenode, three
// datanodes, three replicas, and the timing of a small test cluster.
type Options struct {
	// Datanodes is how many there are, 3 if zero.
	Datanodes int
	// Namenodes is 1 or 2, 1 if zero. The second is a standby of the first.
	Namenodes int
	// Replication is the default for new files, 3 or the number of datanodes if zero.
	Replication int
	// BlockSize is the default for new files in bytes, 128 MiB if zero.
	BlockSize int64
	// Latency delays what is sent on a connection in memory, each way. Leave it
	// zero in a bubble of testing/synctest (see the package comment).
	Latency time.Duration
	// Heartbeat is the datanodes' period, 1 s if zero: a lease recovery waits for the next one.
	Heartbeat time.Duration
	// StaleAfter is how long a datanode is silent until new blocks avoid it if
	// there are enough others, 3 s if zero.
	StaleAfter time.Duration
	// DeadAfter is how long a datanode is silent until it is given up, 11 s if zero.
	DeadAfter time.Duration
	// SafeModeFor is how long a namenode stays in safe mode after a restart.
	SafeModeFor time.Duration
	// SoftLimit is how long a lease that is not renewed keeps others away, 60 s if zero.
	SoftLimit time.Duration
	// HardLimit is how long until the namenode closes files with such a lease, 20 min if zero.
	HardLimit time.Duration
	// ListPage is how many entries of a directory one call returns, 1000 if zero.
	ListPage int
	// SilentWrites makes writes to a failed datanode connection in memory
	// succeed, so that only reads tell. The client library can then end the
	// goroutine that it leaks otherwise for each failed FileWriter, which a
	// bubble of testing/synctest would wait for in vain: Close the writer.
	SilentWrites bool
}

func (o Options) withDefaults() Options {
	o.Datanodes = cmp.Or(o.Datanodes, 3)
	o.Namenodes = min(max(o.Namenodes, 1), 2)
	o.Replication = cmp.Or(o.Replication, min(3, o.Datanodes))
	o.BlockSize = cmp.Or(o.BlockSize, 128<<20)
	o.Heartbeat = cmp.Or(o.Heartbeat, time.Second)
	o.StaleAfter = cmp.Or(o.StaleAfter, 3*time.Second)
	o.DeadAfter = cmp.Or(o.DeadAfter, 11*time.Second)
	o.SoftLimit = cmp.Or(o.SoftLimit, 60*time.Second)
	o.HardLimit = cmp.Or(o.HardLimit, 20*time.Minute)
	o.ListPage = cmp.Or(o.ListPage, 1000)
	return o
}

// Cluster is an HDFS in this process. Its methods may be called by many
// goroutines. Nodes are counted from zero.
type Cluster struct {
	opts  Options
	begin time.Time
	stop  chan struct{}
	work  sync.WaitGroup

	methods map[string]method

	// mu guards everything below and all nodes; changed is told of each change
	// that somebody may wait for. Neither is held while a connection is used.
	mu        sync.Mutex
	changed   *sync.Cond
	closed    bool
	listening bool
	namenodes []*namenode
	datanodes []*datanode
	active    int // the namenode that serves, -1 if all are standbys
	ns        *namespace
	leases    map[string]time.Time // last renewal, by client
	nextBlock uint64
	nextStamp int64
	turn      int // where the choice of datanodes starts
	short     int // most datanodes of a pipeline, 0 for no limit
	safe      bool
	faults    map[string][]*pending
	calls     map[string]int64
	answered  map[callID]answered
}

// Start starts a cluster in memory. Close it.
func Start(opts Options) *Cluster {
	opts = opts.withDefaults()
	c := &Cluster{
		opts: opts, begin: time.Now(), stop: make(chan struct{}),
		ns: newNamespace(), leases: map[string]time.Time{}, nextBlock: 1073741825, nextStamp: 1001,
		faults: map[string][]*pending{}, calls: map[string]int64{}, answered: map[callID]answered{},
	}
	c.changed = sync.NewCond(&c.mu)
	c.methods = c.clientProtocol()
	// The client library remembers addresses that failed for as long as the
	// process lives, so those of another cluster should be others.
	subnet := fmt.Sprintf("10.%d.%d.", rand.IntN(256), rand.IntN(256))
	for i := range opts.Namenodes {
		n := &namenode{index: i, node: node{c: c, name: fmt.Sprintf("nn%d", i)}}
		n.ipc = n.newDoor(addr(fmt.Sprintf("%s%d:8020", subnet, 101+i)), func(l *link) { serveCalls(l, n) })
		c.namenodes = append(c.namenodes, n)
	}
	for i := range opts.Datanodes {
		d := &datanode{index: i, replicas: map[uint64]*replica{}, node: node{c: c, name: fmt.Sprintf("dn%d", i)}}
		d.transfer = d.newDoor(addr(fmt.Sprintf("%s%d:9866", subnet, 1+i)), d.serveBlocks)
		d.ipc = d.newDoor(addr(fmt.Sprintf("%s%d:9867", subnet, 1+i)), func(l *link) { serveCalls(l, d) })
		c.datanodes = append(c.datanodes, d)
	}
	for _, n := range c.nodes() {
		n.up, n.links = true, map[*link]struct{}{}
	}
	return c
}

func (c *Cluster) nodes() []*node {
	var all []*node
	for _, n := range c.namenodes {
		all = append(all, &n.node)
	}
	for _, d := range c.datanodes {
		all = append(all, &d.node)
	}
	return all
}

// start runs f on a goroutine that Close waits for, false if it is too late.
func (c *Cluster) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.startLocked(f)
}

func (c *Cluster) startLocked(f func()) bool {
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// Listen serves the same nodes on ports of 127.0.0.1 too, for clients in other
// processes. From then on the addresses given out are those, and [Cluster.Dial]
// takes both kinds.
func (c *Cluster) Listen() error {
	c.mu.Lock()
	c.listening = true
	c.mu.Unlock()
	for _, n := range c.nodes() {
		if err := n.listen(); err != nil {
			return err
		}
	}
	return nil
}

// Close stops all nodes and waits for their goroutines. Clients should be
// closed before. It may be called again.
func (c *Cluster) Close() {
	c.mu.Lock()
	var closing []io.Closer
	if !c.closed {
		for _, n := range c.nodes() {
			closing = append(closing, n.die()...)
		}
		for _, d := range c.datanodes {
			d.stopWriters()
		}
		c.closed = true
		close(c.stop)
		c.changed.Broadcast()
	}
	c.mu.Unlock()
	closeAll(closing)
	c.work.Wait()
}

// Namenodes returns the addresses of the namenodes.
func (c *Cluster) Namenodes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, n := range c.namenodes {
		all = append(all, string(n.ipc.public()))
	}
	return all
}

// Datanode returns the address of datanode i, as it appears in block locations.
func (c *Cluster) Datanode(i int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.datanodes[i].transfer.public())
}

// Dial connects to a node in memory; it is what both dial functions of
// hdfs.ClientOptions can be. A dead node refuses (syscall.ECONNREFUSED), a
// paused one takes the connection and stays silent.
func (c *Cluster) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	to := addr(address)
	if err := ctx.Err(); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: to, Err: err}
	}
	d := c.find(address)
	if d == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: to, Err: &net.DNSError{Err: "not a node of this cluster", Name: address, IsNotFound: true}}
	}
	conn, err := d.dial("10.0.0.1:50000", c.opts.Latency)
	if err != nil {
		return nil, err
	}
	conn.sink = c.opts.SilentWrites && slices.ContainsFunc(c.datanodes, func(n *datanode) bool { return n.transfer == d })
	return conn, nil
}

// find returns the door at an address: in memory, on loopback, or by the name of
// its node. A port that no door of that node has is its first's.
func (c *Cluster) find(address string) *door {
	c.mu.Lock()
	defer c.mu.Unlock()
	host, port, _ := net.SplitHostPort(address)
	for _, n := range c.nodes() {
		for _, d := range n.doors {
			if address == string(d.addr) || address == string(d.port) || host == n.name && (d.addr.port() == port || d.port.port() == port) {
				return d
			}
		}
		if host == n.name {
			return n.doors[0]
		}
	}
	return nil
}
