package driver

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/internal/state"
)

// Facts are what the events of a log add up to: all that a driver must know to
// go on. They are a pure core: a snapshot is the facts up to an event, and a
// recovery the newest snapshot with the events after it.
type Facts struct {
	Run      string
	Epoch    base.Epoch
	Job      checkpoint.Job // of the program that wrote last
	Started  base.BatchTime // of the first driver
	First    base.BatchTime // planned
	Last     base.BatchTime // planned
	Done     int64          // batches that have ended
	Failed   int64          // of them with a failure
	Lost     int64          // records that were given up
	Accepted []Accepted     // by epoch

	Streams   []StreamFacts    // by name
	Sources   []SourceFacts    // without receiver, by name
	Pending   []PendingBatch   // planned, not ended, in order
	Held      []plan.Batch     // ended, and read by later ones, in order
	FailedIn  []base.DataSet   // of batches that are held
	Forgotten []Forgotten      // by operator
	Begun     []base.UID       // stateful operators that had input, by name
	States    []StateFacts     // by operator and partition
	Migrating []Migrating      // what is still to be read by a migration, by operator
	Emissions []rpc.EmissionAt // by data set, node and partition
}

// StreamFacts are those of a receiver stream.
type StreamFacts struct {
	Stream   base.UID
	Epoch    base.Epoch // the newest registered
	High     []HighMark // by epoch, for ever (Invariant 2)
	Position []byte     // of the source, after the newest added block
	Rate     float64    // records per second, 0 before there is one
	Waiting  []plan.Block
}

// HighMark is the counter of the newest block of a receiver epoch.
type HighMark struct {
	Epoch   base.Epoch
	Counter uint64
}

// SourceFacts are the plans that a source without receiver made of late.
type SourceFacts struct {
	Source base.UID
	Past   []graph.PastInput
}

// PendingBatch is planned and has not ended.
type PendingBatch struct {
	Batch   plan.Batch
	Outputs []base.UID // that are done
}

// StateFacts name the files that make the newest version of a state partition.
type StateFacts struct {
	Op      base.UID
	Part    int
	Version base.BatchTime
	Files   []base.Handle
}

// Migrating says that state files of some partitions have an older schema than
// the program that wrote last: their first batch writes them anew.
type Migrating struct {
	Op     base.UID
	Schema state.Schema
	Parts  []int
}

// Apply takes in the next event. Its error says that the log contradicts
// itself: an event that no driver could have written after those before it.
func (f *Facts) Apply(e Event) error {
	switch e := e.(type) {
	case DriverStarted:
		return f.driverStarted(e)
	case StateRepacked:
		f.stateRepacked(e)
	case ReceiverRegistered:
		s := f.stream(e.Stream)
		if e.Epoch <= s.Epoch {
			return fmt.Errorf("receiver %q is registered with epoch %d after epoch %d", e.Stream, e.Epoch, s.Epoch)
		}
		s.Epoch = e.Epoch
	case BlockAdded:
		return f.blockAdded(e.Block)
	case BlocksLost:
		f.blocksLost(e)
	case RateUpdated:
		f.stream(e.Stream).Rate = e.Rate
	case BatchPlanned:
		return f.batchPlanned(e.Batch)
	case OutputDone:
		i, found := f.pending(e.Time)
		if !found {
			return fmt.Errorf("output %q is done in batch %s, which is not pending", e.Output, e.Time)
		}
		f.Pending[i].Outputs = append(f.Pending[i].Outputs, e.Output)
	case BatchDone:
		return f.batchEnded(e.Time, e.States, e.Emissions, e.Begun)
	case BatchFailed:
		f.FailedIn = append(f.FailedIn, e.Sets...)
		f.Failed++
		return f.batchEnded(e.Time, e.States, e.Emissions, e.Begun)
	case Released:
		f.released(e)
	case StateMerged:
		return f.stateMerged(e)
	case SnapshotDone:
	default:
		return fmt.Errorf("%T is no event", e)
	}
	return nil
}

// drop forgets operators and sources: state, position and data in no plan.
func (f *Facts) drop(ops []base.UID) {
	f.States = slices.DeleteFunc(f.States, func(s StateFacts) bool { return slices.Contains(ops, s.Op) })
	f.Migrating = slices.DeleteFunc(f.Migrating, func(m Migrating) bool { return slices.Contains(ops, m.Op) })
	f.Begun = slices.DeleteFunc(f.Begun, func(op base.UID) bool { return slices.Contains(ops, op) })
	f.Emissions = slices.DeleteFunc(f.Emissions, func(e rpc.EmissionAt) bool { return slices.Contains(ops, e.Key.Node.Set.UID) })
	f.Sources = slices.DeleteFunc(f.Sources, func(s SourceFacts) bool { return slices.Contains(ops, s.Source) })
	for i := range f.Streams {
		if s := &f.Streams[i]; slices.Contains(ops, s.Stream) {
			s.Waiting, s.Position, s.Rate = nil, nil, 0 // the epochs stay: blocks of old ones stay refused
		}
	}
}

