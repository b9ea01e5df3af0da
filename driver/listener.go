package driver

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tidemill/tidemill/internal/base"
)

// BatchInfo tells of a batch.
type BatchInfo struct {
	Time    base.BatchTime
	Records int64 // of all sources that count
	Inputs  []InputInfo
	// Submitted is when the batch was planned, Started when its first job
	// began, Ended when its last one ended.
	Submitted, Started, Ended time.Time
	Outputs                   []OutputInfo
	// Err is the first failure, nil if all outputs are done.
	Err error
	// Counters holds what the tasks of this batch counted.
	Counters map[string]int64
}

// SchedulingDelay is the time from planning to the start.
func (b BatchInfo) SchedulingDelay() time.Duration { return b.Started.Sub(b.Submitted) }

// ProcessingDelay is the time from start to end.
func (b BatchInfo) ProcessingDelay() time.Duration { return b.Ended.Sub(b.Started) }

// TotalDelay is the sum of both.
func (b BatchInfo) TotalDelay() time.Duration { return b.Ended.Sub(b.Submitted) }

// InputInfo tells what a source gave to a batch.
type InputInfo struct {
	Stream  base.UID
	Records int64 // -1 if the source does not count
	Bytes   int64 // -1 if the source does not know
	Absent  bool
}

// OutputInfo tells of an output in a batch.
type OutputInfo struct {
	Index  int // in the order of declaration, from 0
	Output base.UID
	Time   base.BatchTime
	Start  time.Time
	End    time.Time
	Err    error
}

// ReceiverInfo tells of a receiver.
type ReceiverInfo struct {
	Stream   base.UID
	Epoch    base.Epoch
	Executor base.ExecutorID
	Message  string
}

// TaskInfo tells of a task that was accepted.
type TaskInfo struct {
	Batch     base.BatchTime
	What      string // the shuffle it wrote, or the node it computed
	Partition int
	Attempt   base.Attempt
	Executor  base.ExecutorID
	Hash      uint64 // of the records, in checked mode
}

// Alarm tells of something that an operator should know.
type Alarm struct {
	Kind    string // "source", "receiver", "executor", "skipped", "clock", "blocks-lost", "batch-failed", "state"
	Batch   base.BatchTime
	Subject string
	Message string
}

// The listener interfaces. A listener implements those it wants; calls come
// one at a time from one goroutine, in the order of the events. A listener
// that is slow holds the job back, since no event is dropped; it must not
// stop the job from inside a call.
type (
	// StartedListener hears that the job runs.
	StartedListener interface{ OnStreamingStarted(time.Time) }
	// BatchSubmittedListener hears of planned batches.
	BatchSubmittedListener interface{ OnBatchSubmitted(BatchInfo) }
	// BatchStartedListener hears of batches that begin to run.
	BatchStartedListener interface{ OnBatchStarted(BatchInfo) }
	// BatchCompletedListener hears of batches that are done, also with failures.
	BatchCompletedListener interface{ OnBatchCompleted(BatchInfo) }
	// OutputStartedListener hears of outputs that begin.
	OutputStartedListener interface{ OnOutputStarted(OutputInfo) }
	// OutputCompletedListener hears of outputs that ended.
	OutputCompletedListener interface{ OnOutputCompleted(OutputInfo) }
	// ReceiverStartedListener hears of receivers that reached their source.
	ReceiverStartedListener interface{ OnReceiverStarted(ReceiverInfo) }
	// ReceiverErrorListener hears of errors of receivers.
	ReceiverErrorListener interface{ OnReceiverError(ReceiverInfo) }
	// ReceiverStoppedListener hears of receivers that ended.
	ReceiverStoppedListener interface{ OnReceiverStopped(ReceiverInfo) }
	// TaskListener hears of accepted tasks.
	TaskListener interface{ OnTaskCompleted(TaskInfo) }
	// AlarmListener hears of alarms.
	AlarmListener interface{ OnAlarm(Alarm) }
)

// bus hands events to listeners on one goroutine.
type bus struct {
	queue     chan func(listener any)
	listeners []any
	quit      chan struct{} // closed: what is queued is the last
	done      chan struct{}
	panicked  func(listener any, reason any)

	mu sync.Mutex
	id string // of the goroutine, as the runtime prints it

	// Of the goroutine: the event that is being handed out, and the listener
	// that is next to hear it.
	event func(listener any)
	next  int
}

// busQueue bounds the events that wait for listeners (Invariant 9).
const busQueue = 1024

func newBus(listeners []any, panicked func(listener, reason any)) *bus {
	b := &bus{
		queue: make(chan func(any), busQueue), listeners: listeners, next: len(listeners),
		quit: make(chan struct{}), done: make(chan struct{}), panicked: panicked,
	}
	go b.run()
	return b
}

func (b *bus) run() {
	ended := false
	defer func() {
		if ended {
			close(b.done)
			return
		}
		b.panicked(b.listeners[b.next-1], "it ended its goroutine") // runtime.Goexit, as t.FailNow does
		go b.run()
	}()
	b.mu.Lock()
	b.id = goroutineID()
	b.mu.Unlock()
	for {
		for b.next < len(b.listeners) {
			b.next++
			b.call(b.listeners[b.next-1])
		}
		if !b.take() {
			break
		}
	}
	ended = true
}

// take waits for the next event. After quit it waits no more.
func (b *bus) take() bool {
	select {
	case b.event = <-b.queue:
	case <-b.quit:
		select {
		case b.event = <-b.queue:
		default:
			return false
		}
	}
	b.next = 0
	return true
}

func (b *bus) call(l any) {
	defer func() {
		if r := recover(); r != nil { // a listener is user code and must not end the job (Invariant 10)
			b.panicked(l, r)
		}
	}()
	b.event(l)
}

// inside reports whether the caller runs in a listener's call.
func (b *bus) inside() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.id != "" && b.id == goroutineID()
}

// goroutineID is the runtime's number of the calling goroutine. Go has no
// call for it; the first line of a stack trace is "goroutine N [running]:".
func goroutineID() string {
	var buf [64]byte
	fields := strings.Fields(string(buf[:runtime.Stack(buf[:], false)]))
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// close waits until all events were heard. What is told later is not.
func (b *bus) close() {
	close(b.quit)
	<-b.done
}

// tell queues an event for the listeners of interface L. It waits for room
// until ctx ends.
func tell[L any](ctx context.Context, b *bus, f func(L)) {
	if len(b.listeners) == 0 {
		return
	}
	event := func(l any) {
		if x, ok := l.(L); ok {
			f(x)
		}
	}
	select {
	case b.queue <- event: // also when ctx has ended: the last events are heard
		return
	default:
	}
	select {
	case b.queue <- event:
	case <-ctx.Done():
	}
}
