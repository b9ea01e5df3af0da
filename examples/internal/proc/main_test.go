package proc_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/examples/internal/proc"
)

func TestMain(m *testing.M) { proc.Main(m, func() { tidemill.Main(wrong()) }) }

// wrong is a job that goes wrong in one of several ways.
func wrong() tidemill.App {
	var way string
	return tidemill.App{
		Name:  "wrong",
		Flags: func(fs *flag.FlagSet) { fs.StringVar(&way, "way", "", "what goes wrong") },
		Build: func(ssc *tidemill.StreamingContext) error {
			one := tidemill.ConstantStream(ssc, "in", []string{"good", "bad\t\x1b[31m\nrecord"}, tidemill.InputPartitions(1))
			switch way {
			case "no outputs":
			case "build fails":
				return errors.New("this\tjob\r\n\n is \x1b[31mwrong")
			case "build panics":
				panic("no\nway")
			case "panics":
				tidemill.Print(tidemill.Map(one, func(s string) string {
					if strings.HasPrefix(s, "bad") {
						panic("can't take\n\t" + s)
					}
					return s
				}), "print", 10)
			case "fails":
				tidemill.ForeachPartition(one, "write", func(*tidemill.Task, iter.Seq[string]) error {
					return errors.New("first\nsecond")
				})
			case "driver panics":
				tidemill.ForeachBatch(one, "each", func(context.Context, *tidemill.Batch[string]) error { panic("I won't") })
			case "waits":
				// A well-behaved function that takes long.
				tidemill.ForeachPartition(one, "write", func(t *tidemill.Task, _ iter.Seq[string]) error {
					fmt.Println("in the task")
					<-t.Context().Done()
					return t.Context().Err()
				})
			case "hangs":
				tidemill.ForeachPartition(one, "write", func(*tidemill.Task, iter.Seq[string]) error {
					fmt.Println("in the task")
					select {}
				})
			case "ends its goroutine":
				tidemill.Print(tidemill.Map(one, func(s string) string { new(testing.T).FailNow(); return s }), "print", 10)
			}
			return nil
		},
	}
}

// complaint checks that the process failed and said why in one line.
func complaint(t *testing.T, end proc.End, code int) string {
	t.Helper()
	lines := end.Complaints()
	if end.Code != code || len(lines) != 1 {
		t.Fatalf("exit code %d, complaints %q; want %d and one complaint\n%s", end.Code, lines, code, end)
	}
	return lines[0]
}

func wantAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q does not hold %q", text, p)
		}
	}
}

func TestFailureIsOneLineThatSaysWhereAndWhy(t *testing.T) {
	for way, want := range map[string][]string{
		"no outputs":   {"no output operations"},
		"build fails":  {`wrong: job "wrong": this job; is \x1b[31mwrong`},
		"build panics": {"Build panicked: no; way"},
		"panics": {
			"wrong: batch 20", `output "print"`, `map "in.map"`, "partition 0", "record 2",
			`("bad\t\x1b[31m\nrecord")`, `panic: can't take; bad \x1b[31m; record`, "(after 4 attempts)",
		},
		"fails":              {"wrong: batch 20", `foreachPartition "write"`, "partition 0", "first; second", "(after 4 attempts)"},
		"driver panics":      {"wrong: batch 20", `foreachBatch "each"`, "panic: I won't"},
		"ends its goroutine": {"wrong: batch 20", `map "in.map"`, "record 1", "ended the goroutine"},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			end := proc.Start(t, "-way", way, "-set", "batch-interval=50ms").Wait()
			line := complaint(t, end, 1)
			wantAll(t, line, want...)
			stack := strings.Contains(end.Stderr, "[ERROR] wrong: user code") && strings.Contains(end.Stderr, "main_test.go:")
			if panics := strings.Contains(way, "panic"); panics != stack {
				t.Errorf("stack of the user's function in the log: %v, want %v\n%s", stack, panics, end)
			}
			if strings.Contains(line, "goroutine ") && way != "ends its goroutine" {
				t.Errorf("a stack in the line: %q", line)
			}
		})
	}
}

// A function that takes long holds a graceful stop up; a second signal ends it.
func TestSecondSignalStopsAtOnceAndSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	p := proc.Start(t, "-way", "waits", "-set", "batch-interval=50ms")
	p.UntilSaid("in the task")
	p.Signal(os.Interrupt)
	p.UntilSaid("stopping: working off")
	p.Signal(syscall.SIGTERM)
	wantAll(t, complaint(t, p.Wait(), 1), "cut short: by a signal", "left: ", " planned batches, 0 received records in 0 blocks")
}

func TestThirdSignalEndsAJobWhoseFunctionDoesNotReturn(t *testing.T) {
	t.Parallel()
	p := proc.Start(t, "-way", "hangs", "-set", "batch-interval=50ms")
	p.UntilSaid("in the task")
	p.Signal(os.Interrupt)
	p.UntilSaid("stopping: working off")
	p.Signal(os.Interrupt)
	p.UntilSaid("stopping at once")
	p.Signal(os.Interrupt)
	wantAll(t, complaint(t, p.Wait(), 1), "a function of the job has not returned")
}

func TestStopTimeoutEndsAGracefulStop(t *testing.T) {
	t.Parallel()
	end := proc.Start(t, "-way", "waits", "-set", "batch-interval=50ms", "-set", "stop-timeout=200ms", "-for", "300ms").Wait()
	wantAll(t, complaint(t, end, 1), "stop timeout of 200ms", "left: ")
}

// A process leaves its temporary directory behind only if something in it was
// not worked off, and says so.
func TestTemporaryDirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"no outputs", "panics", "hangs"} {
		p := proc.Start(t, "-way", way, "-set", "batch-interval=50ms")
		if way == "hangs" {
			p.UntilSaid("in the task")
			p.Signal(os.Interrupt)
			p.UntilSaid("stopping: ")
			p.Signal(os.Interrupt)
			p.UntilSaid("stopping at once")
			p.Signal(os.Interrupt)
		}
		end := p.Wait()
		left, err := os.ReadDir(p.Scratch())
		kept := len(left) == 1 && strings.Contains(end.Stderr, "what is not worked off is kept: -dir "+filepath.Join(p.Scratch(), left[0].Name()))
		if err != nil || kept == (way == "no outputs") || !kept && len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", way, left, err)
		}
	}
}
