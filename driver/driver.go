package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/internal/sched"
	"github.com/tidemill/tidemill/wal"
)

// Policy says what becomes of the job when part of a batch can't be computed.
type Policy string

// Policies.
const (
	// Fail or stop: the job ends with the error.
	PolicyStop Policy = "stop"
	// Continue: the batch fails, the job goes on.
	PolicyContinue Policy = "continue"
	// Skip: what is gone is left out, counted and shown.
	PolicySkip Policy = "skip"
	// PolicyFail: the batch fails.
	PolicyFail Policy = "fail"
)

// Config is what a driver needs beside its graph. Every field must be set but
// those said to be optional.
type Config struct {
	Job string

	MaxPending      int
	MaxBatchRecords int64 // per batch over all sources; 0 is no limit
	MaxBatchBytes   int64 // likewise
	MaxTaskFailures int
	MaxBlockParts   int    // partitions of a receiver's part of a batch; 0 is no limit
	OnBatchFailure  Policy // stop or continue
	OnLostBlocks    Policy // fail or skip
	CatchUp         CatchUp
	StopTimeout     time.Duration
	Rates           RateConfig

	FS     fsys.FS
	Stdout io.Writer
	// Durable is what the job goes on with; it may come with [Driver.GoOn].
	Durable
	// Listeners and Log are optional.
	Listeners []any
	Log       hclog.Logger
}

// Driver runs one job. All methods may be called from any goroutine.
type Driver struct {
	cfg   Config
	g     *graph.Graph
	gen   *Generator
	bus   *bus
	sched *scheduler

	hard   context.Context // ends when everything must end at once
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	planned   chan *planned // bounded by the generator
	recovered []*planned    // of the log, before those
	slot      chan struct{} // a batch is done: the planner may look again
	stop      chan struct{} // closed: a graceful stop has begun
	stopOnce  sync.Once
	ended     chan struct{} // closed when all of the driver has ended

	lmu     sync.Mutex
	lineage *plan.Lineage
	first   base.BatchTime              // that ran
	begun   map[base.UID]base.BatchTime // when stateful operators had their first input, if this driver knows

	states   *stateBook
	rates    *RateControl // under tmu
	turns    int64        // of sharing a batch's limit; the planner's
	badRates error

	tmu       sync.Mutex
	tracker   *Tracker
	receivers map[base.UID]*placed
	placing   chan struct{}                  // closed when all receivers have been placed first
	flights   map[base.UID]*sync.WaitGroup   // blocks that the log is given, by stream
	draining  bool                           // receivers have been asked to end
	lost      map[base.BlockID]chan struct{} // given up, of remembered batches; closed when the log has it
	someEnded chan struct{}                  // holds a token: a receiver has ended

	mu        sync.Mutex
	closing   bool // no executor is taken any more
	executors map[base.ExecutorID]rpc.Executor
	order     []base.ExecutorID // of the live ones
	err       error             // why the job failed
	report    StopReport
	counters  map[string]int64
	pending   []base.BatchTime

	batchCounters   map[string]int64 // of the batch that runs
	batchCountersOf base.BatchTime

	watchers sync.WaitGroup // of executors
	locating atomic.Bool    // a file system is being asked where input is
}

// planned is a batch on its way from the planner to the runner.
type planned struct {
	plan    *plan.Batch
	at      time.Time
	outputs []base.UID // that are done already
}

// StopReport says what a stop left.
type StopReport struct {
	Graceful  bool
	Completed int64            // batches that are done, failed ones included
	Failed    int64            // of them with a failure
	Skipped   int64            // ticks that got no batch of their own
	Pending   []base.BatchTime // planned, not done
	Blocks    int              // received, in no batch
	Records   int64            // in those blocks
	Lost      int64            // records that receivers accepted and could not store
	Running   int              // calls of user code that have not returned when told to
}

