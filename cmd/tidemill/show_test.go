package main

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

var errDenied = errors.New("denied by the test")

// poisoned is the directory of a job that ended at its third batch.
func poisoned(t *testing.T, f *fsys.Mem) {
	t.Helper()
	tidetest.Run(t, func(t *testing.T) {
		feed := make(chan string, 10)
		j := tidetest.Start(t, job(f, feed))
		j.Advance(2)
		feed <- "poison"
		j.Advance(2)
		if err := j.Err(); err == nil || !strings.Contains(err.Error(), "record is poison") {
			t.Fatalf("the job has ended with %v", err)
		}
	})
}

const poisonedText = `job      words, a batch every 1s, 5 operators, outputs: print, check
run      RUN, started 2000-01-01T00:00:00.000Z, now at epoch 1
program  sha256 not known, arguments ["-addr" "host:1"]
batches  2000-01-01T00:00:01.000Z to 2000-01-01T00:00:03.000Z; 2 ended, 0 of them failed; 1 pending
log      event N, 1 after the newest good snapshot; 0 torn tails

pending batches (planned, not ended)
   TIME                      RECORDS  INPUTS                           OUTPUTS DONE
   2000-01-01T00:00:03.000Z  1        lines 1 in 1 block, more absent  print

held batches (ended, later ones may read them)
   TIME                      RECORDS  INPUTS
   2000-01-01T00:00:02.000Z  2        lines 0, more 2

receivers
   STREAM  EPOCH  BLOCKS ADDED  WAITING   RECORDS  BYTES  RATE  POSITION
   lines   1      1             0 blocks  0        0 B    -     -

other sources
   SOURCE  LAST BATCH                PLANS KEPT  BYTES OF THE LAST
   more    2000-01-01T00:00:02.000Z  1           55 B

state
   OPERATOR  PARTITIONS  FILES  BYTES  OF BATCH                  KEYS    VALUES  VERSION
   counts    2           4      187 B  2000-01-01T00:00:02.000Z  string  int     0

snapshots
   EVENT  EPOCH  MADE                      BYTES    GOOD  FILE
   N      1      2000-01-01T00:00:03.000Z  1.6 KiB  yes   /job/log/e-000001/snap-N.tms
`

// unsteady are words of it that an unrelated change may change.
var unsteady = []struct{ find, put string }{
	{`(?m)^run      [0-9a-f]{16},`, "run      RUN,"}, {`event \d+,`, "event N,"}, {`(?m)^   \d\d     1`, "   N      1"}, {`snap-\d{16}`, "snap-N"},
}

func TestShowOfAPoisonedJob(t *testing.T) {
	f := fsys.NewMem()
	poisoned(t, f)
	before := f.String()
	r := tidemillCmd(t, f, "checkpoint", "show", "/job")
	expect(t, r, 0, nil, nil)
	got := r.out
	for _, u := range unsteady {
		got = regexp.MustCompile(u.find).ReplaceAllString(got, u.put)
	}
	if d := cmp.Diff(poisonedText, got); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
	if d := cmp.Diff(before, f.String()); d != "" {
		t.Errorf("looking has changed the files (-before +after):\n%s", d)
	}
	if log := tidemillCmd(t, f, "checkpoint", "show", "/job/log"); log != r {
		t.Errorf("the log's own directory shows something else:\n%s", log.out)
	}
}

