package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

const (
	walRounds    = 11
	walProducers = 128
	walSmall     = 128
	walLarge     = 1 << 20
)

// share is how fast the log is beside its loop, in percent: the median over
// rounds in which both ran in turn.
type share struct {
	percent   float64
	log, loop time.Duration // medians
}

// compare runs rounds of both sides in turn, on other directories each. What
// they return is the time that counts. The first round warms up.
func compare(rounds int, log, loop func(dir string) (time.Duration, error)) (share, error) {
	var shares, logs, loops []float64
	once := func(side func(string) (time.Duration, error)) (time.Duration, error) {
		dir, err := os.MkdirTemp("", "bench-")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		runtime.GC()
		return side(dir)
	}
	for i := range rounds + 1 {
		// Who goes first changes: the disk is busy with what was before.
		sides := []func(string) (time.Duration, error){log, loop}
		var took [2]time.Duration
		for j := range sides {
			k := (i + j) % 2
			var err error
			if took[k], err = once(sides[k]); err != nil {
				return share{}, err
			}
		}
		if i > 0 {
			logs, loops = append(logs, float64(took[0])), append(loops, float64(took[1]))
			shares = append(shares, 100*float64(took[1])/float64(took[0]))
		}
	}
	return share{percent: median(shares), log: time.Duration(median(logs)), loop: time.Duration(median(loops))}, nil
}

// logSide appends to a log of the given level; bareLog is the plain side.
func logSide(level wal.Level, appends func(one func(rec []byte) error) error) func(dir string) (time.Duration, error) {
	return func(dir string) (time.Duration, error) {
		w, err := wal.Create(wal.Config{FS: fsys.Local(), Level: level, Alarm: fatal}, dir, "bench", 1, 1)
		if err != nil {
			return 0, err
		}
		begin := time.Now()
		err = appends(func(rec []byte) error {
			_, err := w.Append(context.Background(), rec)
			return err
		})
		took := time.Since(begin)
		if cerr := w.Close(); err == nil {
			err = cerr
		}
		return took, err
	}
}

