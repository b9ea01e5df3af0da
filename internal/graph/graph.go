package graph

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
)

// Graph is one job's operators in the order of their declaration, which puts
// parents before children.
type Graph struct {
	Interval time.Duration
	// Remember is the least time that every data set is kept.
	Remember time.Duration

	Ops     []*plan.Op
	Sources []*Source
	Outputs []*Output
	Values  []*Value
	// Closers close what this copy of the graph opened, at its executor's end.
	Closers []func() error

	names    map[base.UID]string
	derived  map[base.UID]bool // names that are not the user's
	parts    map[base.UID]int
	children map[base.UID]int // for the ordinals of unnamed operators
	errs     []error
	finished bool
}

// Source is where a stream begins: a planner that the driver asks for its
// part of every batch, or a receiver.
type Source struct {
	Op      *plan.Op
	Planner Planner
	// Receiver is a receiver.Runner; nil for planned sources.
	Receiver any
}

// Limit bounds what one source may put into one batch (Invariant 9). Zero
// means no limit. A source always may give one indivisible piece.
type Limit struct {
	Records int64
	Bytes   int64
}

// Planner is the driver's side of a source without receiver. All calls come
// from one goroutine.
type Planner interface {
	// Open is called once, before the first batch. start is when the job was
	// started first, which for one that goes on lies in the past.
	Open(ctx context.Context, start base.BatchTime) error
	// Plan says what the source contributes to the batch t. It must not move
	// the source's position: the plan may still be dropped.
	Plan(ctx context.Context, t base.BatchTime, limit Limit) (plan.Input, error)
	// Planned says that the log holds in, so the position moves on.
	Planned(t base.BatchTime, in plan.Input)
	Close() error
}

// Placer is a planner that can find out which hosts hold what it planned.
type Placer interface {
	// Places returns that for each partition of an input, as far as it is known
	// by the end of ctx. An error may leave out some. Other calls may run at the
	// same time.
	Places(ctx context.Context, in plan.Input) ([][]plan.Place, error)
}

// PastInput is what a source planned for a batch before the driver was started
// anew.
type PastInput struct {
	Time  base.BatchTime
	Input plan.Input
}

// Resumer is a planner that goes on where it was.
type Resumer interface {
	// Resume follows Open if the source was planned before. past holds the newest
	// input, and those before it that are not older than its Recall, in order.
	Resume(past []PastInput) error
}

// Output is an action per batch.
type Output struct {
	UID   base.UID
	Kind  string
	Input *plan.Op
	// Task is an rdd.OutputTask that runs on executors, or nil.
	Task any
	// Run is a driver.OutputRun that runs on the driver.
	Run any
}

// Value is made by the driver for every batch and travels in its plan.
type Value struct {
	UID base.UID
	// Make returns the encoded value for t.
	Make func(ctx context.Context, t base.BatchTime) ([]byte, error)
	// Set hands the encoded value of t to this copy of the graph.
	Set func(t base.BatchTime, data []byte) error
	// Release forgets values of batches at or before t.
	Release func(t base.BatchTime)
}

// New returns an empty graph.
func New(interval time.Duration) *Graph {
	return &Graph{Interval: interval, names: map[base.UID]string{}, derived: map[base.UID]bool{}, parts: map[base.UID]int{}, children: map[base.UID]int{}}
}

// Errorf records a wrong use; [Graph.Finish] returns all of them.
func (g *Graph) Errorf(format string, args ...any) {
	g.errs = append(g.errs, fmt.Errorf(format, args...))
}

// Err returns what was recorded so far.
func (g *Graph) Err() error { return errors.Join(g.errs...) }

// Finished reports whether the graph is closed for additions.
func (g *Graph) Finished() bool { return g.finished }

// Name claims a name for what kind is, and checks its form.
func (g *Graph) Name(kind, name string) base.UID {
	uid := base.UID(name)
	switch {
	case name == "":
		g.Errorf("%s needs a name: it identifies the operator in plans and checkpoints", kind)
	case strings.ContainsAny(name, "/@#\\ \t\r\n") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_"):
		g.Errorf("%s %q: a name must not hold '/', '@', '#', '\\' or white space, nor start with '.' or '_'", kind, name)
	case g.names[uid] != "":
		g.Errorf("%s %q: the name is taken by another %s", kind, name, g.names[uid])
	}
	g.names[uid] = kind
	return uid
}

// Derived gives an unnamed stateless operator its UID from parent, kind and
// ordinal. It is used in displays and within a run only.
func (g *Graph) Derived(kind string, parents ...*plan.Op) base.UID {
	from := ""
	if len(parents) > 0 {
		from = string(parents[0].UID) + "."
	}
	first := base.UID(from + kind)
	uid := first
	for { // a user's name may look like a derived one
		g.children[first]++
		if n := g.children[first]; n > 1 {
			uid = base.UID(fmt.Sprintf("%s-%d", first, n))
		}
		if g.names[uid] == "" {
			break
		}
	}
	g.names[uid] = kind
	g.derived[uid] = true
	return uid
}

