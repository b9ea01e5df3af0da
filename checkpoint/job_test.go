package checkpoint_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
)

// described is a graph of each kind of operator, and what a checkpoint says of it.
func described() (*graph.Graph, checkpoint.Job) {
	now := state.Schema{Key: "string", Value: "int64", Version: 2}
	old := state.Schema{Key: "string", Value: "int64", Version: 1}
	g := graph.New(time.Second)
	g.Remember = time.Minute
	lines := &plan.Op{UID: g.Name("socketText", "lines"), Kind: "socketText", Slide: time.Second}
	files := &plan.Op{UID: g.Name("textFiles", "files"), Kind: "textFiles", Slide: time.Second}
	both := &plan.Op{UID: g.Derived("union", lines, files), Kind: "union", Slide: time.Second, Parents: []*plan.Op{lines, files}}
	counts := &plan.Op{UID: g.Name("updateStateByKey", "counts"), Kind: "updateStateByKey", Slide: time.Second, Parents: []*plan.Op{both}}
	counts.State = &plan.StateInfo{Schema: now, From: []state.Schema{old}}
	last := &plan.Op{UID: g.Derived("window", counts), Kind: "window", Slide: 2 * time.Second, Window: 4 * time.Second, Parents: []*plan.Op{counts}}
	for _, op := range []*plan.Op{lines, files, both, counts, last} {
		g.Add(op)
	}
	g.SetParts("counts", 3)
	g.Sources = []*graph.Source{{Op: lines, Receiver: "a receiver"}, {Op: files}}
	g.Outputs = []*graph.Output{{UID: g.Name("print", "print"), Kind: "print", Input: last}}
	return g, checkpoint.Job{
		Name: "wc", Binary: "aaaa", Interval: time.Second, Remember: time.Minute, Args: []string{"-addr", "h:9"},
		Ops: []checkpoint.Op{
			{UID: "lines", Kind: "socketText", Source: true, Receiver: true, Slide: time.Second, Named: true},
			{UID: "files", Kind: "textFiles", Source: true, Slide: time.Second, Named: true},
			{UID: "lines.union", Kind: "union", Parents: []base.UID{"lines", "files"}, Slide: time.Second},
			{
				UID: "counts", Kind: "updateStateByKey", Parents: []base.UID{"lines.union"}, Slide: time.Second, Named: true,
				State: &checkpoint.OpState{Schema: now, From: []state.Schema{old}, Parts: 3},
			},
			{UID: "counts.window", Kind: "window", Parents: []base.UID{"counts"}, Slide: 2 * time.Second, Window: 4 * time.Second},
		},
		Outputs: []checkpoint.Output{{UID: "print", Kind: "print", Input: "counts.window"}},
	}
}

func TestJobOfAGraph(t *testing.T) {
	g, want := described()
	if d := cmp.Diff(want, checkpoint.JobOf(g, "wc", "aaaa", []string{"-addr", "h:9"})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestAJobIsDataThatMayGrow: it comes back from its encoding as it was, without fields that
// this program does not know, and with zeros for those that an older one did not have.
func TestAJobIsDataThatMayGrow(t *testing.T) {
	_, job := described()
	b, err := msgpack.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	var got checkpoint.Job
	if err := msgpack.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(job, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if v := checkpoint.Classify(got, job, checkpoint.Options{}); v.Kind != checkpoint.Identical {
		t.Errorf("it is not what it was: %s", v)
	}

	var fields map[string]any
	if err := msgpack.Unmarshal(b, &fields); err != nil {
		t.Fatal(err)
	}
	fields["Later"] = []string{"of a newer program"}
	delete(fields, "Outputs")
	if b, err = msgpack.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	got = checkpoint.Job{}
	if err := msgpack.NewDecoder(bytes.NewReader(b)).Decode(&got); err != nil {
		t.Fatal(err)
	}
	job.Outputs = nil
	if d := cmp.Diff(job, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestKindsHaveNames(t *testing.T) {
	for kind, want := range map[checkpoint.Kind]string{
		checkpoint.Identical: "identical", checkpoint.Compatible: "compatible", checkpoint.Incompatible: "incompatible", 9: "kind 9",
	} {
		if kind.String() != want {
			t.Errorf("kind %d is %q, want %q", kind, kind, want)
		}
	}
}
