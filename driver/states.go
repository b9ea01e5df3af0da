package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/internal/state"
)

// stateBook keeps where every state partition lives and which files make its
// version: the last finished batch that changed it.
type stateBook struct {
	storage state.Storage

	mu        sync.Mutex
	parts     map[rpc.StatePart]*statePart
	emissions map[plan.CacheKey]base.Handle
}

type statePart struct {
	owner   base.ExecutorID
	version base.BatchTime
	files   []base.Handle // a snapshot, once there was a merge, and deltas
	pending *base.Handle  // delta of the running batch
	full    bool          // pending is the whole state, which replaces files
	merging bool
}

func newStateBook() *stateBook {
	return &stateBook{parts: map[rpc.StatePart]*statePart{}, emissions: map[plan.CacheKey]base.Handle{}}
}

// restore takes in what the log says.
func (b *stateBook) restore(f *Facts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range f.States {
		b.parts[rpc.StatePart{Op: s.Op, Part: s.Part}] = &statePart{version: s.Version, files: slices.Clone(s.Files)}
	}
	for _, e := range f.Emissions {
		b.emissions[e.Key] = e.File
	}
}

func (b *stateBook) part(p rpc.StatePart) *statePart {
	s := b.parts[p]
	if s == nil {
		s = &statePart{}
		b.parts[p] = s
	}
	return s
}

// owners lists where the partitions of an operator live.
func (b *stateBook) owners(op base.UID, parts []int) []base.ExecutorID {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]base.ExecutorID, len(parts))
	for i, p := range parts {
		out[i] = b.part(rpc.StatePart{Op: op, Part: p}).owner
	}
	return out
}

// at says what an executor needs to know of a partition before it advances it.
func (b *stateBook) at(op base.UID, part int) rpc.StateAt {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.part(rpc.StatePart{Op: op, Part: part})
	return rpc.StateAt{Part: part, Version: s.version, Restore: slices.Clone(s.files)}
}

// advanced takes in the deltas of a running batch; those of a run before are
// forgotten.
func (b *stateBook) advanced(op base.UID, done map[int]rpc.TaskDone) {
	b.mu.Lock()
	var old []base.Handle
	for part, m := range done {
		s := b.part(rpc.StatePart{Op: op, Part: part})
		if s.pending != nil {
			old = append(old, *s.pending)
		}
		s.owner, s.pending, s.full = m.Executor, m.State, m.StateFull
		for _, e := range m.Emissions {
			if h, ok := b.emissions[e.Key]; ok {
				old = append(old, h)
			}
			b.emissions[e.Key] = e.File
		}
	}
	b.mu.Unlock()
	b.storage.Drop(old...)
}

// deltas lists the files of a running batch, for its last event in the log.
func (b *stateBook) deltas(applied map[base.UID]bool) []StateDelta {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []StateDelta
	for p, s := range b.parts {
		if applied[p.Op] && s.pending != nil {
			out = append(out, StateDelta{Op: p.Op, Part: p.Part, File: *s.pending, Full: s.full})
		}
	}
	slices.SortFunc(out, func(x, y StateDelta) int { return cmp.Or(cmp.Compare(x.Op, y.Op), cmp.Compare(x.Part, y.Part)) })
	return out
}

// settle makes the running batch the version of the operators that applied it,
// and forgets what the others did. It returns, per executor, what lives there.
func (b *stateBook) settle(t base.BatchTime, applied map[base.UID]bool) (commit, keep map[base.ExecutorID][]rpc.StatePart) {
	commit, keep = map[base.ExecutorID][]rpc.StatePart{}, map[base.ExecutorID][]rpc.StatePart{}
	var drop []base.Handle
	b.mu.Lock()
	for p, s := range b.parts {
		switch {
		case s.pending == nil:
			keep[s.owner] = append(keep[s.owner], p)
		case applied[p.Op]:
			if s.full {
				drop, s.files = append(drop, s.files...), nil
			}
			s.files, s.version = append(s.files, *s.pending), t
			commit[s.owner] = append(commit[s.owner], p)
		default:
			drop = append(drop, *s.pending)
			keep[s.owner] = append(keep[s.owner], p)
		}
		s.pending = nil
	}
	b.mu.Unlock()
	b.storage.Drop(drop...)
	return commit, keep
}

// lose forgets that anything lives on an executor.
func (b *stateBook) lose(id base.ExecutorID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.parts {
		if s.owner == id {
			s.owner = ""
		}
	}
}

