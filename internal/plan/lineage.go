package plan

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/state"
)

// Op is an operator as planning sees it.
type Op struct {
	UID     base.UID
	Kind    string
	Display string // kind and name, as people read them
	Parents []*Op
	Slide   time.Duration
	// Window says how far back of its own time the operator reads its parents' data sets.
	Window time.Duration
	Level  base.StorageLevel
	// Remember says how long data sets are kept; set by the graph.
	Remember time.Duration
	// Build makes the data set of a batch; a nil node means there is none.
	Build func(*Builder) (*Node, error)
	// Advance, of stateful operators, makes the node whose tasks advance the
	// state by a batch. It is called at every slide of the first parent; Build's
	// node then only reads what those tasks put aside.
	Advance func(*Builder) (*Node, error)
	// State says what a stateful operator keeps; nil for the others.
	State *StateInfo
}

// StateInfo says what the state files of an operator are, and which older ones
// the program can read.
type StateInfo struct {
	Schema state.Schema
	From   []state.Schema // that a registered migration reads
	// Repack cuts state into another number of partitions.
	Repack Repack
}

// Repack returns a snapshot of partition part, made of the files of all
// partitions that there were before, oldest first.
type Repack func(partitions [][][]byte, part int) ([]byte, error)

// advances is what is added to an operator's UID to name the data set of its
// advancing node. No name may hold it.
const advances = "/advance"

// AdvanceSet names the data set of op's advancing node at t.
func (op *Op) AdvanceSet(t base.BatchTime) base.DataSet {
	return base.DataSet{UID: op.UID + advances, Time: t}
}

// OfAdvance returns the operator whose advancing node a data set is, if it is one.
func OfAdvance(ds base.DataSet) (base.UID, bool) {
	uid, ok := strings.CutSuffix(string(ds.UID), advances)
	return base.UID(uid), ok
}

// Builder is what an operator's Build sees of a batch.
type Builder struct {
	Time  base.BatchTime
	Scope *Scope
	op    *Op
	l     *Lineage
}

// Parent returns the data set of parent i at the batch's time, nil if there is none.
func (b *Builder) Parent(i int) (*Node, error) { return b.l.DataSet(b.op.Parents[i], b.Time) }

// ParentIn returns the data sets of parent i in (after, b.Time], oldest first.
func (b *Builder) ParentIn(i int, after base.BatchTime) ([]*Node, error) {
	var out []*Node
	for _, t := range b.l.times {
		if t <= after || t > b.Time {
			continue
		}
		n, err := b.l.DataSet(b.op.Parents[i], t)
		if err != nil {
			return nil, err
		}
		if n != nil {
			out = append(out, n)
		}
	}
	return out, nil
}

// Advanced returns the operator's own advancing node at the batch's time.
func (b *Builder) Advanced() (*Node, error) { return b.l.Advance(b.op, b.Time) }

// AdvancedParent returns the advancing node of parent i at the batch's time.
func (b *Builder) AdvancedParent(i int) (*Node, error) {
	return b.l.Advance(b.op.Parents[i], b.Time)
}

// Started reports whether a stateful operator had input in this batch or before.
func (b *Builder) Started() (bool, error) {
	if b.l.started[b.op.UID] {
		return true, nil
	}
	n, err := b.Parent(0)
	return n != nil, err
}

// Input returns what the plan holds for this operator, a source.
func (b *Builder) Input() (Input, bool) { return b.l.batches[b.Time].Input(b.op.UID) }

// Level returns the storage level asked for the operator.
func (b *Builder) Level() base.StorageLevel { return b.op.Level }

// Lineage builds and remembers the data sets of recent batches. Driver and
// every executor have their own and feed them the same plans.
type Lineage struct {
	ops     []*Op
	batches map[base.BatchTime]*Batch
	times   []base.BatchTime // ascending
	failed  map[base.DataSet]bool
	sets    map[base.DataSet]set
	// forgotten is, per operator, the newest released time.
	forgotten map[base.UID]base.BatchTime
	started   map[base.UID]bool
}

type set struct {
	node *Node
	err  error
}