func TestShowAsJSON(t *testing.T) {
	f := fsys.NewMem()
	poisoned(t, f)
	r := tidemillCmd(t, f, "checkpoint", "show", "/job", "--json")
	expect(t, r, 0, nil, nil)
	var s summary
	dec := json.NewDecoder(strings.NewReader(r.out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		t.Fatal(err)
	}
	if len(s.Run) != 16 || s.Job.Name != "words" || s.Job.IntervalMs != 1000 || len(s.Snapshots) != 1 || s.Snapshots[0].Damage != "" {
		t.Errorf("%+v", s)
	}
	want := []batchSummary{{
		Time: "2000-01-01T00:00:03.000Z", Records: 1, OutputsDone: []string{"print"},
		Inputs: []inputSummary{{Source: "lines", Records: 1, Bytes: s.Pending[0].Inputs[0].Bytes, Parts: 1, Blocks: 1}, {Source: "more", Absent: true}},
	}}
	if d := cmp.Diff(want, s.Pending); d != "" {
		t.Errorf("pending (-want +got):\n%s", d)
	}
	if len(s.State) != 1 || s.State[0].Operator != "counts" || s.State[0].Parts != 2 || s.State[0].Keys != "string" {
		t.Errorf("state %+v", s.State)
	}
	for _, list := range []string{`"torn": []`, `"held": [`, `"sources": [`} {
		if !strings.Contains(r.out, list) {
			t.Errorf("an empty list must be one, want %s", list)
		}
	}
}

// newest returns the newest snapshot of a job.
func newest(t *testing.T, f fsys.FS) checkpoint.Info {
	t.Helper()
	all, err := checkpoint.List(f, []string{"/job/log/e-000001", "/job/log/e-000001.sealed", "/job/log/e-000002"})
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	return all[0]
}

func TestShowOfADamagedNewestSnapshot(t *testing.T) {
	f := fsys.NewMem()
	poisoned(t, f)
	// The same facts once more, as of an earlier event: what the log says after
	// it is there too.
	good, err := checkpoint.Read(f, newest(t, f).Path)
	if err != nil {
		t.Fatal(err)
	}
	older := newest(t, f)
	if _, err := checkpoint.Write(f, "/job/log/e-000001", checkpoint.Snapshot{Epoch: 1, Seq: good.Seq + 1, Body: good.Body}); err != nil {
		t.Fatal(err)
	}
	bad := newest(t, f)
	edit(t, f, bad.Path, func(b []byte) []byte { b[len(b)-1]++; return b })
	r := tidemillCmd(t, f, "checkpoint", "show", "/job")
	expect(t, r, 0, []string{"DAMAGED  " + bad.Path, "yes      " + older.Path, "damaged: " + bad.Path + ": corrupt data: checksum is "}, nil)

	edit(t, f, older.Path, func(b []byte) []byte { return b[:20] })
	// The log still begins with the first event, and stands in.
	damaged := []string{"DAMAGED  " + bad.Path, "DAMAGED  " + older.Path, "damaged: " + older.Path + ": corrupt data: it ends early"}
	expect(t, tidemillCmd(t, f, "checkpoint", "show", "/job"), 0, damaged, nil)
	if err := f.Remove("/job/log/e-000001/0000000000000001.wal"); err != nil {
		t.Fatal(err)
	}
	r = tidemillCmd(t, f, "checkpoint", "show", "/job")
	expect(t, r, 1, damaged,
		[]string{"the checkpoint can't be used", "none of 2 snapshots can be used", "-fresh"})
	if r := tidemillCmd(t, f, "checkpoint", "show", "/job", "--json"); r.code != 1 {
		t.Errorf("exit code %d with --json", r.code)
	}
}

func TestShowOfATornTail(t *testing.T) {
	f := fsys.NewMem()
	poisoned(t, f)
	entries, err := f.List("/job/log/e-000001")
	if err != nil {
		t.Fatal(err)
	}
	file := ""
	for _, e := range entries {
		if strings.HasSuffix(e.Name, ".wal") {
			file = "/job/log/e-000001/" + e.Name
		}
	}
	edit(t, f, file, func(b []byte) []byte { return b[:45] }) // in the middle of its first record
	r := tidemillCmd(t, f, "checkpoint", "show", "/job")
	expect(t, r, 0, []string{"0 after the newest good snapshot; 1 torn tail", "torn tail: " + file + " at 39: 6 bytes"}, nil)
}

func TestShowOfWhatIsNoJob(t *testing.T) {
	f := fsys.NewMem()
	if err := f.MkdirAll("/empty"); err != nil {
		t.Fatal(err)
	}
	if err := f.MkdirAll("/begun/log/e-000001"); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{
		"/gone":  "directory /gone does not exist",
		"/empty": "/empty holds no checkpoint: give the directory that a job was started with (-dir)",
		"/begun": "/begun holds no checkpoint yet: its log is empty",
	} {
		expect(t, tidemillCmd(t, f, "checkpoint", "show", dir), 1, nil, []string{says})
	}
}
