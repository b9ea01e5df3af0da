package driver_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/executor"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/internal/state"
	"github.com/tidemill/tidemill/rdd"
	"github.com/tidemill/tidemill/receiver"
)

// cluster is a job on executors of different hosts, in one process.
type cluster struct {
	*fsys.Mem
	hang chan struct{} // if set, Hosts answers when it is closed

	build  func(c *cluster) *graph.Graph
	blocks blockLog
	d      *driver.Driver
	hub    *rpc.Hub

	mu    sync.Mutex
	hosts map[string][]string        // of files, by path
	tasks map[string]base.ExecutorID // the executor of each accepted task
	ended []time.Duration            // of batches, after their times
}

func newCluster(build func(*cluster) *graph.Graph) *cluster {
	return &cluster{Mem: fsys.NewMem(), hosts: map[string][]string{}, build: build, hub: rpc.NewHub(), tasks: map[string]base.ExecutorID{}}
}

// Hosts implements fsys.Placed.
func (c *cluster) Hosts(name string, offset, length int64) ([]string, error) {
	if c.hang != nil {
		<-c.hang
	}
	info, err := c.Stat(name)
	if err != nil {
		return nil, err
	}
	if offset != 0 || length != info.Size {
		return nil, fmt.Errorf("asked for %d bytes at %d of a file of %d", length, offset, info.Size)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hosts[name], nil
}

func (c *cluster) OnTaskCompleted(i driver.TaskInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what, _, _ := strings.Cut(i.What, "@")
	c.tasks[fmt.Sprintf("%s %d", what, i.Partition)] = i.Executor
}

func (c *cluster) OnBatchCompleted(i driver.BatchInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, i.Ended.Sub(i.Time.Time()))
}

// start runs the job on executors of the form id@host:slots until the test ends.
func (c *cluster) start(t *testing.T, facts *driver.Facts, executors ...string) {
	t.Helper()
	c.d = driver.New(driver.Config{
		Job: "job", MaxPending: 2, MaxTaskFailures: 4, OnBatchFailure: driver.PolicyStop, OnLostBlocks: driver.PolicyFail,
		CatchUp: driver.CatchUpMerged, StopTimeout: time.Minute, FS: c,
		Durable:   driver.Durable{Run: "run", Epoch: 2, Facts: facts, Events: &driver.MemLog{}, States: state.NewMemStorage(), Blocks: c.blocks},
		Listeners: []any{c},
	}, c.build(c))
	var running []rpc.Executor
	for _, e := range executors {
		running = append(running, c.executor(t, e))
	}
	if err := c.d.Start(t.Context(), running); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := c.d.Stop(context.Background(), false); err != nil {
			t.Error(err)
		}
		if err := c.d.Err(); err != nil {
			t.Error(err)
		}
	})
}

func (c *cluster) executor(t *testing.T, spec string) *executor.Executor {
	t.Helper()
	cfg := executor.Config{Job: "job", Run: "run", Epoch: 2, FS: c, MemoryLimit: 1 << 20, Checked: true, Blocks: c.blocks}
	at := strings.NewReplacer("@", " ", ":", " ").Replace(spec)
	if _, err := fmt.Sscan(at, &cfg.ID, &cfg.Host, &cfg.Slots); err != nil {
		t.Fatal(err)
	}
	cfg.Dir = "/" + string(cfg.ID)
	e, err := executor.Start(cfg, c.build(c), c.d, c.hub)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// file puts a file of some bytes into the directory of the source.
func (c *cluster) file(t *testing.T, name string, size int, hosts ...string) {
	t.Helper()
	path := "/in/" + name
	if err := fsys.WriteFile(c, path, []byte(strings.Repeat("x", size))); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hosts[path] = hosts
}

// ran says where the tasks of the last batches ran.
func (c *cluster) ran() map[string]base.ExecutorID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.tasks)
}

