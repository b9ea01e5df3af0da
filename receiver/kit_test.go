package receiver_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/receiver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errFlaky = errors.New("flaky")

// world is the executor's block store and the driver, both scripted.
type world struct {
	t testing.TB
	// put and add decide about one call; nil means that all succeed. logged says
	// whether the driver's log takes the block whatever the answer is.
	put func(key string) error
	add func(b receiver.Block) (logged bool, err error)
	// hold, if set, makes Put wait until it is closed.
	hold chan struct{}
	// began, if set, hears of each Put before it waits.
	began func(key string)
	// diary is the write-ahead log, nil for none.
	diary *diary

	mu      sync.Mutex
	blocks  map[string][]byte
	log     []receiver.Block
	at      []time.Time // of log
	high    uint64
	events  []receiver.Event
	dropped []string
	changed chan struct{}
}

func newWorld(t testing.TB) *world {
	return &world{t: t, blocks: map[string][]byte{}, changed: make(chan struct{})}
}

func (w *world) Put(ctx context.Context, key string, frame []byte, level base.StorageLevel) error {
	if level != base.MemoryAndDisk {
		w.t.Errorf("block %s put at level %v", key, level)
	}
	if w.began != nil {
		w.began(key)
	}
	if w.hold != nil {
		select {
		case <-w.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.put != nil {
		if err := w.put(key); err != nil {
			return err
		}
	}
	w.blocks[key] = frame
	return nil
}

func (w *world) Drop(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.blocks, key)
	w.dropped = append(w.dropped, key)
}

func (w *world) AddBlock(_ context.Context, b receiver.Block) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.blocks[b.Key] == nil && b.Handle.IsZero() {
		w.t.Errorf("block %s added before it was stored", b.ID)
	}
	if b.ID.Counter > w.high+1 || b.ID.Counter == 0 {
		w.t.Errorf("block %s leaves a gap after %d", b.ID, w.high)
	}
	logged, err := true, error(nil)
	if w.add != nil {
		logged, err = w.add(b)
	}
	if logged && b.ID.Counter > w.high {
		w.high = b.ID.Counter
		w.log = append(w.log, b)
		w.at = append(w.at, time.Now())
		w.wakeLocked()
	}
	return err
}

func (w *world) ReceiverEvent(e receiver.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	w.wakeLocked()
}

func (w *world) wakeLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// until waits until cond, called with the world locked, holds.
func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	limit := time.After(10 * time.Second)
	for {
		w.mu.Lock()
		ok, changed := cond(), w.changed
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			w.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// records decodes all blocks of the driver's log in order.
func records[T any](w *world) (out []T) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.log {
		n := len(out)
		out = append(out, decode[T](w, b)...)
		if got := len(out) - n; got != b.Records {
			w.t.Errorf("block %s says %d records, has %d", b.ID, b.Records, got)
		}
	}
	return out
}

func decode[T any](w *world, b receiver.Block) (out []T) {
	w.t.Helper()
	data := w.blocks[b.Key]
	if w.diary != nil {
		data = w.diary.read(b.Handle)
	}
	f, err := codec.OpenFrame(data)
	if err == nil {
		_, err = codec.EachInFrame(codec.For[T](), f, func(v T) bool { out = append(out, v); return true })
	}
	if err != nil {
		w.t.Errorf("block %s: %v", b.ID, err)
	}
	if b.Bytes != int64(len(data)) {
		w.t.Errorf("block %s says %d bytes, has %d", b.ID, b.Bytes, len(data))
	}
	return out
}

// sizes lists the record counts of the added blocks.
func (w *world) sizes() (out []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.log {
		out = append(out, b.Records)
	}
	return out
}

// kinds lists the kinds of the events so far.
func (w *world) kinds() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, e := range w.events {
		out = append(out, e.Kind.String())
	}
	return strings.Join(out, " ")
}

// last returns the last event of kind.
func (w *world) last(kind receiver.EventKind) receiver.Event {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range slices.Backward(w.events) {
		if e.Kind == kind {
			return e
		}
	}
	w.t.Fatalf("no event %v", kind)
	return receiver.Event{}
}

// job is a running receiver.
type job struct {
	*world
	rate   chan float64
	stop   chan struct{}
	cancel context.CancelFunc
	done   chan error
}

// run starts a receiver in w; a test that doesn't end it gets it cancelled.
func run[T any](w *world, cfg receiver.Config, open func() receiver.Receiver[T]) *job {
	return runIn(w, receiver.Env{Epoch: 7, Config: cfg}, open)
}

// runIn is run with more of the environment given.
func runIn[T any](w *world, env receiver.Env, open func() receiver.Receiver[T]) *job {
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{world: w, rate: make(chan float64), stop: make(chan struct{}), cancel: cancel, done: make(chan error, 1)}
	r := receiver.NewRunner("lines", open, codec.For[T](), receiver.Options{})
	env.Stream, env.Executor, env.Stop, env.Rate = "lines", "ex-1", j.stop, j.rate
	env.Blocks = w
	if env.Driver == nil {
		env.Driver = w
	}
	if w.diary != nil && env.OpenLog == nil {
		env.OpenLog = func(context.Context) (receiver.Log, error) { return w.diary, nil }
	}
	go func() {
		defer close(j.done)
		j.done <- r.Run(ctx, env)
	}()
	w.t.Cleanup(func() { cancel(); <-j.done })
	return j
}

// runFunc is run for a function that serves every start.
func runFunc[T any](w *world, cfg receiver.Config, f receiver.Func[T]) *job {
	return run(w, cfg, func() receiver.Receiver[T] { return f })
}

// end stops the job gracefully and returns what Run returned.
func (j *job) end() error {
	close(j.stop)
	return <-j.done
}

func mustEnd(t testing.TB, j *job) {
	t.Helper()
	if err := j.end(); err != nil {
		t.Errorf("graceful stop: %v", err)
	}
}

// dice are random numbers that many goroutines may draw.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{r: rand.New(rand.NewPCG(seed, 1))} }

// IntN returns a number of [0, n).
func (d *dice) IntN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}
