package main

import (
	"cmp"
	"slices"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
)

// summary is what a checkpoint holds, for programs that read it as JSON. Fields
// may be added. Times are RFC 3339, sizes bytes.
type summary struct {
	Job       jobSummary      `json:"job"`
	Run       string          `json:"run"`
	Epoch     base.Epoch      `json:"epoch"`
	Started   string          `json:"started"`
	Seq       uint64          `json:"seq"`    // of the newest event
	Events    int64           `json:"events"` // after the newest good snapshot
	First     string          `json:"first,omitempty"`
	Last      string          `json:"last,omitempty"`
	Ended     int64           `json:"ended"`
	Failed    int64           `json:"failed"`
	Lost      int64           `json:"lost_records"`
	Pending   []batchSummary  `json:"pending"`
	Held      []batchSummary  `json:"held"`
	Streams   []streamSummary `json:"streams"`
	Sources   []sourceSummary `json:"sources"`
	State     []stateSummary  `json:"state"`
	Snapshots []snapshotFile  `json:"snapshots"`
	Torn      []tornSummary   `json:"torn"`
}

type jobSummary struct {
	Name       string   `json:"name"`
	Binary     string   `json:"binary"`
	IntervalMs int64    `json:"interval_ms"`
	Args       []string `json:"args"`
	Operators  int      `json:"operators"`
	Outputs    []string `json:"outputs"`
}

type batchSummary struct {
	Time        string         `json:"time"`
	Records     int64          `json:"records"` // that the sources know of
	Inputs      []inputSummary `json:"inputs"`
	OutputsDone []string       `json:"outputs_done,omitempty"`
}

type inputSummary struct {
	Source  string `json:"source"`
	Absent  bool   `json:"absent,omitempty"`
	Records int64  `json:"records"` // -1: unknown
	Bytes   int64  `json:"bytes"`   // -1: unknown
	Parts   int    `json:"parts"`
	Blocks  int    `json:"blocks"`
	Lost    int    `json:"lost_blocks,omitempty"`
}

type streamSummary struct {
	Name     string     `json:"name"`
	Epoch    base.Epoch `json:"epoch"`
	Counter  uint64     `json:"counter"` // of the newest block of the epoch
	Position []byte     `json:"position,omitempty"`
	Rate     float64    `json:"rate,omitempty"`
	Blocks   int        `json:"waiting_blocks"`
	Records  int64      `json:"waiting_records"`
	Bytes    int64      `json:"waiting_bytes"`
}

type sourceSummary struct {
	Name  string `json:"name"`
	Last  string `json:"last_batch"`
	Plans int    `json:"plans"`
	Data  []byte `json:"data,omitempty"` // of the newest plan
}

type stateSummary struct {
	Operator string `json:"operator"`
	Parts    int    `json:"parts"`
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"`
	Version  string `json:"version"`
	Keys     string `json:"keys"`
	Values   string `json:"values"`
	Schema   int    `json:"schema_version"`
}

type tornSummary struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

func summaryOf(f *driver.Facts, found driver.Found, snapshots []snapshotFile) summary {
	s := summary{
		Job: jobOf(f.Job), Run: f.Run, Epoch: f.Epoch, Started: f.Started.String(), Seq: found.Seq, Events: found.Events,
		First: timeText(f.First), Last: timeText(f.Last), Ended: f.Done, Failed: f.Failed, Lost: f.Lost,
		Pending: []batchSummary{}, Held: []batchSummary{}, Streams: []streamSummary{}, Sources: []sourceSummary{},
		State: statesOf(f), Snapshots: snapshots, Torn: []tornSummary{},
	}
	for _, p := range f.Pending {
		b := batchOf(p.Batch)
		b.OutputsDone = names(p.Outputs)
		s.Pending = append(s.Pending, b)
	}
	for _, b := range f.Held {
		s.Held = append(s.Held, batchOf(b))
	}
	for _, x := range f.Streams {
		s.Streams = append(s.Streams, streamOf(x))
	}
	for _, x := range f.Sources {
		if n := len(x.Past); n > 0 {
			last := x.Past[n-1]
			s.Sources = append(s.Sources, sourceSummary{Name: string(x.Source), Last: last.Time.String(), Plans: n, Data: last.Input.Data})
		}
	}
	for _, t := range found.Torn {
		s.Torn = append(s.Torn, tornSummary{t.File, t.Offset, t.Bytes})
	}
	return s
}

func jobOf(j checkpoint.Job) jobSummary {
	s := jobSummary{Name: j.Name, Binary: j.Binary, IntervalMs: j.Interval.Milliseconds(), Args: append([]string{}, j.Args...), Operators: len(j.Ops), Outputs: []string{}}
	for _, o := range j.Outputs {
		s.Outputs = append(s.Outputs, string(o.UID))
	}
	return s
}

func batchOf(b plan.Batch) batchSummary {
	s := batchSummary{Time: b.Time.String(), Records: b.Records(), Inputs: []inputSummary{}}
	for _, in := range b.Inputs {
		i := inputSummary{Source: string(in.UID), Absent: in.Absent, Records: in.Records, Bytes: in.Bytes, Parts: in.Parts, Blocks: len(in.Blocks)}
		for _, b := range in.Blocks {
			if b.Lost {
				i.Lost++
			}
		}
		s.Inputs = append(s.Inputs, i)
	}
	return s
}

func streamOf(x driver.StreamFacts) streamSummary {
	s := streamSummary{Name: string(x.Stream), Epoch: x.Epoch, Position: x.Position, Rate: x.Rate, Blocks: len(x.Waiting)}
	for _, h := range x.High {
		if h.Epoch == x.Epoch {
			s.Counter = h.Counter
		}
	}
	for _, b := range x.Waiting {
		s.Records += int64(b.Records)
		s.Bytes += b.Bytes
	}
	return s
}

// statesOf adds up the partitions of each operator.
func statesOf(f *driver.Facts) []stateSummary {
	schemas := map[base.UID]checkpoint.OpState{}
	for _, op := range f.Job.Ops {
		if op.State != nil {
			schemas[op.UID] = *op.State
		}
	}
	versions := map[base.UID]base.BatchTime{}
	sums := map[base.UID]*stateSummary{}
	for _, p := range f.States {
		s := sums[p.Op]
		if s == nil {
			schema := schemas[p.Op].Schema
			s = &stateSummary{Operator: string(p.Op), Keys: schema.Key, Values: schema.Value, Schema: schema.Version}
			sums[p.Op] = s
		}
		s.Parts++
		s.Files += len(p.Files)
		for _, h := range p.Files {
			s.Bytes += h.Length
		}
		versions[p.Op] = max(versions[p.Op], p.Version)
		s.Version = versions[p.Op].String()
	}
	out := []stateSummary{}
	for _, s := range sums {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b stateSummary) int { return cmp.Compare(a.Operator, b.Operator) })
	return out
}

func names(uids []base.UID) []string {
	out := make([]string, len(uids))
	for i, u := range uids {
		out[i] = string(u)
	}
	return out
}

// timeText is empty for the zero time.
func timeText(t base.BatchTime) string {
	if t == 0 {
		return ""
	}
	return t.String()
}
