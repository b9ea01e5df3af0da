package crash

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemill/tidemill"
)

const asJob = "TIDEMILL_CRASH_AS_JOB"

func TestMain(m *testing.M) {
	if os.Getenv(asJob) != "" {
		tidemill.Main(app())
		return
	}
	goleak.VerifyTestMain(m)
}

// rounds is how often the job is killed: TIDEMILL_CRASH_ROUNDS, or as often as
// takes less than a minute.
func rounds(t *testing.T) int {
	text := os.Getenv("TIDEMILL_CRASH_ROUNDS")
	if text == "" {
		return 50
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("TIDEMILL_CRASH_ROUNDS=%q: must be a positive number", text)
	}
	return n
}

// TestKilledJobLosesNothing is what the package doc says.
func TestKilledJobLosesNothing(t *testing.T) {
	dir := t.TempDir()
	addr := freeAddr(t)
	state, out := filepath.Join(dir, "state"), filepath.Join(dir, "out")
	c := newClient(addr)
	ctx, stop := context.WithCancel(t.Context())
	posting := make(chan struct{})
	go func() {
		defer close(posting)
		c.run(ctx, 6)
	}()
	n := rounds(t)
	began := time.Now()
	for round := range n {
		j := start(t, addr, state, out)
		if round%4 != 3 { // else it is killed while it starts
			j.await(t, addr)
		}
		<-time.After(time.Duration(rand.IntN(900)) * time.Millisecond)
		j.kill(t)
		if (round+1)%10 == 0 {
			t.Logf("%d of %d kills in %v", round+1, n, time.Since(began).Round(time.Second))
		}
	}
	j := start(t, addr, state, out)
	j.await(t, addr)
	<-time.After(time.Second)
	stop()
	<-posting
	j.stop(t)
	lines := output(t, out, "lines")
	c.check(t, lines)
	checkOutputs(t, out, lines)
	t.Logf("%d kills, %d batches; %d lines acknowledged, %d with an unknown outcome", n, len(lines), len(c.acked), len(c.unknown))
	if len(c.acked) < 20*n || len(lines) < n {
		t.Errorf("that is too little to tell anything")
	}
}

// job is a process of the job.
type job struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan error
}

func start(t *testing.T, addr, state, out string) *job {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := &job{cmd: exec.Command(exe, "-dir", state, "-addr", addr, "-out", out), ended: make(chan error, 1)}
	j.cmd.Env = append(os.Environ(), asJob+"=1")
	j.cmd.Stderr = &j.stderr
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { j.ended <- j.cmd.Wait() }()
	t.Cleanup(func() { _ = j.cmd.Process.Kill() })
	return j
}

// await waits until the job takes lines.
func (j *job) await(t *testing.T, addr string) {
	t.Helper()
	for range 3000 {
		select {
		case err := <-j.ended:
			t.Fatalf("the job ended by itself: %v\n%s", err, j.stderr.String())
		default:
		}
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("the job takes no lines after 30 s\n%s", j.stderr.String())
}

func (j *job) kill(t *testing.T) {
	t.Helper()
	select {
	case err := <-j.ended:
		t.Fatalf("the job ended by itself: %v\n%s", err, j.stderr.String())
	default:
	}
	if err := j.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-j.ended
}

// stop stops the job gracefully, after which nothing is left.
func (j *job) stop(t *testing.T) {
	t.Helper()
	if err := j.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-j.ended:
		if err != nil || !bytes.Contains(j.stderr.Bytes(), []byte("nothing left")) {
			t.Fatalf("the graceful stop: %v\n%s", err, j.stderr.String())
		}
	case <-time.After(time.Minute):
		t.Fatalf("the graceful stop did not end\n%s", j.stderr.String())
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
