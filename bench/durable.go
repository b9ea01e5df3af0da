package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/tidemill/tidemill"
)

const (
	// Input of the job whose interval is looked for.
	intervalRate = 10_000 // records per second
	intervalKeys = 1000
	// intervalGoal is the interval that must hold.
	intervalGoal = 10 * time.Millisecond
	// warmUp is not measured: files are made and the heap grows.
	warmUp = 2 * time.Second
)

// holding is how a job did at an interval.
type holding struct {
	interval time.Duration
	batches  int
	skipped  int // ticks without a batch
	records  int64
	p50, p99 time.Duration // from a batch's time to its start
	sched    time.Duration // p99 of the engine's scheduling delay, which begins once the plan is in the log
	pause    time.Duration // longest between two batches
	cpu      time.Duration // a batch
}

// holds says whether the interval can be kept up: nearly every tick has its
// batch, and nearly every batch begins before the next is due.
func (h holding) holds() bool {
	return h.batches > 0 && h.skipped*100 <= h.batches+h.skipped && h.p99 < h.interval
}

// ticks measures batches between two times.
type ticks struct {
	from, to tidemill.BatchTime
	over     chan struct{} // closed with the first batch after to
	closed   bool
	before   time.Duration // CPU at the first batch
	h        holding
	delays   []time.Duration
	sched    []time.Duration
	first    tidemill.BatchTime
	last     tidemill.BatchTime
}

// OnBatchCompleted implements the listener of batches.
func (k *ticks) OnBatchCompleted(b tidemill.BatchInfo) {
	switch {
	case b.Time < k.from || k.closed:
		return
	case b.Time >= k.to:
		if k.h.batches > 0 {
			k.h.cpu = (cpu() - k.before) / time.Duration(k.h.batches)
			k.h.skipped = int(k.last.Sub(k.first)/k.h.interval) + 1 - k.h.batches
		}
		k.closed = true
		close(k.over)
		return
	case k.h.batches == 0:
		k.before, k.first, k.last = cpu(), b.Time, b.Time
	}
	k.h.pause = max(k.h.pause, b.Time.Sub(k.last))
	k.last = b.Time
	k.h.batches++
	k.h.records += b.Records
	k.delays = append(k.delays, b.Started.Sub(b.Time.Time()))
	k.sched = append(k.sched, b.SchedulingDelay())
}

func percentile(v []time.Duration, p int) time.Duration {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(len(v)-1, len(v)*p/100)]
}

// steady stores records at a rate, a few every millisecond.
type steady struct{}

