package tidemill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/executor"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/internal/state"
)

// ContextState is where a StreamingContext is in its life.
type ContextState int

// States.
const (
	// Initialized: built, not started.
	Initialized ContextState = iota
	// Active: started, not stopped.
	Active
	// Stopped for good: a stopped context can't be started again.
	Stopped
)

// String gives the state in the words of Spark.
func (s ContextState) String() string { return [...]string{"INITIALIZED", "ACTIVE", "STOPPED"}[s] }

// StreamingContext is a job: Build records operations on it, then it is
// started once and stopped once. Several contexts may run in one process. Its
// methods may be called from any goroutine, but Build's operations come from
// Build's own.
type StreamingContext struct {
	cfg Config
	job App
	env environment
	g   *graph.Graph

	mu        sync.Mutex
	state     ContextState
	driver    *driver.Driver
	executors []*executor.Executor // in the order they came; nil: killed
	ids       []string             // of all of them
	started   int                  // executors, also those whose start failed
	hub       *rpc.Hub
	run       string // id of the run, once started
	epoch     base.Epoch
	dir       *directory // nil if the job keeps nothing
	recovery  Recovery
	states    state.Storage
	remember  bool
	listeners []any
}

// environment is what a job gets from outside; tests replace it.
type environment struct {
	fs     fsys.FS
	stdout io.Writer
	log    hclog.Logger
	events driver.Log

	scratch      string
	scratchFS    fsys.FS
	clearScratch bool // a start empties it
	dropScratch  bool // it goes with the run

	opened *fsys.Router // fs, if the context made it

	dir     string // empty: nothing is kept
	restart Restart
	args    []string
	binary  string // digest of the executable, if known
}

// ContextOption changes what a context gets from its surroundings.
type ContextOption func(*environment)

// WithFS replaces the local file system, and those that names with a scheme lead
// to, for the directory of the job, scratch files, file sources and file outputs.
func WithFS(f fsys.FS) ContextOption { return func(e *environment) { e.fs = f } }

// WithStdout replaces the standard output of Print.
func WithStdout(w io.Writer) ContextOption { return func(e *environment) { e.stdout = w } }

// WithLogger replaces the logger, which by default discards everything.
func WithLogger(l hclog.Logger) ContextOption { return func(e *environment) { e.log = l } }

// WithDir sets the directory in which the job keeps its logs, checkpoints and
// scratch files, and goes on when it is started again. It is new, empty, or
// one that the job has used. Without it the job keeps nothing. If it is on another
// file system (scheme://authority/path), scratch files stay on the local disk.
func WithDir(dir string) ContextOption { return func(e *environment) { e.dir = dir } }

// WithScratch sets the directory for scratch files of a job that keeps nothing, or
// keeps it on another file system; by default it is a temporary one.
func WithScratch(dir string) ContextOption { return func(e *environment) { e.scratch = dir } }

// WithEventLog replaces the driver's log in memory of a job that keeps nothing.
func WithEventLog(l driver.Log) ContextOption { return func(e *environment) { e.events = l } }

// surroundings are those that the options leave, completed.
func surroundings(cfg Config, opts []ContextOption) environment {
	e := environment{stdout: os.Stdout, log: hclog.NewNullLogger(), events: &driver.MemLog{}}
	for _, o := range opts {
		o(&e)
	}
	if e.fs == nil {
		e.opened = fsys.NewRouter(fsys.Local(), cfg.schemes(e.log))
		e.fs = e.opened
	}
	e.scratchFS = e.fs
	scheme, _, _ := fsys.SplitURL(e.dir)
	switch {
	case e.dir != "" && scheme == "":
		e.scratch, e.clearScratch = fsys.Join(e.dir, "scratch"), true
	case e.scratch != "":
	default:
		name, _ := scratchName(e.dir)
		e.scratch = fsys.Join(os.TempDir(), name)
		if scheme != "" { // what is spilled must not go over the network
			e.scratchFS, e.clearScratch, e.dropScratch = fsys.Local(), true, true
		}
	}
	return e
}

// close closes what the context opened, when nothing of the job runs any more.
func (e *environment) close() error {
	if e.opened == nil {
		return nil
	}
	return e.opened.Close()
}

