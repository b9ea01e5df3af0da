package fsys

import (
	"bytes"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// memNode is a file, or a directory if entries is not nil.
type memNode struct {
	entries map[string]*memNode
	data    []byte
	mod     time.Time

	// Of a file: the first synced bytes survive a power loss. A Sync that
	// failed leaves the mark where it is for good.
	synced int
	failed bool

	// Of a directory: what was done to it since it was last synced, oldest
	// first, and the bytes of removed files that this keeps in memory.
	edits []dirEdit
	held  int64
}

// dirEdit is one change of a directory: a node appears under one name, goes
// from another, or both if it was renamed. It is durable as a whole or not.
type dirEdit struct {
	drop, put string // "" if it has none
	node      *memNode
}

// A directory that is never synced must not grow for ever. Beyond these limits
// the oldest edits count as durable, as a kernel writes back in its own time.
const (
	maxEdits = 512
	maxHeld  = 16 << 20
)

func newMemDir() *memNode {
	return &memNode{entries: map[string]*memNode{}, mod: time.Now()}
}

func (n *memNode) dir() bool { return n.entries != nil }

// edit changes a directory, whose modification time follows.
func (n *memNode) edit(e dirEdit) {
	if e.drop != "" {
		delete(n.entries, e.drop)
	}
	if e.put != "" {
		n.entries[e.put] = e.node
	}
	n.mod = time.Now()
	n.edits = append(n.edits, e)
	n.held += e.holds()
	if len(n.edits) <= maxEdits && n.held <= maxHeld {
		return
	}
	n.edits = slices.Clone(n.edits[(len(n.edits)+1)/2:])
	n.held = 0
	for _, e := range n.edits {
		n.held += e.holds()
	}
}

// holds counts the bytes that only the edit still leads to.
func (e dirEdit) holds() int64 {
	if e.put != "" {
		return 0
	}
	return int64(len(e.node.data)) + e.node.held
}

func (n *memNode) syncDir() { n.edits, n.held = nil, 0 }

// durable returns the entries as they were when the directory was last synced.
func (n *memNode) durable() map[string]*memNode {
	entries := maps.Clone(n.entries)
	for _, e := range slices.Backward(n.edits) {
		if e.put != "" {
			delete(entries, e.put)
		}
		if e.drop != "" {
			entries[e.drop] = e.node
		}
	}
	return entries
}

func (n *memNode) names() []string { return slices.Sorted(maps.Keys(n.entries)) }

func (n *memNode) info(name string) Info {
	return Info{Name: name, Size: int64(len(n.data)), ModTime: n.mod, Dir: n.dir()}
}

func (n *memNode) describe(b *bytes.Buffer, name string) {
	b.WriteString(name + "\n")
	for _, e := range n.names() {
		child := n.entries[e]
		if child.dir() {
			e += "/"
		}
		child.describe(b, name+e)
	}
}

// memTree is what a Mem holds. Operations are functions of a tree, so that the
// one that a crash hits can be done, or half done, in a copy.
type memTree struct {
	root  *memNode
	locks map[*memNode]*memLock

	// copies leads from the nodes of another tree to this one's; nil if
	// this is no copy.
	copies map[*memNode]*memNode

	// stop says whether an operation of many steps ends before the next; nil: never.
	stop func() bool
}

func newMemTree() *memTree {
	return &memTree{root: newMemDir(), locks: map[*memNode]*memLock{}}
}

// clone copies a tree, except its locks. The bytes of files are shared: they
// are never changed, and the copy cannot append in place.
func (t *memTree) clone() *memTree {
	c := &memTree{locks: map[*memNode]*memLock{}, copies: map[*memNode]*memNode{}}
	c.root = c.at(t.root)
	return c
}

// at returns a node of this tree for one that a caller holds. In a copy that
// is the node's copy, made on the way if it is new.
func (t *memTree) at(n *memNode) *memNode {
	if t.copies == nil {
		return n
	}
	if c := t.copies[n]; c != nil {
		return c
	}
	c := new(memNode)
	*c = *n
	t.copies[n] = c
	c.data = slices.Clip(n.data)
	c.entries = maps.Clone(n.entries)
	for name, child := range c.entries {
		c.entries[name] = t.at(child)
	}
	c.edits = slices.Clone(n.edits)
	for i := range c.edits {
		c.edits[i].node = t.at(c.edits[i].node)
	}
	return c
}

func (t *memTree) stopped() bool { return t.stop != nil && t.stop() }

// split returns the elements of a name from the root.
func split(name string) []string {
	clean := path.Clean("/" + name)[1:]
	if clean == "" {
		return nil
	}
	return strings.Split(clean, "/")
}

// walk follows elements from the root.
func (t *memTree) walk(elems []string) (*memNode, error) {
	n := t.root
	for _, e := range elems {
		if !n.dir() {
			return nil, syscall.ENOTDIR
		}
		if n = n.entries[e]; n == nil {
			return nil, syscall.ENOENT
		}
	}
	return n, nil
}

func (t *memTree) node(name string) (*memNode, error) {
	if name == "" {
		return nil, syscall.ENOENT
	}
	return t.walk(split(name))
}

func (t *memTree) directory(name string) (*memNode, error) {
	n, err := t.node(name)
	if err == nil && !n.dir() {
		err = syscall.ENOTDIR
	}
	return n, err
}

// slot finds where a name is or would be: its parent directory and its last
// element. The root, which has no parent, is refused with atRoot.
func (t *memTree) slot(name string, atRoot error) (parent *memNode, last string, err error) {
	if name == "" {
		return nil, "", syscall.ENOENT
	}
	elems := split(name)
	if len(elems) == 0 {
		return nil, "", atRoot
	}
	n := len(elems) - 1
	parent, err = t.walk(elems[:n])
	if err == nil && !parent.dir() {
		err = syscall.ENOTDIR
	}
	return parent, elems[n], err
}

// add puts a new node at a name that must be free.
func (t *memTree) add(name string, n *memNode) error {
	parent, last, err := t.slot(name, syscall.EEXIST)
	if err != nil {
		return err
	}
	if parent.entries[last] != nil {
		return syscall.EEXIST
	}
	parent.edit(dirEdit{put: last, node: n})
	return nil
}

func (t *memTree) mkdirAll(name string) error {
	if name == "" {
		return syscall.ENOENT
	}
	n := t.root
	for _, e := range split(name) {
		next := n.entries[e]
		switch {
		case next == nil:
			if t.stopped() {
				return nil
			}
			next = newMemDir()
			n.edit(dirEdit{put: e, node: next})
		case !next.dir():
			return syscall.ENOTDIR
		}
		n = next
	}
	return nil
}

func (t *memTree) rename(oldName, newName string) error {
	from, oldLast, err := t.slot(oldName, syscall.EBUSY)
	if err != nil {
		return err
	}
	to, newLast, err := t.slot(newName, syscall.EEXIST)
	if err != nil {
		return err
	}
	n := from.entries[oldLast]
	switch {
	case n == nil:
		return syscall.ENOENT
	case to.entries[newLast] != nil:
		return syscall.EEXIST
	}
	oldElems, newElems := split(oldName), split(newName)
	if len(newElems) > len(oldElems) && slices.Equal(oldElems, newElems[:len(oldElems)]) {
		return syscall.EINVAL // a directory cannot move below itself
	}
	if from == to {
		from.edit(dirEdit{drop: oldLast, put: newLast, node: n})
		return nil
	}
	from.edit(dirEdit{drop: oldLast, node: n})
	to.edit(dirEdit{put: newLast, node: n})
	return nil
}

func (t *memTree) remove(name string) error {
	parent, last, err := t.slot(name, syscall.EBUSY)
	if err != nil {
		return err
	}
	n := parent.entries[last]
	switch {
	case n == nil:
		return syscall.ENOENT
	case len(n.entries) > 0:
		return syscall.ENOTEMPTY
	}
	parent.edit(dirEdit{drop: last, node: n})
	return nil
}

// removeAll takes away an entry and before it what is below, as an operating
// system must. It returns false if it was stopped.
func (t *memTree) removeAll(parent *memNode, name string) bool {
	n := parent.entries[name]
	for _, e := range n.names() {
		if !t.removeAll(n, e) {
			return false
		}
	}
	if t.stopped() {
		return false
	}
	parent.edit(dirEdit{drop: name, node: n})
	return true
}

// lock gives a file to a holder; the file is fresh if there is none.
func (t *memTree) lock(name string, fresh *memNode, l *memLock) error {
	parent, last, err := t.slot(name, syscall.EISDIR)
	if err != nil {
		return err
	}
	n := parent.entries[last]
	switch {
	case n == nil:
		n = t.at(fresh)
		parent.edit(dirEdit{put: last, node: n})
	case n.dir():
		return syscall.EISDIR
	case t.locks[n] != nil:
		return ErrLocked
	}
	t.locks[n] = l
	return nil
}
