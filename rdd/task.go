package rdd

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
)

// Env is what a task needs of the executor that runs it.
type Env interface {
	// Bucket returns what map partition mapPart of the shuffle holds for
	// reduce partition part: a [Bucket] of the writer's record type, or an
	// encoded frame. Its error is a *base.FetchError when the output is gone.
	Bucket(ctx context.Context, s *plan.Shuffle, mapPart, part int) (Bucket, []byte, error)
	// Kept returns a kept partition, or false.
	Kept(ctx context.Context, key plan.CacheKey) ([]byte, bool)
	// Keep stores a partition that can be computed again, if there is room.
	Keep(key plan.CacheKey, frame []byte, level base.StorageLevel)
	// Block returns a received block.
	Block(ctx context.Context, batch base.BatchTime, b plan.Block) ([]byte, error)
	// CombineLimit is about the number of bytes that an aggregation may hold in
	// memory.
	CombineLimit() int64
	// Spill puts a frame aside, on disk, until the task ends.
	Spill(ctx context.Context, frame []byte) (key string, err error)
	// Spilled returns what Spill put aside.
	Spilled(ctx context.Context, key string) ([]byte, error)
	// Unspill forgets what Spill put aside.
	Unspill(keys []string)
}

// Task is one attempt to compute one partition. User functions that take a
// Task may use it only while they run and only on their goroutine.
type Task struct {
	ctx      context.Context
	env      Env
	spec     TaskSpec
	probes   []*probe
	counters map[string]int64
	hash     uint64
	spilled  []string // to be forgotten when the task ends
}

// Close gives back what the task put aside. It is called when the task has ended.
func (t *Task) Close() {
	if len(t.spilled) > 0 {
		t.env.Unspill(t.spilled)
		t.spilled = nil
	}
}

// TaskSpec says which attempt a task is.
type TaskSpec struct {
	Job       string     // name of the job
	Run       string     // id of the run, part of every external key
	Epoch     base.Epoch // of the job driver
	Operator  string     // of the output, for its key
	Batch     base.BatchTime
	Partition int
	Attempt   base.Attempt
	Executor  base.ExecutorID
	Checked   bool
}

// NewTask returns a task for one attempt.
func NewTask(ctx context.Context, env Env, spec TaskSpec) *Task {
	return &Task{ctx: ctx, env: env, spec: spec}
}

// Context ends when the attempt is cancelled.
func (t *Task) Context() context.Context { return t.ctx }

// Batch is the time of the batch that the task works for.
func (t *Task) Batch() base.BatchTime { return t.spec.Batch }

// Partition is the number of the partition, from 0.
func (t *Task) Partition() int { return t.spec.Partition }

// Attempt counts the tries of this partition, from 0.
func (t *Task) Attempt() int { return int(t.spec.Attempt) }

// Executor names the executor that runs the task.
func (t *Task) Executor() string { return string(t.spec.Executor) }

// Key is the same for all attempts at this partition of this output in this
// batch, and differs from all others: (job, run, operator, batch time,
// partition). A sink that keeps it can drop what it has already written.
func (t *Task) Key() string {
	return t.spec.Job + "/" + t.spec.Run + "/" + t.spec.Operator + "/" +
		strconv.FormatInt(int64(t.spec.Batch), 10) + "/" + strconv.Itoa(t.spec.Partition)
}

// Count adds n to the named counter. The driver takes in the counts of the
// one attempt per partition that succeeded.
func (t *Task) Count(name string, n int64) {
	if t.counters == nil {
		t.counters = map[string]int64{}
	}
	t.counters[name] += n
}

// Counters returns what the task counted.
func (t *Task) Counters() map[string]int64 { return t.counters }

// pollEvery is the number of records between looks at the task's context.
const pollEvery = 1024

// probe follows one operator of a running task, so that a panic in user code
// can be laid at the right door. At any time at most one probe is busy.
type probe struct {
	node    *plan.Node
	part    int
	n       int64
	busy    bool
	preview func() any
}

// probeOf is a probe with the record that user code is working on.
type probeOf[T any] struct {
	probe
	cur T
}

// watch registers a probe for the operator of node n.
func watch[T any](t *Task, n *plan.Node, part int) *probeOf[T] {
	p := &probeOf[T]{probe: probe{node: n, part: part}}
	p.preview = func() any { return p.cur }
	t.probes = append(t.probes, &p.probe)
	return p
}

// enter says that user code gets v. It must stay cheap: it runs per record.
func (p *probeOf[T]) enter(v T) {
	p.n++
	p.cur = v
	p.busy = true
}

// fail wraps an error that user code returned.
func (p *probe) fail(err error) error { return p.taskError(err.Error(), false, "") }

func (p *probe) taskError(msg string, panicked bool, stack string) *base.TaskError {
	e := &base.TaskError{
		Set: p.node.ID.Set, Operator: operatorName(p.node), Partition: p.part, Record: p.n,
		Panic: panicked, Message: msg, Stack: stack,
	}
	if p.n > 0 && p.preview != nil {
		e.Preview = Preview(p.preview())
	}
	return e
}

func operatorName(n *plan.Node) string {
	if n.ID.Index > 0 || n.Op == "" {
		return n.Op + " (" + n.Kind + ")"
	}
	return n.Op
}

// Preview prints a record for an error message, shortened. Strings are quoted.
func Preview(v any) (s string) {
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("a %T that can't be printed", v)
		}
	}()
	const most = 120
	switch x := v.(type) {
	case string:
		return shorten(x, most, true)
	case []byte:
		return shorten(string(x[:min(len(x), most+1)]), most, true)
	}
	return shorten(fmt.Sprintf("%+v", v), most, false)
}

func shorten(s string, most int, quote bool) string {
	cut := ""
	if len(s) > most {
		s, cut = s[:most], "..."
	}
	if quote {
		s = strconv.Quote(s)
	}
	return s + cut
}

// guard runs f and turns a panic of user code into a task error.
func (t *Task) guard(n *plan.Node, part int, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = t.fault(n, part, fmt.Sprint(r), string(debug.Stack()))
		}
	}()
	return f()
}

// fault blames the operator whose user code was running, else node n.
func (t *Task) fault(n *plan.Node, part int, msg, stack string) error {
	for _, p := range t.probes {
		if p.busy {
			return p.taskError(msg, true, stack)
		}
	}
	p := probe{node: n, part: part}
	return p.taskError(msg, true, stack)
}

// Fault is the task error for a task whose goroutine user code ended.
func (t *Task) Fault(n *plan.Node, part int, msg string) error {
	return t.fault(n, part, msg, "")
}
