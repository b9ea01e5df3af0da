package hdfstest

import (
	"slices"
	"strings"
	"time"
)

// maxComponent is dfs.namenode.fs-limits.max-component-length.
const maxComponent = 255

// An inode is a directory or a file.
type inode struct {
	id     uint64
	name   string
	parent *inode // nil for the root and for what was deleted
	mode   uint32
	owner  string
	mtime  time.Time
	atime  time.Time

	dir      bool
	children map[string]*inode
	// Quotas of a directory, 0 for none: names in it and itself, bytes with replicas.
	maxNames, maxBytes int64
	denied             bool
	xattrs             map[string][]byte

	replication int
	blockSize   int64
	blocks      []*block
	// holder is the client that has the file open, "" when it is closed.
	holder     string
	recovering bool
}

// A block is a piece of a file. Its bytes are in the replicas of the datanodes.
type block struct {
	id    uint64
	stamp int64 // generation stamp
	// size is what the namenode was told, not what datanodes have.
	size  int64
	state blockState
	// pipeline is the datanodes it was given to, in order.
	pipeline []*datanode
}

type blockState int

const (
	underConstruction blockState = iota
	committed                    // the client has said how long it is
	complete                     // a datanode has a finished replica of that length
)

func (n *inode) open() bool { return !n.dir && n.holder != "" }

func (n *inode) last() *block {
	if len(n.blocks) == 0 {
		return nil
	}
	return n.blocks[len(n.blocks)-1]
}

// length is what a client is shown: of a block being written, what fsync or
// append has told the namenode.
func (n *inode) length() int64 {
	var sum int64
	for _, b := range n.blocks {
		sum += b.size
	}
	return sum
}

// space is the quota that a file takes: an open block counts in full.
func (n *inode) space() int64 {
	var sum int64
	for _, b := range n.blocks {
		size := b.size
		if b.state == underConstruction {
			size = n.blockSize
		}
		sum += size * int64(n.replication)
	}
	return sum
}

func (n *inode) path() string {
	if n.parent == nil {
		return "/" + n.name
	}
	return strings.TrimSuffix(n.parent.path(), "/") + "/" + n.name
}

// walk calls f for n and everything below, in order of names.
func (n *inode) walk(f func(*inode)) {
	f(n)
	for _, name := range n.sorted() {
		n.children[name].walk(f)
	}
}

func (n *inode) sorted() []string {
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (n *inode) usage() (names, bytes int64) {
	n.walk(func(i *inode) {
		names++
		bytes += i.space()
	})
	return names, bytes
}

func (n *inode) within(dir *inode) bool {
	for ; n != nil; n = n.parent {
		if n == dir {
			return true
		}
	}
	return false
}

// A namespace is the tree of files.
type namespace struct {
	root *inode
	byID map[uint64]*inode
	next uint64
}

func newNamespace() *namespace {
	root := &inode{id: 16385, dir: true, mode: 0o755, owner: "hdfs", mtime: time.Now(), children: map[string]*inode{}}
	return &namespace{root: root, byID: map[uint64]*inode{root.id: root}, next: root.id + 1}
}

// split returns the components of a path, none for the root.
func split(path string) ([]string, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, refuse(assertionError, "Absolute path required, but got '%s'", path)
	}
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' }), nil
}

// validName checks a path that is to be made. Looking for a path that never
// can be is no error.
func validName(path string) error {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if p == "." || p == ".." || strings.Contains(p, ":") || p == "" && i > 0 && i < len(parts)-1 {
			return refuse(invalidPath, "Invalid path name Invalid file name: %s", path)
		}
	}
	return nil
}

func join(parts []string) string { return "/" + strings.Join(parts, "/") }

// find returns the inode at path, nil if there is none. A file in the middle of
// the path is refused.
func (ns *namespace) find(path string) (*inode, error) {
	parts, err := split(path)
	if err != nil {
		return nil, err
	}
	return ns.descend(parts, accessControl)
}

