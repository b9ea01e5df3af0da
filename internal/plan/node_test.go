package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
)

const second = base.BatchTime(1000)

func scope(uid base.UID, t base.BatchTime) *plan.Scope {
	return &plan.Scope{Set: base.DataSet{UID: uid, Time: t}, Op: string(uid)}
}

// TestHashTellsWhatDiffers: driver and executors compare it (Invariant 11).
func TestHashTellsWhatDiffers(t *testing.T) {
	parent := func() *plan.Node { return scope("p", second).NewNode(plan.NodeSpec{Kind: "source", Parts: 2}) }
	other := func() *plan.Node { return scope("q", second).NewNode(plan.NodeSpec{Kind: "source", Parts: 2}) }
	narrow := func(ps ...*plan.Node) *plan.Node {
		return scope("n", second).NewNode(plan.NodeSpec{Kind: "k", Narrow: ps})
	}
	shuffled := func(parts int, ps ...*plan.Node) *plan.Node {
		spec := plan.NodeSpec{Kind: "k"}
		for _, p := range ps {
			spec.Shuffles = append(spec.Shuffles, &plan.Shuffle{Parent: p, Parts: parts})
		}
		return scope("n", second).NewNode(spec)
	}
	one := func(spec plan.NodeSpec) *plan.Node { return scope("n", second).NewNode(spec) }
	leveled := func(level base.StorageLevel) *plan.Node {
		n := one(plan.NodeSpec{Kind: "k"})
		n.SetLevel(level)
		return n
	}
	builds := map[string]func() *plan.Node{
		"plain":          func() *plan.Node { return one(plan.NodeSpec{Kind: "k"}) },
		"kind":           func() *plan.Node { return one(plan.NodeSpec{Kind: "k2"}) },
		"parts":          func() *plan.Node { return one(plan.NodeSpec{Kind: "k", Parts: 1}) },
		"partitioner":    func() *plan.Node { return one(plan.NodeSpec{Kind: "k", Partitioner: "p"}) },
		"extra":          func() *plan.Node { return one(plan.NodeSpec{Kind: "k", Extra: "p"}) },
		"kind and extra": func() *plan.Node { return one(plan.NodeSpec{Kind: "kp"}) },
		"level":          func() *plan.Node { return leveled(base.MemoryOnly) },
		"other level":    func() *plan.Node { return leveled(base.DiskOnly) },
		"data set":       func() *plan.Node { return scope("m", second).NewNode(plan.NodeSpec{Kind: "k"}) },
		"time":           func() *plan.Node { return scope("n", 2*second).NewNode(plan.NodeSpec{Kind: "k"}) },
		"index": func() *plan.Node {
			s := scope("n", second)
			s.NewNode(plan.NodeSpec{Kind: "k"})
			return s.NewNode(plan.NodeSpec{Kind: "k"})
		},
		"narrow":          func() *plan.Node { return narrow(parent()) },
		"narrow, other":   func() *plan.Node { return narrow(other()) },
		"narrow, both":    func() *plan.Node { return narrow(parent(), other()) },
		"narrow, swapped": func() *plan.Node { return narrow(other(), parent()) },
		"narrow, twice":   func() *plan.Node { return narrow(parent(), parent()) },
		"shuffle":         func() *plan.Node { return shuffled(2, parent()) },
		"shuffle to 3":    func() *plan.Node { return shuffled(3, parent()) },
		"shuffle, both":   func() *plan.Node { return shuffled(2, parent(), other()) },
		"far": func() *plan.Node {
			return narrow(narrow(scope("p", second).NewNode(plan.NodeSpec{Kind: "source", Parts: 3})))
		},
		"near": func() *plan.Node { return narrow(narrow(parent())) },
	}
	seen := map[uint64]string{}
	for name, build := range builds {
		n := build()
		if again := build().Hash; again != n.Hash {
			t.Errorf("%s: two equal nodes have hashes %x and %x", name, n.Hash, again)
		}
		if o, ok := seen[n.Hash]; ok {
			t.Errorf("%s and %s have the same hash", name, o)
		}
		seen[n.Hash] = name
	}
}

