package main

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
)

// eventText says an event of the driver's log in one line.
func eventText(e driver.Event) string {
	name := reflect.TypeOf(e).Name()
	if detail := eventDetail(e); detail != "" {
		return name + " " + detail
	}
	return name
}

func eventDetail(e driver.Event) string {
	switch e := e.(type) {
	case driver.DriverStarted:
		s := fmt.Sprintf("epoch %d of run %s at %s: job %s, %s and %s", e.Epoch, printable(e.Run), e.At, printable(e.Job.Name),
			count(int64(len(e.Job.Ops)), "operator", "operators"), count(int64(len(e.Job.Outputs)), "output", "outputs"))
		if len(e.Dropped) > 0 {
			s += ", without " + list(e.Dropped)
		}
		return s
	case driver.StateRepacked:
		return fmt.Sprintf("%s of batch %s into %s", printable(string(e.Op)), e.Version, count(int64(len(e.Files)), "partition", "partitions"))
	case driver.ReceiverRegistered:
		if e.From == nil {
			return fmt.Sprintf("%s epoch %d", printable(string(e.Stream)), e.Epoch)
		}
		return fmt.Sprintf("%s epoch %d from position %s", printable(string(e.Stream)), e.Epoch, position(e.From))
	case driver.BlockAdded:
		return blockText(e.Block)
	case driver.BlocksLost:
		return fmt.Sprintf("%s in %s: %s", count(e.Records, "record", "records"), count(int64(len(e.Blocks)), "block", "blocks"), printable(e.Reason))
	case driver.RateUpdated:
		return fmt.Sprintf("%s %.6g records/s", printable(string(e.Stream)), e.Rate)
	case driver.BatchPlanned:
		return fmt.Sprintf("%s: %s", e.Batch.Time, inputsText(e.Batch))
	case driver.OutputDone:
		return fmt.Sprintf("%s %s", e.Time, printable(string(e.Output)))
	case driver.BatchDone:
		return fmt.Sprintf("%s: %s", e.Time, effects(e.States, e.Emissions, e.Begun))
	case driver.BatchFailed:
		return fmt.Sprintf("%s: outputs %s; data sets %s; %s; reason: %s", e.Time, list(e.Outputs), setsText(e.Sets), effects(e.States, e.Emissions, e.Begun), printable(e.Reason))
	case driver.Released:
		return fmt.Sprintf("up to %s: batches %s", e.Done, timesText(e.Batches))
	case driver.StateMerged:
		return fmt.Sprintf("%s partition %d: %s into %s", printable(string(e.Op)), e.Part, count(int64(e.Replaced), "file", "files"), e.File)
	case driver.SnapshotDone:
		return fmt.Sprintf("of everything up to %d", e.Seq)
	}
	return ""
}

func blockText(b plan.Block) string {
	text := fmt.Sprintf("%s: %s, %s", printable(b.ID.String()), count(int64(b.Records), "record", "records"), size(b.Bytes))
	if !b.Handle.IsZero() {
		text += ", in log " + printable(b.Handle.String())
	}
	if b.Position != nil {
		text += ", then position " + position(b.Position)
	}
	if b.Lost {
		text += ", lost"
	}
	return text
}

// inputsText says what each source gives to a batch.
func inputsText(b plan.Batch) string {
	var texts []string
	for _, in := range b.Inputs {
		texts = append(texts, inputText(in))
	}
	if len(b.Values) > 0 {
		texts = append(texts, count(int64(len(b.Values)), "broadcast value", "broadcast values"))
	}
	if len(texts) == 0 {
		return "no inputs"
	}
	return strings.Join(texts, "; ")
}

func inputText(in plan.Input) string {
	name := printable(string(in.UID))
	if in.Absent {
		return name + " absent"
	}
	what := "records unknown"
	if in.Records >= 0 {
		what = count(in.Records, "record", "records")
	}
	if len(in.Blocks) > 0 {
		return fmt.Sprintf("%s %s in %s", name, what, count(int64(len(in.Blocks)), "block", "blocks"))
	}
	return fmt.Sprintf("%s %s in %s", name, what, count(int64(in.Parts), "partition", "partitions"))
}

// effects says what the end of a batch changed.
func effects(states []driver.StateDelta, emissions []rpc.EmissionAt, begun []base.UID) string {
	full, bytes := 0, int64(0)
	for _, s := range states {
		bytes += s.File.Length
		if s.Full {
			full++
		}
	}
	text := count(int64(len(states)), "state file", "state files")
	if len(states) > 0 {
		text += fmt.Sprintf(" (%d full, %s)", full, size(bytes))
	}
	if len(emissions) > 0 {
		text += ", " + count(int64(len(emissions)), "emission", "emissions")
	}
	if len(begun) > 0 {
		text += ", first input of " + list(begun)
	}
	return text
}

func setsText(sets []base.DataSet) string {
	texts := make([]string, len(sets))
	for i, s := range sets {
		texts[i] = s.String()
	}
	return list(texts)
}

// timesText lists batch times, the first and last if there are many.
func timesText(times []base.BatchTime) string {
	if n := len(times); n > 3 {
		return fmt.Sprintf("%s to %s (%d)", times[0], times[n-1], n)
	}
	texts := make([]string, len(times))
	for i, t := range times {
		texts[i] = t.String()
	}
	return list(texts)
}

// position shows the opaque position of a source.
func position(b []byte) string { return fmt.Sprintf("%.60q", b) }
