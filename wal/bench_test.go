package wal_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

const (
	benchProducers = 128
	benchSmall     = 128
	benchLarge     = 1 << 20
)

// bare is what the log is measured against: a loop that writes what its callers
// queued with one write and one sync, without framing, checksums or handles.
type bare struct {
	file  *os.File
	sync  bool
	wake  chan struct{}
	ended chan struct{}

	mu    sync.Mutex
	queue [][]byte
	done  chan struct{}
	stop  bool
}

func newBare(file *os.File, sync bool) *bare {
	b := &bare{file: file, sync: sync, wake: make(chan struct{}, 1), ended: make(chan struct{}), done: make(chan struct{})}
	go b.run()
	return b
}

func (b *bare) append(rec []byte) {
	b.mu.Lock()
	b.queue = append(b.queue, rec)
	done := b.done
	b.mu.Unlock()
	b.poke()
	<-done
}

func (b *bare) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *bare) run() {
	defer close(b.ended)
	var buf []byte
	var spare [][]byte
	for range b.wake {
		b.mu.Lock()
		queue, done, stop := b.queue, b.done, b.stop
		b.queue, b.done = spare[:0], make(chan struct{})
		b.mu.Unlock()
		buf = buf[:0]
		for _, rec := range queue {
			buf = append(buf, rec...)
		}
		if _, err := b.file.Write(buf); err != nil {
			panic(err)
		}
		if b.sync {
			if err := b.file.Sync(); err != nil {
				panic(err)
			}
		}
		close(done)
		clear(queue)
		spare = queue
		if stop {
			return
		}
	}
}

func (b *bare) close() {
	b.mu.Lock()
	b.stop = true
	b.mu.Unlock()
	b.poke()
	<-b.ended
	b.file.Close()
}

// produce appends n records from several goroutines.
func produce(producers, n int, appendOne func()) {
	var wg sync.WaitGroup
	for i := range producers {
		wg.Go(func() {
			for range (n - i + producers - 1) / producers {
				appendOne()
			}
		})
	}
	wg.Wait()
}