// emitted lists what was put aside at t for later batches.
func (b *stateBook) emitted(t base.BatchTime) []rpc.EmissionAt {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []rpc.EmissionAt
	for k, h := range b.emissions {
		if k.Node.Set.Time == t {
			out = append(out, rpc.EmissionAt{Key: k, File: h})
		}
	}
	slices.SortFunc(out, func(x, y rpc.EmissionAt) int { return compareKeys(x.Key, y.Key) })
	return out
}

// emissionsOf lists the stored emissions that n's tasks may read.
func (b *stateBook) emissionsOf(keys []plan.CacheKey) []rpc.EmissionAt {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []rpc.EmissionAt
	for _, k := range keys {
		if h, ok := b.emissions[k]; ok {
			out = append(out, rpc.EmissionAt{Key: k, File: h})
		}
	}
	return out
}

// release drops stored emissions that nothing can read any more.
func (b *stateBook) release(over func(base.DataSet) bool) {
	var drop []base.Handle
	b.mu.Lock()
	for k, h := range b.emissions {
		if over(k.Node.Set) {
			drop = append(drop, h)
			delete(b.emissions, k)
		}
	}
	b.mu.Unlock()
	b.storage.Drop(drop...)
}

// Deltas are merged into a snapshot when they are many, or larger than what
// they change: so a restore reads little, and merging costs less than the
// deltas did.
const (
	mergeDeltas = 1024
	mergeBytes  = 64 << 10
)

