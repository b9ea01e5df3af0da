package tidemill

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
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
// passed, and exits. A second signal stops at once. The exit code is 0 after a
// stop that left nothing, 1 after a failure, 2 for a wrong command line.
func Main(app App) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
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
	cfg      Config
}

// parse reads the command line: the standard flags and the job's own.
func (app App) parse(args []string, stderr io.Writer) (command, error) {
	var c command
	var sets []string
	executors := 0
	fs := flag.NewFlagSet(app.Name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&c.dir, "dir", "", "directory for scratch files; new or empty (default: a temporary one)")
	fs.DurationVar(&c.duration, "for", 0, "stop gracefully after this time (0: run until a signal)")
	fs.StringVar(&c.level, "log-level", "info", "log level: trace, debug, info, warn, error, off")
	fs.BoolVar(&c.graph, "graph", false, "print the job's graph and its settings, and exit")
	fs.IntVar(&executors, "executors", 0, "executors in this process (0: as the settings say)")
	fs.Func("set", "change a setting: name=value; may be repeated", func(s string) error {
		if name, _, ok := strings.Cut(s, "="); !ok || name == "" {
			return errors.New("want name=value")
		}
		sets = append(sets, s)
		return nil
	})
	if app.Flags != nil {
		app.Flags(fs)
	}
	if err := fs.Parse(args); err != nil {
		return c, errUsage{err}
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q: the job takes flags only", fs.Arg(0))
	}
	if hclog.LevelFromString(c.level) == hclog.NoLevel {
		return c, fmt.Errorf("-log-level %q: must be trace, debug, info, warn, error or off", c.level)
	}
	if c.duration < 0 {
		return c, fmt.Errorf("-for %v: must not be negative", c.duration)
	}
	// Tests of whole programs turn checked mode on from outside.
	c.cfg.Checked = os.Getenv("TIDEMILL_CHECKED") == "1"
	if app.Configure != nil {
		app.Configure(&c.cfg)
	}
	for _, s := range sets {
		name, value, _ := strings.Cut(s, "=")
		if err := c.cfg.Set(name, value); err != nil {
			return c, fmt.Errorf("-set %s: %w", s, err)
		}
	}
	if executors != 0 {
		if executors < 0 {
			return c, fmt.Errorf("-executors %d: must be positive", executors)
		}
		c.cfg.Executors = executors
	}
	return c, nil
}

// errUsage is a mistake that package flag has already told the user of.
type errUsage struct{ error }

// run is Main without the process around it; it returns the exit code.
func run(ctx context.Context, app App, args []string, signals <-chan os.Signal, stdout, stderr io.Writer) int {
	say := func(format string, a ...any) { fmt.Fprintf(stderr, app.Name+": "+format+"\n", a...) }
	fail := func(err error) int {
		// One line, also for an error that was joined of several.
		say("%s", strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
		return 1
	}
	c, err := app.parse(args, stderr)
	var usage errUsage
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		return 2
	case err != nil:
		fail(err)
		return 2
	}
	dir, temporary, err := scratch(c.dir)
	if err != nil {
		return fail(err)
	}
	if temporary {
		defer func() {
			if err := os.RemoveAll(dir); err != nil {
				say("remove scratch directory: %v", err)
			}
		}()
	}
	log := hclog.New(&hclog.LoggerOptions{Name: app.Name, Level: hclog.LevelFromString(c.level), Output: stderr})
	ssc, err := New(app, c.cfg, WithStdout(stdout), WithLogger(log), WithDir(dir))
	if err != nil {
		return fail(err)
	}
	if c.graph {
		fmt.Fprintf(stdout, "%s\n%s", ssc.Describe(), ssc.Config())
		return 0
	}
	if err := ssc.Start(ctx); err != nil {
		return fail(err)
	}
	where := dir
	if temporary {
		where = "temporary (use -dir to choose)"
	}
	say("running: a batch every %v, %d executor(s) with %d task slots each, scratch: %s", ssc.cfg.BatchInterval, ssc.cfg.Executors, ssc.cfg.TaskSlots, where)
	if c.duration == 0 {
		say("stop with Ctrl-C: once works off what was received, twice stops at once")
	}
	report, err := runUntil(ctx, ssc, c.duration, signals, say)
	if err != nil {
		fail(err)
		return 1
	}
	say("%s", report)
	return 0
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
	go func() {
		select {
		case <-signals:
			cut(errors.New("a second signal"))
		case <-soft.Done():
		}
	}()
	report, err := ssc.Stop(soft, true)
	return report, errors.Join(ssc.driver.Err(), err)
}

// scratch returns the directory for scratch files. State of an earlier run
// can't be continued yet, so a directory that holds something is refused.
func scratch(dir string) (path string, temporary bool, err error) {
	if dir == "" {
		path, err = os.MkdirTemp("", "tidemill-")
		return path, true, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", false, fmt.Errorf("-dir: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", false, fmt.Errorf("-dir: %w", err)
	}
	if len(entries) > 0 {
		return "", false, fmt.Errorf("-dir %s is not empty (%s, ...): this version can't continue from an earlier run; give a new or empty directory", dir, entries[0].Name())
	}
	path, err = filepath.Abs(dir)
	return path, false, err
}
