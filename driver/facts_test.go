package driver_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
)

// factsScript plays the stories of testdata/facts_*.txt. Every event goes through
// its encoding, and the facts through theirs after it, as if there were a new
// start. A data set is OP@T, a file a number. Commands:
//
//	start EPOCH RUN at=T
//	register STREAM EPOCH
//	add BLOCK [records=N] [at=EXECUTOR] [file=N] [position=TEXT]
//	lost BLOCK...              each of one record
//	rate STREAM RATE
//	plan T [STREAM:BLOCK,...] [SOURCE=DATA [recall=D]] [absent=SOURCE]
//	output T NAME
//	done T [OP/PART=FILE ...] [full=OP/PART=FILE] [emit=OP@T/FILE] [begun=OP]
//	failed T SET... [state=OP/PART=FILE]
//	released T BATCH... [forgot=OP@T]
//	merged OP/PART N FILE
//	drop EPOCH OP...           a start of run "r" that forgets them
//	repacked OP T FILE...      a file for each new partition
//	snapshot SEQ
//	show WORD...               of run, streams, sources, batches, state, all, handles
type factsScript struct{ f *driver.Facts }

func (s *factsScript) do(words []string) (string, error) {
	if words[0] == "show" {
		return s.show(words[1:])
	}
	e, err := factsEvent(words)
	if err != nil {
		return "", err
	}
	rec, err := driver.EncodeEvent(e)
	if err != nil {
		return "", err
	}
	if e, err = driver.DecodeEvent(rec); err != nil {
		return "", err
	}
	if err := s.f.Apply(e); err != nil {
		return "refused: " + err.Error(), nil
	}
	return "-", s.reborn()
}

// reborn replaces the facts by what a snapshot of them says.
func (s *factsScript) reborn() error {
	body, err := s.f.Encode()
	if err != nil {
		return err
	}
	f, err := driver.DecodeFacts(body)
	if err != nil {
		return err
	}
	again, err := f.Encode()
	if err == nil && !bytes.Equal(body, again) {
		err = errors.New("the facts change when they are encoded and decoded")
	}
	s.f = f
	return err
}

func factsEvent(words []string) (driver.Event, error) {
	plain, opts := options(words[1:])
	switch words[0] {
	case "start":
		epoch, err := strconv.ParseUint(plain[0], 10, 64)
		return driver.DriverStarted{Epoch: base.Epoch(epoch), Run: plain[1], At: at(opts["at"][0]), Job: checkpoint.Job{Name: "job"}}, err
	case "register":
		return driver.ReceiverRegistered{Stream: base.UID(plain[0]), Epoch: blockID("x/" + plain[1] + "/0").Epoch}, nil
	case "add":
		b := trackedBlock(plain[0], opts)
		if len(opts["file"]) > 0 {
			b.Handle = stateFile(opts["file"][0])
		}
		if len(opts["position"]) > 0 {
			b.Position = []byte(opts["position"][0])
		}
		return driver.BlockAdded{Block: b}, nil
	case "lost":
		return driver.BlocksLost{Blocks: blockIDs(plain), Records: int64(len(plain)), Reason: "test"}, nil
	case "rate":
		rate, err := strconv.ParseFloat(plain[1], 64)
		return driver.RateUpdated{Stream: base.UID(plain[0]), Rate: rate}, err
	case "plan":
		return driver.BatchPlanned{Batch: factsPlan(plain, opts)}, nil
	case "output":
		return driver.OutputDone{Time: at(plain[0]), Output: base.UID(plain[1])}, nil
	case "done":
		e := driver.BatchDone{Time: at(plain[0])}
		for _, full := range opts["full"] {
			e.States = append(e.States, delta(full, true))
		}
		for _, set := range opts["emit"] {
			ds, file, _ := strings.Cut(set, "/")
			e.Emissions = append(e.Emissions, rpc.EmissionAt{Key: plan.CacheKey{Node: plan.ID{Set: dataSet(ds)}}, File: stateFile(file)})
		}
		for _, op := range opts["begun"] {
			e.Begun = append(e.Begun, base.UID(op))
		}
		for k, files := range opts {
			if strings.Contains(k, "/") {
				e.States = append(e.States, delta(k+"="+files[0], false))
			}
		}
		slices.SortFunc(e.States, func(a, b driver.StateDelta) int { return strings.Compare(string(a.Op), string(b.Op)) })
		return e, nil
	case "failed":
		e := driver.BatchFailed{Time: at(plain[0]), Reason: "test"}
		for _, ds := range plain[1:] {
			e.Sets = append(e.Sets, dataSet(ds))
		}
		for _, d := range opts["state"] {
			e.States = append(e.States, delta(d, false))
		}
		return e, nil
	case "released":
		e := driver.Released{Done: at(plain[0])}
		for _, t := range plain[1:] {
			e.Batches = append(e.Batches, at(t))
		}
		for _, o := range opts["forgot"] {
			ds := dataSet(o)
			e.Forgotten = append(e.Forgotten, driver.Forgotten{Op: ds.UID, Time: ds.Time})
		}
		return e, nil
	case "merged":
		d := delta(plain[0]+"="+plain[2], false)
		n, err := strconv.Atoi(plain[1])
		return driver.StateMerged{Op: d.Op, Part: d.Part, Replaced: n, File: d.File}, err
	case "drop":
		epoch, err := strconv.ParseUint(plain[0], 10, 64)
		e := driver.DriverStarted{Epoch: base.Epoch(epoch), Run: "r", Job: checkpoint.Job{Name: "job"}}
		for _, op := range plain[1:] {
			e.Dropped = append(e.Dropped, base.UID(op))
		}
		return e, err
	case "repacked":
		e := driver.StateRepacked{Op: base.UID(plain[0]), Version: at(plain[1])}
		for _, file := range plain[2:] {
			e.Files = append(e.Files, stateFile(file))
		}
		return e, nil
	case "snapshot":
		seq, err := strconv.ParseUint(plain[0], 10, 64)
		return driver.SnapshotDone{Seq: seq}, err
	}
	return nil, errors.New("unknown command")
}

