package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/rdd"
)

var errCancelled = errors.New("task cancelled")

// stage is what the tasks of one message share.
type stage struct {
	rpc.StageTasks
	node    *plan.Node
	shuffle *plan.Shuffle
	output  rdd.OutputTask
	inputs  map[string][]base.ExecutorID
	kept    map[plan.CacheKey]base.ExecutorID
}

// launch starts the tasks of a message, each on its own goroutine.
func (e *Executor) launch(m rpc.StageTasks) {
	st, err := e.resolve(m)
	if err != nil {
		f := failure(err)
		if f.Kind == rpc.UserFailure {
			f.Kind = rpc.FinalFailure // building is deterministic: another attempt can't help
		}
		for _, ref := range m.Tasks {
			e.report(rpc.TaskDone{Executor: e.cfg.ID, Job: m.Job, Stage: m.Stage, Task: ref, Failure: f})
		}
		return
	}
	for _, ref := range m.Tasks {
		ctx, cancel := context.WithCancelCause(e.ctx)
		e.mu.Lock()
		e.tasks[taskKey{m.Job, m.Stage, ref}] = cancel
		e.mu.Unlock()
		e.wg.Go(func() { e.run(ctx, st, ref) })
	}
}

func (e *Executor) resolve(m rpc.StageTasks) (*stage, error) {
	st := &stage{StageTasks: m, inputs: map[string][]base.ExecutorID{}, kept: map[plan.CacheKey]base.ExecutorID{}}
	for _, in := range m.Inputs {
		st.inputs[in.Shuffle] = in.At
	}
	for _, k := range m.Kept {
		st.kept[k.Key] = k.At
	}
	if m.Kind == rpc.MapTask {
		x, err := e.find(m.Reader)
		if err != nil {
			return nil, err
		}
		if st.shuffle = x.shuffles[m.Shuffle]; st.shuffle == nil {
			return nil, fmt.Errorf("executor: data set %s reads no shuffle %s", m.Reader, m.Shuffle)
		}
		st.node = st.shuffle.Parent
		return st, nil
	}
	x, err := e.find(m.Node.Set)
	if err != nil {
		return nil, err
	}
	if st.node = x.nodes[m.Node]; st.node == nil {
		return nil, fmt.Errorf("executor: no node %s", m.Node)
	}
	if m.Kind == rpc.OutputTask {
		if o := e.g.Output(m.Output); o != nil {
			st.output, _ = o.Task.(rdd.OutputTask)
		}
		if st.output == nil {
			return nil, fmt.Errorf("executor: output %q has no task", m.Output)
		}
	}
	return st, nil
}

// run is one task's goroutine.
func (e *Executor) run(ctx context.Context, st *stage, ref rpc.TaskRef) {
	done := rpc.TaskDone{Executor: e.cfg.ID, Job: st.Job, Stage: st.Stage, Task: ref}
	env := &env{e: e, st: st}
	t := rdd.NewTask(ctx, env, rdd.TaskSpec{
		Job: e.cfg.Job, Run: e.cfg.Run, Epoch: e.cfg.Epoch, Operator: string(st.Output), Batch: st.Batch,
		Partition: ref.Part, Attempt: ref.Attempt, Executor: e.cfg.ID, Checked: e.cfg.Checked,
	})
	ended := false
	defer func() {
		if !ended { // user code called runtime.Goexit, as t.FailNow does
			done.Failure = failure(t.Fault(st.node, ref.Part, "user code ended the goroutine of the task"))
		}
		key := taskKey{st.Job, st.Stage, ref}
		e.mu.Lock()
		cancel := e.tasks[key]
		delete(e.tasks, key)
		e.mu.Unlock()
		cancel(nil)
		t.Close()
		e.report(done)
	}()
	if e.cfg.Checked {
		env.hash = t.AddBytes
	}
	err := e.compute(ctx, t, st, ref, &done)
	err = env.endState(ctx, &done, err)
	if err == nil && e.cfg.Checked {
		err = env.verify()
	}
	if err == nil {
		done.Counters, done.Hash, done.Kept = t.Counters(), t.ContentHash(), env.keptHere()
		done.Emissions = env.emissions
	} else {
		done.Result = nil
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		done.Failure = failure(err)
	}
	ended = true
}