// NewLineage returns a lineage for the given operators, parents first.
func NewLineage(ops []*Op) *Lineage {
	return &Lineage{
		ops:       ops,
		batches:   map[base.BatchTime]*Batch{},
		failed:    map[base.DataSet]bool{},
		sets:      map[base.DataSet]set{},
		forgotten: map[base.UID]base.BatchTime{},
		started:   map[base.UID]bool{},
	}
}

// Add takes in the plan of a batch. Plans come in the order of their times.
func (l *Lineage) Add(b *Batch) error {
	if n := len(l.times); n > 0 && b.Time <= l.times[n-1] {
		return fmt.Errorf("plan: batch %s comes after batch %s: times must increase", b.Time, l.times[n-1])
	}
	l.times = append(l.times, b.Time)
	l.batches[b.Time] = b
	return nil
}

// Batch returns the plan of a remembered batch, or nil.
func (l *Lineage) Batch(t base.BatchTime) *Batch { return l.batches[t] }

// Batches returns the remembered plans in order.
func (l *Lineage) Batches() []*Batch {
	out := make([]*Batch, 0, len(l.times))
	for _, t := range l.times {
		out = append(out, l.batches[t])
	}
	return out
}

// DataSet returns what op produces at t: nil if it has no data set then,
// because t is no slide of it, is not a remembered batch, the source had
// none, or it failed in an earlier run.
func (l *Lineage) DataSet(op *Op, t base.BatchTime) (*Node, error) {
	ds := base.DataSet{UID: op.UID, Time: t}
	if l.batches[t] == nil || !t.IsMultipleOf(op.Slide) || l.failed[ds] {
		return nil, nil
	}
	if s, ok := l.sets[ds]; ok {
		return s.node, s.err
	}
	n, err := l.build(op, ds, op.Build)
	l.sets[ds] = set{n, err}
	return n, err
}

func (l *Lineage) build(op *Op, ds base.DataSet, make func(*Builder) (*Node, error)) (n *Node, err error) {
	defer func() {
		if r := recover(); r != nil { // a Transform function is user code (Invariant 10)
			n = nil
			err = &base.TaskError{Set: ds, Operator: op.Display, Partition: -1, Panic: true, Message: fmt.Sprint(r), Stack: string(debug.Stack())}
		}
	}()
	b := &Builder{Time: ds.Time, op: op, l: l, Scope: &Scope{Set: ds, Op: op.Display}}
	n, err = make(b)
	if n != nil && err == nil && op.Level != base.StorageNone {
		n.SetLevel(op.Level)
	}
	return n, err
}

// Advance returns the node whose tasks advance a stateful operator by the
// batch t, nil if it does not advance then.
func (l *Lineage) Advance(op *Op, t base.BatchTime) (*Node, error) {
	if op.Advance == nil || l.batches[t] == nil || !t.IsMultipleOf(op.Parents[0].Slide) {
		return nil, nil
	}
	ds := op.AdvanceSet(t)
	if s, ok := l.sets[ds]; ok {
		return s.node, s.err
	}
	n, err := l.build(op, ds, op.Advance)
	l.sets[ds] = set{n, err}
	return n, err
}

// SetStarted tells which stateful operators have had input before the batch
// that is added next. It is part of the driver's facts, like failures.
func (l *Lineage) SetStarted(uids []base.UID) {
	for _, uid := range uids {
		l.started[uid] = true
	}
}

// Started reports whether the operator had input before the newest batch.
func (l *Lineage) Started(uid base.UID) bool { return l.started[uid] }

// Fail marks a data set, and all that depends on it at the same time, as
// failed: later readers take it as empty. It must be known to driver and
// executors before anything that may read it is built.
func (l *Lineage) Fail(ds base.DataSet) {
	bad := map[base.UID]bool{ds.UID: true}
	for _, op := range l.ops {
		for _, p := range op.Parents {
			if bad[p.UID] && ds.Time.IsMultipleOf(op.Slide) {
				bad[op.UID] = true
			}
		}
		if bad[op.UID] {
			key := base.DataSet{UID: op.UID, Time: ds.Time}
			l.failed[key] = true
			delete(l.sets, key)
		}
	}
}

// Failed lists the failed data sets that are still remembered, in a fixed order.
func (l *Lineage) Failed() []base.DataSet {
	var out []base.DataSet
	for ds := range l.failed {
		out = append(out, ds)
	}
	slices.SortFunc(out, func(a, b base.DataSet) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.UID, b.UID))
	})
	return out
}