func createBenchFile(tb testing.TB, dir string) *os.File {
	tb.Helper()
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("bare-%d", time.Now().UnixNano())))
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func openBenchLog(tb testing.TB, level wal.Level) *wal.Writer {
	tb.Helper()
	w, err := wal.Create(wal.Config{FS: fsys.Local(), Level: level, SegmentBytes: 1 << 40}, tb.TempDir(), "bench", 1, 1)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func BenchmarkAppendSmall(b *testing.B) {
	for _, level := range []wal.Level{wal.LevelMemory, wal.LevelFlush, wal.LevelSync} {
		b.Run(level.String(), func(b *testing.B) {
			w := openBenchLog(b, level)
			defer w.Close()
			rec := make([]byte, benchSmall)
			b.ReportAllocs()
			b.SetBytes(benchProducers * benchSmall)
			for b.Loop() {
				produce(benchProducers, benchProducers, func() { appendBench(b, w, rec) })
			}
		})
	}
}

func appendBench(tb testing.TB, w *wal.Writer, rec []byte) {
	if _, err := w.Append(context.Background(), rec); err != nil {
		tb.Error(err)
	}
}

func BenchmarkAppendLarge(b *testing.B) {
	for _, level := range []wal.Level{wal.LevelFlush, wal.LevelSync} {
		b.Run(level.String(), func(b *testing.B) {
			w := openBenchLog(b, level)
			defer w.Close()
			rec := make([]byte, benchLarge)
			b.ReportAllocs()
			b.SetBytes(benchLarge)
			for b.Loop() {
				appendBench(b, w, rec)
			}
		})
	}
}

func BenchmarkScan(b *testing.B) {
	dir := writeScanInput(b, 64<<20)
	b.ReportAllocs()
	b.SetBytes(64 << 20)
	for b.Loop() {
		scanBench(b, dir)
	}
}

// writeScanInput makes a log of about size bytes in segments of 16 MiB, with
// records of 4 KiB.
func writeScanInput(tb testing.TB, size int) string {
	tb.Helper()
	dir := tb.TempDir()
	w, err := wal.Create(wal.Config{FS: fsys.Local(), SegmentBytes: 16 << 20}, dir, "bench", 1, 1)
	if err != nil {
		tb.Fatal(err)
	}
	rec := bytes.Repeat([]byte("tide"), 1<<10)
	for range size / len(rec) {
		w.Start(rec)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func scanBench(tb testing.TB, dir string) {
	var n int64
	if _, err := wal.Scan(context.Background(), fsys.Local(), dir, wal.ScanOptions{}, func(_ uint64, _ base.Handle, rec []byte) error {
		n += int64(len(rec))
		return nil
	}); err != nil || n == 0 {
		tb.Errorf("scan of %d bytes: %v", n, err)
	}
}

// readBare reads all files of a directory one after another and sums them.
func readBare(tb testing.TB, dir string, buf []byte) {
	files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no segments: %v", err)
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			tb.Fatal(err)
		}
		var sum uint32
		for {
			n, err := f.Read(buf)
			sum = crc32.Update(sum, table, buf[:n])
			if err == io.EOF {
				break
			}
			if err != nil {
				tb.Fatal(err)
			}
		}
		f.Close()
	}
}

// TestPrintRatios compares the log with bare loops, each pair in the same run.
// It prints; machines that are shared make poor judges.
func TestPrintRatios(t *testing.T) {
	if os.Getenv("TIDEMILL_WAL_RATIOS") == "" {
		t.Skip("set TIDEMILL_WAL_RATIOS=1 to measure")
	}
	printRatios(t, t.Logf)
}

func printRatios(tb testing.TB, printf func(string, ...any)) {
	small, large := make([]byte, benchSmall), make([]byte, benchLarge)
	for _, c := range []struct {
		name      string
		level     wal.Level
		producers int
		n         int
		rec       []byte
	}{
		{"128 goroutines of 128 B, flush", wal.LevelFlush, benchProducers, 1_000_000, small},
		{"128 goroutines of 128 B, sync", wal.LevelSync, benchProducers, 100_000, small},
		{"1 MiB, flush", wal.LevelFlush, 1, 512, large},
		{"1 MiB, sync", wal.LevelSync, 1, 128, large},
	} {
		log, loop := best(3, func() time.Duration {
			w := openBenchLog(tb, c.level)
			defer w.Close()
			return timed(func() { produce(c.producers, c.n, func() { appendBench(tb, w, c.rec) }) })
		}, func() time.Duration {
			if c.producers == 1 {
				return bareSequential(tb, c.n, c.rec, c.level == wal.LevelSync)
			}
			l := newBare(createBenchFile(tb, tb.TempDir()), c.level == wal.LevelSync)
			defer l.close()
			return timed(func() { produce(c.producers, c.n, func() { l.append(c.rec) }) })
		})
		printRatio(printf, c.name, c.n, log, loop)
	}
	dir := writeScanInput(tb, 256<<20)
	buf := make([]byte, 1<<20)
	scan, read := best(3, func() time.Duration {
		return timed(func() { scanBench(tb, dir) })
	}, func() time.Duration {
		return timed(func() { readBare(tb, dir, buf) })
	})
	printRatio(printf, "scan of 256 MiB", 256, scan, read)
}

func bareSequential(tb testing.TB, n int, rec []byte, sync bool) time.Duration {
	f := createBenchFile(tb, tb.TempDir())
	defer f.Close()
	return timed(func() {
		for range n {
			if _, err := f.Write(rec); err != nil {
				tb.Fatal(err)
			}
			if sync {
				if err := f.Sync(); err != nil {
					tb.Fatal(err)
				}
			}
		}
	})
}

func timed(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

// best runs both in turns and returns the shortest time of each.
func best(rounds int, a, b func() time.Duration) (bestA, bestB time.Duration) {
	for i := range rounds {
		x, y := a(), b()
		if i == 0 || x < bestA {
			bestA = x
		}
		if i == 0 || y < bestB {
			bestB = y
		}
	}
	return bestA, bestB
}

func printRatio(printf func(string, ...any), name string, n int, log, loop time.Duration) {
	printf("%-32s log %10v, bare %10v for each of %d: %.0f %%", name, log/time.Duration(n), loop/time.Duration(n), n, 100*float64(loop)/float64(log))
}
