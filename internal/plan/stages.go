package plan

import "github.com/tidemill/tidemill/internal/base"

// Stage is a set of tasks that need no exchange between them.
type Stage struct {
	ID      base.StageID
	Root    *Node
	Shuffle *Shuffle // what the tasks write; nil for the result stage
	Reads   []string // shuffles that the tasks read
	Parts   []int
}

// Stages cuts the computation of root at its shuffles, parents first, the
// result stage last. kept says whether all partitions of a persisted node are
// at hand: what lies behind such a node needs no stage. Shuffles that are
// complete are left to the scheduler, which skips their stages.
func Stages(root *Node, parts []int, kept func(*Node) bool) []Stage {
	c := cutter{kept: kept, seen: map[string]bool{}}
	reads := c.reads(root)
	return append(c.stages, Stage{ID: base.StageID(len(c.stages)), Root: root, Reads: reads, Parts: parts})
}

type cutter struct {
	kept   func(*Node) bool
	seen   map[string]bool
	stages []Stage
}

// reads lists the shuffles that tasks computing n read, adding their stages.
func (c *cutter) reads(n *Node) []string {
	var ids []string
	seen := map[ID]bool{}
	var visit func(*Node)
	visit = func(n *Node) {
		if seen[n.ID] || (n.Level != base.StorageNone && c.kept(n)) {
			return
		}
		seen[n.ID] = true
		for _, p := range n.Narrow {
			visit(p)
		}
		for _, s := range n.Shuffles {
			c.add(s)
			ids = append(ids, s.ID)
		}
	}
	visit(n)
	return ids
}

func (c *cutter) add(s *Shuffle) {
	if c.seen[s.ID] {
		return
	}
	c.seen[s.ID] = true
	reads := c.reads(s.Parent)
	c.stages = append(c.stages, Stage{ID: base.StageID(len(c.stages)), Root: s.Parent, Shuffle: s, Reads: reads, Parts: All(s.Parent.Parts)})
}

// All lists the partitions 0 to n-1.
func All(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
