package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/wal"
)

const (
	hdfsLauncher = "test/realcluster/hdfs"
	hdfsRounds   = 15
	// hdfsShare is how much of the bare loop's bytes per second a log must reach,
	// in percent.
	hdfsShare = 80
)

// hdfsBenchmarks measures the write-ahead log on a real HDFS of one datanode,
// beside a bare loop of the same library with the same commit rule and beside
// Hadoop's own client.
func hdfsBenchmarks() (under bool, err error) {
	runtime.GOMAXPROCS(runtime.NumCPU())
	dir, err := os.MkdirTemp("", "bench-hdfs-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	cluster := filepath.Join(dir, "cluster")
	launch := func(args ...string) ([]byte, error) {
		args = append([]string{hdfsLauncher}, append(args, "--dir", cluster)...)
		cmd := exec.Command("bash", args...)
		cmd.Stderr = os.Stderr
		return cmd.Output()
	}
	fmt.Println("starting HDFS with one datanode")
	if _, err := launch("start", "--datanodes", "1", "--owner", strconv.Itoa(os.Getpid()), "--timeout", "180"); err != nil {
		return false, fmt.Errorf("start HDFS: %w (it needs Java 17 and Maven)", err)
	}
	defer func() {
		_, serr := launch("stop", "--now", "--wipe")
		err = errors.Join(err, serr)
	}()
	addr, err := namenodeOf(filepath.Join(cluster, "env"))
	if err != nil {
		return false, err
	}
	b := hdfsBench{addr: addr, url: "hdfs://" + addr, launch: launch}
	cfg, err := hdfs.Config{}.FromEnvironment(addr)
	if err != nil {
		return false, err
	}
	b.user = cfg.User
	if b.fs, err = hdfs.New(cfg); err != nil {
		return false, err
	}
	defer b.fs.Close()
	// Less than a block: at its end our file syncs, which the loop does not.
	for _, c := range []struct{ size, count int }{{64 << 10, 1500}, {1 << 20, 100}} {
		s, err := b.share(c.size, c.count)
		if err != nil {
			return under, err
		}
		verdict := "ok"
		if s.percent < hdfsShare {
			verdict, under = "BELOW THE LIMIT", true
		}
		mib := float64(c.size) * float64(c.count) / (1 << 20)
		fmt.Printf("hdfs-log   %s a record, one writer, acknowledged before the next\n  bare loop %.0f MiB/s   log %.0f MiB/s   %.0f %% of the loop (limit %d: %s)\n",
			bytesText(c.size), mib/s.loop.Seconds(), mib/s.log.Seconds(), s.percent, hdfsShare, verdict)
	}
	fmt.Println("commit      size      rule     ours p50/p99 us        Java p50/p99 us")
	for _, size := range []int{128, 64 << 10, 1 << 20} {
		for _, rule := range []string{"hflush", "hsync"} {
			count := 500
			if size > 1<<19 {
				count = 150
			}
			ours, err := b.commits(size, count, rule == "hsync")
			if err != nil {
				return under, err
			}
			java, err := b.java(size, count, rule)
			if err != nil {
				return under, err
			}
			fmt.Printf("            %-9s %-8s %8.0f / %-8.0f    %8.0f / %-8.0f\n", bytesText(size), rule, ours[0], ours[1], java[0], java[1])
		}
	}
	return under, nil
}

func bytesText(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// namenodeOf reads the address from what the launcher wrote.
func namenodeOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if addr, ok := strings.CutPrefix(lines.Text(), "HDFS_NAMENODE="); ok {
			return addr, nil
		}
	}
	return "", fmt.Errorf("%s names no namenode", file)
}

type hdfsBench struct {
	addr, url, user string
	fs              *hdfs.FS
	launch          func(args ...string) ([]byte, error)
	files           int
}

func (b *hdfsBench) name() string {
	b.files++
	return fmt.Sprintf("/bench/%d", b.files)
}

// share compares a log with the bare loop.
func (b *hdfsBench) share(size, count int) (share, error) {
	rec := make([]byte, size)
	for i := range rec {
		rec[i] = byte(i * 7)
	}
	log := func() (time.Duration, error) {
		dir := b.url + b.name()
		if err := b.fs.MkdirAll(dir); err != nil {
			return 0, err
		}
		w, err := wal.Create(wal.Config{FS: b.fs, Alarm: fatal, SegmentBytes: 1 << 30}, dir, "bench", 1, 1)
		if err != nil {
			return 0, err
		}
		took, err := timed(count, func() error {
			_, err := w.Append(context.Background(), rec)
			return err
		})
		return took, errors.Join(err, w.Close(), b.fs.RemoveAll(dir))
	}
	loop := func() (time.Duration, error) {
		dir := b.name()
		if err := b.fs.MkdirAll(dir); err != nil {
			return 0, err
		}
		bare, err := openBareHDFS(b.addr, b.user, dir+"/file")
		if err != nil {
			return 0, err
		}
		framed := &bareLog{} // a length and a checksum are the least that a log needs
		took, err := timed(count, func() error {
			framed.buf = framed.buf[:0]
			framed.frame(rec)
			return bare.commit(framed.buf)
		})
		return took, errors.Join(err, bare.close(), b.fs.RemoveAll(dir))
	}
	var logs, loops, shares []float64
	for i := range hdfsRounds + 1 {
		sides := []func() (time.Duration, error){log, loop}
		var took [2]time.Duration
		for j := range sides {
			k := (i + j) % 2 // who goes first changes
			var err error
			if took[k], err = sides[k](); err != nil {
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

// timed runs an operation n times, after once more, which makes the connection.
func timed(n int, op func() error) (time.Duration, error) {
	if err := op(); err != nil {
		return 0, err
	}
	begin := time.Now()
	for range n {
		if err := op(); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// commits returns the median and the 99th percentile of a commit, in us.
func (b *hdfsBench) commits(size, count int, sync bool) (at [2]float64, err error) {
	dir := b.url + b.name()
	if err := b.fs.MkdirAll(dir); err != nil {
		return at, err
	}
	f, err := b.fs.Create(fsys.Join(dir, "file"))
	if err != nil {
		return at, err
	}
	rec := make([]byte, size)
	var took []float64
	for i := -count / 5; i < count; i++ {
		begin := time.Now()
		_, err := f.Write(rec)
		if err == nil && sync {
			err = f.Sync()
		} else if err == nil {
			err = f.Flush()
		}
		if err != nil {
			return at, err
		}
		if i >= 0 {
			took = append(took, float64(time.Since(begin))/1e3)
		}
	}
	slices.Sort(took)
	return [2]float64{took[count/2], took[count*99/100]}, errors.Join(f.Close(), b.fs.RemoveAll(dir))
}

// java runs the same with Hadoop's client.
func (b *hdfsBench) java(size, count int, rule string) (at [2]float64, err error) {
	classpath, err := b.launch("classpath")
	if err != nil {
		return at, err
	}
	cmd := exec.Command("java", "-cp", string(bytes.TrimSpace(classpath)), "bench/hdfs/Commit.java",
		b.url, b.name(), strconv.Itoa(size), strconv.Itoa(count), rule)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return at, fmt.Errorf("java: %w: %s", err, said.String())
	}
	if _, err := fmt.Sscan(string(out), &at[0], &at[1]); err != nil {
		return at, fmt.Errorf("java said %q: %w", out, err)
	}
	return at, nil
}