func (ns *namespace) descend(parts []string, fileInTheWay string) (*inode, error) {
	n := ns.root
	for i, p := range parts {
		if !n.dir {
			return nil, refuse(fileInTheWay, "%s (is not a directory)", join(parts[:i]))
		}
		if n = n.children[p]; n == nil {
			return nil, nil
		}
	}
	return n, nil
}

// findNew is find for a path that may be made: it returns what is there, and
// the directory and name for it. A directory that is missing is nil.
func (ns *namespace) findNew(path string) (old, dir *inode, name string, err error) {
	if err := validName(path); err != nil {
		return nil, nil, "", err
	}
	parts, err := split(path)
	if err != nil || len(parts) == 0 {
		return ns.root, nil, "", err
	}
	name = parts[len(parts)-1]
	dir, err = ns.descend(parts[:len(parts)-1], parentNotDirectory)
	if err == nil && dir != nil {
		old, err = ns.descend(parts, parentNotDirectory)
	}
	return old, dir, name, err
}

// ancestor is the deepest directory on the way to path that exists.
func (ns *namespace) ancestor(path string) *inode {
	n := ns.root
	for p := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		child := n.children[p]
		if child == nil {
			break
		}
		n = child
	}
	return n
}

// make adds an inode to dir.
func (ns *namespace) make(dir *inode, name string, n *inode) (*inode, error) {
	if len(name) > maxComponent {
		return nil, refuse(componentTooLong, "The maximum path component name limit of %s in directory %s is exceeded: limit=%d length=%d",
			name, dir.path(), maxComponent, len(name))
	}
	if err := dir.room(1, 0, nil); err != nil {
		return nil, err
	}
	n.id, n.mtime = ns.next, time.Now()
	n.atime = n.mtime
	ns.next++
	ns.byID[n.id] = n
	ns.link(dir, name, n)
	return n, nil
}

func (ns *namespace) link(dir *inode, name string, n *inode) {
	n.parent, n.name = dir, name
	dir.children[name] = n
	dir.mtime = time.Now()
}

func (ns *namespace) unlink(n *inode) {
	delete(n.parent.children, n.name)
	n.parent.mtime = time.Now()
	n.parent = nil
}

// forget drops n and all below it for good and returns their blocks.
func (ns *namespace) forget(n *inode) []*block {
	var blocks []*block
	n.walk(func(i *inode) {
		delete(ns.byID, i.id)
		blocks = append(blocks, i.blocks...)
		i.blocks = nil
	})
	ns.unlink(n)
	return blocks
}

// room checks that names and bytes fit into the quotas of n and above, as far
// as they do not count moved already.
func (n *inode) room(names, bytes int64, moved *inode) error {
	for d := n; d != nil && !moved.within(d); d = d.parent {
		if d.maxNames == 0 && d.maxBytes == 0 {
			continue
		}
		haveNames, haveBytes := d.usage()
		if total := haveNames + names; names > 0 && d.maxNames > 0 && total > d.maxNames {
			return refuse(quotaOfNames, "The NameSpace quota (directories and files) of directory %s is exceeded: quota=%d file count=%d",
				d.path(), d.maxNames, total)
		}
		if total := haveBytes + bytes; bytes > 0 && d.maxBytes > 0 && total > d.maxBytes {
			return refuse(quotaOfSpace, "The DiskSpace quota of %s is exceeded: quota = %d B but diskspace consumed = %d B",
				d.path(), d.maxBytes, total)
		}
	}
	return nil
}

// allowed checks that the entries on the way to path may be changed.
func (ns *namespace) allowed(path, user string) error {
	for n := ns.ancestor(path); n != nil; n = n.parent {
		if n.denied {
			return refuse(accessControl, "Permission denied: user=%s, access=WRITE, inode=\"%s\":%s:supergroup:dr-xr-xr-x", user, n.path(), n.owner)
		}
	}
	return nil
}