func (e *Executor) compute(ctx context.Context, t *rdd.Task, st *stage, ref rpc.TaskRef, done *rpc.TaskDone) (err error) {
	switch st.Kind {
	case rpc.MapTask:
		buckets, err := rdd.MapPart(t, st.shuffle, ref.Part)
		if err != nil {
			return err
		}
		return e.out.put(ctx, st.Reader, st.Shuffle, ref.Part, ref.Attempt, buckets, e.cfg.Checked, t.AddBytes)
	case rpc.CountTask:
		done.Count, err = rdd.CountPart(t, st.node, ref.Part)
	case rpc.CollectTask:
		done.Result, err = rdd.CollectPart(t, st.node, ref.Part, st.Limit)
	case rpc.OutputTask:
		done.Result, err = rdd.OutputPart(t, st.node, ref.Part, st.output)
	case rpc.AdvanceTask:
		err = rdd.AdvancePart(t, st.node, ref.Part)
	default:
		err = fmt.Errorf("executor: unknown task kind %d", st.Kind)
	}
	return err
}

// report sends an outcome unless the executor is dead.
func (e *Executor) report(m rpc.TaskDone) {
	if !e.silent() {
		e.driver.TaskDone(m)
	}
}

// failure sorts an error by what the driver can do about it.
func failure(err error) *rpc.Failure {
	f := &rpc.Failure{Message: err.Error()}
	switch {
	case errors.As(err, &f.Fetch):
		f.Kind = rpc.FetchFailure
	case errors.As(err, &f.Emitted):
		f.Kind = rpc.EmissionFailure
	case errors.As(err, &f.Lost):
		f.Kind = rpc.LostFailure
	case errors.Is(err, errCancelled), errors.Is(err, errKilled), errors.Is(err, errClosed):
		f.Kind = rpc.CancelledFailure
	}
	errors.As(err, &f.Task)
	return f
}

// env is what one task sees of its executor. It belongs to the task's goroutine.
type env struct {
	e      *Executor
	st     *stage
	kept   []plan.CacheKey
	blocks []readBlock

	state     *hostedState // whose turn the task has
	emissions []rpc.EmissionAt
	hash      func([]byte) // in checked mode
}

type readBlock struct {
	key  string
	data []byte
}

// Bucket implements [rdd.Env].
func (v *env) Bucket(_ context.Context, s *plan.Shuffle, mapPart, part int) (rdd.Bucket, []byte, error) {
	var from base.ExecutorID
	if at := v.st.inputs[s.ID]; mapPart < len(at) {
		from = at[mapPart]
	}
	fail := func(err error) error {
		return &base.FetchError{Shuffle: s.ID, MapPart: mapPart, From: from, Reason: err.Error()}
	}
	if from == "" {
		return nil, nil, fail(errors.New("no executor holds it"))
	}
	if from == v.e.cfg.ID {
		b, frame, err := v.e.out.get(s.ID, mapPart, part)
		if err != nil {
			return nil, nil, fail(err)
		}
		return b, frame, nil
	}
	peer, err := v.e.hub.Peer(from)
	if err != nil {
		return nil, nil, fail(err)
	}
	typed, frame, err := peer.Bucket(s.ID, mapPart, part)
	if err != nil {
		return nil, nil, fail(err)
	}
	b, _ := typed.(rdd.Bucket)
	return b, frame, nil
}

