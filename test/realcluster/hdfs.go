package realcluster

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// HDFSOptions says what cluster to start. Its zero value is one datanode, with
// timing that is quicker than Hadoop's own: README.md has the numbers.
type HDFSOptions struct {
	Datanodes   int
	Conf        map[string]string // settings of Hadoop
	StockTiming bool              // Hadoop's own heartbeats and limits
}

// Node is a process of an HDFS cluster: [Namenode], or a [Datanode].
type Node int

// Namenode is the one namenode.
const Namenode Node = 0

// Datanode is the i-th datanode, from 1.
func Datanode(i int) Node { return Node(i) }

// String is the node's name: its directory in the cluster's.
func (n Node) String() string {
	if n == Namenode {
		return "namenode"
	}
	return fmt.Sprintf("datanode-%d", int(n))
}

func (n Node) args() []string {
	if n == Namenode {
		return []string{"--namenode"}
	}
	return []string{"--datanode", strconv.Itoa(int(n))}
}

// HDFS is a running cluster.
type HDFS struct {
	launch   launcher
	namenode string
	http     string
}

// StartHDFS starts a cluster for one test, which is wiped when that ends.
func StartHDFS(t testing.TB, o HDFSOptions) *HDFS {
	t.Helper()
	h, err := LaunchHDFS(o)
	if err != nil {
		Unavailable(t, err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// LaunchHDFS starts a cluster that lives until Close, or until this process has
// ended: for tests that share one. [Unavailable] is for its error.
func LaunchHDFS(o HDFSOptions) (*HDFS, error) {
	l, err := newLauncher("hdfs")
	if err != nil {
		return nil, err
	}
	args := []string{"--owner", strconv.Itoa(os.Getpid()), "--datanodes", strconv.Itoa(max(o.Datanodes, 1))}
	for _, key := range slices.Sorted(maps.Keys(o.Conf)) {
		args = append(args, "--conf", key+"="+o.Conf[key])
	}
	if o.StockTiming {
		args = append(args, "--stock-timing")
	}
	if _, err := l.run("start", args...); err != nil {
		return nil, errors.Join(err, l.remove())
	}
	env, err := l.env()
	h := &HDFS{launch: l, namenode: env["HDFS_NAMENODE"], http: env["HDFS_HTTP"]}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Close kills the cluster and removes all it had. It may be called twice.
func (h *HDFS) Close() error {
	if _, err := h.launch.run("stop", "--now"); err != nil {
		return err // what is still running keeps its directory
	}
	return h.launch.remove()
}

// Namenode is the namenode's address.
func (h *HDFS) Namenode() string { return h.namenode }

// URL names a directory or file of the cluster.
func (h *HDFS) URL(name string) string {
	return "hdfs://" + h.namenode + "/" + strings.TrimPrefix(name, "/")
}

// Kill ends a node with SIGKILL, and waits until it is gone.
func (h *HDFS) Kill(n Node) error { return h.node("kill", n) }

// Pause freezes a node with SIGSTOP.
func (h *HDFS) Pause(n Node) error { return h.node("pause", n) }

// Resume lets a frozen node go on.
func (h *HDFS) Resume(n Node) error { return h.node("resume", n) }

// Restart stops a node if it runs, starts it on the same port and data, and
// waits until it serves: a namenode has left safe mode then.
func (h *HDFS) Restart(n Node) error { return h.node("restart", n) }

func (h *HDFS) node(command string, n Node) error {
	_, err := h.launch.run(command, n.args()...)
	return err
}

// Wait waits until the namenode is out of safe mode and all datanodes are live.
func (h *HDFS) Wait() error {
	_, err := h.launch.run("wait")
	return err
}

// Classpath is what a Java client of this cluster needs.
func (h *HDFS) Classpath() (string, error) {
	out, err := h.launch.run("classpath")
	return strings.TrimSpace(out), err
}

// DFS runs Hadoop's own client, as "hdfs dfs", and returns what it printed.
func (h *HDFS) DFS(args ...string) (string, error) { return h.launch.run("dfs", args...) }
