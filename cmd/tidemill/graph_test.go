package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/state"
)

const drawnText = `job words, a batch every 1s

ROLE      NAME      KIND      FROM          NOTES
receiver  lines     receiver  -
source    files     files     -
operator  both      union     lines, files  window 4s, slide 2s
state     counts    update    both          2 partitions, keys string, values int, version 1
output    "a\"b\n"  print     counts
`

const drawnDot = `digraph "words" {
  rankdir=LR;
  n0 [shape=cds, label="lines\nreceiver"];
  n1 [shape=cds, label="files\nfiles"];
  n2 [shape=box, label="both\nunion\nwindow 4s, slide 2s"];
  n3 [shape=cylinder, label="counts\nupdate\n2 partitions, keys string, values int, version 1"];
  o0 [shape=note, label="a\"b \nprint"];
  n0 -> n2;
  n1 -> n2;
  n2 -> n3;
  n3 -> o0;
}
`

const drawnMermaid = `flowchart LR
  n0(["lines<br/>receiver"])
  n1(["files<br/>files"])
  n2["both<br/>union<br/>window 4s, slide 2s"]
  n3[("counts<br/>update<br/>2 partitions, keys string, values int, version 1")]
  o0[/"a&quot;b <br/>print"/]
  n0 --> n2
  n1 --> n2
  n2 --> n3
  n3 --> o0
`

func TestGraphOfACheckpoint(t *testing.T) {
	f := fsys.NewMem()
	job := checkpoint.Job{
		Name: "words", Interval: time.Second,
		Ops: []checkpoint.Op{
			{UID: "lines", Kind: "receiver", Source: true, Receiver: true, Slide: time.Second},
			{UID: "files", Kind: "files", Source: true, Slide: time.Second},
			{UID: "both", Kind: "union", Parents: []base.UID{"lines", "files"}, Slide: 2 * time.Second, Window: 4 * time.Second},
			{UID: "counts", Kind: "update", Parents: []base.UID{"both"}, Slide: time.Second, State: &checkpoint.OpState{Schema: state.Schema{Key: "string", Value: "int", Version: 1}, Parts: 2}},
		},
		Outputs: []checkpoint.Output{{UID: "a\"b\n", Kind: "print", Input: "counts"}},
	}
	journal(t, f, driver.DriverStarted{Epoch: 1, Run: "r", At: second, Job: job})
	for format, want := range map[string]string{"text": drawnText, "dot": drawnDot, "mermaid": drawnMermaid} {
		for _, args := range [][]string{{"graph", "/job", "--format", format}, {"graph", "--format=" + format, "/job/log"}} {
			r := tidemillCmd(t, f, args...)
			if d := cmp.Diff(want, r.out); d != "" || r.code != 0 {
				t.Errorf("%q: exit code %d, error %q, (-want +got):\n%s", args, r.code, r.err, d)
			}
		}
	}
	if r := tidemillCmd(t, f, "graph", "/job"); r.out != drawnText {
		t.Errorf("without --format:\n%s", r.out)
	}
	expect(t, tidemillCmd(t, f, "graph", "/job", "--format", "svg"), 2, nil, []string{`--format "svg": must be text, dot or mermaid`})
	expect(t, tidemillCmd(t, f, "graph", "/job", "-addr", "x"), 2, nil, []string{"unknown shorthand flag"})
	expect(t, tidemillCmd(t, f, "graph", "/job", "more"), 2, nil, []string{`unexpected argument "more"`})
	expect(t, tidemillCmd(t, f, "graph", "./no-such-program"), 1, nil, []string{"no-such-program", "give a program built from a Tidemill job"})
}
