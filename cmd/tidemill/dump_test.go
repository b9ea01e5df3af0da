package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
)

func TestEveryEventIsSaidInWords(t *testing.T) {
	file := base.Handle{Log: "state", Epoch: 1, Segment: 2, Offset: 30, Length: 2048}
	block := plan.Block{
		ID: base.BlockID{Stream: "lines", Epoch: 2, Counter: 7}, Records: 3, Bytes: 100, Position: []byte("p\x00"),
		Handle: base.Handle{Log: "lines", Epoch: 2, Segment: 1, Offset: 44, Length: 100},
	}
	batch := plan.Batch{
		Time: second, Values: []plan.Value{{UID: "v"}},
		Inputs: []plan.Input{
			{UID: "lines", Records: 3, Blocks: []plan.Block{block}}, {UID: "files", Records: -1, Parts: 4}, {UID: "gone", Absent: true},
		},
	}
	events := map[string]driver.Event{
		"DriverStarted epoch 3 of run ab at 1970-01-01T00:00:01.000Z: job words, 1 operator and 2 outputs": driver.DriverStarted{
			Epoch: 3, Run: "ab", At: second, Job: checkpoint.Job{Name: "words", Ops: []checkpoint.Op{{UID: "a"}}, Outputs: []checkpoint.Output{{UID: "o"}, {UID: "p"}}},
		},
		"DriverStarted epoch 4 of run ab at 1970-01-01T00:00:01.000Z: job words, 0 operators and 0 outputs, without counts, sums": driver.DriverStarted{
			Epoch: 4, Run: "ab", At: second, Job: checkpoint.Job{Name: "words"}, Dropped: []base.UID{"counts", "sums"},
		},
		"StateRepacked counts of batch 1970-01-01T00:00:01.000Z into 2 partitions":                 driver.StateRepacked{Op: "counts", Version: second, Files: make([]base.Handle, 2)},
		"ReceiverRegistered lines epoch 2":                                                         driver.ReceiverRegistered{Stream: "lines", Epoch: 2},
		`ReceiverRegistered lines epoch 2 from position "p\x00"`:                                   driver.ReceiverRegistered{Stream: "lines", Epoch: 2, From: []byte("p\x00")},
		`BlockAdded lines/2/7: 3 records, 100 B, in log lines/e-2/1@44+100, then position "p\x00"`: driver.BlockAdded{Block: block},
		"RateUpdated lines 2500 records/s":                                                         driver.RateUpdated{Stream: "lines", Rate: 2500},
		"BatchPlanned 1970-01-01T00:00:01.000Z: lines 3 records in 1 block; files records unknown in 4 partitions; gone absent; 1 broadcast value": driver.BatchPlanned{Batch: batch},
		"BatchPlanned 1970-01-01T00:00:02.000Z: no inputs": driver.BatchPlanned{Batch: plan.Batch{Time: 2 * second}},
		"OutputDone 1970-01-01T00:00:01.000Z print":        driver.OutputDone{Time: second, Output: "print"},
		"BatchDone 1970-01-01T00:00:01.000Z: 2 state files (1 full, 4.0 KiB), 1 emission, first input of counts": driver.BatchDone{
			Time: second, States: []driver.StateDelta{{Op: "counts", File: file}, {Op: "counts", Part: 1, File: file, Full: true}},
			Emissions: []rpc.EmissionAt{{File: file}}, Begun: []base.UID{"counts"},
		},
		"BatchFailed 1970-01-01T00:00:01.000Z: outputs print; data sets lines@1970-01-01T00:00:01.000Z; 0 state files; reason: skipped: poison": driver.BatchFailed{
			Time: second, Outputs: []base.UID{"print"}, Sets: []base.DataSet{{UID: "lines", Time: second}}, Reason: "skipped: poison",
		},
		"Released up to 1970-01-01T00:00:05.000Z: batches 1970-01-01T00:00:01.000Z, 1970-01-01T00:00:02.000Z":       driver.Released{Done: 5 * second, Batches: []base.BatchTime{second, 2 * second}},
		"Released up to 1970-01-01T00:00:05.000Z: batches 1970-01-01T00:00:01.000Z to 1970-01-01T00:00:04.000Z (4)": driver.Released{Done: 5 * second, Batches: []base.BatchTime{second, 2 * second, 3 * second, 4 * second}},
		"StateMerged counts partition 3: 5 files into state/e-1/2@30+2048":                                          driver.StateMerged{Op: "counts", Part: 3, Replaced: 5, File: file},
		`BlocksLost 9 records in 1 block: "process\tended"`:                                                         driver.BlocksLost{Blocks: []base.BlockID{block.ID}, Records: 9, Reason: "process\tended"},
		"SnapshotDone of everything up to 99":                                                                       driver.SnapshotDone{Seq: 99},
	}
	for want, e := range events {
		rec, err := driver.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, recordText(driverName, rec)); d != "" {
			t.Errorf("%T (-want +got):\n%s", e, d)
		}
	}
}

