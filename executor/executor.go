package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/block"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/internal/state"
	"github.com/tidemill/tidemill/receiver"
)

// Config is what an executor needs to know beside its graph.
type Config struct {
	ID    base.ExecutorID
	Slots int // tasks at a time
	// Host is the name of the machine as file systems know it; the machine's own
	// name for it if empty.
	Host  string
	Job   string
	Run   string
	Epoch base.Epoch // of the job driver
	FS    fsys.FS
	Dir   string // for spilled blocks
	// MemoryLimit is the number of bytes for blocks, kept partitions and shuffle outputs.
	MemoryLimit int64
	// Checked turns checked mode on.
	Checked  bool
	Receiver receiver.Config
	// Logs opens the write-ahead logs of receivers; nil if there are none.
	Logs LogOpener
	// Blocks reads what receivers logged; nil if they log nothing.
	Blocks interface {
		Read(ctx context.Context, h base.Handle) ([]byte, error)
	}
	// States keeps state files where all executors can read them.
	States state.Storage
	Log    hclog.Logger
}

// Executor is one executor of a job. All methods may be called from any goroutine.
type Executor struct {
	cfg    Config
	g      *graph.Graph
	driver rpc.Driver
	hub    *rpc.Hub
	store  *block.Store
	out    shuffles
	spills atomic.Int64 // names what tasks put aside
	states states

	ctx    context.Context
	cancel context.CancelCauseFunc
	gone   chan struct{}
	ended  chan struct{} // closed when end has returned
	endErr error
	wg     sync.WaitGroup

	mail chan struct{} // says that the inbox has something

	mu        sync.Mutex
	inbox     []rpc.ToExecutor
	closed    bool
	killed    bool
	tasks     map[taskKey]context.CancelCauseFunc
	lost      map[base.BlockID]bool // given up, of remembered batches
	kept      map[base.DataSet]bool // that have kept partitions in the store
	receivers map[base.UID]*hosted
	hosting   int // receivers that have not returned

	// owned by the inbox goroutine
	lineage *plan.Lineage
	newest  base.BatchTime
	index   map[base.DataSet]*dataSetIndex
	outputs []*plan.Op // inputs of outputs, for the lineage hash
}

type taskKey struct {
	job   base.JobID
	stage base.StageID
	task  rpc.TaskRef
}

// dataSetIndex finds the nodes of one data set.
type dataSetIndex struct {
	nodes    map[plan.ID]*plan.Node
	shuffles map[string]*plan.Shuffle
}

var (
	errClosed = fmt.Errorf("executor: %w", base.ErrStopped)
	errKilled = errors.New("executor was killed")
)

