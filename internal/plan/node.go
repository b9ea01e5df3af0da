package plan

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/tidemill/tidemill/internal/base"
)

// ID names a node: the data set it was built for and its ordinal in it.
type ID struct {
	Set   base.DataSet
	Index int
}

func (id ID) String() string { return fmt.Sprintf("%s#%d", id.Set, id.Index) }

// Node is one partitioned, lazily computed data set of a batch, without its
// record type.
type Node struct {
	ID    ID
	Kind  string // of transformation: "map", "reduceByKey"
	Op    string // the operator as people know it
	Parts int
	// Narrow lists the nodes whose partitions are computed inside this node's tasks.
	Narrow []*Node
	// From visits the partitions of Narrow that a partition is computed from; nil
	// means the same partition of each.
	From func(part int, visit func(n *Node, part int))
	// Shuffles lists the exchanges that this node's tasks read.
	Shuffles []*Shuffle
	// Partitioner names where keys live; equal names mean equal placement. Empty: unknown.
	Partitioner string
	Level       base.StorageLevel
	// Hash covers the node and all it is computed from.
	Hash uint64

	// Compute and Ops belong to package rdd.
	Compute any
	Ops     any
}

// Emitted is the kind of nodes that read what a stateful operator put aside.
const Emitted = "emitted"

// Shuffle is the exchange between the tasks that compute Parent and those of
// the node that reads it.
type Shuffle struct {
	ID     string
	Set    base.DataSet // of the reading node
	Parent *Node
	Parts  int
	// Write belongs to package rdd: the map side.
	Write any
}

// Scope numbers the nodes built for one data set.
type Scope struct {
	Set  base.DataSet
	Op   string
	next int
}

// NodeSpec says what a new node is; the fields are those of [Node].
type NodeSpec struct {
	Kind        string
	Parts       int
	Narrow      []*Node
	From        func(part int, visit func(n *Node, part int))
	Shuffles    []*Shuffle
	Partitioner string
	Level       base.StorageLevel
	Extra       string // further facts that the computation depends on, for the hash
	Compute     any
	Ops         any
}

// NewNode adds a node to the scope. Shuffles of the spec get their ids from
// the node's.
func (s *Scope) NewNode(spec NodeSpec) *Node {
	n := &Node{
		ID: ID{Set: s.Set, Index: s.next}, Op: s.Op,
		Kind: spec.Kind, Parts: spec.Parts, Narrow: spec.Narrow, From: spec.From, Shuffles: spec.Shuffles,
		Partitioner: spec.Partitioner, Level: spec.Level, Compute: spec.Compute, Ops: spec.Ops,
	}
	s.next++
	for i, sh := range n.Shuffles {
		sh.ID, sh.Set = fmt.Sprintf("%s/%d", n.ID, i), n.ID.Set
	}
	n.Hash = n.hash(spec.Extra)
	return n
}

func (n *Node) hash(extra string) uint64 {
	var d xxhash.Digest
	d.Reset()
	var num [8]byte
	put := func(v uint64) {
		binary.LittleEndian.PutUint64(num[:], v)
		_, _ = d.Write(num[:])
	}
	text := func(s string) {
		put(uint64(len(s)))
		_, _ = d.WriteString(s)
	}
	text(string(n.ID.Set.UID))
	put(uint64(n.ID.Set.Time))
	put(uint64(n.ID.Index))
	text(n.Kind)
	put(uint64(n.Parts))
	text(n.Partitioner)
	put(uint64(n.Level))
	text(extra)
	for _, p := range n.Narrow {
		put(p.Hash)
	}
	for _, s := range n.Shuffles {
		put(^s.Parent.Hash)
		put(uint64(s.Parts))
	}
	return d.Sum64()
}

// SetLevel asks that the node's partitions be kept. It is for nodes that were
// just built and that nobody reads yet.
func (n *Node) SetLevel(level base.StorageLevel) {
	n.Level = level
	n.Hash = (n.Hash ^ uint64(level)) * 1099511628211
}

// CacheKey names a kept partition.
type CacheKey struct {
	Node ID
	Part int
}
