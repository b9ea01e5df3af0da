package executor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tidemill/tidemill/executor"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/rdd"
	"github.com/tidemill/tidemill/receiver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listening is a driver that writes down what it hears.
type listening struct {
	mu    sync.Mutex
	lines []string
}

func (l *listening) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *listening) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Clone(l.lines)
	l.lines = nil
	return out
}

func (l *listening) TaskDone(m rpc.TaskDone) {
	if m.Failure != nil {
		l.say("task %d#%d failed, kind %d: %s", m.Task.Part, m.Task.Attempt, m.Failure.Kind, m.Failure.Message)
		return
	}
	l.say("task %d#%d done: %d", m.Task.Part, m.Task.Attempt, m.Count)
}

func (l *listening) AddBlock(_ context.Context, m rpc.AddBlock) error {
	l.say("block %s", m.Block.ID)
	return nil
}

func (l *listening) ReceiverEvent(ev rpc.ReceiverEvent) {
	if ev.Ended {
		l.say("receiver %s/%d ended: %s", ev.Stream, ev.Epoch, ev.Message)
	}
}

func (l *listening) Mismatch(_ base.ExecutorID, t base.BatchTime, message string) {
	l.say("mismatch at %v: %s", t, message)
}

const batch = base.BatchTime(1000)

var final = fmt.Sprintf("kind %d", rpc.FinalFailure)

// numbersGraph has a source "in" of three partitions, whose task for record v calls work.
func numbersGraph(work func(v int) int) *graph.Graph {
	g := graph.New(time.Second)
	in := &plan.Op{UID: g.Name("source", "in"), Kind: "in", Display: "in", Slide: time.Second}
	in.Build = func(b *plan.Builder) (*plan.Node, error) {
		return rdd.Map(rdd.FromSlices(b.Scope, "in", [][]int{{1}, {2, 3}, {}}), work).Node(), nil
	}
	g.Add(in)
	run := receiver.Func[string](func(ctx context.Context, _ *receiver.Sink[string]) error { <-ctx.Done(); return nil })
	g.Sources = append(g.Sources, &graph.Source{Op: in, Receiver: receiver.NewRunner("in", func() receiver.Receiver[string] { return run }, codec.For[string](), receiver.Options{})})
	g.Outputs = append(g.Outputs, &graph.Output{UID: g.Name("print", "out"), Kind: "print", Input: in})
	if err := g.Finish(); err != nil {
		panic(err)
	}
	return g
}

func start(t *testing.T, g *graph.Graph) (*executor.Executor, *listening) {
	t.Helper()
	d := &listening{}
	e, err := executor.Start(executor.Config{ID: "x", Slots: 2, Job: "job", Run: "run", FS: fsys.NewMem(), Dir: "/scratch", MemoryLimit: 1 << 20, Checked: true}, g, d, rpc.NewHub())
	if err != nil {
		t.Fatal(err)
	}
	return e, d
}

func count(part int) rpc.StageTasks {
	return rpc.StageTasks{
		Batch: batch, Job: 1, Kind: rpc.CountTask, Node: plan.ID{Set: base.DataSet{UID: "in", Time: batch}, Index: 1},
		Tasks: []rpc.TaskRef{{Part: part}},
	}
}

func send(t *testing.T, e *executor.Executor, ms ...rpc.ToExecutor) {
	t.Helper()
	for _, m := range ms {
		if err := e.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
}

func TestTasksNeedAPlanAndAreFailedForGoodWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d := start(t, numbersGraph(func(v int) int { return v }))
		defer func() { _ = e.Close() }()
		send(t, e, count(0))
		if got := d.heard(); len(got) != 1 || !strings.Contains(got[0], final) || !strings.Contains(got[0], "not planned") {
			t.Error(got)
		}
		send(t, e, rpc.Plan{Batch: plan.Batch{Time: batch}}, count(1))
		if diff := cmp.Diff([]string{"task 1#0 done: 2"}, d.heard()); diff != "" {
			t.Error(diff)
		}
		wrong := count(1)
		wrong.Kind, wrong.Output = rpc.OutputTask, "nothing"
		send(t, e, wrong)
		if got := d.heard(); len(got) != 1 || !strings.Contains(got[0], final) || !strings.Contains(got[0], `output "nothing"`) {
			t.Error(got)
		}
		send(t, e, rpc.Release{Done: batch + 5000, Batches: []base.BatchTime{batch}}, count(1))
		if got := d.heard(); len(got) != 1 || !strings.Contains(got[0], "not planned") {
			t.Error(got)
		}
	})
}

func TestAnotherLineageIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d := start(t, numbersGraph(func(v int) int { return v }))
		defer func() { _ = e.Close() }()
		send(t, e, rpc.Plan{Batch: plan.Batch{Time: batch}, Hash: 12345})
		if got := d.heard(); len(got) != 1 || !strings.Contains(got[0], "mismatch at "+batch.String()) || !strings.Contains(got[0], "0000000000003039") {
			t.Error(got)
		}
		send(t, e, rpc.Plan{Batch: plan.Batch{Time: batch}})
		if got := d.heard(); len(got) != 1 || !strings.Contains(got[0], "times must increase") {
			t.Error(got)
		}
	})
}

func TestCancelledAndClosedTasksSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := make(chan int)
		e, d := start(t, numbersGraph(func(v int) int { return <-work }))
		send(t, e, rpc.Plan{Batch: plan.Batch{Time: batch}}, count(0), count(1))
		send(t, e, rpc.CancelTask{Job: 1, Task: rpc.TaskRef{Part: 0}})
		close(work)
		synctest.Wait()
		got := d.heard()
		slices.Sort(got)
		if len(got) != 2 || !strings.HasPrefix(got[1], "task 1#0 done") {
			t.Error(got)
		}
		for range 2 {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := e.Send(count(0)); err == nil || !errors.Is(err, base.ErrStopped) {
			t.Error(err)
		}
		select {
		case <-e.Gone():
		default:
			t.Error("not gone")
		}
	})
}

func TestKilledExecutorIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := make(chan int)
		e, d := start(t, numbersGraph(func(v int) int { return <-work }))
		send(t, e, rpc.Plan{Batch: plan.Batch{Time: batch}}, count(0), rpc.StartReceiver{Stream: "in", Epoch: 1})
		time.AfterFunc(time.Second, func() { close(work) })
		e.Kill()
		if got := d.heard(); len(got) != 0 {
			t.Error(got)
		}
	})
}

// TestCloseLeavesDeafTasksBehind and cleans up when they are through.
func TestCloseLeavesDeafTasksBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := make(chan int)
		g := numbersGraph(func(v int) int { return <-work })
		closed := false
		g.Closers = append(g.Closers, func() error { closed = true; return nil })
		e, _ := start(t, g)
		send(t, e, rpc.Plan{Batch: plan.Batch{Time: batch}}, count(0), count(1))
		began := time.Now()
		err := e.Close()
		var stuck *executor.StuckError
		if !errors.As(err, &stuck) || stuck.Tasks != 2 || stuck.StillRunning() != 2 || !strings.Contains(err.Error(), "executor x: 2 tasks") {
			t.Error(err)
		}
		if d := time.Since(began); d != executor.Patience || closed {
			t.Errorf("it took %v, closed %v", d, closed)
		}
		if again := e.Close(); again != err {
			t.Error(again)
		}
		close(work)
		synctest.Wait()
		if !closed {
			t.Error("resources are left open")
		}
	})
}

// TestReceiversFollowTheirEpoch: a lower or equal epoch starts nothing, a stop
// of another epoch stops nothing, a higher one replaces (Invariant 7).
func TestReceiversFollowTheirEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d := start(t, numbersGraph(func(v int) int { return v }))
		send(t, e, rpc.StartReceiver{Stream: "nobody", Epoch: 1})
		if got := d.heard(); len(got) != 1 || !strings.Contains(got[0], `"nobody" has no receiver`) {
			t.Error(got)
		}
		send(t, e, rpc.StartReceiver{Stream: "in", Epoch: 2}, rpc.StartReceiver{Stream: "in", Epoch: 1}, rpc.StartReceiver{Stream: "in", Epoch: 2}, rpc.StopReceiver{Stream: "in", Epoch: 1})
		if got := d.heard(); len(got) != 0 {
			t.Error(got)
		}
		send(t, e, rpc.StartReceiver{Stream: "in", Epoch: 3})
		if diff := cmp.Diff([]string{"receiver in/2 ended: "}, d.heard()); diff != "" {
			t.Error(diff)
		}
		send(t, e, rpc.StopReceiver{Stream: "in", Epoch: 3})
		if diff := cmp.Diff([]string{"receiver in/3 ended: "}, d.heard()); diff != "" {
			t.Error(diff)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAnExecutorTellsItsHost(t *testing.T) {
	for _, want := range []string{"node-7", ""} {
		e, err := executor.Start(executor.Config{ID: "x", Host: want, Slots: 1, FS: fsys.NewMem(), Dir: "/scratch", MemoryLimit: 1}, graph.New(time.Second), &listening{}, rpc.NewHub())
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			if want, err = os.Hostname(); err != nil {
				t.Fatal(err)
			}
		}
		if got := e.Host(); got != want {
			t.Errorf("host %q, want %q", got, want)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