// String sums the report up in one line.
func (r StopReport) String() string {
	how := "stopped at once"
	if r.Graceful {
		how = "stopped gracefully"
	}
	s := fmt.Sprintf("%s: %d batches done", how, r.Completed)
	if r.Failed > 0 {
		s += fmt.Sprintf(" (%d with failures)", r.Failed)
	}
	if len(r.Pending) == 0 && r.Blocks == 0 {
		s += ", nothing left"
	} else {
		s += "; left: " + r.left()
	}
	if r.Lost > 0 {
		s += fmt.Sprintf("; up to %d records that receivers had accepted are lost", r.Lost)
	}
	if r.Running > 0 {
		s += fmt.Sprintf("; %d calls of user code have not returned", r.Running)
	}
	return s
}

func (r StopReport) left() string {
	return fmt.Sprintf("%d planned batches, %d received records in %d blocks", len(r.Pending), r.Records, r.Blocks)
}

// New returns a driver that has not started yet. Executors report to it from
// their own start on.
func New(cfg Config, g *graph.Graph) *Driver {
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	d := &Driver{
		cfg: cfg, g: g,
		planned: make(chan *planned, cfg.MaxPending+1),
		slot:    make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
		lineage: plan.NewLineage(g.Ops), begun: map[base.UID]base.BatchTime{},
		states:    newStateBook(),
		receivers: map[base.UID]*placed{}, flights: map[base.UID]*sync.WaitGroup{}, placing: make(chan struct{}), lost: map[base.BlockID]chan struct{}{}, someEnded: make(chan struct{}, 1),
		executors: map[base.ExecutorID]rpc.Executor{},
		counters:  map[string]int64{},
	}
	var streams []base.UID
	for _, s := range g.Sources {
		if s.Receiver != nil {
			streams = append(streams, s.Op.UID)
			d.flights[s.Op.UID] = &sync.WaitGroup{}
		}
	}
	d.tracker = NewTracker(streams)
	d.rates, d.badRates = NewRateControl(g.Interval, cfg.Rates, streams)
	d.hard, d.cancel = context.WithCancelCause(context.Background())
	d.bus = newBus(cfg.Listeners, func(l, r any) {
		cfg.Log.Error("listener panicked", "listener", fmt.Sprintf("%T", l), "panic", fmt.Sprint(r))
	})
	d.sched = newScheduler(d, sched.Config{MaxTaskFailures: cfg.MaxTaskFailures})
	return d
}

// Start runs the job on the given executors, which it closes at its end, until
// [Driver.Stop] or a failure. After an error the driver has ended.
func (d *Driver) Start(ctx context.Context, executors []rpc.Executor) error {
	now := time.Now()
	d.mu.Lock()
	d.gen = NewGenerator(d.g.Interval, d.cfg.MaxPending+1, d.cfg.CatchUp, slideRules(d.g), base.TimeOf(now))
	d.mu.Unlock()
	if err := d.goOn(ctx, base.TimeOf(now)); err != nil {
		d.Abort(executors, err)
		return err
	}
	for _, e := range executors {
		if err := d.AddExecutor(e); err != nil {
			break // it was stopped or has failed already, and ends below
		}
	}
	tell(d.hard, d.bus, func(l StartedListener) { l.OnStreamingStarted(now) })
	for _, p := range d.recovered {
		d.locate(p.plan)
		info := d.batchInfo(p.plan, p.at)
		tell(d.hard, d.bus, func(l BatchSubmittedListener) { l.OnBatchSubmitted(info) })
	}
	d.watchers.Go(d.placeAll) // a log that is slow now must not hold up the start
	d.wg.Go(d.planAll)
	d.wg.Go(d.runAll)
	go d.finish()
	return nil
}

// Abort ends a driver that can't be started, and closes its executors.
func (d *Driver) Abort(executors []rpc.Executor, err error) {
	for _, e := range executors {
		_ = d.AddExecutor(e)
	}
	d.fail(err)
	close(d.planned)
	d.wg.Go(d.runAll)
	go d.finish()
	<-d.ended
}

// append writes an event into the log. Its error ends the job: nothing that
// the log does not have may happen (Invariant 14).
func (d *Driver) append(ctx context.Context, e Event) error {
	err := d.cfg.Events.Append(ctx, e)
	switch {
	case err == nil:
		return nil
	case d.hard.Err() != nil:
		return fmt.Errorf("driver: append %T to the log: %w", e, context.Cause(d.hard))
	}
	return fmt.Errorf("driver: append %T to the log: %w", e, err)
}

