package driver_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/internal/state"
	"github.com/tidemill/tidemill/wal"
)

// fixtureDir holds what version 1 looks like. It is written once, by -update, and
// read for ever: a fixture that is there is never written again.
const fixtureDir = "testdata/v1"

func fixtureBlock(counter uint64) plan.Block {
	return plan.Block{
		ID: base.BlockID{Stream: "lines", Epoch: 3, Counter: counter}, Key: fmt.Sprintf("lines/3/%d", counter), Records: 5, Bytes: 71, Executor: "exec-1",
		Handle: base.Handle{Log: "lines", Epoch: 3, Segment: 2, Offset: int64(41 * counter), Length: 71}, Position: []byte{0, 0xff, 7},
	}
}

func fixtureFile(n int64) base.Handle {
	return base.Handle{Log: "state", Epoch: 2, Segment: 1, Offset: n, Length: 37}
}

func fixtureBatch() plan.Batch {
	return plan.Batch{
		Time: 946684801000,
		Inputs: []plan.Input{
			{UID: "lines", Records: 10, Bytes: 142, Parts: 2, Blocks: []plan.Block{fixtureBlock(1), {ID: base.BlockID{Stream: "lines", Epoch: 3, Counter: 2}, Lost: true}}},
			{UID: "files", Records: -1, Bytes: 99, Parts: 1, Data: []byte("tide"), Recall: time.Minute},
			{UID: "queue", Absent: true},
		},
		Values: []plan.Value{{UID: "table", Data: []byte{1, 2, 3}}},
	}
}

func fixtureEmission() rpc.EmissionAt {
	return rpc.EmissionAt{Key: plan.CacheKey{Node: plan.ID{Set: base.DataSet{UID: "counts", Time: 946684801000}, Index: 1}, Part: 2}, File: fixtureFile(300)}
}

func fixtureJob() checkpoint.Job {
	return checkpoint.Job{
		Name: "wordcount", Binary: "2fd4e1c67a2d28fc", Interval: time.Second, Remember: 3 * time.Second, Args: []string{"-addr", "h:9"},
		Ops: []checkpoint.Op{
			{UID: "lines", Kind: "receiver", Source: true, Receiver: true, Slide: time.Second, Named: true},
			{UID: "counts", Kind: "updateStateByKey", Parents: []base.UID{"lines"}, Slide: time.Second, Window: 0, Named: true, State: &checkpoint.OpState{
				Schema: state.Schema{Key: "string", Value: "int", Version: 2}, From: []state.Schema{{Key: "string", Value: "int64", Version: 1}}, Parts: 4,
			}},
		},
		Outputs: []checkpoint.Output{{UID: "print", Kind: "print", Input: "counts"}},
	}
}

func fixtureAccepted() []driver.Accepted {
	return []driver.Accepted{{Epoch: 1, Limits: wal.Limits{Last: 17, Segments: []wal.SegmentLength{{Number: 1, Length: 900}, {Number: 2, Length: 63}}}}}
}