func (f *Facts) driverStarted(e DriverStarted) error {
	if e.Epoch <= f.Epoch {
		return fmt.Errorf("driver epoch %d starts after epoch %d", e.Epoch, f.Epoch)
	}
	if f.Run != "" && f.Run != e.Run {
		return fmt.Errorf("driver epoch %d is of run %q, epoch %d before it of run %q", e.Epoch, e.Run, f.Epoch, f.Run)
	}
	if f.Started == 0 {
		f.Started = e.At
	}
	f.drop(e.Dropped)
	f.migrate(e.Job)
	f.Run, f.Epoch, f.Job, f.Accepted = e.Run, e.Epoch, e.Job, e.Accepted
	// The executors of the epoch before are gone, and what only they held.
	for i := range f.Streams {
		forgetExecutors(f.Streams[i].Waiting)
	}
	for _, p := range f.Pending {
		forgetInputExecutors(p.Batch)
	}
	for _, b := range f.Held {
		forgetInputExecutors(b)
	}
	return nil
}

// migrate notes which state files a program with other schemas takes over.
func (f *Facts) migrate(job checkpoint.Job) {
	for _, old := range f.Job.Ops {
		i := slices.IndexFunc(job.Ops, func(op checkpoint.Op) bool { return op.UID == old.UID })
		if old.State == nil || i < 0 || job.Ops[i].State == nil || job.Ops[i].State.Schema == old.State.Schema {
			continue
		}
		m := Migrating{Op: old.UID, Schema: old.State.Schema}
		for _, s := range f.States {
			mixed := slices.ContainsFunc(f.Migrating, func(m Migrating) bool { return m.Op == s.Op && slices.Contains(m.Parts, s.Part) })
			if s.Op == old.UID && !mixed {
				m.Parts = append(m.Parts, s.Part)
			}
		}
		if len(m.Parts) > 0 {
			f.Migrating = append(f.Migrating, m)
		}
	}
}

// migrated notes that a partition was written anew.
func (f *Facts) migrated(op base.UID, part int) {
	for i := range f.Migrating {
		if m := &f.Migrating[i]; m.Op == op {
			m.Parts = slices.DeleteFunc(m.Parts, func(p int) bool { return p == part })
		}
	}
	f.Migrating = slices.DeleteFunc(f.Migrating, func(m Migrating) bool { return len(m.Parts) == 0 })
}

func forgetInputExecutors(b plan.Batch) {
	for i := range b.Inputs {
		b.Inputs[i].Blocks = slices.Clone(b.Inputs[i].Blocks)
		forgetExecutors(b.Inputs[i].Blocks)
	}
}

func forgetExecutors(blocks []plan.Block) {
	for i := range blocks {
		blocks[i].Executor = ""
	}
}

// stream returns the facts of a receiver stream, which are new if need be.
func (f *Facts) stream(name base.UID) *StreamFacts {
	i, found := slices.BinarySearchFunc(f.Streams, name, func(s StreamFacts, n base.UID) int { return cmp.Compare(s.Stream, n) })
	if !found {
		f.Streams = slices.Insert(f.Streams, i, StreamFacts{Stream: name})
	}
	return &f.Streams[i]
}

// Stream returns the facts of a receiver stream, nil if there are none.
func (f *Facts) Stream(name base.UID) *StreamFacts {
	for i := range f.Streams {
		if f.Streams[i].Stream == name {
			return &f.Streams[i]
		}
	}
	return nil
}

func (f *Facts) blockAdded(b plan.Block) error {
	s := f.stream(b.ID.Stream)
	i, found := slices.BinarySearchFunc(s.High, b.ID.Epoch, func(h HighMark, e base.Epoch) int { return cmp.Compare(h.Epoch, e) })
	if !found {
		s.High = slices.Insert(s.High, i, HighMark{Epoch: b.ID.Epoch})
	}
	switch high := s.High[i].Counter; {
	case b.ID.Epoch > s.Epoch:
		return fmt.Errorf("block %s is of an epoch that is not registered", b.ID)
	case b.ID.Counter <= high:
		return fmt.Errorf("block %s is added twice", b.ID) // Invariant 2
	case b.ID.Counter != high+1:
		return fmt.Errorf("block %s comes after counter %d", b.ID, high)
	}
	s.High[i].Counter = b.ID.Counter
	s.Waiting = append(s.Waiting, b)
	if b.Position != nil {
		s.Position = b.Position
	}
	return nil
}