// textGraph counts the lines of new files of /in; through makes another data set of them.
func textGraph(through func(rdd.RDD[string]) rdd.RDD[string]) func(*cluster) *graph.Graph {
	return func(c *cluster) *graph.Graph {
		g := graph.New(time.Second)
		in := &plan.Op{UID: g.Name("textFiles", "in"), Display: "in", Slide: time.Second}
		in.Build = func(b *plan.Builder) (*plan.Node, error) {
			input, _ := b.Input()
			files, err := driver.Files(input)
			return rdd.TextFiles(b.Scope, c, files).Node(), err
		}
		g.Add(in)
		g.Sources = append(g.Sources, &graph.Source{Op: in, Planner: &driver.FileSource{FS: c, Dir: "/in", Interval: g.Interval, Remember: time.Minute}})
		out := &plan.Op{UID: g.Derived("through", in), Display: "through", Slide: time.Second, Parents: []*plan.Op{in}}
		out.Build = func(b *plan.Builder) (*plan.Node, error) {
			n, err := b.Parent(0)
			if n == nil || err != nil {
				return nil, err
			}
			return through(rdd.Of[string](n, b.Scope)).Node(), nil
		}
		g.Add(out)
		return finish(g, out)
	}
}

// finish adds an output that counts the records of an operator.
func finish(g *graph.Graph, op *plan.Op) *graph.Graph {
	g.Outputs = append(g.Outputs, &graph.Output{
		UID: g.Name("count", fmt.Sprintf("count%d", len(g.Outputs))), Kind: "count", Input: op,
		Run: driver.OutputRun(func(ctx context.Context, b *driver.OutputBatch) error {
			_, err := b.Count(ctx)
			return err
		}),
	})
	if err := g.Finish(); err != nil {
		panic(err)
	}
	return g
}

func nothing(s string) string { return s }

func plainly(r rdd.RDD[string]) rdd.RDD[string] { return rdd.Map(r, nothing) }

// bubble runs f in fake time, with the directory of the source made.
func bubble(t *testing.T, build func(*cluster) *graph.Graph, f func(t *testing.T, c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(build)
		if err := c.Mkdir("/in"); err != nil {
			t.Fatal(err)
		}
		f(t, c)
	})
}

// pass lets time pass and what it sets off end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTasksRunOnTheHostsOfTheirFiles(t *testing.T) {
	bubble(t, textGraph(plainly), func(t *testing.T, c *cluster) {
		c.start(t, nil, "a@h1.example:2", "b@h2:3", "c@H3:9")
		pass(100 * time.Millisecond)
		c.file(t, "0", 5, "h2.example", "h3")
		c.file(t, "1", 5, "h1")
		c.file(t, "2", 5, "elsewhere", "h2")
		c.file(t, "3", 5, "h1", "h2")
		c.file(t, "4", 5)
		pass(time.Second)
		want := map[string]base.ExecutorID{"in.through 0": "b", "in.through 1": "a", "in.through 2": "b", "in.through 3": "a", "in.through 4": "c"}
		if d := cmp.Diff(want, c.ran()); d != "" {
			t.Error(d)
		}
		pass(time.Second)
		if n := c.d.PlacesKnown(); n != 0 {
			t.Errorf("the places of %d data sets that are released are known", n)
		}
	})
}

// Both tasks run at the same time, or neither ends.
func TestABusyHostIsNotWaitedFor(t *testing.T) {
	var meet *sync.WaitGroup
	build := textGraph(func(r rdd.RDD[string]) rdd.RDD[string] {
		return rdd.Map(r, func(s string) string {
			meet.Done()
			meet.Wait()
			return s
		})
	})
	bubble(t, build, func(t *testing.T, c *cluster) {
		meet = &sync.WaitGroup{}
		meet.Add(2)
		c.start(t, nil, "a@h1:1", "b@h2:1")
		pass(100 * time.Millisecond)
		c.file(t, "0", 5, "h1")
		c.file(t, "1", 5, "h1")
		pass(time.Second)
		if d := cmp.Diff(map[string]base.ExecutorID{"in.through 0": "a", "in.through 1": "b"}, c.ran()); d != "" {
			t.Error(d)
		}
	})
}