// post writes an event into the log without waiting for it.
func (d *Driver) post(e Event) error {
	if err := d.cfg.Events.Post(e); err != nil {
		return fmt.Errorf("driver: append %T to the log: %w", e, err)
	}
	return nil
}

// slideRules lists the slides longer than the batch interval. A slide belongs
// to the operator that introduces it and those behind it.
func slideRules(g *graph.Graph) []SlideRule {
	windows := map[time.Duration]time.Duration{}
	for _, op := range g.Ops {
		if op.Slide > g.Interval {
			windows[op.Slide] = max(windows[op.Slide], op.Window)
		}
	}
	var out []SlideRule
	for _, op := range g.Ops {
		if w, ok := windows[op.Slide]; ok {
			out = append(out, SlideRule{Slide: op.Slide, Window: w})
			delete(windows, op.Slide)
		}
	}
	return out
}

// finish waits for the ends of planner and runner and closes what is left.
func (d *Driver) finish() {
	d.wg.Wait()
	d.cancel(base.ErrStopped)
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	d.sched.close()
	var errs []error
	for _, s := range d.g.Sources {
		if s.Planner != nil {
			errs = append(errs, s.Planner.Close())
		}
	}
	stuck := 0
	for _, err := range d.closeExecutors() {
		var s interface{ StillRunning() int } // what an executor had to leave behind
		if errors.As(err, &s) {
			stuck += s.StillRunning()
		}
		errs = append(errs, err)
	}
	for _, c := range d.g.Closers {
		errs = append(errs, c())
	}
	d.watchers.Wait()
	d.sayFenced()
	if d.cfg.Close != nil {
		errs = append(errs, d.cfg.Close())
	}
	d.bus.close()
	blocks, records := d.waiting()
	d.mu.Lock()
	if d.gen != nil {
		d.report.Skipped = d.gen.SkippedTicks()
	}
	d.report.Pending = append([]base.BatchTime(nil), d.pending...)
	d.report.Blocks, d.report.Records = blocks, records
	d.report.Running += stuck
	if err := errors.Join(errs...); err != nil && d.err == nil {
		d.err = err
	}
	d.report.Graceful = d.report.Graceful && d.err == nil
	d.mu.Unlock()
	close(d.ended)
}

// sayFenced says of a failed job that a successor has taken its directory over, of
// which it may have met the consequences first: files that are gone.
func (d *Driver) sayFenced() {
	j, ok := d.cfg.Events.(interface{ Fenced() bool })
	if err := d.Err(); !ok || err == nil || errors.Is(err, wal.ErrFenced) || !j.Fenced() {
		return
	}
	d.mu.Lock()
	d.err = fmt.Errorf("%w, which has the job's directory now: %w", wal.ErrFenced, d.err)
	d.mu.Unlock()
}

// closeExecutors closes all at once: each may wait for tasks.
func (d *Driver) closeExecutors() []error {
	live := d.live()
	errs := make([]error, len(live))
	var wg sync.WaitGroup
	for i, e := range live {
		wg.Go(func() { errs[i] = e.Close() })
	}
	wg.Wait()
	return errs
}

func (d *Driver) waiting() (int, int64) {
	d.tmu.Lock()
	defer d.tmu.Unlock()
	return d.tracker.Waiting()
}

// fail ends the job with an error; the first one counts.
func (d *Driver) fail(err error) {
	d.mu.Lock()
	if d.err == nil && d.hard.Err() == nil {
		d.err = err
	}
	d.mu.Unlock()
	d.cancel(err)
}

// Done is closed when the driver and all that it runs have ended.
func (d *Driver) Done() <-chan struct{} { return d.ended }

// Err returns why the job failed, nil if it runs or was stopped well.
func (d *Driver) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Report says what the stop left; it is complete once Done is closed.
func (d *Driver) Report() StopReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.report
}

// Counters returns the sums of all counters of accepted tasks.
func (d *Driver) Counters() map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counters)
}

// InListener reports whether the caller runs inside a listener's call.
func (d *Driver) InListener() bool { return d.bus.inside() }

