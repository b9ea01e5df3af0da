package tidemill

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill/internal/fsys"
)

// App is a job as a program.
type App struct {
	// Name of the job: part of keys and file names.
	Name string
	// Flags declares the job's own flags; optional. They are parsed before
	// Configure and Build run.
	Flags func(fs *flag.FlagSet)
	// Configure changes settings before --set does; optional.
	Configure func(c *Config)
	// Build declares the job. It runs once in the driver and once per executor
	// and must give the same graph each time.
	Build func(ssc *StreamingContext) error
}

// Main runs app as a program: it reads the command line, runs the job until it
// fails, SIGINT or SIGTERM asks for a graceful stop, or the time of -for has
// passed, and exits. A second signal stops at once, a third does not wait for
// functions of the job that don't return. The exit code is 0 after a stop that
// left nothing, 1 after a failure, 2 for a wrong command line. What went wrong
// is the last line on standard error; the stack of a panic is in the log.
func Main(app App) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	code := run(ctx, app, os.Args[1:], signals, os.Stdout, os.Stderr)
	cancel()
	os.Exit(code)
}

// command is a parsed command line.
type command struct {
	dir      string
	duration time.Duration
	level    string
	graph    bool
	describe bool
	restart  Restart
	cfg      Config
}

// parse reads the command line: the standard flags and the job's own. The
// error is flag.ErrHelp once help has been given.
func (app App) parse(args []string, stderr io.Writer) (command, error) {
	var c command
	var sets []string
	executors := 0
	fs := flag.NewFlagSet(app.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // else a mistake prints the whole usage
	fs.StringVar(&c.dir, "dir", "", "`directory` of the job's logs and checkpoints: new, empty, or where an earlier run left off; scheme://host:port/path is on another file system (default: a temporary one)")
	fs.DurationVar(&c.duration, "for", 0, "stop gracefully after this time (0: run until a signal)")
	fs.StringVar(&c.level, "log-level", "info", "log `level`: trace, debug, info, warn, error, off")
	fs.BoolVar(&c.graph, "graph", false, "print the job's graph and its settings, and exit")
	fs.BoolVar(&c.describe, "describe", false, "print the job as checkpoints know it, in JSON, and exit (for the command tidemill)")
	fs.BoolVar(&c.restart.Fresh, "fresh", false, "forget what -dir holds and start a new run")
	fs.BoolVar(&c.restart.RerunPending, "rerun-pending", false, "let a changed program run batches that an earlier one planned")
	fs.Func("drop-state", "forget the state of the operator, or what was not read of the source, with this `name`; may be repeated", func(s string) error {
		if s == "" {
			return errors.New("want a name")
		}
		c.restart.DropState = append(c.restart.DropState, s)
		return nil
	})
	fs.IntVar(&executors, "executors", 0, "executors in this process (0: as the settings say)")
	fs.Func("set", "change a setting: `name=value`; may be repeated (-graph prints them all)", func(s string) error {
		if name, _, ok := strings.Cut(s, "="); !ok || name == "" {
			return errors.New("want name=value")
		}
		sets = append(sets, s)
		return nil
	})
	if app.Flags != nil {
		app.Flags(fs)
	}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(stderr)
		fmt.Fprintf(stderr, "Usage of %s:\n", app.Name)
		fs.PrintDefaults()
		return c, err
	case err != nil:
		return c, fmt.Errorf("%w (-help lists the flags)", err)
	case fs.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q: the job takes flags only (-help lists them)", fs.Arg(0))
	case hclog.LevelFromString(c.level) == hclog.NoLevel:
		return c, fmt.Errorf("-log-level %q: must be trace, debug, info, warn, error or off", c.level)
	case c.duration < 0:
		return c, fmt.Errorf("-for %v: must not be negative", c.duration)
	case executors < 0:
		return c, fmt.Errorf("-executors %d: must be positive", executors)
	case c.dir == "" && (c.restart.Fresh || c.restart.RerunPending || c.restart.DropState != nil):
		return c, errors.New("-fresh, -rerun-pending and -drop-state say what to do with what -dir holds: give -dir")
	}
	if app.Configure != nil {
		app.Configure(&c.cfg)
	}
	for _, s := range sets {
		name, value, _ := strings.Cut(s, "=")
		if err := c.cfg.Set(name, value); err != nil {
			return c, fmt.Errorf("-set %s: %w", s, err)
		}
	}
	if executors > 0 {
		c.cfg.Executors = executors
	}
	return c, c.cfg.Validate()
}