func factsPlan(plain []string, opts map[string][]string) plan.Batch {
	b := plan.Batch{Time: at(plain[0])}
	for _, w := range plain[1:] {
		stream, blocks, _ := strings.Cut(w, ":")
		in := plan.Input{UID: base.UID(stream)}
		for id := range strings.SplitSeq(blocks, ",") {
			if id != "" {
				in.Blocks = append(in.Blocks, plan.Block{ID: blockID(id), Records: 1})
			}
		}
		b.Inputs = append(b.Inputs, in)
	}
	var recall time.Duration
	for _, r := range opts["recall"] {
		recall = seconds(r)
	}
	for k, data := range opts {
		switch k {
		case "recall":
		case "absent":
			b.Inputs = append(b.Inputs, plan.Input{UID: base.UID(data[0]), Absent: true})
		default:
			b.Inputs = append(b.Inputs, plan.Input{UID: base.UID(k), Data: []byte(data[0]), Recall: recall})
		}
	}
	slices.SortFunc(b.Inputs, func(x, y plan.Input) int { return strings.Compare(string(x.UID), string(y.UID)) })
	return b
}

func blockIDs(words []string) []base.BlockID {
	var ids []base.BlockID
	for _, w := range words {
		ids = append(ids, blockID(w))
	}
	return ids
}

func dataSet(word string) base.DataSet {
	op, t, _ := strings.Cut(word, "@")
	return base.DataSet{UID: base.UID(op), Time: at(t)}
}

func stateFile(word string) base.Handle {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		panic(err)
	}
	return base.Handle{Log: "log", Epoch: 1, Segment: 1, Offset: n, Length: 1}
}

// delta reads OP/PART=FILE.
func delta(word string, full bool) driver.StateDelta {
	place, file, _ := strings.Cut(word, "=")
	op, part, _ := strings.Cut(place, "/")
	n, err := strconv.Atoi(part)
	if err != nil {
		panic(err)
	}
	return driver.StateDelta{Op: base.UID(op), Part: n, File: stateFile(file), Full: full}
}