func lineage(parts int, bad bool) (*plan.Lineage, []*plan.Op) {
	src := &plan.Op{UID: "src", Slide: time.Second, Build: func(b *plan.Builder) (*plan.Node, error) {
		in, ok := b.Input()
		if !ok {
			return nil, nil
		}
		return b.Scope.NewNode(plan.NodeSpec{Kind: "source", Parts: in.Parts, Extra: fmt.Sprint(b.Level())}), nil
	}}
	twice := &plan.Op{UID: "twice", Slide: 2 * time.Second, Parents: []*plan.Op{src}, Level: base.DiskOnly, Build: func(b *plan.Builder) (*plan.Node, error) {
		if bad {
			return nil, fmt.Errorf("bad")
		}
		p, err := b.Parent(0)
		if p == nil {
			return nil, err
		}
		return b.Scope.NewNode(plan.NodeSpec{Kind: "map", Narrow: []*plan.Node{p}}), err
	}}
	ops := []*plan.Op{src, twice}
	l := plan.NewLineage(ops)
	for i := base.BatchTime(1); i < 5; i++ {
		if err := l.Add(&plan.Batch{Time: i * second, Inputs: []plan.Input{{UID: "src", Parts: parts}}}); err != nil {
			panic(err)
		}
	}
	return l, ops
}

func TestLineageHash(t *testing.T) {
	hash := func(parts int, bad bool, at base.BatchTime) uint64 {
		l, ops := lineage(parts, bad)
		return l.Hash(at, ops)
	}
	want := hash(2, false, 2*second)
	if got := hash(2, false, 2*second); got != want {
		t.Errorf("equal lineages have hashes %x and %x", want, got)
	}
	for name, got := range map[string]uint64{
		"partitions":  hash(3, false, 2*second),
		"an error":    hash(2, true, 2*second),
		"no data set": hash(2, false, 1*second),
		"a time":      hash(2, false, 4*second),
	} {
		if got == want {
			t.Errorf("%s does not show in the hash", name)
		}
	}
	l, ops := lineage(2, false)
	if l.Hash(2*second, ops) == l.Hash(2*second, []*plan.Op{ops[1], ops[0]}) || l.Hash(2*second, ops) == l.Hash(2*second, ops[:1]) {
		t.Error("the operators do not show in the hash")
	}
	l.Fail(base.DataSet{UID: "src", Time: 2 * second})
	if l.Hash(2*second, ops) == want {
		t.Error("a failure does not show in the hash")
	}
}

func TestDataSetsAreBuiltOnceAndKeptAtTheirLevel(t *testing.T) {
	l, ops := lineage(2, false)
	a, err := l.DataSet(ops[1], 2*second)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := l.DataSet(ops[1], 2*second); a != b {
		t.Error("the data set was built twice")
	}
	if a.Level != base.DiskOnly || a.Narrow[0].Level != base.StorageNone {
		t.Errorf("levels %s and %s, want that of the operator and none", a.Level, a.Narrow[0].Level)
	}
}

func TestIndexFindsEverythingOnce(t *testing.T) {
	src := scope("src", second).NewNode(plan.NodeSpec{Kind: "source", Parts: 1})
	n := src
	for i := range 40 { // 2^40 paths
		n = scope(base.UID(fmt.Sprint("u", i)), second).NewNode(plan.NodeSpec{Kind: "twice", Narrow: []*plan.Node{n, n}, Shuffles: []*plan.Shuffle{{Parent: n}}})
	}
	nodes, shuffles := plan.Index([]*plan.Node{n, src})
	if len(nodes) != 41 || len(shuffles) != 40 || nodes[src.ID] != src || shuffles[n.Shuffles[0].ID] != n.Shuffles[0] {
		t.Errorf("%d nodes and %d shuffles, want 41 and 40", len(nodes), len(shuffles))
	}
	if got := len(plan.Stages(n, plan.All(1), func(*plan.Node) bool { return true })); got != 41 {
		t.Errorf("%d stages, want 41", got)
	}
	if id := n.ID.String(); id != "u39@1970-01-01T00:00:01.000Z#0" || n.Shuffles[0].ID != id+"/0" || n.Shuffles[0].Set != n.ID.Set {
		t.Errorf("ids %s and %s", id, n.Shuffles[0].ID)
	}
}

func TestBatchInputs(t *testing.T) {
	b := plan.Batch{Inputs: []plan.Input{{UID: "a", Records: 5}, {UID: "b", Records: -1}, {UID: "c", Records: 7}}}
	if in, ok := b.Input("c"); !ok || in.Records != 7 {
		t.Errorf("input c: %+v, %v", in, ok)
	}
	if _, ok := b.Input("d"); ok {
		t.Error("there is no input d")
	}
	if n := b.Records(); n != 12 {
		t.Errorf("%d records, want 12: an unknown number counts as none", n)
	}
}