// run is Main without the process around it; it returns the exit code.
func run(ctx context.Context, app App, args []string, signals <-chan os.Signal, stdout, stderr io.Writer) int {
	say := func(format string, a ...any) { fmt.Fprintf(stderr, app.Name+": "+format+"\n", a...) }
	c, err := app.parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	log := hclog.New(&hclog.LoggerOptions{Name: app.Name, Level: hclog.LevelFromString(c.level), Output: stderr})
	fail := func(err error) int {
		text, stack := cutStack(err.Error())
		if stack != "" {
			log.Error("user code panicked", "error", text, "stack", stack)
		}
		say("%s", oneLine(text))
		return 1
	}
	if err != nil {
		fail(err)
		return 2
	}
	if c.graph {
		ssc, err := New(app, c.cfg)
		if err != nil {
			return fail(err)
		}
		fmt.Fprintf(stdout, "%s\n%s", ssc.Describe(), ssc.Config())
		return 0
	}
	if c.describe {
		if err := describe(app, c.cfg, args, stdout); err != nil {
			return fail(err)
		}
		return 0
	}
	dir, remove, err := jobDir(c.dir)
	if err != nil {
		return fail(err)
	}
	clean := false
	defer func() {
		// After a failure a temporary directory may hold what is not worked off.
		if clean {
			if err := remove(); err != nil {
				say("remove the temporary directory: %s", oneLine(err.Error()))
			}
		}
	}()
	binary, err := digestOf()
	if err != nil {
		log.Warn("no digest of this program: a changed one will not be noticed", "error", err)
	}
	ssc, err := New(app, c.cfg, WithStdout(stdout), WithLogger(log), WithDir(dir), WithRestart(c.restart), WithArgs(args...), withBinary(binary))
	if err != nil {
		clean = true
		return fail(err)
	}
	begun, end := startContext(ctx, signals)
	err = ssc.Start(begun)
	end()
	if err != nil {
		clean = true
		var bad *IncompatibleError
		if errors.As(err, &bad) {
			fmt.Fprintln(stderr, bad.Diff)
			say("the job in %s can't go on with this program: see above", bad.Dir)
			return 1
		}
		return fail(err)
	}
	say("running: a batch every %v, %d executor(s) with %d task slots each", ssc.cfg.BatchInterval, ssc.cfg.Executors, ssc.cfg.TaskSlots)
	for _, line := range ssc.stateLines(c.dir == "") {
		say("%s", line)
	}
	if c.duration == 0 {
		say("stop with Ctrl-C: once works off what was received, twice stops at once")
	}
	report, err := runUntil(begun, ssc, c.duration, signals, say)
	if err != nil {
		r := ssc.driver.Report()
		clean = ssc.State() == Stopped && len(r.Pending) == 0 && r.Blocks == 0
		if !clean && c.dir == "" {
			say("what is not worked off is kept: -dir %s goes on with it", dir)
		}
		return fail(err)
	}
	clean = true
	say("%s", report)
	return 0
}

// errInterrupted says that a signal came while the job was starting.
var errInterrupted = errors.New("interrupted while it was starting")

// startContext returns one that ends when a signal comes before end is called.
// Later ones are not taken.
func startContext(ctx context.Context, signals <-chan os.Signal) (begun context.Context, end func()) {
	begun, cancel := context.WithCancelCause(ctx)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-signals:
			cancel(errInterrupted)
		case <-stop:
		}
	}()
	return begun, func() {
		close(stop)
		<-stopped
	}
}