// Stop ends the job and waits until it has ended. A graceful stop lets
// receivers store what they have, puts all received blocks into batches and
// runs every planned batch; when StopTimeout passes or ctx ends before that,
// it becomes an immediate one and says so. An immediate stop cancels tasks
// and leaves planned batches; user code that does not return is left behind
// after [Patience], which the report counts and Err tells.
func (d *Driver) Stop(ctx context.Context, graceful bool) (StopReport, error) {
	var err error
	if graceful {
		d.stopOnce.Do(func() { close(d.stop) })
		timer := time.NewTimer(d.cfg.StopTimeout)
		defer timer.Stop()
		select {
		case <-d.ended:
		case <-timer.C:
			err = fmt.Errorf("a graceful stop did not end within the stop timeout of %v", d.cfg.StopTimeout)
		case <-ctx.Done():
			err = fmt.Errorf("a graceful stop was cut short: %w", context.Cause(ctx))
		}
	}
	d.cancel(base.ErrStopped)
	<-d.ended
	r := d.Report()
	if err != nil {
		err = fmt.Errorf("%w; left: %s", err, r.left())
	}
	return r, err
}

// AddExecutor takes an executor into use and closes it when the job ends. It
// gets the plans of all remembered batches first. After the end of the job it
// is an error; then the executor has been closed.
func (d *Driver) AddExecutor(e rpc.Executor) error {
	if err := d.join(e); err != nil {
		return errors.Join(err, e.Close())
	}
	return nil
}

// join makes an executor one of those that hear of plans, from the next one on.
func (d *Driver) join(e rpc.Executor) error {
	d.lmu.Lock()
	defer d.lmu.Unlock()
	failed := d.lineage.Failed()
	for _, b := range d.lineage.Batches() {
		_ = e.Send(rpc.Plan{Batch: *b, Failed: failed}) // an executor that is gone says so by Gone
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return fmt.Errorf("executor %s comes too late: the job has ended: %w", e.ID(), base.ErrStopped)
	}
	d.executors[e.ID()] = e
	d.order = append(d.order, e.ID())
	d.sched.do(func() { d.sched.apply(d.sched.state.AddExecutor(e.ID(), plan.HostName(e.Host()), e.Slots())) })
	d.watchers.Go(func() {
		select {
		case <-e.Gone():
			d.executorLost(e.ID())
		case <-d.hard.Done():
		}
	})
	return nil
}

// executorLost drops what an executor held and finds new places for its
// receivers.
func (d *Driver) executorLost(id base.ExecutorID) {
	if d.hard.Err() != nil {
		return
	}
	d.mu.Lock()
	delete(d.executors, id)
	d.order = slices.DeleteFunc(d.order, func(x base.ExecutorID) bool { return x == id })
	left := len(d.executors)
	d.mu.Unlock()
	d.alarm(Alarm{Kind: "executor", Subject: string(id), Message: fmt.Sprintf("executor %s is lost, %d left", id, left)})
	if d.cfg.OnLostBlocks == PolicySkip {
		d.giveUpWaiting(id)
	}
	d.states.lose(id)
	d.sched.do(func() { d.sched.lose(id) })
	d.replace(id)
	if left == 0 {
		d.fail(errors.New("all executors are lost"))
	}
}

// live returns the executors in the order they came.
func (d *Driver) live() []rpc.Executor {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]rpc.Executor, 0, len(d.order))
	for _, id := range d.order {
		out = append(out, d.executors[id])
	}
	return out
}

// broadcast sends a message to all executors. One that is gone is noticed by
// its Gone.
func (d *Driver) broadcast(m rpc.ToExecutor) {
	for _, e := range d.live() {
		_ = e.Send(m)
	}
}

// Raise shows an alarm of what the driver depends on.
func (d *Driver) Raise(a Alarm) { d.alarm(a) }

func (d *Driver) alarm(a Alarm) {
	d.cfg.Log.Warn(a.Message, "alarm", a.Kind, "subject", a.Subject)
	tell(d.hard, d.bus, func(l AlarmListener) { l.OnAlarm(a) })
}

// Mismatch implements [rpc.Driver].
func (d *Driver) Mismatch(executor base.ExecutorID, t base.BatchTime, message string) {
	d.fail(fmt.Errorf("batch %s: %s", t, message))
}