func TestATaskOfManyFilesRunsWhereMostOfTheirBytesAre(t *testing.T) {
	merged := func(r rdd.RDD[string]) rdd.RDD[string] { return rdd.Coalesce(rdd.UnionOf(r, plainly(r)), 1) }
	bubble(t, textGraph(merged), func(t *testing.T, c *cluster) {
		c.start(t, nil, "a@h1:9", "b@h2:2", "c@h3:9")
		pass(100 * time.Millisecond)
		c.file(t, "0", 40, "h1", "h3")
		c.file(t, "1", 40, "h1")
		c.file(t, "2", 90, "h2")
		pass(time.Second)
		if d := cmp.Diff(map[string]base.ExecutorID{"in.through 0": "b"}, c.ran()); d != "" {
			t.Error(d)
		}
	})
}

// A namenode that does not answer holds one batch up for a moment, and no other.
func TestABatchDoesNotWaitForAFileSystemThatDoesNotAnswer(t *testing.T) {
	bubble(t, textGraph(plainly), func(t *testing.T, c *cluster) {
		c.hang = make(chan struct{})
		c.start(t, nil, "a@h1:2", "b@h2:3")
		for i := range 3 {
			pass(100 * time.Millisecond)
			c.file(t, fmt.Sprint(i), 5, "h1")
			pass(900 * time.Millisecond)
		}
		pass(300 * time.Millisecond)
		if d := cmp.Diff([]time.Duration{250 * time.Millisecond, 0, 0}, c.ended); d != "" {
			t.Errorf("batches ended after their times: %s", d)
		}
		close(c.hang)
		pass(300 * time.Millisecond)
		c.file(t, "3", 5, "h1")
		pass(time.Second)
		if d := cmp.Diff(map[string]base.ExecutorID{"in.through 0": "a"}, c.ran()); d != "" {
			t.Error(d)
		}
		pass(time.Second)
		if n := c.d.PlacesKnown(); n != 0 {
			t.Errorf("the places of %d data sets are known: an answer that came late stays", n)
		}
	})
}

// blockLog is the write-ahead log of blocks: each holds one record.
type blockLog map[base.Handle][]string

func (l blockLog) Release(...base.Handle) {}

func (l blockLog) Hosts(h base.Handle) ([]string, error) { return l[h], nil }

func (l blockLog) Read(context.Context, base.Handle) ([]byte, error) {
	w := codec.NewFrameWriter(codec.For[string]())
	err := w.Append("record")
	return w.Finish(), err
}

// blocksGraph counts the records of a receiver, which stores what in gives.
func blocksGraph(in chan string, host string) func(*cluster) *graph.Graph {
	return func(*cluster) *graph.Graph {
		g := graph.New(time.Second)
		op := &plan.Op{UID: g.Name("receiver", "in"), Display: "in", Slide: time.Second}
		op.Build = func(b *plan.Builder) (*plan.Node, error) {
			input, _ := b.Input()
			return rdd.FromBlocks(b.Scope, codec.For[string](), input.Blocks, input.Parts).Node(), nil
		}
		g.Add(op)
		open := func() receiver.Receiver[string] {
			return receiver.Func[string](func(ctx context.Context, s *receiver.Sink[string]) error {
				s.Ready()
				for {
					select {
					case r := <-in:
						if err := s.StoreMany(ctx, []string{r}); err != nil {
							return err
						}
					case <-ctx.Done():
						return nil
					}
				}
			})
		}
		g.Sources = append(g.Sources, &graph.Source{Op: op, Receiver: receiver.NewRunner("in", open, codec.For[string](), receiver.Options{Level: base.MemoryOnly, PreferredHost: host})})
		return finish(g, op)
	}
}

func TestReceivedBlocksAreReadOnTheExecutorThatHasThem(t *testing.T) {
	bubble(t, nil, func(t *testing.T, c *cluster) {
		in := make(chan string)
		c.build = blocksGraph(in, "")
		c.start(t, nil, "a@h:2", "b@h:9") // the receiver runs on the first of two without one
		pass(100 * time.Millisecond)
		in <- "x"
		in <- "y"
		pass(time.Second)
		if d := cmp.Diff(map[string]base.ExecutorID{"in 0": "a", "in 1": "a"}, c.ran()); d != "" {
			t.Error(d)
		}
	})
}