// describe prints what a checkpoint of this program would say of it, as one line
// of JSON: what Build prints may come before it.
func describe(app App, cfg Config, args []string, stdout io.Writer) error {
	binary, err := digestOf()
	if err != nil {
		return fmt.Errorf("digest of this program: %w", err)
	}
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-describe" || a == "--describe" })
	ssc, err := New(app, cfg, WithArgs(args...), withBinary(binary))
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(ssc.program())
}

// runUntil waits for the end of a started job and stops it when it is time.
func runUntil(ctx context.Context, ssc *StreamingContext, d time.Duration, signals <-chan os.Signal, say func(string, ...any)) (StopReport, error) {
	var after <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-ssc.driver.Done():
		return StopReport{}, ssc.driver.Err()
	case <-after:
	case <-ctx.Done():
	case <-signals:
		say("stopping: working off what was received (Ctrl-C again stops at once)")
	}
	soft, cut := context.WithCancelCause(context.Background())
	defer cut(nil)
	var report StopReport
	var err error
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		report, err = ssc.Stop(soft, true)
	}()
	for {
		select {
		case <-stopped:
			return report, errors.Join(ssc.driver.Err(), err)
		case <-signals:
		}
		if soft.Err() != nil {
			return StopReport{}, errors.New("ended by a signal after the job was told to stop at once: a function of the job has not returned")
		}
		cut(errors.New("by a signal"))
		say("stopping at once (Ctrl-C again ends the program even if a function of the job does not return)")
	}
}

// goStack finds where the stack in the message of a contained panic begins.
var goStack = regexp.MustCompile(`\ngoroutine \d+ \[`)

// cutStack parts an error text from a stack in it, and what follows that.
func cutStack(text string) (message, stack string) {
	if at := goStack.FindStringIndex(text); at != nil {
		return text[:at[0]], text[at[0]+1:]
	}
	return text, ""
}

// oneLine makes one printable line of a text. What a user function says in an
// error or a panic may hold anything.
func oneLine(text string) string {
	var b strings.Builder
	isBreak := func(r rune) bool { return strings.ContainsRune("\n\r\v\f\u0085\u2028\u2029", r) }
	for line := range strings.FieldsFuncSeq(text, isBreak) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case strings.HasSuffix(b.String(), ":"):
			b.WriteByte(' ')
		case b.Len() > 0:
			b.WriteString("; ")
		}
		for _, r := range line {
			switch {
			case r == '\t':
				b.WriteByte(' ')
			case unicode.IsPrint(r):
				b.WriteRune(r)
			default:
				b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
			}
		}
	}
	return b.String()
}

// jobDir returns the directory that the user named, or a temporary one, and
// how to remove that.
func jobDir(dir string) (path string, remove func() error, err error) {
	if dir == "" {
		if path, err = os.MkdirTemp("", "tidemill-"); err != nil {
			err = fmt.Errorf("temporary directory: %w", err)
		}
		return path, func() error { return os.RemoveAll(path) }, err
	}
	none := func() error { return nil }
	if err := fsys.CheckName(dir); err != nil {
		return "", none, fmt.Errorf("-dir: %w", err)
	}
	if scheme, _, _ := fsys.SplitURL(dir); scheme != "" {
		return fsys.Clean(dir), none, nil
	}
	if path, err = filepath.Abs(dir); err != nil {
		err = fmt.Errorf("-dir: %w", err)
	}
	return path, none, err
}

// stateLines say where the state is, what it survives, and what of an earlier
// run the job goes on with.
func (ssc *StreamingContext) stateLines(temporary bool) []string {
	where := ssc.env.dir
	if temporary {
		where = "temporary (use -dir to keep it)"
	}
	survives := map[string]string{
		"flush":  "what is acknowledged survives the end of the process, not that of the machine",
		"sync":   "what is acknowledged survives the end of the process and of the machine",
		"memory": "what is acknowledged may be lost with the process",
	}[ssc.cfg.Durability]
	if ssc.dir != nil && ssc.dir.promise != "" {
		survives = ssc.dir.promise
	}
	lines := []string{fmt.Sprintf("state: %s; durability %s: %s", where, ssc.cfg.Durability, survives)}
	if r := ssc.Recovered(); r.Recovered {
		lines = append(lines, r.String())
	}
	return lines
}