// blocksLost takes waiting blocks out, and marks those of plans as empty.
func (f *Facts) blocksLost(e BlocksLost) {
	f.Lost += e.Records
	lost := make(map[base.BlockID]bool, len(e.Blocks))
	for _, id := range e.Blocks {
		lost[id] = true
	}
	for i := range f.Streams {
		s := &f.Streams[i]
		s.Waiting = slices.DeleteFunc(s.Waiting, func(b plan.Block) bool { return lost[b.ID] })
	}
	mark := func(b plan.Batch) {
		for i, in := range b.Inputs {
			if slices.ContainsFunc(in.Blocks, func(b plan.Block) bool { return lost[b.ID] }) {
				b.Inputs[i].Blocks = slices.Clone(in.Blocks)
				for j := range in.Blocks {
					b.Inputs[i].Blocks[j].Lost = in.Blocks[j].Lost || lost[in.Blocks[j].ID]
				}
			}
		}
	}
	for _, p := range f.Pending {
		mark(p.Batch)
	}
	for _, b := range f.Held {
		mark(b)
	}
}

func (f *Facts) batchPlanned(b plan.Batch) error {
	if b.Time <= f.Last {
		return fmt.Errorf("batch %s is planned after batch %s", b.Time, f.Last)
	}
	b.Inputs = slices.Clone(b.Inputs)
	for i, in := range b.Inputs {
		if s := f.Stream(in.UID); s != nil && len(in.Blocks) > 0 {
			b.Inputs[i].Blocks = s.allocate(in.Blocks)
		} else if s == nil && !in.Absent {
			f.planned(b.Time, in)
		}
	}
	f.Pending = append(f.Pending, PendingBatch{Batch: b})
	if f.First == 0 {
		f.First = b.Time
	}
	f.Last = b.Time
	return nil
}

// allocate takes planned blocks out of the waiting ones. One that does not wait
// was given up while the plan was made: it is read as empty.
func (s *StreamFacts) allocate(blocks []plan.Block) []plan.Block {
	waiting := make(map[base.BlockID]bool, len(s.Waiting))
	for _, b := range s.Waiting {
		waiting[b.ID] = true
	}
	blocks = slices.Clone(blocks)
	taken := make(map[base.BlockID]bool, len(blocks))
	for i, b := range blocks {
		taken[b.ID] = true
		blocks[i].Lost = b.Lost || !waiting[b.ID]
	}
	s.Waiting = slices.DeleteFunc(s.Waiting, func(b plan.Block) bool { return taken[b.ID] })
	return blocks
}

// planned remembers what a source without receiver planned, for as long as it asks.
func (f *Facts) planned(t base.BatchTime, in plan.Input) {
	i, found := slices.BinarySearchFunc(f.Sources, in.UID, func(s SourceFacts, n base.UID) int { return cmp.Compare(s.Source, n) })
	if !found {
		f.Sources = slices.Insert(f.Sources, i, SourceFacts{Source: in.UID})
	}
	s := &f.Sources[i]
	s.Past = slices.DeleteFunc(s.Past, func(p graph.PastInput) bool { return p.Time <= t.Add(-in.Recall) })
	s.Past = append(s.Past, graph.PastInput{Time: t, Input: in})
}

// Past returns what a source without receiver planned of late.
func (f *Facts) Past(source base.UID) []graph.PastInput {
	for _, s := range f.Sources {
		if s.Source == source {
			return s.Past
		}
	}
	return nil
}

func (f *Facts) pending(t base.BatchTime) (int, bool) {
	return slices.BinarySearchFunc(f.Pending, t, func(p PendingBatch, t base.BatchTime) int { return cmp.Compare(p.Batch.Time, t) })
}

func (f *Facts) batchEnded(t base.BatchTime, states []StateDelta, emissions []rpc.EmissionAt, begun []base.UID) error {
	i, found := f.pending(t)
	if !found || i != 0 {
		return fmt.Errorf("batch %s has ended, but is not the oldest pending one", t)
	}
	f.Held = append(f.Held, f.Pending[0].Batch)
	f.Pending = slices.Delete(f.Pending, 0, 1)
	f.Done++
	for _, d := range states {
		s := f.state(d.Op, d.Part)
		if d.Full {
			s.Files = nil
			f.migrated(d.Op, d.Part)
		}
		s.Version, s.Files = t, append(s.Files, d.File)
	}
	for _, e := range emissions {
		i, found := slices.BinarySearchFunc(f.Emissions, e, func(a, b rpc.EmissionAt) int { return compareKeys(a.Key, b.Key) })
		if !found {
			f.Emissions = slices.Insert(f.Emissions, i, e)
		}
		f.Emissions[i] = e
	}
	for _, op := range begun {
		if i, found := slices.BinarySearch(f.Begun, op); !found {
			f.Begun = slices.Insert(f.Begun, i, op)
		}
	}
	return nil
}