// New builds the job's graph and checks it. The error holds everything that is
// wrong with it.
func New(app App, cfg Config, opts ...ContextOption) (*StreamingContext, error) {
	env := surroundings(cfg, opts)
	if app.Name == "" {
		return nil, errors.New("App.Name is empty: a job needs a name")
	}
	if app.Build == nil {
		return nil, fmt.Errorf("job %q: App.Build is nil", app.Name)
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("job %q: %w", app.Name, err)
	}
	cfg = cfg.withDefaults()
	return build(app, cfg, env)
}

// build runs Build on a fresh context.
func build(app App, cfg Config, env environment) (ssc *StreamingContext, err error) {
	ssc = &StreamingContext{cfg: cfg, job: app, env: env, g: graph.New(cfg.BatchInterval)}
	defer func() {
		if r := recover(); r != nil {
			ssc, err = nil, fmt.Errorf("job %q: Build panicked: %v\n%s", app.Name, r, debug.Stack())
		}
	}()
	berr := app.Build(ssc)
	if err := errors.Join(berr, ssc.g.Finish()); err != nil {
		return nil, fmt.Errorf("job %q: %w", app.Name, err)
	}
	return ssc, nil
}

// Name returns the job's name.
func (ssc *StreamingContext) Name() string { return ssc.job.Name }

// Config returns the settings in effect.
func (ssc *StreamingContext) Config() Config { return ssc.cfg }

// Describe returns the graph as text, one line per operator.
func (ssc *StreamingContext) Describe() string { return ssc.g.Describe() }

// Err returns what was done wrong with operations, such as adding one after
// Build.
func (ssc *StreamingContext) Err() error { return ssc.g.Err() }

// State returns where the context is in its life.
func (ssc *StreamingContext) State() ContextState {
	ssc.mu.Lock()
	defer ssc.mu.Unlock()
	return ssc.stateLocked()
}

func (ssc *StreamingContext) stateLocked() ContextState {
	if ssc.driver != nil {
		select {
		case <-ssc.driver.Done():
			return Stopped
		default:
		}
	}
	return ssc.state
}

// Remember asks that every stream's data sets are kept for at least d, for
// Slice. It may be called once, in Build; later it has no effect (Spark 4.2).
func (ssc *StreamingContext) Remember(d time.Duration) {
	if ssc.g.Finished() {
		ssc.env.log.Warn("Remember comes too late and has no effect: call it in Build", "duration", d)
		return
	}
	if err := base.CheckInterval("Remember: the duration", d); err != nil {
		ssc.g.Errorf("%w", err)
		return
	}
	if ssc.remember {
		ssc.g.Errorf("Remember: duration already set as %v, can't set it to %v", ssc.g.Remember, d)
		return
	}
	ssc.remember = true
	ssc.g.Remember = d
}

// AddListener registers l, which implements any of the listener interfaces of
// package driver. It must be called before Start.
func (ssc *StreamingContext) AddListener(l any) {
	ssc.mu.Lock()
	defer ssc.mu.Unlock()
	if s := ssc.stateLocked(); s != Initialized {
		ssc.g.Errorf("AddListener: the context is %v: listeners are added before Start", s)
		return
	}
	ssc.listeners = append(ssc.listeners, l)
}

// open says whether operations may be added; if not, it records the wrong use.
func (ssc *StreamingContext) open(what string) bool {
	if !ssc.g.Finished() {
		return true
	}
	when := "Build has returned"
	switch ssc.State() {
	case Active:
		when = "starting a context"
	case Stopped:
		when = "stopping a context"
	}
	ssc.g.Errorf("%s: adding new inputs, transformations, and output operations after %s is not supported", what, when)
	ssc.env.log.Error("wrong use", "operation", what, "reason", "operations can only be added in Build")
	return false
}

// Start runs the job. On an active context it does nothing; on a stopped one
// it is an error. After a failed start the context is stopped.
func (ssc *StreamingContext) Start(ctx context.Context) error {
	d, err := ssc.begin()
	if d == nil && err == nil {
		ssc.env.log.Warn("the context has already been started")
		return nil
	}
	if err == nil {
		// What waits for a file system that does not answer knows no context.
		started := context.AfterFunc(ctx, func() { _ = ssc.env.close() })
		if err = ssc.start(ctx, d); !started() {
			if err == nil { // its files are closed
				_, err = d.Stop(context.Background(), false)
			}
			err = errors.Join(context.Cause(ctx), err)
		}
	}
	if err != nil {
		return fmt.Errorf("job %q: %w", ssc.job.Name, err)
	}
	return nil
}