func TestAReceiverRunsOnTheHostItPrefers(t *testing.T) {
	for host, want := range map[string]base.ExecutorID{"": "a", "h2": "b", "H2.example": "b", "elsewhere": "a"} {
		bubble(t, nil, func(t *testing.T, c *cluster) {
			in := make(chan string)
			c.build = blocksGraph(in, host)
			c.start(t, nil, "a@h1:2", "b@h2:2", "c@h3:2")
			pass(100 * time.Millisecond)
			in <- "x"
			pass(time.Second)
			if d := cmp.Diff(map[string]base.ExecutorID{"in 0": want}, c.ran()); d != "" {
				t.Errorf("preferred host %q: %s", host, d)
			}
		})
	}
}

// The executor of a pending batch's blocks is gone with the process before.
func TestAfterARestartBlocksAreReadOnTheHostsOfTheirLog(t *testing.T) {
	bubble(t, blocksGraph(nil, ""), func(t *testing.T, c *cluster) {
		c.blocks = blockLog{}
		now := base.TimeOf(time.Now())
		b := plan.Batch{Time: now, Inputs: []plan.Input{{UID: "in", Records: 4, Parts: 3}}}
		for i := range 4 {
			h := base.Handle{Log: "in", Epoch: 1, Segment: uint64(1 + i/2), Offset: int64(100 * i), Length: 10}
			c.blocks[h] = [][]string{{"h2"}, {"not asked"}, {"h3", "h1"}, {"not asked"}}[i]
			b.Inputs[0].Blocks = append(b.Inputs[0].Blocks, plan.Block{
				ID: base.BlockID{Stream: "in", Epoch: 1, Counter: uint64(i + 1)}, Records: 1, Bytes: 10, Executor: "old", Handle: h,
			})
		}
		facts := &driver.Facts{
			Run: "run", Epoch: 1, First: now, Last: now, Pending: []driver.PendingBatch{{Batch: b}},
			Streams: []driver.StreamFacts{{Stream: "in", Epoch: 1, High: []driver.HighMark{{Epoch: 1, Counter: 4}}}},
		}
		c.start(t, facts, "a@h1:2", "b@h2:2", "c@h4:9")
		pass(100 * time.Millisecond)
		// The second of three partitions has a block of each segment.
		if d := cmp.Diff(map[string]base.ExecutorID{"in 0": "b", "in 1": "b", "in 2": "a"}, c.ran()); d != "" {
			t.Error(d)
		}
	})
}

// Two outputs read a persisted data set; before the second an executor comes that
// has more free slots than the one that keeps it.
func TestKeptPartitionsAreReadOnTheExecutorThatKeepsThem(t *testing.T) {
	build := func(c *cluster) *graph.Graph {
		g := graph.New(time.Second)
		in := &plan.Op{UID: g.Name("constant", "in"), Display: "in", Slide: time.Second, Level: base.MemoryOnly}
		in.Build = func(b *plan.Builder) (*plan.Node, error) {
			return rdd.FromSlices(b.Scope, "in", [][]string{{"x"}, {"y"}}).Node(), nil
		}
		g.Add(in)
		read := &plan.Op{UID: g.Derived("read", in), Display: "read", Slide: time.Second, Parents: []*plan.Op{in}}
		read.Build = func(b *plan.Builder) (*plan.Node, error) {
			n, err := b.Parent(0)
			return plainly(rdd.Of[string](n, b.Scope)).Node(), err
		}
		g.Add(read)
		g.Outputs = append(g.Outputs, &graph.Output{
			UID: g.Name("count", "first"), Kind: "count", Input: in,
			Run: driver.OutputRun(func(ctx context.Context, b *driver.OutputBatch) error {
				if _, err := b.Collect(ctx); err != nil {
					return err
				}
				return c.d.AddExecutor(c.executor(t, "late@h9:9"))
			}),
		})
		return finish(g, read)
	}
	bubble(t, build, func(t *testing.T, c *cluster) {
		c.start(t, nil, "a@h1:1", "b@h2:2")
		pass(1100 * time.Millisecond)
		want := map[string]base.ExecutorID{"in 0": "b", "in 1": "a", "in.read 0": "b", "in.read 1": "a"}
		if d := cmp.Diff(want, c.ran()); d != "" {
			t.Error(d)
		}
	})
}