// Released is what a finished batch sets free.
type Released struct {
	// Sets are the data sets whose shuffles and kept partitions are no longer needed.
	Sets []base.DataSet
	// Batches are the times whose plans are no longer needed, so neither are their blocks.
	Batches []base.BatchTime
}

// Ending returns the batches that Release(done) forgets, and the time at or
// before which they are.
func (l *Lineage) Ending(done base.BatchTime) (batches []*Batch, until base.BatchTime) {
	keep := time.Duration(0)
	for _, op := range l.ops {
		keep = max(keep, op.Remember)
	}
	until = done.Add(-keep)
	for _, t := range l.times {
		if t > until {
			break
		}
		batches = append(batches, l.batches[t])
	}
	return batches, until
}

// Release forgets what no batch after done can read any more: of each
// operator the data sets at or before done - Remember, and plans that no
// source has to be read from again (Invariant 5).
func (l *Lineage) Release(done base.BatchTime) Released {
	var rel Released
	for _, op := range l.ops {
		until := done.Add(-op.Remember)
		if key := op.AdvanceSet(done); op.Advance != nil {
			if _, ok := l.sets[key]; ok { // outputs read what it put aside, never itself
				rel.Sets = append(rel.Sets, key)
				delete(l.sets, key)
			}
		}
		for _, t := range l.times {
			if t > until {
				break
			}
			key := base.DataSet{UID: op.UID, Time: t}
			_, built := l.sets[key]
			// What failed may have been built and have run in part before it did.
			if built || l.failed[key] && t > l.forgotten[op.UID] {
				rel.Sets = append(rel.Sets, key)
				delete(l.sets, key)
			}
		}
		l.forgotten[op.UID] = max(l.forgotten[op.UID], until)
	}
	ending, until := l.Ending(done)
	for _, b := range ending {
		delete(l.batches, b.Time)
		rel.Batches = append(rel.Batches, b.Time)
	}
	l.times = slices.Delete(l.times, 0, len(ending))
	for ds := range l.failed {
		if ds.Time <= until {
			delete(l.failed, ds)
		}
	}
	return rel
}

// Held lists the times, ascending, at which op's data set is still in reach.
func (l *Lineage) Held(op *Op) []base.BatchTime {
	var out []base.BatchTime
	for _, t := range l.times {
		if t > l.forgotten[op.UID] && t.IsMultipleOf(op.Slide) {
			out = append(out, t)
		}
	}
	return out
}

// Forget says that op's data sets at or before t are gone: they were released
// before this lineage was made.
func (l *Lineage) Forget(op *Op, t base.BatchTime) {
	l.forgotten[op.UID] = max(l.forgotten[op.UID], t)
}

// Forgotten returns the newest time that op's Slice can no longer reach.
func (l *Lineage) Forgotten(op *Op) base.BatchTime { return l.forgotten[op.UID] }

// Hash covers what the given operators compute at t. Driver and executors
// compare it (Invariant 11).
func (l *Lineage) Hash(t base.BatchTime, ops []*Op) uint64 {
	var h uint64 = 1469598103934665603
	for _, op := range ops {
		n, err := l.DataSet(op, t)
		v := uint64(2)
		switch {
		case err != nil:
			v = 1
		case n != nil:
			v = n.Hash
		}
		h = (h ^ v) * 1099511628211
	}
	return h
}

// Index maps the ids of all nodes that the given nodes are computed from.
func Index(roots []*Node) (nodes map[ID]*Node, shuffles map[string]*Shuffle) {
	nodes, shuffles = map[ID]*Node{}, map[string]*Shuffle{}
	for _, r := range roots {
		Walk(r, func(n *Node) bool {
			if nodes[n.ID] != nil {
				return false
			}
			nodes[n.ID] = n
			for _, s := range n.Shuffles {
				shuffles[s.ID] = s
			}
			return true
		})
	}
	return nodes, shuffles
}

// Walk visits n and what it is computed from, across shuffles. It does not
// go below a node for which visit returns false.
func Walk(n *Node, visit func(*Node) bool) {
	if !visit(n) {
		return
	}
	for _, p := range n.Narrow {
		Walk(p, visit)
	}
	for _, s := range n.Shuffles {
		Walk(s.Parent, visit)
	}
}
