package block

import (
	"math/bits"
	"math/rand/v2"
	"strings"
)

// index keeps entries in key order, as a skip list, so that those with a
// common prefix are found without looking at the others. The zero value is
// empty.
type index struct {
	head [maxHeight]*indexNode
}

// maxHeight serves some 2^20 entries at the full speed of a skip list.
const maxHeight = 20

type indexNode struct {
	e    *entry
	next []*indexNode
}

// find returns, per level, the link that leads to the first key not below key.
func (x *index) find(key string) (links [maxHeight]**indexNode) {
	next := x.head[:]
	for l := maxHeight - 1; l >= 0; l-- {
		for next[l] != nil && next[l].e.key < key {
			next = next[l].next
		}
		links[l] = &next[l]
	}
	return links
}

// insert adds an entry whose key is not there.
func (x *index) insert(e *entry) {
	// Each level has half the nodes of the one below.
	height := min(1+bits.TrailingZeros32(rand.Uint32()), maxHeight)
	n := &indexNode{e: e, next: make([]*indexNode, height)}
	links := x.find(e.key)
	for l := range n.next {
		n.next[l] = *links[l]
		*links[l] = n
	}
}

// remove takes the entry of a key out, if it is there.
func (x *index) remove(key string) {
	links := x.find(key)
	n := *links[0]
	if n == nil || n.e.key != key {
		return
	}
	for l := range n.next {
		*links[l] = n.next[l]
	}
}

// withPrefix returns the entries whose key begins with prefix, in key order.
func (x *index) withPrefix(prefix string) []*entry {
	var es []*entry
	for n := *x.find(prefix)[0]; n != nil && strings.HasPrefix(n.e.key, prefix); n = n.next[0] {
		es = append(es, n.e)
	}
	return es
}
