package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
)

// pair is an engine job beside a plain loop over the same bytes. Both return
// the same number, which shows that they did the same work.
type pair struct {
	name  string
	what  string
	limit float64
	loop  func(blocks [][]byte) int64
}

const (
	blockCount = 24
	blockLines = 10_000
	lineLen    = 100
	rounds     = 9
)

func main() {
	run := flag.String("run", "", "regexp of the benchmarks to run")
	profile := flag.String("cpuprofile", "", "write a CPU profile of the engine's side to this file")
	hold := flag.Duration("hold", 10*time.Second, "how long durable-interval runs at each interval")
	flag.Parse()
	match, err := regexp.Compile(*run)
	if err != nil {
		fatal(err)
	}
	if *hold < time.Second {
		fatal(fmt.Errorf("-hold %v: must be at least 1s", *hold))
	}
	// Not part of a run of all: they need Java.
	if others := map[string]func() (bool, error){"spark-state": sparkState, "hdfs": hdfsBenchmarks}; others[*run] != nil {
		missed, err := others[*run]()
		if err != nil {
			fatal(err)
		}
		if missed {
			os.Exit(1)
		}
		return
	}
	runtime.GOMAXPROCS(1)
	blocks := newCorpus(50_000).blocks(blockCount, blockLines, lineLen)
	fmt.Printf("%s, %s/%s, GOMAXPROCS 1; %d blocks of %d lines of %d bytes; CPU time, median of %d rounds\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, blockCount, blockLines, lineLen, rounds)
	over := false
	for _, p := range pairs() {
		if !match.MatchString(p.name) {
			continue
		}
		r, err := measure(p, blocks, *profile)
		if err != nil {
			fatal(err)
		}
		verdict := "ok"
		if r.ratio > p.limit {
			verdict, over = "OVER THE LIMIT", true
		}
		fmt.Printf("%-8s %s\n  loop %7.1f ns/line   engine %7.1f ns/line   ratio %.2f (limit %.1f: %s)   engine allocations %.4f/line\n",
			p.name, p.what, r.loop, r.engine, r.ratio, p.limit, verdict, r.allocs)
	}
	if match.MatchString("empty") {
		us, err := emptyBatches()
		if err != nil {
			fatal(err)
		}
		fmt.Printf("%-8s %s\n  %.0f us of CPU per batch, driver and executor together\n", "empty", "empty batches of 2 stages and 8 tasks", us)
	}
	stateOver, err := stateBenchmarks(match.MatchString)
	if err != nil {
		fatal(err)
	}
	under, err := walBenchmarks(match.MatchString)
	if err != nil {
		fatal(err)
	}
	durableOver, err := durableBenchmarks(match.MatchString, *hold)
	if err != nil {
		fatal(err)
	}
	if over || stateOver || under || durableOver {
		os.Exit(1)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

func pairs() []pair {
	return []pair{
		{
			name: "grep", what: "filter + count", limit: 1.3,
			loop: func(blocks [][]byte) int64 {
				var n int64
				for _, b := range blocks {
					var line string
					for rest := lines(b); len(rest) > 0; {
						if line, rest = next(rest); strings.Contains(line, needle) {
							n++
						}
					}
				}
				return n
			},
		},
		{
			name: "words", what: "word count, combined before a shuffle to 4 partitions", limit: 1.7,
			loop: func(blocks [][]byte) int64 {
				counts := map[string]int{}
				for _, b := range blocks {
					var line string
					for rest := lines(b); len(rest) > 0; {
						line, rest = next(rest)
						for w := range strings.FieldsSeq(line) {
							counts[w]++
						}
					}
				}
				return int64(len(counts))
			},
		},
	}
}

// lines is the loop's decoding, written out: checksum, then every line in
// place by its length prefix.
func lines(block []byte) []byte {
	frame, err := codec.OpenFrame(block)
	if err != nil {
		fatal(err)
	}
	return frame.Body
}

// next returns the first line of b and the rest.
func next(b []byte) (string, []byte) {
	n, head := int(b[0]), 1
	if n >= 0x80 {
		u, h := binary.Uvarint(b)
		n, head = int(u), h
	}
	return unsafe.String(unsafe.SliceData(b[head:]), n), b[head+n:]
}

// build declares a pair's stream.
func (p pair) build(lines tidemill.DStream[string], onBatch func(run func(ctx context.Context) (int64, error)) error) {
	switch p.name {
	case "grep":
		hits := tidemill.Filter(lines, func(s string) bool { return strings.Contains(s, needle) })
		tidemill.ForeachBatch(hits, "out", func(ctx context.Context, b *tidemill.Batch[string]) error {
			return onBatch(func(context.Context) (int64, error) { return b.Count(ctx) })
		})
	case "words":
		words := tidemill.FlatMap(lines, strings.FieldsSeq)
		ones := tidemill.Map(words, func(w string) tidemill.Pair[string, int] { return tidemill.KV(w, 1) })
		counts := tidemill.ReduceByKey(ones, func(a, b int) int { return a + b }, tidemill.Partitions(4))
		tidemill.ForeachBatch(counts, "out", func(ctx context.Context, b *tidemill.Batch[tidemill.Pair[string, int]]) error {
			return onBatch(func(context.Context) (int64, error) { return b.Count(ctx) })
		})
	}
}

type result struct{ loop, engine, ratio, allocs float64 }

// measure runs rounds of loop and engine in turn.
func measure(p pair, blocks [][]byte, profile string) (result, error) {
	var (
		r       result
		ratios  []float64
		loops   []float64
		engines []float64
		allocs  []float64
		failed  error
		done    = make(chan struct{})
		n       int
	)
	total := float64(blockCount * blockLines)
	round := func(run func(ctx context.Context) (int64, error)) error {
		if n > rounds {
			return nil
		}
		runtime.GC()
		c0 := cpu()
		want := p.loop(blocks)
		loop := cpu() - c0
		runtime.GC()
		var m0, m1 runtime.MemStats
		runtime.ReadMemStats(&m0)
		c0 = cpu()
		got, err := run(context.Background())
		engine := cpu() - c0
		runtime.ReadMemStats(&m1)
		if err == nil && got != want {
			err = fmt.Errorf("%s: the engine counts %d, the loop %d", p.name, got, want)
		}
		if err != nil {
			failed = err
			return err
		}
		if n++; n > 1 { // the first round warms up
			ratios = append(ratios, float64(engine)/float64(loop))
			loops = append(loops, float64(loop)/total)
			engines = append(engines, float64(engine)/total)
			allocs = append(allocs, float64(m1.Mallocs-m0.Mallocs)/total)
		}
		if n == rounds+1 {
			close(done)
			n++
		}
		return nil
	}
	ssc, err := tidemill.New(tidemill.App{Name: "bench", Build: func(ssc *tidemill.StreamingContext) error {
		p.build(tidemill.FromSource(ssc, "lines", "blocks", tidemill.Source[string](blockSource{blocks})), round)
		return nil
	}}, tidemill.Config{BatchInterval: 10 * time.Millisecond, TaskSlots: 1})
	if err != nil {
		return r, err
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return r, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return r, err
		}
		defer pprof.StopCPUProfile()
	}
	if err := ssc.Start(context.Background()); err != nil {
		return r, err
	}
	ended := make(chan error, 1)
	go func() { ended <- ssc.AwaitTermination(context.Background()) }()
	select {
	case <-done:
	case err := <-ended:
		if failed != nil {
			err = failed
		}
		return r, err
	}
	if _, err := ssc.Stop(context.Background(), false); err != nil {
		return r, err
	}
	return result{median(loops), median(engines), median(ratios), median(allocs)}, nil
}

// emptyBatches returns the CPU microseconds of a batch without records.
func emptyBatches(opts ...tidemill.ContextOption) (float64, error) {
	const batches = 300
	n := 0
	var c0, c1 time.Duration
	done := make(chan struct{})
	ssc, err := tidemill.New(tidemill.App{Name: "empty", Build: func(ssc *tidemill.StreamingContext) error {
		in := tidemill.ConstantStream(ssc, "in", []tidemill.Pair[string, int]{}, tidemill.InputPartitions(4))
		sums := tidemill.ReduceByKey(in, func(a, b int) int { return a + b }, tidemill.Partitions(4))
		tidemill.ForeachBatch(sums, "out", func(ctx context.Context, b *tidemill.Batch[tidemill.Pair[string, int]]) error {
			_, err := b.Count(ctx)
			switch n++; n {
			case batches / 2:
				c0 = cpu()
			case batches:
				c1 = cpu()
				close(done)
			}
			return err
		})
		return nil
	}}, tidemill.Config{BatchInterval: 10 * time.Millisecond, TaskSlots: 4}, opts...)
	if err != nil {
		return 0, err
	}
	if err := ssc.Start(context.Background()); err != nil {
		return 0, err
	}
	failed := make(chan error, 1)
	go func() { failed <- ssc.AwaitTermination(context.Background()) }()
	select {
	case <-done:
	case err := <-failed:
		return 0, err
	}
	_, err = ssc.Stop(context.Background(), false)
	return float64((c1 - c0).Microseconds()) / (batches / 2), err
}

// blockSource gives the same blocks to every batch.
type blockSource struct{ blocks [][]byte }

func (blockSource) Open(context.Context, tidemill.BatchTime) error { return nil }
func (blockSource) Close() error                                   { return nil }
func (blockSource) Planned(tidemill.BatchTime, plan.Input)         {}

func (s blockSource) Plan(context.Context, tidemill.BatchTime, graph.Limit) (plan.Input, error) {
	return plan.Input{Records: -1, Bytes: -1, Parts: len(s.blocks)}, nil
}

func (s blockSource) Data(b *plan.Builder, _ plan.Input) (tidemill.RDD[string], error) {
	return rdd.FromFrames(b.Scope, "blocks", codec.For[string](), s.blocks), nil
}

// cpu is the user and system time of the process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
