package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
)

type kv = tidemill.Pair[string, int64]

// stateParts is the number of partitions of state.
const stateParts = 4

// touches is input over a key space: the first batch has every key once, each
// further one a random part of them.
type touches struct {
	keys   int
	frames [][][]byte // per batch, per partition
}

// key and touched are those of Spark's side (spark/.../StateBench.java), which
// fills its state in ten batches first.
func key(i int) string { return fmt.Sprintf("usr%09d", i) }

func touched(batch, i, keys int) int {
	z := uint64(batch+10)<<32 ^ uint64(i)
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) % uint64(keys))
}

// newTouches makes a batch with all keys and some with n of them.
func newTouches(keys, n, batches int) *touches {
	t := &touches{keys: keys}
	t.frames = append(t.frames, pairFrames(keys, func(i int) kv { return kv{Key: key(i), Value: 1} }))
	for b := range batches {
		t.frames = append(t.frames, pairFrames(n, func(i int) kv { return kv{Key: key(touched(b, i, keys)), Value: 1} }))
	}
	return t
}

func pairFrames(n int, at func(i int) kv) [][]byte {
	var out [][]byte
	for p := range stateParts {
		w := codec.NewFrameWriter(codec.For[kv]())
		for i := p * n / stateParts; i < (p+1)*n/stateParts; i++ {
			if err := w.Append(at(i)); err != nil {
				panic(err) // pairs of string and integer always encode
			}
		}
		out = append(out, w.Finish())
	}
	return out
}

// eachPair is the loop's decoding, written out.
func eachPair(frames [][]byte, f func(k string, v int64)) {
	for _, b := range frames {
		rest := lines(b)
		for len(rest) > 0 {
			var k string
			k, rest = next(rest)
			v, n := binary.Varint(rest)
			rest = rest[n:]
			f(k, v)
		}
	}
}

// touchSource gives batch i of the touches to batch i of the job.
type touchSource struct {
	*touches
	next  int
	order func(batch int) int // which of the frames a batch of the job, from 0, gets; nil: all, then all but the first again
}

func (*touchSource) Open(context.Context, tidemill.BatchTime) error { return nil }
func (*touchSource) Close() error                                   { return nil }
func (s *touchSource) Planned(tidemill.BatchTime, plan.Input)       { s.next++ }

func (s *touchSource) Plan(context.Context, tidemill.BatchTime, graph.Limit) (plan.Input, error) {
	i := s.next
	switch {
	case s.order != nil:
		i = s.order(i)
	case i >= len(s.frames):
		i = 1 + i%(len(s.frames)-1)
	}
	return plan.Input{Records: -1, Bytes: -1, Parts: stateParts, Data: []byte(strconv.Itoa(i))}, nil
}

func (s *touchSource) Data(b *plan.Builder, in plan.Input) (tidemill.RDD[kv], error) {
	i, err := strconv.Atoi(string(in.Data))
	if err != nil {
		return tidemill.RDD[kv]{}, err
	}
	return rdd.FromFrames(b.Scope, "touches", codec.For[kv](), s.frames[i]), nil
}

// stateRun is what a state benchmark measured.
type stateRun struct {
	perBatch time.Duration // CPU, median
	mean     time.Duration // CPU, with the merging of state files in the background
	heapKey  float64       // bytes of heap per key
}

