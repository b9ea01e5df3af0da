package main

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tidemill/tidemill/internal/fsys"
)

func TestMistakesInTheCommandLine(t *testing.T) {
	for args, says := range map[string]string{
		"nothing":                "unknown command \"nothing\" (see tidemill --help)",
		"wal nothing":            "unknown command \"nothing\" (see tidemill wal --help)",
		"wal verify":             "0 arguments: want DIR (see tidemill wal verify --help)",
		"wal verify a b":         "2 arguments: want DIR",
		"wal dump a --from x":    "invalid argument \"x\"",
		"checkpoint diff a":      "1 arguments: want DIR PROGRAM [ARGS...]",
		"checkpoint show a --no": "unknown flag: --no (see tidemill checkpoint show --help)",
		"version 1":              "1 arguments: want none",
	} {
		t.Run(args, func(t *testing.T) {
			expect(t, tidemillCmd(t, fsys.NewMem(), strings.Fields(args)...), exitUsage, nil, []string{"tidemill: " + says})
		})
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if !c.Runnable() || c.HasSubCommands() {
			for _, sub := range c.Commands() {
				visit(sub)
			}
			return
		}
		if c.Short == "" || !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: short text %q, example %q", c.CommandPath(), c.Short, c.Example)
		}
		r := tidemillCmd(t, fsys.NewMem(), append(strings.Fields(c.CommandPath())[1:], "--help")...)
		expect(t, r, 0, []string{"Usage:\n  tidemill ", "Examples:\n  tidemill "}, nil)
	}
	visit(newRoot(fsys.NewMem()))
	for _, args := range []string{"", "wal", "checkpoint"} {
		expect(t, tidemillCmd(t, fsys.NewMem(), strings.Fields(args)...), 0, []string{"Available Commands:"}, nil)
	}
}

func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.3.0"}}
	if got, want := versionOf(info), "tidemill v0.3.0 go1.26.0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-30T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}}
	if got, want := versionOf(info), "tidemill v0.3.0 revision abc of 2026-11-30T00:00:00Z (modified) go1.26.0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	expect(t, tidemillCmd(t, fsys.NewMem(), "version"), 0, []string{"tidemill ", "go1."}, nil)
}

func TestErrorsTakeOneLine(t *testing.T) {
	if got, want := oneLine("a:\n\tb\n\tc\r\n"), "a: b; c"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSizesAreReadable(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 3 << 30: "3.0 GiB", 1 << 62: "4096.0 PiB"} {
		if got := size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestTextsFromFilesCanNotDisturbATerminal(t *testing.T) {
	for text, want := range map[string]string{"plain ü": "plain ü", "a\x1b[2J": `"a\x1b[2J"`, "tab\t": `"tab\t"`, "\xff": `"\xff"`} {
		if got := printable(text); got != want {
			t.Errorf("%q is printed as %s, want %s", text, got, want)
		}
	}
}
