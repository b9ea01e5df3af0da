package tidetest

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
)

// Run runs f in a bubble of fake time, which starts at midnight UTC 2000-01-01
// and moves only when all goroutines of the bubble wait.
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// Job says what to run. The zero value of each field but Build is a default:
// one executor with two slots, batches of a second, files in memory, checked
// mode on.
type Job struct {
	Name   string
	Config tidemill.Config
	Build  func(ssc *tidemill.StreamingContext) error
	// FS holds files; a new one in memory if nil.
	FS *fsys.Mem
	// Unchecked turns checked mode off.
	Unchecked bool
	Listeners []any
	Stdout    io.Writer
	Options   []tidemill.ContextOption
}

// Running is a started job.
type Running struct {
	t        testing.TB
	ssc      *tidemill.StreamingContext
	interval time.Duration
	start    tidemill.BatchTime
}

// New builds a job without starting it.
func New(t testing.TB, j Job) (*tidemill.StreamingContext, error) {
	t.Helper()
	if j.Name == "" {
		j.Name = "test"
	}
	if j.FS == nil {
		j.FS = fsys.NewMem()
	}
	if j.Stdout == nil {
		j.Stdout = io.Discard
	}
	if j.Config.TaskSlots == 0 {
		j.Config.TaskSlots = 2
	}
	j.Config.Checked = !j.Unchecked
	opts := []tidemill.ContextOption{
		tidemill.WithFS(j.FS), tidemill.WithScratch("/scratch"), tidemill.WithStdout(j.Stdout), tidemill.WithLogger(logger(t)),
	}
	ssc, err := tidemill.New(tidemill.App{Name: j.Name, Build: j.Build}, j.Config, append(opts, j.Options...)...)
	if err != nil {
		return nil, err
	}
	for _, l := range j.Listeners {
		ssc.AddListener(l)
	}
	return ssc, nil
}

func logger(t testing.TB) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: t.Name(), Level: hclog.Warn, Output: t.Output(), DisableTime: true})
}

// Start builds and starts a job, which is stopped at once when the test ends.
// Errors fail the test.
func Start(t testing.TB, j Job) *Running {
	t.Helper()
	ssc, err := New(t, j)
	if err != nil {
		t.Fatal(err)
	}
	r := &Running{t: t, ssc: ssc, interval: ssc.Config().BatchInterval}
	r.start = tidemill.BatchTime(time.Now().UnixMilli()).Floor(r.interval)
	if err := ssc.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := ssc.Stop(context.Background(), false); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Context returns the job.
func (r *Running) Context() *tidemill.StreamingContext { return r.ssc }

// Advance lets the time of n batches pass, and waits until all that this sets
// off has ended or waits for something else.
func (r *Running) Advance(n int) {
	time.Sleep(time.Duration(n) * r.interval)
	synctest.Wait()
}

// Time returns the time of batch i, counted from 1.
func (r *Running) Time(i int) tidemill.BatchTime {
	return r.start.Add(time.Duration(i) * r.interval)
}

// Stop stops the job and returns what that left.
func (r *Running) Stop(graceful bool) tidemill.StopReport {
	r.t.Helper()
	report, err := r.ssc.Stop(context.Background(), graceful)
	if err != nil {
		r.t.Error(err)
	}
	return report
}

// Kill ends executor i, counted from 0, as a crash would.
func (r *Running) Kill(i int) {
	r.t.Helper()
	if err := r.ssc.KillExecutor(i); err != nil {
		r.t.Error(err)
	}
}

// Err returns why the job failed, nil if it runs or was stopped.
func (r *Running) Err() error {
	if r.ssc.State() != tidemill.Stopped {
		return nil
	}
	return r.ssc.AwaitTermination(context.Background())
}

// Script is a source whose batches are given: entry i is the input of the
// job's batch i, a nil entry means that the source has no data set for that
// batch. After the last entry batches are empty. InputPartitions says into how
// many partitions a batch is cut, 2 by default.
func Script[T any](ssc *tidemill.StreamingContext, name string, batches [][]T, parts ...int) tidemill.DStream[T] {
	s := &script[T]{batches: batches, parts: 2, c: codec.For[T]()}
	if len(parts) > 0 {
		s.parts = parts[0]
	}
	return tidemill.FromSource(ssc, name, "script", tidemill.Source[T](s))
}

type script[T any] struct {
	batches [][]T
	parts   int
	next    int
	c       *codec.Codec[T]
}

func (s *script[T]) Open(context.Context, tidemill.BatchTime) error { return nil }
func (s *script[T]) Close() error                                   { return nil }

func (s *script[T]) Plan(context.Context, tidemill.BatchTime, graph.Limit) (plan.Input, error) {
	var records []T
	if s.next < len(s.batches) {
		if records = s.batches[s.next]; records == nil {
			s.next++ // nothing to plan, so Planned is not called
			return plan.Input{Absent: true}, nil
		}
	}
	return tidemill.PlannedRecords(s.c, records, s.parts)
}

func (s *script[T]) Planned(tidemill.BatchTime, plan.Input) { s.next++ }

func (s *script[T]) Data(b *plan.Builder, in plan.Input) (tidemill.RDD[T], error) {
	return tidemill.RecordsOf(b, s.c, in)
}

// Capture keeps what an output got, per batch.
type Capture[T any] struct {
	mu      sync.Mutex
	batches []Captured[T]
}

// Captured is one batch of a Capture.
type Captured[T any] struct {
	Time       tidemill.BatchTime
	Partitions [][]T
}

// Records returns the batch's records in partition order.
func (c Captured[T]) Records() []T {
	out := []T{}
	for _, p := range c.Partitions {
		out = append(out, p...)
	}
	return out
}

// NewCapture returns an empty capture. It is made outside of Build.
func NewCapture[T any]() *Capture[T] { return &Capture[T]{} }

// Of registers the output on d; call it in Build.
func (c *Capture[T]) Of(d tidemill.DStream[T], name string) {
	tidemill.ForeachBatch(d, name, func(ctx context.Context, b *tidemill.Batch[T]) error {
		parts, err := b.CollectPartitions(ctx)
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.batches = append(c.batches, Captured[T]{Time: b.Time(), Partitions: parts})
		return nil
	})
}

// Batches returns what was captured, in the order it came. A batch in which
// the stream had no data set has no entry.
func (c *Capture[T]) Batches() []Captured[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Captured[T](nil), c.batches...)
}

// Records returns the records of every captured batch.
func (c *Capture[T]) Records() [][]T {
	out := [][]T{}
	for _, b := range c.Batches() {
		out = append(out, b.Records())
	}
	return out
}