// runState runs a job over touches and measures the batches after the first few.
func runState(t *touches, build func(in tidemill.DStream[kv], done func())) (stateRun, error) {
	const warm = 4
	var costs []float64
	ended := make(chan struct{})
	n := 0
	last := cpu()
	var heap uint64
	done := func() {
		now := cpu()
		if n++; n > warm && n < len(t.frames) {
			costs = append(costs, float64(now-last))
		}
		switch n {
		case 2:
			heap = liveHeap()
		case len(t.frames):
			close(ended)
		}
		last = cpu()
	}
	before := liveHeap()
	ssc, err := tidemill.New(tidemill.App{Name: "state", Build: func(ssc *tidemill.StreamingContext) error {
		build(tidemill.FromSource(ssc, "in", "touches", tidemill.Source[kv](&touchSource{touches: t})), done)
		return nil
	}}, tidemill.Config{BatchInterval: 10 * time.Millisecond, TaskSlots: 1, Parallelism: stateParts})
	if err != nil {
		return stateRun{}, err
	}
	if err := ssc.Start(context.Background()); err != nil {
		return stateRun{}, err
	}
	failed := make(chan error, 1)
	go func() { failed <- ssc.AwaitTermination(context.Background()) }()
	select {
	case <-ended:
	case err := <-failed:
		return stateRun{}, err
	}
	if _, err := ssc.Stop(context.Background(), false); err != nil {
		return stateRun{}, err
	}
	sum := 0.0
	for _, c := range costs {
		sum += c
	}
	return stateRun{
		perBatch: time.Duration(median(costs)), mean: time.Duration(sum / float64(len(costs))),
		heapKey: (float64(heap) - float64(before)) / float64(t.keys),
	}, nil
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// loopCost is the median CPU time of the plain side over the touch batches.
func loopCost(t *touches, first, each func(frames [][]byte)) time.Duration {
	first(t.frames[0])
	var costs []float64
	for _, f := range t.frames[1:] {
		c := cpu()
		each(f)
		costs = append(costs, float64(cpu()-c))
	}
	return time.Duration(median(costs))
}

// partition is the hash work that a shuffle does per key.
func partition(k string) int {
	return int(xxhash.Sum64String(k)%rdd.KeyGroups) * stateParts / rdd.KeyGroups
}

func count(_ tidemill.BatchTime, _ string, v tidemill.Opt[int64], s *tidemill.State[int64]) (int64, bool) {
	n := v.Value
	if s.Exists() {
		n += s.Get()
	}
	s.Update(n)
	return n, true
}

// mapJob counts touches per key.
func mapJob(in tidemill.DStream[kv], done func()) {
	out := tidemill.MapWithState(in, "counts", tidemill.StateSpec[string, int64]{}, count)
	tidemill.ForeachBatch(out.DStream, "out", func(ctx context.Context, b *tidemill.Batch[int64]) error {
		_, err := b.Count(ctx)
		done()
		return err
	})
}

// mapWithState measures 1 % touched keys of n.
func mapWithState(n int) (ratio float64, r stateRun, loop time.Duration, err error) {
	t := newTouches(n, n/100, 30)
	maps := make([]map[string]int64, stateParts)
	for i := range maps {
		maps[i] = map[string]int64{}
	}
	update := func(frames [][]byte) {
		eachPair(frames, func(k string, v int64) { maps[partition(k)][k] += v })
	}
	loop = loopCost(t, update, update)
	runtime.KeepAlive(maps)
	maps = nil
	r, err = runState(t, mapJob)
	return float64(r.perBatch) / float64(loop), r, loop, err
}

func sumUpdate(values []int64, old tidemill.Opt[int64]) tidemill.Opt[int64] {
	s := old.Value
	for _, v := range values {
		s += v
	}
	return tidemill.Some(s)
}

// updateJob sums values per key.
func updateJob(in tidemill.DStream[kv], done func()) {
	out := tidemill.UpdateStateByKey(in, "sums", sumUpdate)
	tidemill.ForeachBatch(out, "out", func(ctx context.Context, b *tidemill.Batch[kv]) error {
		_, err := b.Count(ctx)
		done()
		return err
	})
}

// updateState measures updateStateByKey over n keys of which 1 % have values.
func updateState(n int) (ratio float64, r stateRun, loop time.Duration, err error) {
	t := newTouches(n, n/100, 16)
	all := map[string]int64{}
	update := func(frames [][]byte) {
		values := map[string][]int64{}
		eachPair(frames, func(k string, v int64) { values[k] = append(values[k], v) })
		for k, old := range all {
			all[k] = sumUpdate(values[k], tidemill.Some(old)).Value
			delete(values, k)
		}
		for k, vs := range values {
			all[k] = sumUpdate(vs, tidemill.None[int64]()).Value
		}
	}
	loop = loopCost(t, update, update)
	all = nil
	r, err = runState(t, updateJob)
	return float64(r.perBatch) / float64(loop), r, loop, err
}

// inverseWindow measures a window of 30 slides, each a batch.
func inverseWindow(keys, perSlide int) (ratio float64, r stateRun, loop time.Duration, err error) {
	t := newTouches(keys, perSlide, 50)
	totals := map[string]int64{}
	var scanned int64
	each := func(frames [][]byte) {
		slide := map[string]int64{}
		eachPair(frames, func(k string, v int64) { slide[k] += v })
		for k, v := range slide {
			totals[k] += v
		}
		for _, v := range totals {
			scanned += v
		}
	}
	loop = loopCost(t, each, each)
	totals = nil
	add, sub := func(a, b int64) int64 { return a + b }, func(a, b int64) int64 { return a - b }
	const slide = 10 * time.Millisecond
	r, err = runState(t, func(in tidemill.DStream[kv], done func()) {
		out := tidemill.ReduceByKeyAndWindow(in, "window", add, sub, 30*slide, slide)
		tidemill.ForeachBatch(out, "out", func(ctx context.Context, b *tidemill.Batch[kv]) error {
			_, err := b.Count(ctx)
			done()
			return err
		})
	})
	return float64(r.perBatch) / float64(loop), r, loop, err
}

// mapBytes is what a key costs in a plain map.
func mapBytes(n int) float64 {
	before := liveHeap()
	m := map[string]int64{}
	for i := range n {
		m[key(i)] = 1
	}
	after := liveHeap()
	runtime.KeepAlive(m)
	return (float64(after) - float64(before)) / float64(n)
}

// stateBenchmarks prints the state part and reports whether a limit is broken.
func stateBenchmarks(match func(string) bool) (over bool, err error) {
	verdict := func(ratio, limit float64) string {
		if ratio > limit {
			over = true
			return fmt.Sprintf("ratio %.2f (limit %.1f: OVER THE LIMIT)", ratio, limit)
		}
		return fmt.Sprintf("ratio %.2f (limit %.1f: ok)", ratio, limit)
	}
	const million = 1_000_000
	if match("mapwithstate") {
		for _, n := range []int{million / 10, million, 4 * million} {
			ratio, r, loop, err := mapWithState(n)
			if err != nil {
				return over, err
			}
			n1 := float64(n / 100)
			fmt.Printf("mapwithstate %.1f M keys, 1 %% touched a batch\n  loop %7.0f ns/touch   engine %7.0f ns/touch   ", float64(n)/million, float64(loop)/n1, float64(r.perBatch)/n1)
			if n == million {
				fmt.Printf("%s   mean %.0f ns/touch   %.0f bytes of heap per key, a plain map %.0f\n", verdict(ratio, 2.5), float64(r.mean)/n1, r.heapKey, mapBytes(n))
			} else {
				fmt.Printf("ratio %.2f\n", ratio)
			}
		}
		// The same number of touches over more keys must not cost more.
		for _, n := range []int{million / 10, million, 4 * million} {
			t := newTouches(n, million/100, 20)
			r, err := runState(t, mapJob)
			if err != nil {
				return over, err
			}
			fmt.Printf("  10 000 touches over %.1f M keys: %.2f ms of CPU a batch\n", float64(n)/million, r.perBatch.Seconds()*1e3)
		}
	}
	if match("updatestate") {
		ratio, r, loop, err := updateState(million)
		if err != nil {
			return over, err
		}
		fmt.Printf("updatestate 1 M keys, 1 %% with values\n  loop %7.1f ns/key   engine %7.1f ns/key   %s   %.0f bytes of heap per key\n", float64(loop)/million, float64(r.perBatch)/million, verdict(ratio, 2), r.heapKey)
	}
	if match("window") {
		ratio, r, loop, err := inverseWindow(100_000, 100_000)
		if err != nil {
			return over, err
		}
		fmt.Printf("window inverse, 30 slides, 100 000 records a slide over 100 000 keys\n  loop %7.2f ms/slide   engine %7.2f ms/slide   %s\n", loop.Seconds()*1e3, r.perBatch.Seconds()*1e3, verdict(ratio, 2.5))
	}
	if match("heap") {
		ratio, first, last, err := heapGrowth()
		if err != nil {
			return over, err
		}
		fmt.Printf("heap      100 million random events over 1 M keys\n  after the first million %.0f MB, after all %.0f MB   %s\n", first/1e6, last/1e6, verdict(ratio, 1.5))
	}
	return over, nil
}

// heapGrowth compares the live heap after a hundred million events with that
// after the first million, in which every key comes once.
func heapGrowth() (ratio, first, last float64, err error) {
	const keys, batches, kinds = 1_000_000, 100, 6
	t := newTouches(keys, keys, kinds)
	t.frames = append(t.frames, pairFrames(0, nil))
	// Both times the heap is measured in a batch without input, after another.
	order := func(b int) int {
		switch {
		case b == 0:
			return 0
		case b <= 2 || b > batches+1:
			return kinds + 1
		}
		return 1 + b%kinds
	}
	n := 0
	ended := make(chan struct{})
	ssc, err := tidemill.New(tidemill.App{Name: "heap", Build: func(ssc *tidemill.StreamingContext) error {
		mapJob(tidemill.FromSource(ssc, "in", "touches", tidemill.Source[kv](&touchSource{touches: t, order: order})), func() {
			switch n++; n {
			case 3:
				first = float64(liveHeap())
			case batches + 4:
				last = float64(liveHeap())
				close(ended)
			}
		})
		return nil
	}}, tidemill.Config{BatchInterval: 10 * time.Millisecond, TaskSlots: 1, Parallelism: stateParts})
	if err != nil {
		return 0, 0, 0, err
	}
	base := float64(liveHeap())
	if err := ssc.Start(context.Background()); err != nil {
		return 0, 0, 0, err
	}
	failed := make(chan error, 1)
	go func() { failed <- ssc.AwaitTermination(context.Background()) }()
	select {
	case <-ended:
	case err := <-failed:
		return 0, 0, 0, err
	}
	_, err = ssc.Stop(context.Background(), false)
	first, last = first-base, last-base
	return last / first, first, last, err
}
