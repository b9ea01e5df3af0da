package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/fsys"
)

// TestDiffTellsWhetherAProgramCanGoOn runs a program as its user does, and
// compares its checkpoint with it and with others.
func TestDiffTellsWhetherAProgramCanGoOn(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "job")
	args := []string{"-dir", dir, "-set", "batch-interval=20ms", "-for", "50ms"}
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else each run takes a second more
	t.Setenv(asProgram, "1")
	if out, err := exec.Command(self, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	diff := func(more ...string) result {
		return tidemillCmd(t, fsys.Local(), append([]string{"checkpoint", "diff"}, more...)...)
	}
	expect(t, diff(append([]string{dir, self}, args...)...), 0, []string{"identical: "}, nil)
	expect(t, diff(append([]string{dir, self}, append(args, "-executors", "3")...)...), 0, []string{"compatible: ", "~ arguments: "}, nil)

	t.Setenv(asProgram, "stateless")
	expect(t, diff(append([]string{dir, self}, args...)...), 3, []string{"incompatible: ", `"counts"`, "--drop-state=counts"}, nil)
	expect(t, diff(append([]string{"--drop-state", "counts", dir, self}, args...)...), 0, []string{"compatible: "}, nil)
	expect(t, tidemillCmd(t, fsys.Local(), "graph", self), 0, []string{"source  queue  queue ", "output  lines  print  queue"}, nil)

	t.Setenv(asProgram, "broken")
	expect(t, diff(dir, self), 1, nil, []string{"-describe failed (exit status 1): words: job \"words\": does not build"})
}

func TestDescribeMakesNoDirectory(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "job")
	t.Setenv(asProgram, "1")
	out, err := exec.Command(self, "-describe", "-dir", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	var j checkpoint.Job
	if err := json.Unmarshal(out, &j); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if j.Name != "words" || len(j.Binary) != 64 || strings.Join(j.Args, " ") != "-dir "+dir || len(j.Ops) == 0 || len(j.Outputs) != 2 {
		t.Errorf("%+v", j)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
}

func TestAProgramThatIsNoJob(t *testing.T) {
	echo, err := exec.LookPath("echo")
	if err != nil {
		t.Skip("needs a program echo")
	}
	expect(t, tidemillCmd(t, fsys.NewMem(), "graph", echo), 1, nil, []string{"its last line is no description of a job"})
}

func TestDescriptionsThatAreNotUnderstoodAreRefused(t *testing.T) {
	for line, says := range map[string]string{
		`{"Name":"a","Interval":1000000000,"NewKnowledge":1}`: `unknown field "NewKnowledge"`,
		`{"Interval":1000000000}`:                             "no name or no batch interval",
		``:                                                    "EOF",
	} {
		if _, err := parseJob(line); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want one that says %q", line, err, says)
		}
	}
}
