package tidemill

import (
	"context"
	"errors"
	"flag"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// outcome is how a program ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// runApp runs a program as Main does, with signals from a channel.
func runApp(t *testing.T, app App, signals <-chan os.Signal, args ...string) outcome {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var stdout, stderr lockedBuilder
	ended := make(chan int, 1)
	go func() { ended <- run(t.Context(), app, args, signals, &stdout, &stderr) }()
	var code int
	select {
	case code = <-ended:
	case <-time.After(time.Minute):
		t.Fatalf("%q has not ended, stderr:\n%s", args, stderr.String())
	}
	left, err := os.ReadDir(os.TempDir())
	kept := len(left) == 1 && strings.Contains(stderr.String(), "what is not worked off is kept: -dir "+filepath.Join(os.TempDir(), left[0].Name())+" goes on")
	if err != nil || len(left) > 0 && !kept {
		t.Errorf("temporary directories are left: %v, %v", left, err)
	}
	goleak.VerifyNone(t)
	return outcome{code, stdout.String(), stderr.String()}
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// counting is a job with a flag of its own.
func counting() App {
	word := ""
	return App{
		Name:      "counting",
		Flags:     func(fs *flag.FlagSet) { fs.StringVar(&word, "word", "wave", "the `word` to print") },
		Configure: func(c *Config) { c.BatchInterval, c.TaskSlots, c.Parallelism = 50*time.Millisecond, 2, 4 },
		Build: func(ssc *StreamingContext) error {
			words := ConstantStream(ssc, "words", []string{word, word})
			Print(CountByValue(words), "print", 10)
			return nil
		},
	}
}

func TestRunForAWhile(t *testing.T) {
	o := runApp(t, counting(), nil, "-for", "200ms", "-word", "tide", "-executors", "2")
	batch := "-------------------------------------------\nTime: T  print\n-------------------------------------------\n(tide,2)\n\n"
	stdout := regexp.MustCompile(`Time: \S+ `).ReplaceAllString(o.stdout, "Time: T ")
	if n := strings.Count(stdout, batch); n < 2 || stdout != strings.Repeat(batch, n) {
		t.Errorf("stdout:\n%s", o.stdout)
	}
	want := regexp.MustCompile(`^counting: running: a batch every 50ms, 2 executor\(s\) with 2 task slots each
counting: state: temporary \(use -dir to keep it\); durability flush: what is acknowledged survives the end of the process, not that of the machine
counting: stopped gracefully: \d+ batches done, nothing left
$`)
	if o.code != 0 || !want.MatchString(o.stderr) {
		t.Errorf("exit code %d, stderr:\n%s", o.code, o.stderr)
	}
}

func TestGraph(t *testing.T) {
	o := runApp(t, counting(), nil, "-graph", "-set", "executors=3")
	graph, settings, _ := strings.Cut(o.stdout, "\n\n")
	want := `
interval 50ms remember 0s
source words kind=constant slide=50ms
op words.countByValue kind=countByValue slide=50ms from=words
output print kind=print from=words.countByValue`
	if diff := cmp.Diff(want[1:], graph); diff != "" || o.code != 0 || o.stderr != "" {
		t.Errorf("exit code %d, stderr %q, graph -want +got:\n%s", o.code, o.stderr, diff)
	}
	// Configure sets the first two, -set the third.
	effective := Config{BatchInterval: 50 * time.Millisecond, TaskSlots: 2, Parallelism: 4, Executors: 3}.String()
	if diff := cmp.Diff(effective, settings); diff != "" {
		t.Errorf("settings -want +got:\n%s", diff)
	}
}

func TestCommandLineWinsOverConfigure(t *testing.T) {
	c, err := counting().parse(strings.Fields("-set batch-interval=2s -set task-slots=5 -set task-slots=6 -executors 7 -set executors=8"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Config{BatchInterval: 2 * time.Second, TaskSlots: 6, Parallelism: 4, Executors: 7}); c.cfg != want {
		t.Errorf("settings %+v, want %+v", c.cfg, want)
	}
}

func TestHelpListsAllFlags(t *testing.T) {
	for _, arg := range []string{"-h", "-help", "--help"} {
		o := runApp(t, counting(), nil, arg)
		if o.code != 0 || o.stdout != "" || !strings.HasPrefix(o.stderr, "Usage of counting:\n") {
			t.Errorf("%s: %+v", arg, o)
		}
		for _, name := range []string{"dir directory", "executors int", "for duration", "graph", "log-level level", "set name=value", "word word"} {
			if !strings.Contains(o.stderr, "  -"+name+"\n") {
				t.Errorf("%s: -%s is missing:\n%s", arg, name, o.stderr)
			}
		}
	}
}

func TestExitCodesAndMessages(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "something"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	bad := func(build func(ssc *StreamingContext) error) App { return App{Name: "bad", Build: build} }
	for _, test := range []struct {
		app  App
		args string
		code int
		want string
	}{
		{counting(), "-nope", 2, "counting: flag provided but not defined: -nope (-help lists the flags)\n"},
		{counting(), "-for x", 2, "counting: invalid value \"x\" for flag -for: parse error (-help lists the flags)\n"},
		{counting(), "words.txt", 2, "counting: unexpected argument \"words.txt\": the job takes flags only (-help lists them)\n"},
		{counting(), "-set executors", 2, "counting: invalid value \"executors\" for flag -set: want name=value (-help lists the flags)\n"},
		{counting(), "-set executors=0", 2, "counting: -set executors=0: setting executors: 0: must be at least 1\n"},
		{counting(), "-set catch-up=a\tb\n\x1bc", 2, `counting: -set catch-up=a b; \x1bc: setting catch-up: a b; \x1bc: must be one of merged, all` + "\n"},
		{counting(), "-executors -1", 2, "counting: -executors -1: must be positive\n"},
		{counting(), "-for -1s", 2, "counting: -for -1s: must not be negative\n"},
		{counting(), "-log-level all", 2, "counting: -log-level \"all\": must be trace, debug, info, warn, error or off\n"},
		{counting(), "-dir " + full, 1, "counting: job \"counting\": -dir " + full + " is not empty (something, ...) and no job's: give a new or empty one, or one that a job has used\n"},
		{counting(), "-dir " + full + "/something", 1, "counting: job \"counting\": -dir " + full + "/something: mkdir " + full + "/something: not a directory\n"},
		{counting(), "-dir hdfs:/a", 1, "counting: -dir: name \"hdfs:/a\": names of a file system other than the local one look like hdfs://host:port/path\n"},
		{counting(), "-dir ftp://host/../a", 1, "counting: job \"counting\": -dir ftp://host/a: stat ftp://host/a: unknown scheme \"ftp\": known are local names and hdfs://\n"},
		{counting(), "-fresh", 2, "counting: -fresh, -rerun-pending and -drop-state say what to do with what -dir holds: give -dir\n"},
		{counting(), "-drop-state=", 2, "counting: invalid value \"\" for flag -drop-state: want a name (-help lists the flags)\n"},
		{App{Name: "bad"}, "", 1, "bad: job \"bad\": App.Build is nil\n"},
		{bad(func(*StreamingContext) error { return nil }), "", 1, "bad: job \"bad\": no output operations registered, so nothing to execute: add Print, ForeachBatch, SaveAsTextFiles or another output\n"},
		{bad(func(*StreamingContext) error { return errors.Join(errors.New("one\n"), errors.New("two:\n\tthree")) }), "", 1, "bad: job \"bad\": one; two: three\n"},
	} {
		args := strings.Split(test.args, " ")
		if test.args == "" {
			args = nil
		}
		o := runApp(t, test.app, nil, args...)
		if o.code != test.code || o.stderr != test.want || o.stdout != "" {
			t.Errorf("%q: exit code %d, stdout %q, stderr\n%swant %d\n%s", test.args, o.code, o.stdout, o.stderr, test.code, test.want)
		}
	}
}

func TestGraphThatDiffersBetweenBuildsIsOneLine(t *testing.T) {
	builds := 0
	app := counting()
	inner := app.Build
	app.Build = func(ssc *StreamingContext) error {
		if builds++; builds > 1 {
			Print(ConstantStream(ssc, "more", []int{1}), "more-too", 1)
		}
		return inner(ssc)
	}
	o := runApp(t, app, nil)
	if o.code != 1 || strings.Count(o.stderr, "\n") != 1 || !strings.Contains(o.stderr, "Build gave another graph") || !strings.Contains(o.stderr, "more-too") {
		t.Errorf("exit code %d, stderr:\n%s", o.code, o.stderr)
	}
}

func TestStackOfAPanicGoesToTheLog(t *testing.T) {
	app := App{Name: "bad", Build: func(*StreamingContext) error { panic("oh\nno") }}
	o := runApp(t, app, nil)
	log, last, _ := strings.Cut(strings.TrimSuffix(o.stderr, "\n"), "\nbad: ")
	if o.code != 1 || last != `job "bad": Build panicked: oh; no` || !strings.Contains(log, "[ERROR] bad: user code panicked") || !strings.Contains(log, "app_test.go:") {
		t.Errorf("exit code %d, stderr:\n%s", o.code, o.stderr)
	}
	if o := runApp(t, app, nil, "-log-level", "off"); o.stderr != "bad: job \"bad\": Build panicked: oh; no\n" {
		t.Errorf("without log, stderr:\n%s", o.stderr)
	}
}

// waiting is a job whose task says that it runs and then waits: for its
// context if it is polite, else for the end of the test.
func waiting(t *testing.T, polite bool) (app App, running chan struct{}) {
	running = make(chan struct{}, 100)
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	return App{
		Name:      "waiting",
		Configure: func(c *Config) { c.BatchInterval = 50 * time.Millisecond },
		Build: func(ssc *StreamingContext) error {
			in := ConstantStream(ssc, "in", []int{1}, InputPartitions(1))
			ForeachPartition(in, "wait", func(task *Task, _ iter.Seq[int]) error {
				running <- struct{}{}
				if polite {
					<-task.Context().Done()
					return context.Cause(task.Context())
				}
				<-never
				return nil
			})
			return nil
		},
	}, running
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	app, running := waiting(t, true)
	signals := make(chan os.Signal, 2)
	go func() {
		<-running
		signals <- os.Interrupt
		signals <- os.Interrupt
	}()
	o := runApp(t, app, signals)
	want := regexp.MustCompile(`(?m)^waiting: a graceful stop was cut short: by a signal; left: [1-3] planned batches, 0 received records in 0 blocks\n\z`)
	if o.code != 1 || !want.MatchString(o.stderr) {
		t.Errorf("exit code %d, stderr:\n%s", o.code, o.stderr)
	}
}

func TestStopTimeoutStopsAtOnce(t *testing.T) {
	app, _ := waiting(t, true)
	o := runApp(t, app, nil, "-for", "100ms", "-set", "stop-timeout=100ms")
	want := regexp.MustCompile(`(?m)^waiting: a graceful stop did not end within the stop timeout of 100ms; left: [1-3] planned batches, 0 received records in 0 blocks\n\z`)
	if o.code != 1 || !want.MatchString(o.stderr) {
		t.Errorf("exit code %d, stderr:\n%s", o.code, o.stderr)
	}
}

// The next run with a directory goes on with what the one before left.
func TestRunsWithADirectoryGoOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "job")
	for i := range 3 {
		args := []string{"-for", "60ms", "-dir", dir}
		if i == 2 {
			args = append(args, "-fresh")
		}
		o := runApp(t, counting(), nil, args...)
		if o.code != 0 || !strings.Contains(o.stderr, "state: "+dir+"; durability flush") {
			t.Errorf("exit code %d, stderr:\n%s", o.code, o.stderr)
		}
		if on := strings.Contains(o.stderr, "going on with run "); on != (i == 1) {
			t.Errorf("run %d goes on with another: %t, stderr:\n%s", i+1, on, o.stderr)
		}
	}
}

func TestNoPlaceForScratchFiles(t *testing.T) {
	t.Setenv("TMPDIR", "/no/such/directory")
	var stdout, stderr strings.Builder
	code := run(t.Context(), counting(), nil, nil, &stdout, &stderr)
	if code != 1 || !strings.HasPrefix(stderr.String(), "counting: temporary directory: ") || !strings.Contains(stderr.String(), "/no/such/directory") {
		t.Errorf("exit code %d, stderr:\n%s", code, stderr.String())
	}
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"plain":                          "plain",
		"  a\n":                          "a",
		"a\nb":                           "a; b",
		"a\r\n\n\t b\rc\u2028d\v":        "a; b; c; d",
		"why:\n\tthis":                   "why: this",
		"a\tb\x1b[31m\x00\x7f":           `a b\x1b[31m\x00\x7f`,
		"größer 水 \u200b\u202e \xff":     "größer 水 \\u200b\\u202e �",
		"a \"quoted\\n\" text; 'single'": "a \"quoted\\n\" text; 'single'",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// TestInterruptedStartEnds waits for a namenode that is not there: who started the
// job must not have to wait with it.
func TestInterruptedStartEnds(t *testing.T) {
	signals := make(chan os.Signal, 1)
	time.AfterFunc(100*time.Millisecond, func() { signals <- os.Interrupt })
	began := time.Now()
	got := runApp(t, counting(), signals, "-dir", "hdfs://127.0.0.1:1/job")
	if got.code != 1 || !strings.Contains(got.stderr, errInterrupted.Error()) || !strings.Contains(got.stderr, "hdfs://127.0.0.1:1/job") {
		t.Errorf("exit code %d, stderr:\n%s", got.code, got.stderr)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("ended after %v", d)
	}
}
