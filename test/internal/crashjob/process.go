package crashjob

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemill/tidemill"
)

// asJob is the environment variable that makes the test binary the job.
const asJob = "TIDEMILL_CRASH_AS_JOB"

// longest is when a job stops whose test has died.
const longest = 10 * time.Minute

// MainIfJob is for TestMain: in a process that Start made it runs the job, and
// does not return.
func MainIfJob() {
	if os.Getenv(asJob) != "" {
		tidemill.Main(App())
	}
}

// Options are the job's command line, and how long things may take.
type Options struct {
	Addr     string // where it takes lines
	Dir, Out string
	Interval time.Duration
	Patience time.Duration // until it takes lines, and until it has stopped
}

// Process is a process of the job. Its methods are for the test's goroutine.
type Process struct {
	o      Options
	cmd    *exec.Cmd
	stderr bytes.Buffer // to be read when the process has ended
	ended  chan struct{}
	err    error
}

// Start starts the job. What is left of it when the test ends is killed.
func Start(t testing.TB, o Options) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{o: o, ended: make(chan struct{})}
	p.cmd = exec.Command(exe, "-dir", o.Dir, "-addr", o.Addr, "-out", o.Out, "-interval", o.Interval.String(), "-for", longest.String())
	// Scratch files of a process that is killed go with the test.
	p.cmd.Env = append(os.Environ(), asJob+"=1", "TMPDIR="+t.TempDir())
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended
		<-p.ended
	})
	return p
}

// Await waits until the job takes lines.
func (p *Process) Await(t testing.TB) {
	t.Helper()
	for limit := time.Now().Add(p.o.Patience); time.Now().Before(limit); {
		p.Running(t)
		if c, err := net.Dial("tcp", p.o.Addr); err == nil {
			_ = c.Close()
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("the job takes no lines after %v\n%s", p.o.Patience, p.killed())
}

// Running fails the test if the job has ended by itself.
func (p *Process) Running(t testing.TB) {
	t.Helper()
	select {
	case <-p.ended:
		t.Fatalf("the job ended by itself: %v\n%s", p.err, p.stderr.String())
	default:
	}
}

// Kill ends the job with SIGKILL.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.Running(t)
	p.killed()
}

// killed kills the process and returns what it has said.
func (p *Process) killed() string {
	_ = p.cmd.Process.Kill() // fails if it has ended
	<-p.ended
	return p.stderr.String()
}

// Signal sends a signal.
func (p *Process) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v: %v", s, err)
	}
}

// Stop stops the job gracefully, after which nothing is left.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	if code, said := p.End(t); code != 0 || !strings.Contains(said, "nothing left") {
		t.Fatalf("the graceful stop ended with %d\n%s", code, said)
	}
}

// End waits until the job ends, and returns its exit code and what it has
// written to standard error.
func (p *Process) End(t testing.TB) (code int, said string) {
	t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode(), p.stderr.String()
	case <-time.After(p.o.Patience):
		t.Fatalf("the job did not end in %v\n%s", p.o.Patience, p.killed())
		return 0, ""
	}
}

// FreeAddr is an address of loopback on which nobody listens.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