func compareKeys(a, b plan.CacheKey) int {
	return cmp.Or(
		cmp.Compare(a.Node.Set.Time, b.Node.Set.Time), cmp.Compare(a.Node.Set.UID, b.Node.Set.UID),
		cmp.Compare(a.Node.Index, b.Node.Index), cmp.Compare(a.Part, b.Part),
	)
}

func (f *Facts) state(op base.UID, part int) *StateFacts {
	i, found := slices.BinarySearchFunc(f.States, StateFacts{Op: op, Part: part}, func(a, b StateFacts) int {
		return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.Part, b.Part))
	})
	if !found {
		f.States = slices.Insert(f.States, i, StateFacts{Op: op, Part: part})
	}
	return &f.States[i]
}

func (f *Facts) stateRepacked(e StateRepacked) {
	ofOp := func(s StateFacts) bool { return s.Op == e.Op }
	f.States = slices.DeleteFunc(f.States, ofOp)
	f.Migrating = slices.DeleteFunc(f.Migrating, func(m Migrating) bool { return m.Op == e.Op })
	for part, file := range e.Files {
		s := f.state(e.Op, part)
		s.Version, s.Files = e.Version, []base.Handle{file}
	}
}

func (f *Facts) stateMerged(e StateMerged) error {
	s := f.state(e.Op, e.Part)
	if e.Replaced < 1 || e.Replaced > len(s.Files) {
		return fmt.Errorf("%d files of the state of %q, partition %d, are merged: it has %d", e.Replaced, e.Op, e.Part, len(s.Files))
	}
	s.Files = slices.Replace(s.Files, 0, e.Replaced, e.File)
	return nil
}

func (f *Facts) released(e Released) {
	f.Held = slices.DeleteFunc(f.Held, func(b plan.Batch) bool { return slices.Contains(e.Batches, b.Time) })
	if len(e.Batches) > 0 {
		until := slices.Max(e.Batches)
		f.FailedIn = slices.DeleteFunc(f.FailedIn, func(ds base.DataSet) bool { return ds.Time <= until })
	}
	f.Forgotten = e.Forgotten
	forgotten := make(map[base.UID]base.BatchTime, len(e.Forgotten))
	for _, o := range e.Forgotten {
		forgotten[o.Op] = o.Time
	}
	f.Emissions = slices.DeleteFunc(f.Emissions, func(a rpc.EmissionAt) bool {
		return a.Key.Node.Set.Time <= forgotten[a.Key.Node.Set.UID]
	})
}

// Handles lists every record of a write-ahead log that the facts name: blocks
// of receivers, and state files with what stateful operators put aside.
func (f *Facts) Handles() (blocks, states []base.Handle) {
	add := func(bs []plan.Block) {
		for _, b := range bs {
			if !b.Handle.IsZero() {
				blocks = append(blocks, b.Handle)
			}
		}
	}
	for _, s := range f.Streams {
		add(s.Waiting)
	}
	for _, b := range f.Batches() {
		for _, in := range b.Inputs {
			add(in.Blocks)
		}
	}
	for _, s := range f.States {
		states = append(states, s.Files...)
	}
	for _, e := range f.Emissions {
		states = append(states, e.File)
	}
	return blocks, states
}

// Batches lists the plans that are held and pending, in order.
func (f *Facts) Batches() []*plan.Batch {
	out := make([]*plan.Batch, 0, len(f.Held)+len(f.Pending))
	for i := range f.Held {
		out = append(out, &f.Held[i])
	}
	for i := range f.Pending {
		out = append(out, &f.Pending[i].Batch)
	}
	return out
}

// factsVersion is that of the encoding below.
const factsVersion = 1

// Encode makes the body of a snapshot. Equal facts have equal bytes.
func (f *Facts) Encode() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte(factsVersion)
	if err := encodeSorted(&b, f); err != nil {
		return nil, fmt.Errorf("driver: encode facts: %w", err)
	}
	return b.Bytes(), nil
}

// DecodeFacts reads the body of a snapshot.
func DecodeFacts(b []byte) (*Facts, error) {
	switch {
	case len(b) == 0:
		return nil, fmt.Errorf("driver: empty facts: %w", base.ErrCorrupt)
	case b[0] != factsVersion:
		return nil, fmt.Errorf("driver: facts of format version %d: this program reads version %d", b[0], factsVersion)
	}
	f := &Facts{}
	if err := decode(b[1:], f); err != nil {
		return nil, fmt.Errorf("driver: decode facts: %w", err)
	}
	return f, nil
}