func (s *factsScript) show(words []string) (string, error) {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	all := slices.Contains(words, "all")
	if all || slices.Contains(words, "run") {
		f := s.f
		say("run %s epoch %d started %s first %s last %s done %d failed %d lost %d", f.Run, f.Epoch, show(f.Started), show(f.First), show(f.Last), f.Done, f.Failed, f.Lost)
	}
	if all || slices.Contains(words, "streams") {
		for _, st := range s.f.Streams {
			var high []string
			for _, h := range st.High {
				high = append(high, fmt.Sprintf("%d:%d", h.Epoch, h.Counter))
			}
			say("stream %s epoch %d high %v position %q rate %v waiting %s", st.Stream, st.Epoch, high, st.Position, st.Rate, blocksOf(st.Waiting))
		}
	}
	if all || slices.Contains(words, "sources") {
		for _, src := range s.f.Sources {
			var past []string
			for _, p := range src.Past {
				past = append(past, fmt.Sprintf("%s@%s", p.Input.Data, show(p.Time)))
			}
			say("source %s %v", src.Source, past)
		}
	}
	if all || slices.Contains(words, "batches") {
		for _, p := range s.f.Pending {
			say("pending %s outputs %v%s", show(p.Batch.Time), p.Outputs, inputsOf(p.Batch))
		}
		for _, b := range s.f.Held {
			say("held %s%s", show(b.Time), inputsOf(b))
		}
		for _, ds := range s.f.FailedIn {
			say("failed %s@%s", ds.UID, show(ds.Time))
		}
		for _, o := range s.f.Forgotten {
			say("forgotten %s@%s", o.Op, show(o.Time))
		}
	}
	if all || slices.Contains(words, "state") {
		for _, st := range s.f.States {
			say("state %s/%d version %s files %s", st.Op, st.Part, show(st.Version), filesOf(st.Files))
		}
		for _, e := range s.f.Emissions {
			say("emission %s@%s file %d", e.Key.Node.Set.UID, show(e.Key.Node.Set.Time), e.File.Offset)
		}
		if len(s.f.Begun) > 0 {
			say("begun %v", s.f.Begun)
		}
	}
	if all || slices.Contains(words, "handles") {
		blocks, states := s.f.Handles()
		say("live blocks %s, state %s", filesOf(blocks), filesOf(states))
	}
	if len(out) == 0 {
		return "nothing", nil
	}
	return strings.Join(out, "\n"), nil
}

func blocksOf(blocks []plan.Block) string {
	var out []string
	for _, b := range blocks {
		word := b.ID.String()
		if b.Executor != "" {
			word += " at " + string(b.Executor)
		}
		if b.Lost {
			word += " lost"
		}
		out = append(out, word)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func inputsOf(b plan.Batch) string {
	var out strings.Builder
	for _, in := range b.Inputs {
		switch {
		case in.Absent:
			fmt.Fprintf(&out, " %s absent", in.UID)
		case in.Data != nil:
			fmt.Fprintf(&out, " %s=%s", in.UID, in.Data)
		default:
			fmt.Fprintf(&out, " %s %s", in.UID, blocksOf(in.Blocks))
		}
	}
	return out.String()
}

func filesOf(handles []base.Handle) string {
	var out []string
	for _, h := range handles {
		out = append(out, strconv.FormatInt(h.Offset, 10))
	}
	return "[" + strings.Join(out, " ") + "]"
}

// TestAHugeQueueIsRecovered: tens of thousands of blocks that wait, and a batch of all
// of them, fit into the log and its snapshots (SPARK-26734).
func TestAHugeQueueIsRecovered(t *testing.T) {
	const blocks = 30_000
	disk := fsys.NewMem()
	j, err := journal(disk)
	if err != nil {
		t.Fatal(err)
	}
	post := func(e driver.Event) {
		t.Helper()
		if err := j.Post(e); err != nil {
			t.Fatal(err)
		}
	}
	post(driver.DriverStarted{Epoch: j.Epoch(), Run: "run", At: 5})
	post(driver.ReceiverRegistered{Stream: "in", Epoch: 1})
	var all []plan.Block
	for i := range blocks {
		b := plan.Block{ID: base.BlockID{Stream: "in", Epoch: 1, Counter: uint64(i + 1)}, Key: fmt.Sprint(i), Records: 1, Handle: stateFile(strconv.Itoa(i))}
		all = append(all, b)
		post(driver.BlockAdded{Block: b})
	}
	restart := func() *driver.Facts {
		t.Helper()
		if err := j.Close(true); err != nil {
			t.Fatal(err)
		}
		if j, err = journal(disk); err != nil {
			t.Fatal(err)
		}
		f, err := j.Facts()
		if err != nil {
			t.Fatal(err)
		}
		post(driver.DriverStarted{Epoch: j.Epoch(), Run: "run", At: 5})
		return f
	}
	if n := len(restart().Stream("in").Waiting); n != blocks {
		t.Errorf("%d blocks wait after a restart", n)
	}
	post(driver.BatchPlanned{Batch: plan.Batch{Time: 1000, Inputs: []plan.Input{{UID: "in", Blocks: all, Parts: 16}}}})
	f := restart()
	if n := len(f.Pending[0].Batch.Inputs[0].Blocks); n != blocks || len(f.Stream("in").Waiting) != 0 {
		t.Errorf("%d blocks are in the batch, %d wait", n, len(f.Stream("in").Waiting))
	}
	if err := j.Close(false); err != nil {
		t.Fatal(err)
	}
}
