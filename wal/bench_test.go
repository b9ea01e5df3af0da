package wal_test

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// The bare loops that these are measured against are in the benchmark program.
const (
	benchProducers = 128
	benchSmall     = 128
	benchLarge     = 1 << 20
)

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
