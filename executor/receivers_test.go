package executor_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/executor"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/rdd"
	"github.com/tidemill/tidemill/receiver"
	"github.com/tidemill/tidemill/wal"
)

// tracking is a driver that keeps the blocks it is told of.
type tracking struct {
	listening
	mu     sync.Mutex
	blocks []plan.Block
}

func (d *tracking) AddBlock(_ context.Context, m rpc.AddBlock) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocks = append(d.blocks, m.Block)
	return nil
}

func (d *tracking) added() []plan.Block {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.blocks)
}

// hosting starts an executor of a graph whose one source is receive.
func hosting(t *testing.T, logs executor.LogOpener, receive receiver.Func[string]) (*executor.Executor, *tracking) {
	t.Helper()
	g := graph.New(time.Second)
	in := &plan.Op{UID: g.Name("source", "in"), Kind: "in", Display: "in", Slide: time.Second}
	in.Build = func(b *plan.Builder) (*plan.Node, error) {
		return rdd.FromSlices(b.Scope, "in", [][]string{}).Node(), nil
	}
	g.Add(in)
	open := func() receiver.Receiver[string] { return receive }
	g.Sources = append(g.Sources, &graph.Source{Op: in, Receiver: receiver.NewRunner("in", open, codec.For[string](), receiver.Options{})})
	g.Outputs = append(g.Outputs, &graph.Output{UID: g.Name("print", "out"), Kind: "print", Input: in})
	if err := g.Finish(); err != nil {
		t.Fatal(err)
	}
	d := &tracking{}
	e, err := executor.Start(executor.Config{
		ID: "x", Slots: 1, FS: fsys.NewMem(), Dir: "/scratch", MemoryLimit: 1 << 20, Checked: true, Logs: logs,
	}, g, d, rpc.NewHub())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e, d
}

func TestRateLimitReachesTheReceiverAndTheNewestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		e, _ := hosting(t, nil, func(ctx context.Context, s *receiver.Sink[string]) error {
			for {
				if err := s.Store(ctx, "x"); err != nil {
					return err
				}
				if n.Add(1); n.Load()%100 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
		send(t, e, rpc.RateLimit{Stream: "in", Rate: 5}, rpc.StartReceiver{Stream: "in", Epoch: 1}, rpc.RateLimit{Stream: "other", Rate: 7})
		rate := func() int64 {
			before := n.Load()
			time.Sleep(10 * time.Second)
			return n.Load() - before
		}
		if got := rate(); got < 100_000 {
			t.Errorf("%d records in 10s without a limit", got)
		}
		// More at once than the receiver takes in between: the inbox does not wait.
		for i := range 1000 {
			if err := e.Send(rpc.RateLimit{Stream: "in", Rate: float64(1000 + i)}); err != nil {
				t.Fatal(err)
			}
		}
		send(t, e, rpc.RateLimit{Stream: "in", Rate: 20})
		rate() // what was allowed before
		if got := rate(); got < 199 || got > 201 {
			t.Errorf("%d records in 10s at 20/s", got)
		}
		for _, none := range []float64{0, -1, math.NaN()} {
			send(t, e, rpc.RateLimit{Stream: "in", Rate: none})
			if got := rate(); got < 199 || got > 201 {
				t.Errorf("%d records in 10s at 20/s after rate %v", got, none)
			}
		}
	})
}

// The block tells where it lies in the log and where the source goes on, and a
// later epoch goes on there.
func TestReceiverLogsItsBlocksAndGoesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := wal.OpenStore(wal.StoreConfig{Config: wal.Config{FS: fsys.NewMem()}, Dir: "/wal"})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		var froms []string
		e, d := hosting(t, executor.BlockLogs{Store: store}, func(ctx context.Context, s *receiver.Sink[string]) error {
			froms = append(froms, string(s.From()))
			err := s.StoreManyAt(ctx, []string{"a", "b"}, []byte("behind b"))
			<-ctx.Done()
			return err
		})
		send(t, e, rpc.StartReceiver{Stream: "in", Epoch: 3})
		blocks := d.added()
		if len(blocks) != 1 || blocks[0].Handle.Log != "in" || blocks[0].Handle.Epoch != 3 || string(blocks[0].Position) != "behind b" {
			t.Fatalf("blocks %+v", blocks)
		}
		stored, err := e.Stored(blocks[0].Key)
		logged, logErr := store.Read(t.Context(), blocks[0].Handle)
		if err := errors.Join(err, logErr); err != nil || len(stored) == 0 || string(stored) != string(logged) {
			t.Errorf("stored %q, logged %q, %v", stored, logged, err)
		}
		send(t, e, rpc.StopReceiver{Stream: "in", Epoch: 3}, rpc.StartReceiver{Stream: "in", Epoch: 4, From: []byte("behind b")})
		if blocks := d.added(); len(blocks) != 2 || blocks[1].Handle.Epoch != 4 || !slices.Equal(froms, []string{"", "behind b"}) {
			t.Errorf("blocks %+v, From %q", blocks, froms)
		}
		// A log of an epoch that has a successor can't be opened.
		send(t, e, rpc.StopReceiver{Stream: "in", Epoch: 4})
		send(t, e, rpc.StartReceiver{Stream: "in", Epoch: 4})
		if got := strings.Join(d.heard(), "\n"); !strings.Contains(got, "receiver in/4 ended: ") || !strings.Contains(got, receiver.ErrFenced.Error()) {
			t.Errorf("heard %s", got)
		}
		if n := len(d.added()); n != 2 {
			t.Errorf("%d blocks", n)
		}
	})
}

// Without a log a block has no handle.
func TestReceiverWithoutALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d := hosting(t, nil, func(ctx context.Context, s *receiver.Sink[string]) error {
			err := s.StoreMany(ctx, []string{"a"})
			<-ctx.Done()
			return err
		})
		send(t, e, rpc.StartReceiver{Stream: "in", Epoch: 1})
		if blocks := d.added(); len(blocks) != 1 || blocks[0].Handle != (base.Handle{}) || len(blocks[0].Position) != 0 {
			t.Errorf("blocks %+v", blocks)
		}
	})
}
