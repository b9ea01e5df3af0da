package receiver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/receiver"
)

// What Store took is in a block, and what it did not take gave an error, also
// of the records of the last moments and of another goroutine that stores
// while the receiver stops.
func TestB07NoAcceptedRecordIsLostAtAStop(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			ms := func(n int) time.Duration { return time.Duration(rnd.Int64N(int64(n) * int64(time.Millisecond))) }
			cfg := receiver.Config{}
			if seed%2 == 0 { // many blocks, and a full queue now and then
				cfg = receiver.Config{MaxBlockBytes: 64, QueueSize: 2}
			}
			early, late, pause := ms(300), ms(20), 50*time.Microsecond+ms(2)
			w := newWorld(t)
			if seed%3 == 0 {
				withDiary(w)
			}
			var accepted atomic.Int64
			refused := make(chan error, 1)
			stored := make(chan struct{})
			j := runFunc(w, cfg, func(ctx context.Context, s *receiver.Sink[int]) error {
				go func() {
					for {
						if err := s.Store(context.Background(), 1); err != nil {
							refused <- err
							return
						}
						accepted.Add(1)
						time.Sleep(pause)
					}
				}()
				for i := range 1000 {
					if i == 0 || i == 1000-37 {
						time.Sleep(early)
					}
					if err := s.Store(context.Background(), i); err != nil {
						return err
					}
					accepted.Add(1)
				}
				time.Sleep(late)
				close(stored)
				<-ctx.Done()
				time.Sleep(late) // the other one goes on storing
				return nil
			})
			<-stored
			mustEnd(t, j)
			if err := <-refused; !errors.Is(err, receiver.ErrStopped) {
				t.Errorf("seed %d: the last store returned %v", seed, err)
			}
			if got, want := int64(len(records[int](w))), accepted.Load(); got != want || want < 1000 {
				t.Errorf("seed %d: %d records in blocks, %d accepted", seed, got, want)
			}
		})
	}
}

func TestB09aRefusedFirstConnectIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		began := time.Now()
		var starts []time.Duration
		j := runFunc(w, receiver.Config{RestartDelay: 5 * time.Second}, func(ctx context.Context, s *receiver.Sink[int]) error {
			starts = append(starts, time.Since(began))
			if time.Since(began) < 5*time.Second {
				return errors.New("connection refused")
			}
			return idle(func(ctx context.Context, s *receiver.Sink[int]) error { return s.Store(ctx, 1) })(ctx, s)
		})
		time.Sleep(time.Minute)
		mustEnd(t, j)
		if !slices.Equal(starts, []time.Duration{0, 5 * time.Second}) {
			t.Errorf("starts at %v", starts)
		}
		if got := w.kinds(); got != "restarting started stopped" || len(records[int](w)) != 1 {
			t.Errorf("events: %s", got)
		}
	})
}

func TestB09bStartThatPanicsEachTimeIsHeldBackAndSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other := newWorld(t), newWorld(t)
		var starts []time.Time
		j := runFunc(w, receiver.Config{RestartDelay: time.Second, RestartDelayMax: 8 * time.Second}, func(_ context.Context, s *receiver.Sink[int]) error {
			starts = append(starts, time.Now())
			s.Ready()
			panic(fmt.Sprintf("start %d", len(starts)))
		})
		ok := runFunc(other, receiver.Config{}, func(ctx context.Context, s *receiver.Sink[int]) error {
			for i := range 600 {
				if err := s.Store(ctx, i); err != nil {
					return err
				}
				time.Sleep(time.Second)
			}
			return receiver.ErrDone
		})
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		for i := 1; i < len(starts); i++ {
			if d, want := starts[i].Sub(starts[i-1]), min(8*time.Second, time.Second<<min(i-1, 3)); d != want {
				t.Fatalf("%v between start %d and the next, want %v", d, i, want)
			}
		}
		e := w.last(receiver.Restarting)
		if len(starts) < 70 || e.Starts != len(starts) || !strings.Contains(e.Message, fmt.Sprintf("panic: start %d", len(starts))) {
			t.Errorf("%d starts, last event %+v", len(starts), e)
		}
		if err := <-ok.done; err != nil || !slices.Equal(records[int](other), ints(600)) {
			t.Errorf("the other stream: %v", err)
		}
		mustEnd(t, j)
	})
}

// The error that the stop itself causes is no failure and no restart.
func TestB09cErrorOfAReadThatTheStopEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		starts := 0
		j := runIn(w, receiver.Env{Log: hclog.New(&hclog.LoggerOptions{Output: &log})}, func() receiver.Receiver[int] {
			return receiver.Func[int](func(ctx context.Context, s *receiver.Sink[int]) error {
				starts++
				s.Ready()
				<-ctx.Done()
				panic("use of closed connection")
			})
		})
		time.Sleep(time.Second)
		mustEnd(t, j)
		if got := w.kinds(); got != "started stopped" || starts != 1 || log.Len() > 0 {
			t.Errorf("%d starts, events: %s, log: %s", starts, got, log.String())
		}
	})
}

// epochs is a driver that refuses what is not of the newest epoch.
type epochs struct {
	*world
	mu     sync.Mutex
	newest base.Epoch
}

func (d *epochs) register(e base.Epoch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.newest = e
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	d.high = 0
}