func TestDumpOfTheDriversLog(t *testing.T) {
	f := fsys.NewMem()
	journal(t, f,
		driver.DriverStarted{Epoch: 1, Run: "r", At: second, Job: checkpoint.Job{Name: "words"}},
		driver.RateUpdated{Stream: "lines", Rate: 1}, driver.RateUpdated{Stream: "lines", Rate: 2}, driver.RateUpdated{Stream: "lines", Rate: 3})
	journal(t, f, driver.DriverStarted{Epoch: 2, Run: "r", At: 9 * second, Job: checkpoint.Job{Name: "words"}})
	texts := func(r result) (out []string) {
		expect(t, r, 0, nil, nil)
		for line := range strings.Lines(r.out) {
			seq, rest, _ := strings.Cut(strings.TrimSpace(line), "  ")
			_, text, _ := strings.Cut(rest, "  ")
			words := strings.Fields(text)
			out = append(out, strings.Join(append([]string{seq}, words[:3]...), " "))
		}
		return out
	}
	all := []string{"1 DriverStarted epoch 1", "2 RateUpdated lines 1", "3 RateUpdated lines 2", "4 RateUpdated lines 3", "5 DriverStarted epoch 2"}
	for _, dir := range []string{"/job", "/job/log"} {
		if d := cmp.Diff(all, texts(tidemillCmd(t, f, "wal", "dump", dir))); d != "" {
			t.Errorf("dump of %s (-want +got):\n%s", dir, d)
		}
	}
	if d := cmp.Diff(all[2:4], texts(tidemillCmd(t, f, "wal", "dump", "/job", "--from", "3", "--limit", "2"))); d != "" {
		t.Errorf("dump from 3 (-want +got):\n%s", d)
	}
	if d := cmp.Diff(all[4:], texts(tidemillCmd(t, f, "wal", "dump", "/job/log/e-000002"))); d != "" {
		t.Errorf("dump of epoch 2 (-want +got):\n%s", d)
	}
	expect(t, tidemillCmd(t, f, "wal", "dump", "/job", "--limit", "-1"), 2, nil, []string{"--limit -1: must not be negative"})
}

func TestDumpOfBlocksAndOfBytes(t *testing.T) {
	w := codec.NewFrameWriter(codec.For[string]())
	for _, s := range []string{"ab", "c"} {
		if err := w.Append(s); err != nil {
			t.Fatal(err)
		}
	}
	for rec, want := range map[string]string{
		string(w.Finish()):      "frame of codec string: 2 records, 5 B",
		"\x00\x01":              "bytes 0001",
		strings.Repeat("a", 33): "bytes " + strings.Repeat("61", 32) + "...",
	} {
		if got := recordText("lines", []byte(rec)); got != want {
			t.Errorf("record %q: %q, want %q", rec, got, want)
		}
	}
	if got := recordText(driverName, []byte{9, 1, 0}); !strings.Contains(got, "version 9: this program reads version 1") {
		t.Errorf("an event of a newer version: %q", got)
	}
}

func TestDumpGoesOnAfterDamage(t *testing.T) {
	f := fsys.NewMem()
	writeLog(t, f, "/job/blocks/lines", 6)
	flip(t, f, segment("/job/blocks/lines", 2), "record 3")
	r := tidemillCmd(t, f, "wal", "dump", "/job/blocks/lines")
	expect(t, r, 1,
		[]string{"       2  e-1/1@", "       6  e-1/3@", "damage: " + segment("/job/blocks/lines", 2) + " at 38: lost: "},
		[]string{"1 damaged place: tidemill wal verify /job/blocks/lines tells more"})
}

func TestReleasedSegmentsAreNoDamage(t *testing.T) {
	f := fsys.NewMem()
	writeLog(t, f, "/job/blocks/lines", 6)
	if err := f.Remove(segment("/job/blocks/lines", 2)); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"verify", "dump"} {
		r := tidemillCmd(t, f, "wal", command, "/job/blocks/lines")
		expect(t, r, 0, nil, nil)
		if strings.Contains(r.out, "damage:") {
			t.Errorf("%s calls it damage:\n%s", command, r.out)
		}
	}
}

func TestDumpOfSeveralLogsAsksWhich(t *testing.T) {
	f := fsys.NewMem()
	writeLog(t, f, "/job/blocks/a", 1)
	writeLog(t, f, "/job/blocks/b", 1)
	expect(t, tidemillCmd(t, f, "wal", "dump", "/job"), 1, nil, []string{"/job holds 2 logs: give the directory of one, such as /job/blocks/a"})
}
