package checkpoint

import (
	"slices"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/state"
)

// Job is what a checkpoint knows of the program that wrote it. It is encoded by
// field name, so fields may be added: what an older one does not have is zero.
type Job struct {
	Name     string
	Binary   string // digest of the executable
	Interval time.Duration
	Remember time.Duration
	Args     []string
	Ops      []Op // parents first
	Outputs  []Output
}

// Op is an operator of a Job.
type Op struct {
	UID      base.UID
	Kind     string
	Source   bool
	Receiver bool // a source that a receiver feeds
	Parents  []base.UID
	Slide    time.Duration
	Window   time.Duration // how far back it reads its parents' data sets
	State    *OpState      // of stateful operators
	Named    bool          // the UID is the user's, else one of this program alone
}

// OpState is what a stateful operator keeps.
type OpState struct {
	Schema state.Schema
	From   []state.Schema // of older files that the program reads too
	Parts  int
}

// Output is an output of a Job.
type Output struct {
	UID   base.UID
	Kind  string
	Input base.UID
}

// JobOf describes a program by its graph, the digest of its executable and its
// arguments.
func JobOf(g *graph.Graph, name, binary string, args []string) Job {
	j := Job{Name: name, Binary: binary, Interval: g.Interval, Remember: g.Remember, Args: slices.Clone(args)}
	sources := map[base.UID]*graph.Source{}
	for _, s := range g.Sources {
		sources[s.Op.UID] = s
	}
	for _, op := range g.Ops {
		s := sources[op.UID]
		o := Op{
			UID: op.UID, Kind: op.Kind, Source: s != nil, Receiver: s != nil && s.Receiver != nil,
			Slide: op.Slide, Window: op.Window, Named: g.Named(op.UID),
		}
		for _, p := range op.Parents {
			o.Parents = append(o.Parents, p.UID)
		}
		if op.State != nil {
			o.State = &OpState{Schema: op.State.Schema, From: slices.Clone(op.State.From), Parts: g.Parts(op.UID)}
		}
		j.Ops = append(j.Ops, o)
	}
	for _, o := range g.Outputs {
		j.Outputs = append(j.Outputs, Output{UID: o.UID, Kind: o.Kind, Input: o.Input.UID})
	}
	return j
}

// op returns the operator of a UID, or nil.
func (j *Job) op(uid base.UID) *Op {
	for i := range j.Ops {
		if j.Ops[i].UID == uid {
			return &j.Ops[i]
		}
	}
	return nil
}

// output returns the output of a UID, or nil.
func (j *Job) output(uid base.UID) *Output {
	for i := range j.Outputs {
		if j.Outputs[i].UID == uid {
			return &j.Outputs[i]
		}
	}
	return nil
}

// kept lists what is durable of operators: sources and what has state.
func (j *Job) kept() []base.UID {
	var out []base.UID
	for _, op := range j.Ops {
		if op.Source || op.State != nil {
			out = append(out, op.UID)
		}
	}
	return out
}