// begin makes the context active, or says why it can't be. The driver is nil
// if it is active already.
func (ssc *StreamingContext) begin() (*driver.Driver, error) {
	ssc.mu.Lock()
	defer ssc.mu.Unlock()
	switch ssc.stateLocked() {
	case Active:
		return nil, nil
	case Stopped:
		return nil, errors.New("the StreamingContext has already been stopped and can't be started again: make a new one")
	}
	if err := ssc.g.CheckOutputs(); err != nil {
		ssc.state = Stopped
		return nil, err
	}
	c := ssc.cfg.driver()
	c.Job, c.FS, c.Stdout, c.Log = ssc.job.Name, ssc.env.fs, ssc.env.stdout, ssc.env.log
	c.Listeners = ssc.listeners
	ssc.hub = rpc.NewHub()
	ssc.driver = driver.New(c, ssc.g)
	ssc.state = Active
	return ssc.driver, nil
}

// start starts the executors, then the driver. After an error the driver has ended.
func (ssc *StreamingContext) start(ctx context.Context, d *driver.Driver) error {
	x := driver.Durable{Run: newRun(), Epoch: 1, Program: ssc.program(), Events: ssc.env.events, States: state.NewMemStorage()}
	x.Close = ssc.env.close
	if ssc.env.dir != "" {
		var err error
		if x, err = ssc.openDir(ctx); err != nil {
			d.Abort(nil, err)
			return errors.Join(err, ssc.env.close())
		}
	}
	ssc.mu.Lock()
	ssc.run, ssc.epoch, ssc.states = x.Run, x.Epoch, x.States
	ssc.mu.Unlock()
	d.GoOn(x)
	var running []rpc.Executor
	for range ssc.cfg.Executors {
		e, err := ssc.startExecutor(d)
		if err != nil {
			d.Abort(running, err)
			return err
		}
		running = append(running, e)
	}
	return d.Start(ctx, running)
}

// startExecutor starts an executor with a graph of its own, which must equal
// the driver's (Invariant 11).
func (ssc *StreamingContext) startExecutor(d *driver.Driver) (*executor.Executor, error) {
	own, err := build(ssc.job, ssc.cfg, ssc.env)
	if err != nil {
		return nil, err
	}
	if own.g.Fingerprint() != ssc.g.Fingerprint() {
		return nil, fmt.Errorf("start an executor: Build gave another graph when it ran again; it must not depend on clock, random numbers, network, environment or global state:\n%s", strings.TrimSuffix(ssc.g.Diff(own.g), "\n"))
	}
	ssc.mu.Lock()
	ssc.started++
	n := ssc.started
	run, epoch, states, dir := ssc.run, ssc.epoch, ssc.states, ssc.dir
	ssc.mu.Unlock()
	id := base.ExecutorID(fmt.Sprintf("exec-%d", n))
	cfg := executor.Config{
		ID: id, Slots: ssc.cfg.TaskSlots, Job: ssc.job.Name, Run: run, Epoch: epoch,
		FS: ssc.env.scratchFS, Dir: fsys.Join(ssc.env.scratch, string(id)),
		MemoryLimit: ssc.cfg.MemoryLimit, Checked: ssc.cfg.Checked,
		Receiver: ssc.cfg.receiver(), States: states, Log: ssc.env.log.Named(string(id)),
	}
	if dir != nil {
		cfg.Blocks = dir.logs
		if ssc.cfg.ReceiverWAL == "on" {
			cfg.Logs = dir.logs
		}
	}
	e, err := executor.Start(cfg, own.g, d, ssc.hub)
	if err != nil {
		return nil, err
	}
	ssc.mu.Lock()
	ssc.executors = append(ssc.executors, e)
	ssc.ids = append(ssc.ids, string(id))
	ssc.mu.Unlock()
	return e, nil
}

// ExecutorIDs lists the executors in the order they were started, also those
// that are gone.
func (ssc *StreamingContext) ExecutorIDs() []string {
	ssc.mu.Lock()
	defer ssc.mu.Unlock()
	return slices.Clone(ssc.ids)
}

// KillExecutor ends executor i, counted from 0, as a crash of its process
// would: what it held is gone. It is for tests of fault tolerance.
func (ssc *StreamingContext) KillExecutor(i int) error {
	ssc.mu.Lock()
	if i < 0 || i >= len(ssc.executors) {
		n := len(ssc.executors)
		ssc.mu.Unlock()
		return fmt.Errorf("there is no executor %d: %d were started", i, n)
	}
	e := ssc.executors[i]
	ssc.executors[i] = nil
	ssc.mu.Unlock()
	if e != nil {
		e.Kill()
	}
	return nil
}

