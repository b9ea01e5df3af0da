package tidemill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/rdd"
	"github.com/tidemill/tidemill/receiver"
	"github.com/tidemill/tidemill/tidetest"
)

// trace is what happened in a job, in order, from wherever it was seen.
type trace struct {
	mu    sync.Mutex
	lines []string
}

func (tr *trace) add(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lines = append(tr.lines, fmt.Sprintf(format, args...))
}

func (tr *trace) all() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Clone(tr.lines)
}

// count says how many lines begin with prefix.
func (tr *trace) count(prefix string) int {
	n := 0
	for _, l := range tr.all() {
		if strings.HasPrefix(l, prefix) {
			n++
		}
	}
	return n
}

// index returns the place of the first line that begins with prefix, -1 if there is none.
func (tr *trace) index(prefix string) int {
	return slices.IndexFunc(tr.all(), func(l string) bool { return strings.HasPrefix(l, prefix) })
}

var errDisk = errors.New("disk full")

// recLog is a driver's log that writes what it is given into a trace. The
// append with number failAt, from 1, and all after it fail.
type recLog struct {
	*trace
	mu     sync.Mutex
	n      int
	failAt int
	events []driver.Event
	before func(driver.Event) // runs first; may wait
}

func (l *recLog) Append(ctx context.Context, e driver.Event) error {
	if l.before != nil {
		l.before(e)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	if l.failAt > 0 && l.n >= l.failAt {
		l.add("log fails: %s", eventName(e))
		return errDisk
	}
	l.events = append(l.events, e)
	l.add("log %s", eventName(e))
	return nil
}

func (l *recLog) Post(e driver.Event) error { return l.Append(context.Background(), e) }

func (l *recLog) all() []driver.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

func eventName(e driver.Event) string {
	switch e := e.(type) {
	case driver.DriverStarted:
		return "DriverStarted"
	case driver.ReceiverRegistered:
		return fmt.Sprintf("ReceiverRegistered %s/%d", e.Stream, e.Epoch)
	case driver.BlockAdded:
		return fmt.Sprintf("BlockAdded %s", e.Block.ID)
	case driver.BlocksLost:
		return fmt.Sprintf("BlocksLost %v", e.Blocks)
	case driver.BatchPlanned:
		return fmt.Sprintf("BatchPlanned %d", e.Batch.Time)
	case driver.OutputDone:
		return fmt.Sprintf("OutputDone %d %s", e.Time, e.Output)
	case driver.BatchDone:
		return fmt.Sprintf("BatchDone %d", e.Time)
	case driver.BatchFailed:
		return fmt.Sprintf("BatchFailed %d", e.Time)
	case driver.Released:
		return fmt.Sprintf("Released %v", e.Batches)
	}
	return fmt.Sprintf("%T", e)
}

// feed is an in-memory source for receivers. Every entry is stored by one
// StoreMany, a single record by Store.
type feed struct {
	in     chan []string
	stored func(records []string, err error)
}

func newFeed() *feed { return &feed{in: make(chan []string, 1000)} }

func (f *feed) open() tidemill.Receiver[string] {
	return receiver.Func[string](func(ctx context.Context, s *receiver.Sink[string]) error {
		s.Ready()
		for {
			select {
			case records := <-f.in:
				var err error
				if len(records) == 1 {
					err = s.Store(ctx, records[0])
				} else {
					err = s.StoreMany(ctx, records)
				}
				if f.stored != nil {
					f.stored(records, err)
				}
				if err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// alarms keeps what an operator was told.
type alarms struct {
	mu  sync.Mutex
	all []tidemill.Alarm
}

func (a *alarms) OnAlarm(x tidemill.Alarm) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, x)
}

func (a *alarms) of(kind string) []tidemill.Alarm {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []tidemill.Alarm
	for _, x := range a.all {
		if x.Kind == kind {
			out = append(out, x)
		}
	}
	return out
}

// batches keeps what a listener hears of completed batches.
type batches struct {
	mu  sync.Mutex
	all []tidemill.BatchInfo
}

func (b *batches) OnBatchCompleted(i tidemill.BatchInfo) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, i)
}

func (b *batches) list() []tidemill.BatchInfo {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// wantErr checks that the job has ended with an error that holds all the texts.
func wantErr(t *testing.T, job *tidetest.Running, texts ...string) {
	t.Helper()
	holds(t, job.Err(), texts...)
}

func holds(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

// sleep lets fake time pass; it is for bubbles only.
func sleep(d time.Duration) { time.Sleep(d) }

// settle is sleep that then waits until all goroutines of the bubble wait.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func add(a, b int) int { return a + b }

func ms(t base.BatchTime) int64 { return int64(t) }

func rddFilter(r tidemill.RDD[int]) tidemill.RDD[int] {
	return rdd.Filter(r, func(int) bool { return true })
}

// deafReceiver stores a record and hears nothing until release is closed.
func deafReceiver(release chan struct{}) func() tidemill.Receiver[string] {
	return func() tidemill.Receiver[string] {
		return receiver.Func[string](func(ctx context.Context, s *receiver.Sink[string]) error {
			err := s.Store(ctx, "a")
			<-release
			return err
		})
	}
}

// sluggish is a listener that takes two seconds for each event.
type sluggish struct{ submitted, started, completed, tasks, outputs atomic.Int64 }

func (s *sluggish) OnBatchSubmitted(tidemill.BatchInfo)   { heard(&s.submitted) }
func (s *sluggish) OnBatchStarted(tidemill.BatchInfo)     { heard(&s.started) }
func (s *sluggish) OnBatchCompleted(tidemill.BatchInfo)   { heard(&s.completed) }
func (s *sluggish) OnTaskCompleted(driver.TaskInfo)       { heard(&s.tasks) }
func (s *sluggish) OnOutputStarted(tidemill.OutputInfo)   { heard(&s.outputs) }
func (s *sluggish) OnOutputCompleted(tidemill.OutputInfo) { heard(&s.outputs) }

func heard(n *atomic.Int64) {
	sleep(2 * time.Second)
	n.Add(1)
}

// quiet listens to everything and keeps nothing.
type quiet struct{}

func (quiet) OnTaskCompleted(driver.TaskInfo)       {}
func (quiet) OnOutputCompleted(tidemill.OutputInfo) {}

func silent() hclog.Logger { return hclog.NewNullLogger() }