// fixtureEvents has one event of every kind, with every field set.
func fixtureEvents() []driver.Event {
	const t = 946684801000
	deltas := []driver.StateDelta{{Op: "counts", Part: 2, File: fixtureFile(100)}, {Op: "counts", Part: 3, File: fixtureFile(200), Full: true}}
	return []driver.Event{
		driver.DriverStarted{Epoch: 2, Run: "00c0ffee00c0ffee", At: 946684800123, Job: fixtureJob(), Accepted: fixtureAccepted(), Dropped: []base.UID{"lines", "old"}},
		driver.StateRepacked{Op: "counts", Version: t, Files: []base.Handle{fixtureFile(300), fixtureFile(400)}},
		driver.ReceiverRegistered{Stream: "lines", Epoch: 3, From: []byte{0, 0xff, 6}},
		driver.BlockAdded{Block: fixtureBlock(1)},
		driver.BlocksLost{Blocks: []base.BlockID{{Stream: "lines", Epoch: 3, Counter: 2}}, Records: 5, Reason: "executor exec-1 is lost"},
		driver.RateUpdated{Stream: "lines", Rate: 812.5},
		driver.BatchPlanned{Batch: fixtureBatch()},
		driver.OutputDone{Time: t, Output: "print"},
		driver.BatchDone{Time: t, States: deltas, Emissions: []rpc.EmissionAt{fixtureEmission()}, Begun: []base.UID{"counts"}},
		driver.BatchFailed{
			Time: t, Sets: []base.DataSet{{UID: "counts", Time: t}}, Outputs: []base.UID{"print"}, Reason: "no flour",
			States: deltas, Emissions: []rpc.EmissionAt{fixtureEmission()}, Begun: []base.UID{"counts"},
		},
		driver.Released{Done: t, Batches: []base.BatchTime{t - 2000, t - 1000}, Forgotten: []driver.Forgotten{{Op: "lines", Time: t - 1000}}},
		driver.StateMerged{Op: "counts", Part: 2, Replaced: 3, File: fixtureFile(400)},
		driver.SnapshotDone{Seq: 4711},
	}
}

// fixtureFacts has every field set.
func fixtureFacts() *driver.Facts {
	const t = 946684801000
	return &driver.Facts{
		Run: "00c0ffee00c0ffee", Epoch: 2, Job: fixtureJob(), Started: 946684790000, First: 946684791000, Last: t, Done: 10, Failed: 1, Lost: 5,
		Accepted:  fixtureAccepted(),
		Streams:   []driver.StreamFacts{{Stream: "lines", Epoch: 3, High: []driver.HighMark{{Epoch: 1, Counter: 7}, {Epoch: 3, Counter: 2}}, Position: []byte{0, 0xff, 7}, Rate: 812.5, Waiting: []plan.Block{fixtureBlock(3)}}},
		Sources:   []driver.SourceFacts{{Source: "files", Past: []graph.PastInput{{Time: t, Input: fixtureBatch().Inputs[1]}}}},
		Pending:   []driver.PendingBatch{{Batch: fixtureBatch(), Outputs: []base.UID{"print"}}},
		Held:      []plan.Batch{{Time: t - 1000, Inputs: []plan.Input{{UID: "lines"}}}},
		FailedIn:  []base.DataSet{{UID: "counts", Time: t - 1000}},
		Forgotten: []driver.Forgotten{{Op: "lines", Time: t - 2000}},
		Begun:     []base.UID{"counts"},
		States:    []driver.StateFacts{{Op: "counts", Part: 2, Version: t - 1000, Files: []base.Handle{fixtureFile(100), fixtureFile(200)}}},
		Emissions: []rpc.EmissionAt{fixtureEmission()},
		Migrating: []driver.Migrating{{Op: "counts", Schema: state.Schema{Key: "string", Value: "int64", Version: 1}, Parts: []int{2, 3}}},
	}
}