// due lists the partitions whose files should be merged, and marks them: also
// one whose oldest file holds much of a log that nobody else needs.
func (b *stateBook) due() []rpc.StatePart {
	sparse := func(base.Handle) bool { return false }
	if s, ok := b.storage.(interface{ Sparse(base.Handle) bool }); ok {
		sparse = s.Sparse
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []rpc.StatePart
	for p, s := range b.parts {
		if s.merging || len(s.files) == 0 {
			continue
		}
		var deltas int64
		for _, f := range s.files[1:] {
			deltas += f.Length
		}
		if len(s.files) > mergeDeltas || deltas > mergeBytes && deltas > s.files[0].Length || sparse(s.files[0]) {
			s.merging = true
			out = append(out, p)
		}
	}
	return out
}

// merge replaces a partition's files by one snapshot. A failure leaves them as
// they are: merging is a matter of cost. post puts the change into the log,
// which syncs it before the files are removed (Invariant 5).
func (b *stateBook) merge(ctx context.Context, p rpc.StatePart, post func(Event) error) error {
	b.mu.Lock()
	s := b.parts[p]
	files := slices.Clone(s.files)
	b.mu.Unlock()
	one, err := b.mergeFiles(ctx, files)
	if err != nil {
		b.mu.Lock()
		s.merging = false
		b.mu.Unlock()
		return fmt.Errorf("merge state of %s, partition %d: %w", p.Op, p.Part, err)
	}
	gone, err := b.merged(p, files, one, post)
	b.storage.Drop(gone...)
	return err
}

// merged puts one file in the place of others, in the log and in the book at
// once, so that neither is ahead of the other with a batch that ends meanwhile.
// It returns the files that nobody needs any more.
func (b *stateBook) merged(p rpc.StatePart, files []base.Handle, one base.Handle, post func(Event) error) ([]base.Handle, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.parts[p]
	s.merging = false
	if s.pending != nil && s.full || len(s.files) < len(files) || !slices.Equal(s.files[:len(files)], files) {
		return []base.Handle{one}, nil // the whole state was, or is being, written anew
	}
	if err := post(StateMerged{Op: p.Op, Part: p.Part, Replaced: len(files), File: one}); err != nil {
		return nil, err
	}
	s.files = append([]base.Handle{one}, s.files[len(files):]...)
	return files, nil
}

func (b *stateBook) mergeFiles(ctx context.Context, files []base.Handle) (base.Handle, error) {
	data := make([][]byte, len(files))
	for i, f := range files {
		var err error
		if data[i], err = b.storage.Get(ctx, f); err != nil {
			return base.Handle{}, err
		}
	}
	one, err := state.MergeFiles(data)
	if err != nil {
		return base.Handle{}, err
	}
	return b.storage.Put(ctx, one)
}

// advance advances all stateful operators by the batch, in the order of the
// graph, before any output runs (whether or not one reads them).
func (r *batchRun) advance() error {
	for _, op := range r.d.g.Ops {
		if op.Advance == nil {
			continue
		}
		if err := r.advanceOp(op, nil); err != nil {
			return err
		}
	}
	return nil
}

// advanceOp advances some partitions of an operator, all if parts is nil. Its
// error ends the job; a failure that the policy allows is recorded instead.
func (r *batchRun) advanceOp(op *plan.Op, parts []int) error {
	d, t := r.d, r.plan.Time
	d.lmu.Lock()
	node, err := d.lineage.Advance(op, t)
	d.lmu.Unlock()
	if err == nil && node == nil {
		return nil
	}
	if err == nil {
		err = r.failedBefore(op, t)
	}
	if err == nil {
		if parts == nil {
			parts = plan.All(node.Parts)
		}
		err = r.withEmissions(func() error {
			done, err := d.sched.runJob(d.hard, &job{batch: t, node: node, parts: parts, kind: rpc.AdvanceTask, output: op.UID})
			if err == nil {
				d.states.advanced(op.UID, done)
			}
			return err
		})
	}
	if err == nil {
		r.applied[op.UID] = true
		return nil
	}
	if d.hard.Err() != nil {
		return context.Cause(d.hard)
	}
	delete(r.applied, op.UID)
	r.failOp(op, node, err)
	if d.cfg.OnBatchFailure != PolicyContinue {
		return fmt.Errorf("batch %s failed: %s: %w", t, op.Display, err)
	}
	return nil
}

// failOp records a stateful operator that did not apply the batch. It gives
// nothing at this time, and nor does what depends on it.
func (r *batchRun) failOp(op *plan.Op, node *plan.Node, err error) {
	r.fail(&graph.Output{UID: op.UID, Kind: op.Kind, Input: op}, node, err)
	own := base.DataSet{UID: op.UID, Time: r.plan.Time}
	r.d.lmu.Lock()
	r.d.lineage.Fail(own)
	r.d.lmu.Unlock()
	r.failed = append(r.failed, own)
	r.why[own] = err
}

// withEmissions runs f, and again after emissions that it reads were lost with
// their executor and made again.
func (r *batchRun) withEmissions(f func() error) error {
	for tries := 0; ; tries++ {
		err := f()
		var lost *base.LostEmissionError
		if !errors.As(err, &lost) || tries == maxRestarts || lost.Set.Time != r.plan.Time {
			return err
		}
		op := r.d.g.Op(lost.Set.UID)
		if op != nil && op.Advance == nil && len(op.Parents) > 0 {
			op = op.Parents[0] // snapshots are emitted by the operator itself
		}
		if op == nil || op.Advance == nil {
			return err
		}
		r.d.lmu.Lock()
		node, nerr := r.d.lineage.Advance(op, r.plan.Time)
		r.d.lmu.Unlock()
		if nerr != nil || node == nil {
			return err
		}
		if aerr := r.advanceOp(op, r.d.sched.missing(lost.Set, node.Parts, lost.Part)); aerr != nil {
			return aerr
		}
		if !r.applied[op.UID] {
			return err
		}
	}
}

// settle ends the batch for the state: after the log has it, executors make it
// their version or go back.
func (r *batchRun) settle() {
	d := r.d
	commit, keep := d.states.settle(r.plan.Time, r.applied)
	for _, e := range d.live() {
		_ = e.Send(rpc.EndBatch{Time: r.plan.Time, Commit: commit[e.ID()], Keep: keep[e.ID()]}) // one that is gone says so by Gone
	}
	for _, p := range d.states.due() {
		d.watchers.Go(func() {
			if err := d.states.merge(d.hard, p, d.post); err != nil && d.hard.Err() == nil {
				d.alarm(Alarm{Kind: "state", Subject: string(p.Op), Message: err.Error()})
			}
		})
	}
}

// startedOps lists the stateful operators that had input before.
func (d *Driver) startedOps() []base.UID {
	return slices.Sorted(maps.Keys(d.begun))
}

// begunAt lists the stateful operators that had their first input at t.
func (d *Driver) begunAt(t base.BatchTime) []base.UID {
	d.lmu.Lock()
	defer d.lmu.Unlock()
	var out []base.UID
	for op, at := range d.begun {
		if at == t {
			out = append(out, op)
		}
	}
	slices.Sort(out)
	return out
}
