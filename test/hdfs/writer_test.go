package hdfs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemill/tidemill/wal"
)

// The environment variables that make the test binary a writer.
const (
	writerDir   = "TIDEMILL_HDFS_WRITER_DIR"
	writerLevel = "TIDEMILL_HDFS_WRITER_LEVEL"
)

// appenders is how many records are on their way at a time.
const appenders = 4

// record is what is appended under an id.
func record(id int) []byte {
	return fmt.Appendf(nil, "%d:%s", id, strings.Repeat("x", id%97))
}

// mainIfWriter appends to a log for ever, in a process that startWriter made, and
// prints the id of each record once it is acknowledged.
func mainIfWriter() {
	if dir := os.Getenv(writerDir); dir != "" {
		fmt.Fprintln(os.Stderr, write(context.Background(), dir))
		os.Exit(1)
	}
}

func write(ctx context.Context, dir string) error {
	level, err := wal.ParseLevel(os.Getenv(writerLevel))
	if err != nil {
		return err
	}
	f, err := open(dir)
	if err != nil {
		return err
	}
	claimed, err := wal.Claim(ctx, f, dir, wal.ClaimOptions{})
	if err != nil {
		return err
	}
	w, err := wal.Create(wal.Config{
		FS: f, Level: level, SegmentBytes: 32 << 10, // some are sealed, one is not
		Alarm: func(err error) { fmt.Fprintln(os.Stderr, err) },
	}, claimed.Dir, "tail", claimed.Epoch, 1)
	if err != nil {
		return err
	}
	var last atomic.Int64
	failed := make(chan error, appenders)
	for range appenders {
		go func() {
			for {
				id := int(last.Add(1))
				if _, err := w.Append(ctx, record(id)); err != nil {
					failed <- err
					return
				}
				fmt.Println(id) // one write, whole or not there
			}
		}()
	}
	return <-failed
}

// writer is a process that appends.
type writer struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	stdout bytes.Buffer
	stderr bytes.Buffer // to be read when the process has ended
	ended  chan struct{}
}

func startWriter(t *testing.T, dir string, level wal.Level) *writer {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	w := &writer{cmd: exec.Command(exe), ended: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), writerDir+"="+dir, writerLevel+"="+level.String())
	w.cmd.Stdout, w.cmd.Stderr = w, &w.stderr
	must(t, w.cmd.Start())
	go func() {
		defer close(w.ended)
		_ = w.cmd.Wait() // it never ends well
	}()
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // fails if it has ended
		<-w.ended
	})
	return w
}

// Write takes what the process prints.
func (w *writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stdout.Write(b)
}

func (w *writer) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stdout.String()
}

// await waits until so many records are acknowledged.
func (w *writer) await(t *testing.T, records int) {
	t.Helper()
	const limit = time.Minute
	for began := time.Now(); strings.Count(w.said(), "\n") < records; {
		select {
		case <-w.ended:
			t.Fatalf("the writer ended by itself\n%s", w.stderr.String())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Since(began) > limit {
			_ = w.cmd.Process.Kill() // fails if it has ended
			<-w.ended
			t.Fatalf("%d records are not acknowledged after %v\n%s", records, limit, w.stderr.String())
		}
	}
}

// kill ends the process with SIGKILL and returns the ids that it had printed.
func (w *writer) kill(t *testing.T) (ids []int) {
	t.Helper()
	must(t, w.cmd.Process.Kill())
	<-w.ended
	for line := range strings.Lines(w.said()) {
		id, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
		must(t, err)
		ids = append(ids, id)
	}
	return ids
}