// AddExecutor starts one more executor while the job runs.
func (ssc *StreamingContext) AddExecutor() error {
	if s := ssc.State(); s != Active {
		return fmt.Errorf("AddExecutor: the context is %v", s)
	}
	e, err := ssc.startExecutor(ssc.driver)
	if err != nil {
		return err
	}
	return ssc.driver.AddExecutor(e)
}

// AwaitTermination waits until the job has ended and returns why it failed,
// nil if it was stopped. It returns the error of ctx if that ends first.
func (ssc *StreamingContext) AwaitTermination(ctx context.Context) error {
	ssc.mu.Lock()
	d, state := ssc.driver, ssc.state
	ssc.mu.Unlock()
	if d == nil {
		if state == Stopped {
			return nil
		}
		return errors.New("AwaitTermination: the context has not been started")
	}
	select {
	case <-d.Done():
		return d.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop ends the job and waits. Gracefully, it first works off what receivers
// have accepted and what is planned, for at most the stop timeout or until ctx
// ends; else it cancels what runs. Both say what was left. It may be called
// before Start and more than once, but not from a listener's call.
func (ssc *StreamingContext) Stop(ctx context.Context, graceful bool) (StopReport, error) {
	ssc.mu.Lock()
	d := ssc.driver
	if d == nil {
		ssc.state = Stopped
		ssc.mu.Unlock()
		return StopReport{Graceful: graceful}, nil
	}
	ssc.mu.Unlock()
	if d.InListener() {
		return StopReport{}, errors.New("Stop: cannot stop the StreamingContext within a listener's call: call it from another goroutine") //nolint:staticcheck // names the method
	}
	return d.Stop(ctx, graceful)
}

// Counters returns the named counters, summed over all accepted tasks.
func (ssc *StreamingContext) Counters() map[string]int64 {
	ssc.mu.Lock()
	d := ssc.driver
	ssc.mu.Unlock()
	if d == nil {
		return nil
	}
	return d.Counters()
}

// RememberedStream says how long a stream's data sets are kept, and which are held.
type RememberedStream struct {
	Name     string
	Slide    time.Duration
	Remember time.Duration
	Held     []BatchTime
}

// Remembered tells of every stream of the graph, in the order of declaration.
func (ssc *StreamingContext) Remembered() []RememberedStream {
	ssc.mu.Lock()
	d := ssc.driver
	ssc.mu.Unlock()
	var out []RememberedStream
	if d == nil {
		for _, op := range ssc.g.Ops {
			out = append(out, RememberedStream{Name: string(op.UID), Slide: op.Slide, Remember: op.Remember})
		}
		return out
	}
	for _, r := range d.Remembered() {
		out = append(out, RememberedStream{
			Name: string(r.UID), Slide: time.Duration(r.Slide) * time.Millisecond,
			Remember: time.Duration(r.Remember) * time.Millisecond, Held: r.Held,
		})
	}
	return out
}

// Slice returns the remembered batches of d in [from, to]. Both ends are
// floored to d's slide (Spark 4.2). Times that were no batch, and future ones,
// give nothing; forgotten ones are an error.
func Slice[T any](d DStream[T], from, to BatchTime) ([]*Batch[T], error) {
	ssc := d.ssc
	ssc.mu.Lock()
	drv, run := ssc.driver, ssc.run
	ssc.mu.Unlock()
	if drv == nil {
		return nil, fmt.Errorf("Slice of %q: the stream has not been initialized: the context is %v", d.Name(), ssc.State()) //nolint:staticcheck // names the function
	}
	sets, err := drv.Slice(d.op.UID, from, to)
	if err != nil {
		return nil, err
	}
	out := make([]*Batch[T], 0, len(sets))
	for _, s := range sets {
		out = append(out, &Batch[T]{b: s, key: fmt.Sprintf("%s/%s/%s/%d", ssc.job.Name, run, d.op.UID, int64(s.Time()))})
	}
	return out, nil
}

// op adds an operator to the graph.
func (ssc *StreamingContext) op(op *plan.Op) *plan.Op {
	ssc.g.Add(op)
	return op
}