// produce appends n records of small from many goroutines.
func produce(n int, one func(rec []byte) error) error {
	rec := make([]byte, walSmall)
	errs := make([]error, walProducers)
	var wg sync.WaitGroup
	for p := range walProducers {
		wg.Go(func() {
			for range (n + p) / walProducers {
				if err := one(rec); err != nil {
					errs[p] = err
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// walSmallShare measures group commit: n small records of many goroutines.
func walSmallShare(level wal.Level, n int) (share, error) {
	return compare(walRounds, logSide(level, func(one func([]byte) error) error { return produce(n, one) }),
		func(dir string) (time.Duration, error) {
			l := &bareLog{dir: dir, level: level.String()}
			l.startGroups()
			begin := time.Now()
			err := produce(n, func(rec []byte) error { l.append(rec); return nil })
			took := time.Since(begin)
			if cerr := l.close(); err == nil {
				err = cerr
			}
			return took, err
		})
}

// walLargeShare measures n large records of one goroutine.
func walLargeShare(level wal.Level, n int) (share, error) {
	rec := make([]byte, walLarge)
	for i := range rec {
		rec[i] = byte(i * 7)
	}
	sequence := func(one func([]byte) error) error {
		for range n {
			if err := one(rec); err != nil {
				return err
			}
		}
		return nil
	}
	return compare(walRounds, logSide(level, sequence), func(dir string) (time.Duration, error) {
		l := &bareLog{dir: dir, level: level.String()}
		l.frame(rec)
		begin := time.Now()
		err := sequence(func([]byte) error { return l.write(l.buf) })
		took := time.Since(begin)
		if cerr := l.close(); err == nil {
			err = cerr
		}
		return took, err
	})
}

// walRecoveryShare measures reading a log of size bytes in records of recBytes.
func walRecoveryShare(size, recBytes int) (share, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return share{}, err
	}
	defer os.RemoveAll(dir)
	w, err := wal.Create(wal.Config{FS: fsys.Local(), Alarm: fatal}, dir, "bench", 1, 1)
	if err != nil {
		return share{}, err
	}
	rec := make([]byte, recBytes)
	for i := range rec {
		rec[i] = byte(i * 7)
	}
	for i := range size / recBytes {
		t := w.Start(rec)
		if i%10_000 > 0 {
			continue
		}
		if _, err := t.Wait(context.Background()); err != nil {
			return share{}, err
		}
	}
	if err := w.Close(); err != nil {
		return share{}, err
	}
	buf := make([]byte, 256<<10)
	return compare(walRounds, func(string) (time.Duration, error) {
		begin := time.Now()
		n := 0
		_, err := wal.Scan(context.Background(), fsys.Local(), dir, wal.ScanOptions{}, func(_ uint64, _ base.Handle, rec []byte) error {
			n += len(rec)
			return nil
		})
		if err == nil && n != size/recBytes*recBytes {
			err = fmt.Errorf("the scan gave %d bytes of %d", n, size)
		}
		return time.Since(begin), err
	}, func(string) (time.Duration, error) {
		begin := time.Now()
		n, err := readBare(dir, buf)
		if err == nil && n < size {
			err = fmt.Errorf("the loop read %d bytes of %d", n, size)
		}
		return time.Since(begin), err
	})
}

// readBare reads the files of a directory in order, with a checksum.
func readBare(dir string, buf []byte) (n int, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil {
		return 0, err
	}
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return n, err
		}
		var sum uint32
		for err == nil {
			var k int
			k, err = f.Read(buf)
			sum = crc32.Update(sum, castagnoli, buf[:k])
			n += k
		}
		f.Close()
		if err != io.EOF {
			return n, err
		}
	}
	return n, nil
}

// walCase is one figure: the log's share of the loop's speed.
type walCase struct {
	what    string
	n       float64 // what a time is divided by
	limit   float64 // 0: none
	strict  bool    // the limit also holds with all processors
	measure func() (share, error)
}

// show measures a case and prints it. The limit is for one processor, as in the
// other benchmarks: goroutines that wake each other across processors scatter
// too much where others use these too.
func (c walCase) show(unit string) (under bool, err error) {
	one, err := c.measure()
	if err != nil {
		return false, err
	}
	before := runtime.GOMAXPROCS(runtime.NumCPU())
	all, err := c.measure()
	runtime.GOMAXPROCS(before)
	if err != nil {
		return false, err
	}
	verdict := func(s share, limited bool) string {
		switch {
		case !limited || c.limit == 0:
			return ""
		case s.percent < c.limit:
			under = true
			return fmt.Sprintf(" (at least %.0f: UNDER THE LIMIT)", c.limit)
		}
		return fmt.Sprintf(" (at least %.0f: ok)", c.limit)
	}
	fmt.Printf("  %-19s loop %7.1f   log %7.1f %-9s   %3.0f %% of the loop's speed%s   with %d processors %3.0f %%%s\n", c.what,
		float64(one.loop)/c.n, float64(one.log)/c.n, unit, one.percent, verdict(one, true), runtime.NumCPU(), all.percent, verdict(all, c.strict))
	return under, nil
}

// walBenchmarks prints the log beside bare loops and reports whether a limit is
// broken. The time is the one that passes, since waiting for a disk takes no
// CPU.
func walBenchmarks(match func(string) bool) (under bool, err error) {
	show := func(title, unit string, cases ...walCase) error {
		fmt.Println(title)
		for _, c := range cases {
			u, err := c.show(unit)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", title, c.what, err)
			}
			under = under || u
		}
		return nil
	}
	if match("wal-small") {
		at := func(level wal.Level, n int) walCase {
			return walCase{what: level.String(), n: float64(n), limit: 70, measure: func() (share, error) { return walSmallShare(level, n) }}
		}
		title := fmt.Sprintf("wal-small %d goroutines, each appends records of %d bytes and waits", walProducers, walSmall)
		if err := show(title, "ns/record", at(wal.LevelFlush, 100_000), at(wal.LevelSync, 20_000)); err != nil {
			return under, err
		}
	}
	if match("wal-large") {
		at := func(level wal.Level, n int) walCase {
			return walCase{what: level.String(), n: float64(n) * 1e3, limit: 80, measure: func() (share, error) { return walLargeShare(level, n) }}
		}
		title := fmt.Sprintf("wal-large one goroutine appends records of 1 MiB and waits, files of %d MiB", segmentBytes>>20)
		if err := show(title, "us/record", at(wal.LevelFlush, 160), at(wal.LevelSync, 96)); err != nil {
			return under, err
		}
	}
	if match("wal-recovery") {
		of := func(size, rec int, limit float64) walCase {
			return walCase{
				what: fmt.Sprintf("records of %d", rec), n: float64(size) / 1e3, limit: limit, strict: true,
				measure: func() (share, error) { return walRecoveryShare(size, rec) },
			}
		}
		if err := show("wal-recovery reading a log with Scan; the loop reads its files in order, with CRC32C", "us/MB",
			of(256<<20, 4<<10, 60), of(256<<20, 1<<20, 60), of(64<<20, walSmall, 0)); err != nil {
			return under, err
		}
	}
	return under, nil
}
