// Command tidemill looks into the directories of Tidemill jobs: it checks and
// prints their logs, shows what a checkpoint holds, compares one with a program,
// skips a batch that can't be computed, and draws graphs of operators. A job that
// runs is only read.
//
// The exit code is 0 if all is well, 1 after a failure or if something is damaged,
// 2 for a wrong command line, 3 if a program can't go on from a checkpoint. What
// went wrong is the last line on standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
)

// patience is how long a command waits for a namenode: somebody waits for it.
const patience = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log := hclog.New(&hclog.LoggerOptions{Name: "tidemill", Level: hclog.Warn, Output: os.Stderr})
	files := fsys.NewRouter(fsys.Local(), map[string]func(string) (fsys.FS, error){"hdfs": hdfs.Opener(hdfs.Config{Log: log, Patience: patience})})
	code := run(ctx, files, os.Args[1:], os.Stdout, os.Stderr)
	if err := files.Close(); err != nil {
		fmt.Fprintf(os.Stderr, "tidemill: %s\n", oneLine(err.Error()))
		code = max(code, exitFailure)
	}
	stop()
	os.Exit(code)
}

// Exit codes.
const (
	exitFailure      = 1
	exitUsage        = 2
	exitIncompatible = 3
)

// exitError ends the command with a code. Without an error everything has been
// said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprint(e.err) }
func (e *exitError) Unwrap() error { return e.err }

// usage is a mistake in the command line.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf("%s (see %s --help)", fmt.Sprintf(format, args...), cmd.CommandPath())}
}

// run is main without the process around it; it returns the exit code.
func run(ctx context.Context, f fsys.FS, args []string, stdout, stderr io.Writer) int {
	root := newRoot(f)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code := exitFailure
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
		if exit.err == nil {
			return code
		}
	}
	fmt.Fprintf(stderr, "tidemill: %s\n", oneLine(err.Error()))
	return code
}

// oneLine joins the lines of an error.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}

func newRoot(f fsys.FS) *cobra.Command {
	root := group("tidemill", "Look into the directories of Tidemill jobs")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, "%v", err) })
	log := group("wal", "Check and print write-ahead logs")
	log.AddCommand(newVerify(f), newDump(f))
	point := group("checkpoint", "Show checkpoints, compare them with programs, skip a batch")
	point.AddCommand(newShow(f), newDiff(f), newSkip(f))
	root.AddCommand(log, point, newGraph(f), newVersion())
	return root
}

// group is a command that only has others below it.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(cmd, "unknown command %q", args[0])
			}
			return cmd.Help()
		},
	}
}

// wants checks the number of arguments; most < 0 is no limit.
func wants(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return usage(cmd, "%d arguments: want %s", len(args), what)
		}
		return nil
	}
}