// Start returns a running executor that serves its data through hub.
func Start(cfg Config, g *graph.Graph, driver rpc.Driver, hub *rpc.Hub) (*Executor, error) {
	if cfg.Slots < 1 {
		return nil, fmt.Errorf("executor: %d task slots: must be at least 1", cfg.Slots)
	}
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	if cfg.Host == "" {
		host, err := os.Hostname()
		if err != nil {
			cfg.Log.Debug("the name of the machine is not known: no task is placed by it", "error", err)
		}
		cfg.Host = host
	}
	store, err := block.Open(block.Config{FS: cfg.FS, Dir: cfg.Dir, MemoryLimit: cfg.MemoryLimit})
	if err != nil {
		return nil, err
	}
	if cfg.Checked {
		driver = rpc.CheckedDriver(driver)
	}
	e := &Executor{
		cfg: cfg, g: g, driver: driver, hub: hub, store: store,
		gone: make(chan struct{}), ended: make(chan struct{}), mail: make(chan struct{}, 1),
		tasks: map[taskKey]context.CancelCauseFunc{}, lost: map[base.BlockID]bool{}, kept: map[base.DataSet]bool{},
		receivers: map[base.UID]*hosted{},
		lineage:   plan.NewLineage(g.Ops), index: map[base.DataSet]*dataSetIndex{},
	}
	e.out.init(store)
	for _, o := range g.Outputs {
		e.outputs = append(e.outputs, o.Input)
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	hub.Join(cfg.ID, e)
	e.wg.Go(e.serve)
	return e, nil
}

// ID implements [rpc.Executor].
func (e *Executor) ID() base.ExecutorID { return e.cfg.ID }

// Host implements [rpc.Executor].
func (e *Executor) Host() string { return e.cfg.Host }

// Slots implements [rpc.Executor].
func (e *Executor) Slots() int { return e.cfg.Slots }

// Gone implements [rpc.Executor].
func (e *Executor) Gone() <-chan struct{} { return e.gone }

// Stats says what the executor's block store holds.
func (e *Executor) Stats() block.Stats { return e.store.Stats() }

// Send implements [rpc.Executor].
func (e *Executor) Send(m rpc.ToExecutor) error {
	if e.cfg.Checked {
		var err error
		if m, err = rpc.Copy(m); err != nil {
			return err
		}
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return errClosed
	}
	e.inbox = append(e.inbox, m)
	e.mu.Unlock()
	select {
	case e.mail <- struct{}{}:
	default: // the inbox knows already
	}
	return nil
}

// serve is the inbox goroutine.
func (e *Executor) serve() {
	ended := false
	defer func() {
		if !ended { // a Transform function called runtime.Goexit
			e.driver.Mismatch(e.cfg.ID, e.newest, fmt.Sprintf("executor %s: user code ended the goroutine that built a data set", e.cfg.ID))
		}
	}()
	for {
		select {
		case <-e.mail:
		case <-e.ctx.Done():
			ended = true
			return
		}
		for {
			e.mu.Lock()
			msgs := e.inbox
			e.inbox = nil
			e.mu.Unlock()
			if len(msgs) == 0 {
				break
			}
			for _, m := range msgs {
				e.handle(m)
			}
		}
	}
}

func (e *Executor) handle(m rpc.ToExecutor) {
	switch m := m.(type) {
	case rpc.Plan:
		e.plan(m)
	case rpc.StageTasks:
		e.launch(m)
	case rpc.CancelTask:
		e.mu.Lock()
		cancel := e.tasks[taskKey{m.Job, m.Stage, m.Task}]
		e.mu.Unlock()
		if cancel != nil {
			cancel(errCancelled)
		}
	case rpc.Release:
		e.release(m)
	case rpc.EndBatch:
		e.states.settle(m)
	case rpc.BlocksLost:
		e.mu.Lock()
		for _, b := range m.Blocks {
			e.lost[b] = true
		}
		e.mu.Unlock()
	case rpc.StartReceiver:
		e.startReceiver(m)
	case rpc.StopReceiver:
		e.stopReceiver(m)
	case rpc.RateLimit:
		e.limitReceiver(m)
	}
}

func (e *Executor) plan(m rpc.Plan) {
	t := m.Batch.Time
	e.newest = t
	e.lineage.SetStarted(m.Started)
	if err := e.lineage.Add(&m.Batch); err != nil {
		e.driver.Mismatch(e.cfg.ID, t, err.Error())
		return
	}
	for _, ds := range m.Failed {
		e.lineage.Fail(ds)
		delete(e.index, ds)
	}
	for _, v := range m.Batch.Values {
		for _, have := range e.g.Values {
			if have.UID == v.UID {
				if err := have.Set(t, v.Data); err != nil {
					e.driver.Mismatch(e.cfg.ID, t, err.Error())
				}
			}
		}
	}
	if m.Hash == 0 {
		return
	}
	// Invariant 11: one hash per batch tells that this graph computes what the driver planned.
	if h := e.lineage.Hash(t, e.outputs); h != m.Hash {
		e.driver.Mismatch(e.cfg.ID, t, fmt.Sprintf("executor %s computes lineage %016x where the driver planned %016x: Build, Transform functions and partitioners must be deterministic", e.cfg.ID, h, m.Hash))
	}
}

// find returns the index of a data set, building it if need be.
func (e *Executor) find(ds base.DataSet) (*dataSetIndex, error) {
	if x := e.index[ds]; x != nil {
		return x, nil
	}
	uid, advances := plan.OfAdvance(ds)
	op := e.g.Op(uid)
	if op == nil {
		return nil, fmt.Errorf("executor: no operator %q in the graph", uid)
	}
	build := e.lineage.DataSet
	if advances {
		build = e.lineage.Advance
	}
	n, err := build(op, ds.Time)
	if err != nil {
		return nil, err
	}
	if n == nil {
		return nil, fmt.Errorf("executor: data set %s is not planned here", ds)
	}
	x := &dataSetIndex{}
	x.nodes, x.shuffles = plan.Index([]*plan.Node{n})
	e.index[ds] = x
	return x, nil
}

// release drops what no task will need any more: of each operator all up to
// the time that its lineage has forgotten. That covers sets that failed and
// what cancelled tasks left after an earlier release.
func (e *Executor) release(m rpc.Release) {
	var read []base.BlockID
	for _, b := range e.lineage.Batches() {
		if !slices.Contains(m.Batches, b.Time) {
			continue
		}
		for _, in := range b.Inputs {
			for _, blk := range in.Blocks {
				read = append(read, blk.ID)
			}
		}
	}
	rel := e.lineage.Release(m.Done)
	forgotten := make(map[base.UID]base.BatchTime, len(e.g.Ops))
	for _, op := range e.g.Ops {
		forgotten[op.UID] = e.lineage.Forgotten(op)
	}
	over := func(ds base.DataSet) bool {
		if _, ok := plan.OfAdvance(ds); ok {
			return ds.Time <= m.Done
		}
		return ds.Time <= forgotten[ds.UID]
	}
	for ds := range e.index {
		if over(ds) {
			delete(e.index, ds)
		}
	}
	e.out.release(over)
	var kept []base.DataSet
	e.mu.Lock()
	for ds := range e.kept {
		if over(ds) {
			kept = append(kept, ds)
			delete(e.kept, ds)
		}
	}
	for _, id := range read {
		delete(e.lost, id)
	}
	e.mu.Unlock()
	for _, ds := range kept {
		e.store.DropPrefix(keptPrefix(ds))
	}
	for _, key := range m.Blocks {
		e.store.Drop(key)
	}
	if n := len(rel.Batches); n > 0 {
		for _, v := range e.g.Values {
			v.Release(rel.Batches[n-1])
		}
	}
}

// Patience is how long Close and Kill wait for user code that was told to end.
const Patience = 10 * time.Second

// Close ends the executor: it cancels receivers and tasks, waits for them, and
// closes resources and blocks. User code that has not returned after
// [Patience] is left behind, which a [StuckError] tells; resources and blocks
// are closed when it does return. Close is idempotent.
func (e *Executor) Close() error {
	return e.end(errClosed, false)
}

// Kill ends the executor as a crash would: nothing more is sent, nothing is
// served, what it held is gone. It waits as Close does.
func (e *Executor) Kill() {
	_ = e.end(errKilled, true)
}

// StuckError says that user code did not return when its executor ended.
type StuckError struct {
	Executor  base.ExecutorID
	Tasks     int
	Receivers int
}

// Error says how many of what.
func (s *StuckError) Error() string {
	return fmt.Sprintf("executor %s: %d tasks and %d receivers still run %v after they were told to end", s.Executor, s.Tasks, s.Receivers, Patience)
}

// StillRunning is the number of tasks and receivers.
func (s *StuckError) StillRunning() int { return s.Tasks + s.Receivers }

func (e *Executor) end(cause error, kill bool) error {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	if first {
		e.killed = kill
	}
	e.mu.Unlock()
	if !first {
		<-e.ended
		return e.endErr
	}
	defer close(e.ended)
	e.hub.Leave(e.cfg.ID)
	e.cancel(cause)
	close(e.gone)
	cleaned := make(chan error, 1)
	go func() {
		e.wg.Wait()
		var errs []error
		for _, c := range e.g.Closers {
			errs = append(errs, c())
		}
		cleaned <- errors.Join(append(errs, e.store.Close())...)
	}()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case e.endErr = <-cleaned:
	case <-limit.C:
		e.mu.Lock()
		e.endErr = &StuckError{Executor: e.cfg.ID, Tasks: len(e.tasks), Receivers: e.hosting}
		e.mu.Unlock()
	}
	return e.endErr
}

// silent reports whether a crash was simulated, after which nothing is sent.
func (e *Executor) silent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.killed
}
