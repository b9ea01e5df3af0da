package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asProgram is the environment variable that makes the test binary the program.
const asProgram = "TIDEMILL_TEST_AS_PROGRAM"

// Limit is how long a process, or a wait for something, may take.
const Limit = 60 * time.Second

// Main is for TestMain: it runs the tests, or program in a process that Start
// made.
func Main(m *testing.M, program func()) {
	if os.Getenv(asProgram) != "" {
		program()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// Process is a running program.
type Process struct {
	t      testing.TB
	args   []string
	cmd    *exec.Cmd
	stdout output
	stderr output
	ended  chan struct{}
	code   int
}

// End is how a process ended.
type End struct {
	Args           []string
	Code           int // -1 after a signal
	Stdout, Stderr string
}

func (e End) String() string {
	return fmt.Sprintf("%q ended with %d\nstdout:\n%s\nstderr:\n%s", e.Args, e.Code, tail(e.Stdout), tail(e.Stderr))
}

func tail(s string) string {
	const most = 2000
	if len(s) > most {
		return "..." + s[len(s)-most:]
	}
	return s
}

// Start starts the program. It is killed, and the test fails, if it does not
// end within Limit; what is left of it when the test ends is killed too.
func Start(t testing.TB, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, args: args, cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	// Scratch directories of a process that is killed go with the test.
	p.cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+t.TempDir())
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		var exit *exec.ExitError
		if err := p.cmd.Wait(); errors.As(err, &exit) {
			p.code = exit.ExitCode()
		} else if err != nil {
			p.code = -2 // its output can't be read
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended
		<-p.ended
	})
	return p
}

// Scratch is the directory in which the process makes temporary files.
func (p *Process) Scratch() string {
	for _, e := range p.cmd.Env {
		if dir, ok := strings.CutPrefix(e, "TMPDIR="); ok {
			return dir
		}
	}
	return os.TempDir()
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%v: %v", s, err)
	}
}

// Wait waits for the end.
func (p *Process) Wait() End {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.end(p.code)
	case <-time.After(Limit):
		_ = p.cmd.Process.Kill()
		<-p.ended
		p.t.Fatalf("did not end within %v: %s", Limit, p.end(-1))
		return End{}
	}
}

func (p *Process) end(code int) End {
	return End{Args: p.args, Code: code, Stdout: p.stdout.String(), Stderr: p.stderr.String()}
}

// Stdout returns what the process has written to standard output so far.
func (p *Process) Stdout() string { return p.stdout.String() }

// Stderr returns what the process has written to standard error so far.
func (p *Process) Stderr() string { return p.stderr.String() }

// Until waits until ok holds, which is asked again and again. The test fails
// when the process ends before that, or after Limit.
func (p *Process) Until(what string, ok func() bool) {
	p.t.Helper()
	limit := time.After(Limit)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-p.ended:
			if ok() {
				return
			}
			p.t.Fatalf("%s: not before the process ended: %s", what, p.end(p.code))
		case <-limit:
			p.t.Fatalf("%s: not within %v: %s", what, Limit, p.end(-1))
		}
	}
}

// UntilSaid waits until the process has written text to either output.
func (p *Process) UntilSaid(text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf("%q in the output", text), func() bool {
		return strings.Contains(p.stdout.String(), text) || strings.Contains(p.stderr.String(), text)
	})
}

var (
	logLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT[0-9:.]+\S* \[|^ `)
	info    = regexp.MustCompile(`^[a-z]+: (running: |state: |going on with |stop with |stopping|what is not worked off is kept: |a file every second )`)
)

// Complaints returns the lines on standard error that are neither log nor
// said in a run that goes well.
func (e End) Complaints() []string {
	var out []string
	for line := range strings.Lines(e.Stderr) {
		if line = strings.TrimSuffix(line, "\n"); !logLine.MatchString(line) && !info.MatchString(line) {
			out = append(out, line)
		}
	}
	return out
}

// output is what was written, safe to read meanwhile.
type output struct {
	mu  sync.Mutex
	all []byte
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, b...)
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.all)
}