func (d *epochs) AddBlock(ctx context.Context, b receiver.Block) error {
	time.Sleep(10 * time.Second) // a slow network
	d.mu.Lock()
	newest := d.newest
	d.mu.Unlock()
	if b.ID.Epoch < newest {
		return receiver.ErrFenced
	}
	return d.world.AddBlock(ctx, b)
}

func TestB09dLateBlockOfTheInstanceBeforeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &epochs{world: newWorld(t)}
		open := func(v int) func() receiver.Receiver[int] {
			return func() receiver.Receiver[int] {
				return idle(func(ctx context.Context, s *receiver.Sink[int]) error { return s.StoreMany(ctx, []int{v}) })
			}
		}
		d.register(7)
		old := runIn(d.world, receiver.Env{Epoch: 7, Driver: d}, open(1))
		time.Sleep(5 * time.Second) // its block is on its way
		d.register(8)
		current := runIn(d.world, receiver.Env{Epoch: 8, Driver: d}, open(2))
		if err := <-old.done; !errors.Is(err, receiver.ErrFenced) {
			t.Errorf("the old one: %v", err)
		}
		time.Sleep(time.Minute)
		mustEnd(t, current)
		if got := records[int](d.world); !slices.Equal(got, []int{2}) || len(d.blocks) != 1 {
			t.Errorf("records %v, %d blocks in the store", got, len(d.blocks))
		}
	})
}

func TestB40eRateThatIsNoRate(t *testing.T) {
	if err := (receiver.Config{MaxRate: 0, MaxByteRate: 0}).Validate(); err != nil {
		t.Errorf("0 is no limit: %v", err)
	}
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		for name, cfg := range map[string]receiver.Config{"MaxRate": {MaxRate: bad}, "MaxByteRate": {MaxByteRate: bad}} {
			if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s is %v: must be", name, bad)) {
				t.Errorf("%s %v: %v", name, bad, err)
			}
		}
	}
	// A rate from outside that is no rate neither ends the limit nor the stream.
	synctest.Test(t, func(t *testing.T) {
		l := receiver.NewLimiter(10, 0)
		for _, bad := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
			l.SetRate(bad)
			began := time.Now()
			if err := l.Wait(t.Context(), 100, 0); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began).Round(time.Second); d != 10*time.Second {
				t.Errorf("after %v 100 records at 10/s took %v", bad, d)
			}
		}
	})
}

// A stop returns within its limit whenever it comes and whatever the receiver does.
func TestB41StopReturnsInTime(t *testing.T) {
	const limit = 2 * time.Second
	release := func(w *world) chan struct{} {
		c := make(chan struct{})
		w.t.(*testing.T).Cleanup(func() { close(c) })
		return c
	}
	for name, test := range map[string]struct {
		receive func(w *world) receiver.Func[int]
		open    func(ctx context.Context, d *diary) (receiver.Log, error)
		stuck   bool
	}{
		"that ignores the stop": {stuck: true, receive: func(w *world) receiver.Func[int] {
			never := release(w)
			return func(context.Context, *receiver.Sink[int]) error { <-never; return nil }
		}},
		"that stores without end": {receive: func(*world) receiver.Func[int] {
			return func(_ context.Context, s *receiver.Sink[int]) error {
				for {
					if err := s.Store(context.Background(), 1); err != nil {
						return err
					}
					time.Sleep(time.Millisecond)
				}
			}
		}, stuck: true},
		"that fails": {receive: func(*world) receiver.Func[int] {
			return func(ctx context.Context, s *receiver.Sink[int]) error {
				s.Ready()
				return errors.Join(s.Store(ctx, 1), errFlaky)
			}
		}},
		"whose log opens slowly": {open: func(ctx context.Context, d *diary) (receiver.Log, error) {
			select {
			case <-time.After(300 * time.Millisecond):
				return d, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}, receive: func(*world) receiver.Func[int] {
			return idle(func(ctx context.Context, s *receiver.Sink[int]) error { return s.Store(ctx, 1) })
		}},
	} {
		t.Run("of a receiver "+name, func(t *testing.T) {
			for seed := range uint64(200) {
				synctest.Test(t, func(t *testing.T) {
					rnd := rand.New(rand.NewPCG(seed, 3))
					w := newWorld(t)
					receive := test.receive(w)
					env := receiver.Env{Epoch: 7, Config: receiver.Config{StopTimeout: limit}}
					if test.open != nil {
						d := withDiary(w)
						env.OpenLog = func(ctx context.Context) (receiver.Log, error) { return test.open(ctx, d) }
					}
					j := runIn(w, env, func() receiver.Receiver[int] { return receive })
					time.Sleep(time.Duration(rnd.Int64N(int64(500 * time.Millisecond))))
					began := time.Now()
					err := j.end()
					if d := time.Since(began); d > limit {
						t.Fatalf("seed %d: the stop took %v", seed, d)
					}
					if test.stuck && (err == nil || !strings.Contains(err.Error(), "Receive has not returned")) || !test.stuck && err != nil {
						t.Errorf("seed %d: Run returned %v", seed, err)
					}
					var f *receiver.FailedError
					if errors.As(err, &f) && f.Lost > 0 {
						t.Errorf("seed %d: %v", seed, err)
					}
					time.Sleep(10 * time.Millisecond) // a Receive that was left behind sees its Sink refuse
				})
			}
		})
	}
}
