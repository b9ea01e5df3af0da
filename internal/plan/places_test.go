package plan_test

import (
	"slices"
	"testing"

	"github.com/tidemill/tidemill/internal/plan"
)

// located says where the partitions of some nodes are.
type located map[*plan.Node][][]plan.Place

func (l located) at(n *plan.Node, part int) ([]plan.Place, bool) {
	if l[n] == nil {
		return nil, false
	}
	return l[n][part], true
}

func TestPlacesAreThoseOfWhatAPartitionIsComputedFrom(t *testing.T) {
	s := scope("s", second)
	node := func(from func(int, func(*plan.Node, int)), parents ...*plan.Node) *plan.Node {
		return s.NewNode(plan.NodeSpec{Kind: "k", Parts: 2, Narrow: parents, From: from})
	}
	a, b, unknown := node(nil), node(nil), node(nil)
	l := located{
		a: {{{Name: "h1", Bytes: 30}, {Name: "h2", Bytes: 30}}, {{Name: "h3", Bytes: 9}}},
		b: {{{Name: "h2", Bytes: 1}}, nil},
	}
	joined := node(nil, a, b)
	union := s.NewNode(plan.NodeSpec{Kind: "union", Parts: 4, Narrow: []*plan.Node{a, b}, From: func(part int, visit func(*plan.Node, int)) {
		visit([]*plan.Node{a, b}[part/2], part%2)
	}})
	merged := s.NewNode(plan.NodeSpec{Kind: "coalesce", Parts: 1, Narrow: []*plan.Node{a}, From: func(_ int, visit func(*plan.Node, int)) {
		visit(a, 0)
		visit(a, 1)
	}})
	kept := node(nil, a)
	l[kept] = [][]plan.Place{{{Name: "e1", Bytes: 1}}, {{Name: "e2", Bytes: 1}}}
	shuffled := s.NewNode(plan.NodeSpec{Kind: "k", Parts: 2, Shuffles: []*plan.Shuffle{{Parent: a, Parts: 2}}})

	for what, c := range map[string]struct {
		n    *plan.Node
		part int
		want []string
	}{
		"its own":                      {a, 0, []string{"h1", "h2"}},
		"a chain":                      {node(nil, node(nil, a)), 1, []string{"h3"}},
		"most bytes of two first":      {joined, 0, []string{"h2", "h1"}},
		"one of two is nowhere":        {joined, 1, []string{"h3"}},
		"union, first":                 {union, 1, []string{"h3"}},
		"union, second":                {node(nil, union), 2, []string{"h2"}},
		"merged":                       {merged, 0, []string{"h1", "h2", "h3"}},
		"kept, not what it is made of": {node(nil, kept), 1, []string{"e2"}},
		"kept is one of two":           {node(nil, kept, b), 0, []string{"e1", "h2"}},
		"nothing is known":             {node(nil, unknown), 0, nil},
		"a shuffle is everywhere":      {node(nil, shuffled), 0, nil},
	} {
		if got := plan.Places(c.n, c.part, l.at); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// Two ways to a partition count once, and many ways take no time.
func TestPlacesVisitsAPartitionOnce(t *testing.T) {
	s := scope("s", second)
	a := s.NewNode(plan.NodeSpec{Kind: "a", Parts: 1})
	b := s.NewNode(plan.NodeSpec{Kind: "b", Parts: 1})
	n := s.NewNode(plan.NodeSpec{Kind: "k", Parts: 1, Narrow: []*plan.Node{a, b}})
	for range 100 {
		n = s.NewNode(plan.NodeSpec{Kind: "k", Parts: 1, Narrow: []*plan.Node{n, n, a}})
	}
	l := located{a: {{{Name: "h1", Bytes: 2}}}, b: {{{Name: "h2", Bytes: 3}}}}
	asked := 0
	got := plan.Places(n, 0, func(n *plan.Node, part int) ([]plan.Place, bool) {
		if asked++; asked > 1000 {
			t.Fatal("the ways do not end")
		}
		return l.at(n, part)
	})
	if want := []string{"h2", "h1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q: a partition counts once", got, want)
	}
}

func TestAChainWithoutPlacesAllocatesLittle(t *testing.T) {
	s := scope("s", second)
	n := s.NewNode(plan.NodeSpec{Kind: "a", Parts: 1})
	for range 20 {
		n = s.NewNode(plan.NodeSpec{Kind: "k", Parts: 1, Narrow: []*plan.Node{n}})
	}
	nowhere := func(*plan.Node, int) ([]plan.Place, bool) { return nil, false }
	if got := testing.AllocsPerRun(100, func() { plan.Places(n, 0, nowhere) }); got > 1 {
		t.Errorf("%v allocations", got)
	}
}

func TestHostsAreComparedByTheFirstPartOfTheirNames(t *testing.T) {
	for host, want := range map[string]string{
		"dn1": "dn1", "DN1.example.org": "dn1", "127.0.0.1": "127.0.0.1", "::1": "::1", "": "",
	} {
		if got := plan.HostName(host); got != want {
			t.Errorf("HostName(%q) = %q, want %q", host, got, want)
		}
	}
}