// Kept implements [rdd.Env].
func (v *env) Kept(_ context.Context, key plan.CacheKey) ([]byte, bool) {
	name := keptKey(key)
	data, err := v.e.store.Get(name)
	if err != nil {
		peer, perr := v.e.hub.Peer(v.st.kept[key])
		if perr != nil {
			return nil, false
		}
		if data, err = peer.Stored(name); err != nil {
			return nil, false
		}
	}
	if _, err := codec.OpenFrame(data); err != nil {
		return nil, false // computed again; Invariant 8
	}
	v.blocks = append(v.blocks, readBlock{name, data})
	return data, true
}

// Keep implements [rdd.Env].
func (v *env) Keep(key plan.CacheKey, frame []byte, level base.StorageLevel) {
	ctx := context.Background() // TryPut does not wait
	if err := v.e.store.TryPut(ctx, keptKey(key), frame, level); err == nil {
		v.kept = append(v.kept, key)
		v.e.mu.Lock()
		v.e.kept[key.Node.Set] = true
		v.e.mu.Unlock()
	}
}

func (v *env) keptHere() []plan.CacheKey { return v.kept }

// Block implements [rdd.Env].
func (v *env) Block(ctx context.Context, batch base.BatchTime, b plan.Block) ([]byte, error) {
	v.e.mu.Lock()
	skip := v.e.lost[b.ID]
	v.e.mu.Unlock()
	if skip {
		return nil, nil
	}
	gone := func(err error) error {
		return &base.LostBlocksError{Batch: batch, Blocks: []base.BlockID{b.ID}, Reason: err.Error()}
	}
	var data []byte
	var err error
	if b.Executor == v.e.cfg.ID {
		data, err = v.e.store.Get(b.Key)
	} else {
		var peer rpc.Peer
		if peer, err = v.e.hub.Peer(b.Executor); err == nil {
			data, err = peer.Stored(b.Key)
		}
	}
	if err != nil && !b.Handle.IsZero() && v.e.cfg.Blocks != nil {
		data, err = v.e.cfg.Blocks.Read(ctx, b.Handle)
		if err != nil && !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err // may pass
		}
	}
	if err != nil {
		return nil, gone(err)
	}
	v.blocks = append(v.blocks, readBlock{b.Key, data})
	return data, nil
}

// CombineLimit implements [rdd.Env].
func (v *env) CombineLimit() int64 {
	return max(1<<20, v.e.cfg.MemoryLimit/int64(4*v.e.cfg.Slots))
}

// Spill implements [rdd.Env].
func (v *env) Spill(ctx context.Context, frame []byte) (string, error) {
	key := fmt.Sprintf("spill/%d", v.e.spills.Add(1))
	return key, v.e.store.Put(ctx, key, frame, base.DiskOnly)
}

// Spilled implements [rdd.Env].
func (v *env) Spilled(_ context.Context, key string) ([]byte, error) { return v.e.store.Get(key) }

// Unspill implements [rdd.Env].
func (v *env) Unspill(keys []string) {
	for _, k := range keys {
		v.e.store.Drop(k)
	}
}

// verify checks in checked mode that user code left the blocks it viewed as
// they were (Invariant 15).
func (v *env) verify() error {
	for _, b := range v.blocks {
		if _, err := codec.OpenFrame(b.data); err != nil {
			return fmt.Errorf("block %s was changed by a task that may only read it: %w", b.key, err)
		}
	}
	return nil
}

func keptKey(k plan.CacheKey) string {
	return keptPrefix(k.Node.Set) + fmt.Sprintf("%d/%d", k.Node.Index, k.Part)
}

func keptPrefix(ds base.DataSet) string { return fmt.Sprintf("kept/%d/%s/", ds.Time, ds.UID) }

// Bucket implements [rpc.Peer].
func (e *Executor) Bucket(shuffle string, mapPart, part int) (any, []byte, error) {
	return e.out.get(shuffle, mapPart, part)
}

// Stored implements [rpc.Peer].
func (e *Executor) Stored(key string) ([]byte, error) { return e.store.Get(key) }