// Named reports whether a UID is one that the user gave. Only those mean the same in
// another version of the program.
func (g *Graph) Named(uid base.UID) bool { return g.names[uid] != "" && !g.derived[uid] }

// SetParts tells into how many partitions a stateful operator is cut.
func (g *Graph) SetParts(uid base.UID, n int) { g.parts[uid] = n }

// Parts returns the number of partitions of a stateful operator, 0 of others.
func (g *Graph) Parts(uid base.UID) int { return g.parts[uid] }

// Add appends an operator.
func (g *Graph) Add(op *plan.Op) { g.Ops = append(g.Ops, op) }

// Finish closes the graph: it checks the whole and works out retention.
func (g *Graph) Finish() error {
	g.finished = true
	if len(g.errs) > 0 {
		return g.Err()
	}
	g.retention()
	return nil
}

// CheckOutputs returns an error if there is nothing to execute.
func (g *Graph) CheckOutputs() error {
	if len(g.Outputs) == 0 {
		return errors.New("no output operations registered, so nothing to execute: add Print, ForeachBatch, SaveAsTextFiles or another output")
	}
	return nil
}

// retention sets Remember of every operator. An operator keeps its data sets
// for its slide or the context's duration, if that is longer; a parent as
// long as its children, and longer by the window of a windowing child
// (Spark 4.2: parent remember = own remember + window).
func (g *Graph) retention() {
	for _, op := range g.Ops {
		op.Remember = max(op.Slide, g.Remember)
	}
	for i := len(g.Ops) - 1; i >= 0; i-- {
		op := g.Ops[i]
		if op.Advance != nil {
			continue // state holds what it needs of the past: parents are read once
		}
		for _, p := range op.Parents {
			p.Remember = max(p.Remember, op.Remember+op.Window)
		}
	}
}

// Describe is the canonical text of the graph: one line per operator, value and output.
func (g *Graph) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "interval %v remember %v\n", g.Interval, g.Remember)
	sources := map[*plan.Op]string{}
	for _, s := range g.Sources {
		sources[s.Op] = "source"
		if s.Receiver != nil {
			sources[s.Op] = "receiver"
		}
	}
	for _, op := range g.Ops {
		kind := "op"
		if s := sources[op]; s != "" {
			kind = s
		}
		fmt.Fprintf(&b, "%s %s kind=%s slide=%v", kind, op.UID, op.Kind, op.Slide)
		if op.Window > 0 {
			fmt.Fprintf(&b, " window=%v", op.Window)
		}
		if op.Advance != nil {
			b.WriteString(" stateful")
			if op.State != nil { // so that programs with other state have other fingerprints
				fmt.Fprintf(&b, "=%q", op.State.Schema)
			}
		}
		if op.Level != base.StorageNone {
			fmt.Fprintf(&b, " persist=%v", op.Level)
		}
		for i, p := range op.Parents {
			sep := ","
			if i == 0 {
				sep = " from="
			}
			b.WriteString(sep + string(p.UID))
		}
		b.WriteByte('\n')
	}
	for _, v := range g.Values {
		fmt.Fprintf(&b, "value %s\n", v.UID)
	}
	for _, o := range g.Outputs {
		fmt.Fprintf(&b, "output %s kind=%s from=%s\n", o.UID, o.Kind, o.Input.UID)
	}
	return b.String()
}

// Fingerprint is the hash of the canonical text.
func (g *Graph) Fingerprint() uint64 { return xxhash.Sum64String(g.Describe()) }

// Diff says in one line per difference what other has that g has not, and the
// reverse. It is empty for equal graphs.
func (g *Graph) Diff(other *Graph) string {
	a, b := lines(g.Describe()), lines(other.Describe())
	var out strings.Builder
	for _, l := range a.order {
		if !b.has[l] {
			out.WriteString("- " + l + "\n")
		}
	}
	for _, l := range b.order {
		if !a.has[l] {
			out.WriteString("+ " + l + "\n")
		}
	}
	if out.Len() == 0 && g.Describe() != other.Describe() {
		return "operators are declared in another order\n"
	}
	return out.String()
}

type lineSet struct {
	order []string
	has   map[string]bool
}

func lines(text string) lineSet {
	s := lineSet{has: map[string]bool{}}
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		s.order = append(s.order, l)
		s.has[l] = true
	}
	return s
}

// Op returns the operator with the given UID, or nil.
func (g *Graph) Op(uid base.UID) *plan.Op {
	for _, op := range g.Ops {
		if op.UID == uid {
			return op
		}
	}
	return nil
}

// Output returns the output with the given UID, or nil.
func (g *Graph) Output(uid base.UID) *Output {
	for _, o := range g.Outputs {
		if o.UID == uid {
			return o
		}
	}
	return nil
}
