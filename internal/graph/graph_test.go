package graph_test

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
)

var update = flag.Bool("update", false, "rewrite the golden output of testdata")

const s = time.Second

// add declares an operator whose slide is that of its first parent unless
// slide is given.
func add(g *graph.Graph, uid base.UID, slide, window time.Duration, parents ...*plan.Op) *plan.Op {
	if slide == 0 {
		slide = parents[0].Slide
	}
	op := &plan.Op{UID: uid, Kind: "map", Slide: slide, Window: window, Parents: parents}
	g.Add(op)
	return op
}

// TestRetentionIsSparks: an operator keeps its data sets for its slide or the
// context's duration; a parent as long as its children, and longer by a
// child's window (Spark 4.2: parent remember = own remember + window).
func TestRetentionIsSparks(t *testing.T) {
	for name, test := range map[string]struct {
		remember time.Duration
		build    func(g *graph.Graph)
		want     map[base.UID]time.Duration
	}{
		"a chain": {build: func(g *graph.Graph) {
			add(g, "b", 0, 0, add(g, "a", s, 0))
		}, want: map[base.UID]time.Duration{"a": s, "b": s}},
		"a window": {build: func(g *graph.Graph) {
			add(g, "w", 2*s, 10*s, add(g, "a", s, 0))
		}, want: map[base.UID]time.Duration{"a": 12 * s, "w": 2 * s}},
		"a window of a window": {build: func(g *graph.Graph) {
			add(g, "v", 4*s, 8*s, add(g, "w", 2*s, 4*s, add(g, "a", s, 0)))
		}, want: map[base.UID]time.Duration{"a": 16 * s, "w": 12 * s, "v": 4 * s}},
		"below a window": {build: func(g *graph.Graph) {
			add(g, "b", 0, 0, add(g, "w", 2*s, 4*s, add(g, "m", 0, 0, add(g, "a", s, 0))))
		}, want: map[base.UID]time.Duration{"a": 6 * s, "m": 6 * s, "w": 2 * s, "b": 2 * s}},
		"the most of two children": {build: func(g *graph.Graph) {
			a := add(g, "a", s, 0)
			add(g, "w", s, 9*s, a)
			add(g, "v", 5*s, 6*s, a)
		}, want: map[base.UID]time.Duration{"a": 11 * s, "w": s, "v": 5 * s}},
		"two parents": {build: func(g *graph.Graph) {
			a, b := add(g, "a", s, 0), add(g, "b", s, 0)
			add(g, "w", s, 3*s, add(g, "u", 0, 0, a, b))
		}, want: map[base.UID]time.Duration{"a": 4 * s, "b": 4 * s, "u": 4 * s, "w": s}},
		"a context that remembers": {remember: 7 * s, build: func(g *graph.Graph) {
			add(g, "w", 2*s, 10*s, add(g, "a", s, 0))
		}, want: map[base.UID]time.Duration{"a": 17 * s, "w": 7 * s}},
		"a context that remembers less": {remember: s, build: func(g *graph.Graph) {
			add(g, "w", 2*s, 10*s, add(g, "a", s, 0))
		}, want: map[base.UID]time.Duration{"a": 12 * s, "w": 2 * s}},
	} {
		g := graph.New(s)
		g.Remember = test.remember
		test.build(g)
		if err := g.Finish(); err != nil {
			t.Fatal(err)
		}
		got := map[base.UID]time.Duration{}
		for _, op := range g.Ops {
			got[op.UID] = op.Remember
		}
		if d := cmp.Diff(test.want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
}

func TestNamesAreChecked(t *testing.T) {
	for name, ok := range map[string]bool{
		"lines": true, "a.b-c:1": true, "größe": true,
		"": false, "a/b": false, "a@b": false, "a#b": false, `a\b`: false, "a b": false, "a\tb": false, "a\nb": false, ".a": false, "_a": false,
	} {
		g := graph.New(s)
		if uid := g.Name("source", name); string(uid) != name {
			t.Errorf("name %q gives uid %q", name, uid)
		}
		if err := g.Err(); (err == nil) != ok || !ok && !strings.Contains(err.Error(), "source") {
			t.Errorf("name %q: %v, want it accepted: %v", name, err, ok)
		}
	}
	g := graph.New(s)
	g.Name("source", "x")
	g.Name("output", "x")
	if err := g.Finish(); err == nil || !strings.Contains(err.Error(), `output "x"`) || !strings.Contains(err.Error(), "another source") {
		t.Errorf("error %v, want one that names both uses", err)
	}
}

func TestFinishTellsAllErrors(t *testing.T) {
	g := graph.New(s)
	if g.Finished() {
		t.Error("a new graph is finished")
	}
	bad := errors.New("cause")
	g.Errorf("first")
	g.Errorf("second: %w", bad)
	err := g.Finish()
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), "first") || !g.Finished() {
		t.Errorf("error %v, finished %v", err, g.Finished())
	}
}