// fixture returns a file of version 1, which -update makes of now if it is missing.
func fixture(t testing.TB, name string, now []byte) []byte {
	t.Helper()
	file := filepath.Join(fixtureDir, name)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && flag.Lookup("update").Value.String() == "true" {
		if err := errors.Join(os.MkdirAll(fixtureDir, 0o755), os.WriteFile(file, now, 0o644)); err != nil {
			t.Fatal(err)
		}
		return now
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Invariant 12: version 1 stays readable for ever, every kind and field of it.
func TestFixturesOfV1(t *testing.T) {
	kinds := map[byte]bool{}
	for _, want := range fixtureEvents() {
		now, err := driver.EncodeEvent(want)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("event-%02d-%s.bin", now[1], strings.TrimPrefix(fmt.Sprintf("%T", want), "driver."))
		old := fixture(t, name, now)
		got, err := driver.DecodeEvent(old)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if string(old) != string(now) {
			t.Errorf("%s: what is written today is not version 1, byte for byte", name)
		}
		kinds[now[1]] = true
	}
	for kind := byte(1); ; kind++ {
		_, err := driver.DecodeEvent([]byte{1, kind, 0x80})
		if err != nil {
			if len(kinds) != int(kind)-1 {
				t.Errorf("%d kinds have fixtures, there are %d", len(kinds), kind-1)
			}
			break
		}
		if !kinds[kind] {
			t.Errorf("kind %d has no fixture", kind)
		}
	}
	for name, want := range map[string]*driver.Facts{"facts.bin": fixtureFacts(), "facts-empty.bin": {}} {
		now, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		old := fixture(t, name, now)
		got, err := driver.DecodeFacts(old)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if string(old) != string(now) {
			t.Errorf("%s: what is written today is not version 1, byte for byte", name)
		}
	}
}

// Every field of a fixture is set, or nobody would notice that it can't be read.
func TestFixturesSetEveryField(t *testing.T) {
	for _, e := range fixtureEvents() {
		for _, name := range zeroFields(e) {
			t.Errorf("%T.%s is zero", e, name)
		}
	}
	for _, name := range zeroFields(*fixtureFacts()) {
		t.Errorf("Facts.%s is zero", name)
	}
}

// Invariant 12: a newer version is refused with both numbers, and is no damage.
func TestNewerVersionsAreRefusedWithBothNumbers(t *testing.T) {
	rec, err := driver.EncodeEvent(driver.SnapshotDone{Seq: 1})
	if err != nil {
		t.Fatal(err)
	}
	rec[0] = 2
	_, eventErr := driver.DecodeEvent(rec)
	body, err := fixtureFacts().Encode()
	if err != nil {
		t.Fatal(err)
	}
	body[0] = 2
	_, factsErr := driver.DecodeFacts(body)
	for what, err := range map[string]error{"an event": eventErr, "facts": factsErr} {
		if err == nil || errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), what+" of format version 2: this program reads version 1") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What no driver wrote is damage, with words that help to find it (Invariant 8).
func TestWhatNoDriverWroteIsRefused(t *testing.T) {
	good, err := driver.EncodeEvent(driver.OutputDone{Time: 1000, Output: "out"})
	if err != nil {
		t.Fatal(err)
	}
	facts, err := fixtureFacts().Encode()
	if err != nil {
		t.Fatal(err)
	}
	event := func(b []byte) error { _, err := driver.DecodeEvent(b); return err }
	body := func(b []byte) error { _, err := driver.DecodeFacts(b); return err }
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no event":        {event(nil), "an event of 0 bytes"},
		"no kind":         {event([]byte{1}), "an event of 1 bytes"},
		"kind 0":          {event([]byte{1, 0, 0x80}), "kind 0: this program knows 1 to 13"},
		"unknown kind":    {event([]byte{1, 99, 0x80}), "kind 99: this program knows 1 to 13"},
		"cut event":       {event(good[:len(good)-1]), "decode OutputDone"},
		"longer event":    {event(append(good[:len(good):len(good)], 0)), "1 bytes after its end"},
		"event of string": {event([]byte{1, 8, 0xa1, 'x'}), "decode OutputDone"},
		"no facts":        {body(nil), "empty facts"},
		"cut facts":       {body(facts[:len(facts)/2]), "decode facts"},
		"longer facts":    {body(append(facts[:len(facts):len(facts)], 0)), "1 bytes after its end"},
	} {
		if c.err == nil || !errors.Is(c.err, base.ErrCorrupt) || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, c.err, c.want)
		}
	}
}

// A newer program of the same version may add fields; an older one passes them over.
func TestUnknownFieldsArePassedOver(t *testing.T) {
	// {"Output": "out", "Time": 7, "Tide": {"High": [1, 2]}}
	rec := append([]byte{1, 8, 0x83}, "\xa6Output\xa3out\xa4Time\x07\xa4Tide\x81\xa4High\x92\x01\x02"...)
	e, err := driver.DecodeEvent(rec)
	if diff := cmp.Diff(driver.OutputDone{Time: 7, Output: "out"}, e); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
}