func (steady) Receive(ctx context.Context, s *tidemill.Sink[kv]) error {
	s.Ready()
	begin := time.Now()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; {
		for due := int(time.Since(begin).Seconds() * intervalRate); n < due; n++ {
			if err := s.Store(ctx, kv{Key: key(n % intervalKeys), Value: 1}); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// tryInterval runs a job with all that is durable for hold: the driver's log,
// the receiver's, the state's.
func tryInterval(interval, hold time.Duration) (holding, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return holding{}, err
	}
	defer os.RemoveAll(dir)
	var sum int64 // of the newest batch; outputs of batches run one after another
	ssc, err := tidemill.New(tidemill.App{Name: "interval", Build: func(ssc *tidemill.StreamingContext) error {
		in := tidemill.ReceiverStream(ssc, "in", func() tidemill.Receiver[kv] { return steady{} })
		sums := tidemill.UpdateStateByKey(in, "sums", sumUpdate)
		all := tidemill.Reduce(tidemill.Map(sums, func(p kv) int64 { return p.Value }), func(a, b int64) int64 { return a + b })
		tidemill.ForeachBatch(all, "out", func(ctx context.Context, b *tidemill.Batch[int64]) error {
			got, err := b.Collect(ctx)
			for _, n := range got {
				sum = n
			}
			return err
		})
		return nil
	}}, tidemill.Config{
		BatchInterval: interval, BlockInterval: interval, TaskSlots: runtime.NumCPU(), Parallelism: 2, Durability: "flush",
	}, tidemill.WithDir(dir))
	if err != nil {
		return holding{}, err
	}
	from := time.Now().Add(warmUp)
	k := &ticks{
		from: tidemill.BatchTime(from.UnixMilli()), to: tidemill.BatchTime(from.Add(hold).UnixMilli()),
		over: make(chan struct{}), h: holding{interval: interval},
	}
	ssc.AddListener(k)
	if err := ssc.Start(context.Background()); err != nil {
		return holding{}, err
	}
	failed := make(chan error, 1)
	go func() { failed <- ssc.AwaitTermination(context.Background()) }()
	select {
	case <-k.over:
	case err := <-failed:
		return holding{}, fmt.Errorf("a batch every %v: %w", interval, err)
	}
	report, err := ssc.Stop(context.Background(), true)
	if err != nil {
		return holding{}, err
	}
	switch {
	case report.Blocks > 0 || len(report.Pending) > 0:
		return holding{}, fmt.Errorf("a batch every %v: left over: %v", interval, report)
	case sum < k.h.records:
		return holding{}, fmt.Errorf("a batch every %v: the state holds %d of %d records", interval, sum, k.h.records)
	}
	k.h.p50, k.h.p99, k.h.sched = percentile(k.delays, 50), percentile(k.delays, 99), percentile(k.sched, 99)
	return k.h, nil
}

// durableInterval prints the smallest interval that a durable job holds.
func durableInterval(hold time.Duration) (over bool, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU()))
	fmt.Printf("durable-interval %d records/s into %d keys of state, logs of driver, receiver and state at level flush, %v each, %d processors\n",
		intervalRate, intervalKeys, hold, runtime.NumCPU())
	for _, ms := range []time.Duration{5, 10, 20, 50, 100} {
		h, err := tryInterval(ms*time.Millisecond, hold)
		if err != nil {
			return false, err
		}
		verdict := "does not hold"
		if h.holds() {
			verdict = "holds"
		}
		fmt.Printf("  %5v  %6d batches, %4d ticks skipped (%.1f %%, longest pause %v)   start after the tick: median %.1f ms, p99 %.1f ms; p99 from the plan %.1f ms   %.2f ms of CPU a batch   %s\n",
			h.interval, h.batches, h.skipped, 100*float64(h.skipped)/float64(max(1, h.batches+h.skipped)), h.pause, millis(h.p50), millis(h.p99), millis(h.sched), millis(h.cpu), verdict)
		if !h.holds() {
			continue
		}
		if h.interval > intervalGoal {
			fmt.Printf("  smallest interval %v (limit %v: OVER THE LIMIT)\n", h.interval, intervalGoal)
			return true, nil
		}
		fmt.Printf("  smallest interval %v (limit %v: ok)\n", h.interval, intervalGoal)
		return false, nil
	}
	fmt.Printf("  none holds (limit %v: OVER THE LIMIT)\n", intervalGoal)
	return true, nil
}

func millis(d time.Duration) float64 { return d.Seconds() * 1e3 }

// durableBatch prints what an empty batch costs with a directory and without.
func durableBatch() error {
	var with, without, ratios []float64
	for range 3 {
		plain, err := emptyBatches()
		if err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "bench-")
		if err != nil {
			return err
		}
		durable, err := emptyBatches(tidemill.WithDir(dir))
		os.RemoveAll(dir)
		if err != nil {
			return err
		}
		with, without, ratios = append(with, durable), append(without, plain), append(ratios, durable/plain)
	}
	fmt.Printf("durable-batch empty batches of 2 stages and 8 tasks\n  without directory %.0f us of CPU per batch   with the driver's log at level flush %.0f   ratio %.2f\n",
		median(without), median(with), median(ratios))
	return nil
}

// durableBenchmarks prints the durable part and reports whether a limit is broken.
func durableBenchmarks(match func(string) bool, hold time.Duration) (over bool, err error) {
	if match("durable-batch") {
		if err := durableBatch(); err != nil {
			return false, err
		}
	}
	if match("durable-interval") {
		return durableInterval(hold)
	}
	return false, nil
}