func TestDerivedUIDs(t *testing.T) {
	g := graph.New(s)
	a := &plan.Op{UID: "a"}
	b := &plan.Op{UID: "b"}
	var got []base.UID
	for range 3 {
		got = append(got, g.Derived("map", a, b))
	}
	got = append(got, g.Derived("map", b), g.Derived("filter", a), g.Derived("source"), g.Derived("map", &plan.Op{UID: got[1]}))
	want := []base.UID{"a.map", "a.map-2", "a.map-3", "b.map", "a.filter", "source", "a.map-2.map"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A name that looks like a derived one gave two operators one UID, so that one
// read the data sets of the other.
func TestDerivedUIDsKeepClearOfNames(t *testing.T) {
	g := graph.New(s)
	a := &plan.Op{UID: "a"}
	g.Name("source", "a.map")
	g.Name("source", "a.map-3")
	if first, second := g.Derived("map", a), g.Derived("map", a); first != "a.map-2" || second != "a.map-4" {
		t.Errorf("derived %s and %s, want a.map-2 and a.map-4", first, second)
	}
	if err := g.Err(); err != nil {
		t.Error(err)
	}
	g.Name("output", "a.map-2")
	if g.Err() == nil {
		t.Error("a name that was derived before is accepted")
	}
}

// TestNamedTellsTheUsersNames from derived ones.
func TestNamedTellsTheUsersNames(t *testing.T) {
	g := graph.New(s)
	uid := g.Name("source", "lines")
	derived := g.Derived("map", &plan.Op{UID: uid})
	for uid, want := range map[base.UID]bool{uid: true, derived: false, "other": false} {
		if g.Named(uid) != want {
			t.Errorf("%q is named: %t, want %t", uid, !want, want)
		}
	}
	g.SetParts("lines", 3)
	if g.Parts("lines") != 3 || g.Parts(derived) != 0 {
		t.Errorf("partitions %d and %d, want 3 and 0", g.Parts("lines"), g.Parts(derived))
	}
}

func describable() *graph.Graph {
	g := graph.New(s)
	g.Remember = 3 * s
	lines := add(g, "lines", s, 0)
	lines.Kind = "socketText"
	g.Sources = append(g.Sources, &graph.Source{Op: lines, Receiver: "a receiver"})
	files := add(g, "files", s, 0)
	files.Kind = "textFiles"
	g.Sources = append(g.Sources, &graph.Source{Op: files})
	both := add(g, "both", 0, 0, lines, files)
	both.Kind, both.Level = "union", base.MemoryAndDisk
	counts := add(g, "counts", 0, 0, both)
	counts.Kind, counts.Advance = "updateStateByKey", func(*plan.Builder) (*plan.Node, error) { return nil, nil }
	counts.State = &plan.StateInfo{Schema: state.Schema{Key: "string", Value: "int64", Version: 2}}
	w := add(g, "w", 2*s, 4*s, both)
	w.Kind = "window"
	g.Values = append(g.Values, &graph.Value{UID: "limits"})
	g.Outputs = append(g.Outputs, &graph.Output{UID: "print", Kind: "print", Input: w}, &graph.Output{UID: "save", Kind: "saveAsTextFiles", Input: both})
	return g
}

func TestDescribe(t *testing.T) {
	const file = "testdata/describe.txt"
	got := describable().Describe()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestFingerprintAndDiff(t *testing.T) {
	one := describable()
	if other := describable(); one.Fingerprint() != other.Fingerprint() || one.Diff(other) != "" {
		t.Errorf("equal graphs differ: %s", one.Diff(other))
	}
	for name, test := range map[string]struct {
		change func(g *graph.Graph)
		want   string
	}{
		"a kind":   {func(g *graph.Graph) { g.Ops[1].Kind = "kafka" }, "- source files kind=textFiles slide=1s\n+ source files kind=kafka slide=1s\n"},
		"a window": {func(g *graph.Graph) { g.Ops[4].Window = 6 * s }, "- op w kind=window slide=2s window=4s from=both\n+ op w kind=window slide=2s window=6s from=both\n"},
		"a level": {
			func(g *graph.Graph) { g.Ops[2].Level = base.DiskOnly },
			"- op both kind=union slide=1s persist=memory-and-disk from=lines,files\n+ op both kind=union slide=1s persist=disk from=lines,files\n",
		},
		"a parent":  {func(g *graph.Graph) { g.Ops[4].Parents = g.Ops[:1] }, "- op w kind=window slide=2s window=4s from=both\n+ op w kind=window slide=2s window=4s from=lines\n"},
		"an output": {func(g *graph.Graph) { g.Outputs = g.Outputs[:1] }, "- output save kind=saveAsTextFiles from=both\n"},
		"a schema": {
			func(g *graph.Graph) { g.Ops[3].State.Schema.Version = 3 },
			"- op counts kind=updateStateByKey slide=1s stateful=\"keys string, values int64, version 2\" from=both\n" +
				"+ op counts kind=updateStateByKey slide=1s stateful=\"keys string, values int64, version 3\" from=both\n",
		},
		"a value":     {func(g *graph.Graph) { g.Values = append(g.Values, &graph.Value{UID: "more"}) }, "+ value more\n"},
		"an interval": {func(g *graph.Graph) { g.Interval = 2 * s }, "- interval 1s remember 3s\n+ interval 2s remember 3s\n"},
		"a receiver":  {func(g *graph.Graph) { g.Sources[0].Receiver = nil }, "- receiver lines kind=socketText slide=1s\n+ source lines kind=socketText slide=1s\n"},
		"an order": {
			func(g *graph.Graph) { g.Outputs[0], g.Outputs[1] = g.Outputs[1], g.Outputs[0] },
			"operators are declared in another order\n",
		},
	} {
		other := describable()
		test.change(other)
		if d := cmp.Diff(test.want, one.Diff(other)); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
		if one.Fingerprint() == other.Fingerprint() {
			t.Errorf("%s does not show in the fingerprint", name)
		}
	}
}

func TestLookUp(t *testing.T) {
	g := describable()
	if g.Op("w") != g.Ops[4] || g.Op("print") != nil || g.Output("save") != g.Outputs[1] || g.Output("w") != nil {
		t.Error("found another one")
	}
	if err := g.CheckOutputs(); err != nil {
		t.Error(err)
	}
	if err := graph.New(s).CheckOutputs(); err == nil || !strings.Contains(err.Error(), "no output operations") {
		t.Errorf("error %v, want one about missing outputs", err)
	}
}
