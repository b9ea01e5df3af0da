package base_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
)

func TestTimes(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		t, zero           base.BatchTime
		d                 time.Duration
		floor, from, next base.BatchTime
		ceil              base.BatchTime
		multiple          bool
	}{
		{t: 0, d: 10 * ms, floor: 0, from: 0, next: 10, ceil: 0, multiple: true},
		{t: 9, d: 10 * ms, floor: 0, from: 0, next: 10, ceil: 10},
		{t: 10, d: 10 * ms, floor: 10, from: 10, next: 20, ceil: 10, multiple: true},
		{t: 11, d: 10 * ms, floor: 10, from: 10, next: 20, ceil: 20},
		{t: 11, zero: 3, d: 10 * ms, floor: 10, from: 3, next: 13, ceil: 20},
		{t: 13, zero: 3, d: 10 * ms, floor: 10, from: 13, next: 23, ceil: 20},
		{t: 1, zero: 3, d: 10 * ms, floor: 0, from: 3, next: 3, ceil: 10}, // before zero, as Spark 4.2 rounds
		{t: -11, d: 10 * ms, floor: -10, from: -10, next: -10, ceil: -10},
		{t: -10, d: 10 * ms, floor: -10, from: -10, next: 0, ceil: -10, multiple: true},
		{t: 1709209800123, d: time.Minute, floor: 1709209800000, from: 1709209800000, next: 1709209860000, ceil: 1709209860000},
		{t: 7, d: ms, floor: 7, from: 7, next: 8, ceil: 7, multiple: true},
	} {
		got := fmt.Sprintf("floor %d from %d next %d ceil %d multiple %v",
			test.t.Floor(test.d), test.t.FloorFrom(test.d, test.zero), test.t.NextBoundary(test.d, test.zero), test.t.CeilBoundary(test.d), test.t.IsMultipleOf(test.d))
		want := fmt.Sprintf("floor %d from %d next %d ceil %d multiple %v", test.floor, test.from, test.next, test.ceil, test.multiple)
		if got != want {
			t.Errorf("%d of %v from %d:\n got %s\nwant %s", test.t, test.d, test.zero, got, want)
		}
	}
}

func TestBoundariesAreNextToATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := base.BatchTime(rapid.Int64Range(-1e13, 1e13).Draw(t, "t"))
		zero := base.BatchTime(rapid.Int64Range(-1e12, 1e12).Draw(t, "zero"))
		step := rapid.Int64Range(1, 1e8).Draw(t, "d")
		d := time.Duration(step) * time.Millisecond
		next := at.NextBoundary(d, zero)
		if next <= at || next.Add(-d) > at || int64(next-zero)%step != 0 {
			t.Errorf("the next boundary is %d", next)
		}
		ceil := at.CeilBoundary(d)
		if ceil < at || ceil.Add(-d) >= at || !ceil.IsMultipleOf(d) {
			t.Errorf("the boundary at or after is %d", ceil)
		}
		if f := at.Floor(d); at >= 0 && (f > at || f.Add(d) <= at) || !f.IsMultipleOf(d) {
			t.Errorf("the floor is %d", f)
		}
	})
}

func TestRanges(t *testing.T) {
	for _, test := range []struct {
		from, to base.BatchTime
		step     time.Duration
		until    []base.BatchTime
		through  []base.BatchTime
	}{
		{0, 30, 10 * time.Millisecond, []base.BatchTime{0, 10, 20}, []base.BatchTime{0, 10, 20, 30}},
		{5, 26, 10 * time.Millisecond, []base.BatchTime{5, 15, 25}, []base.BatchTime{5, 15, 25}},
		{5, 5, 10 * time.Millisecond, nil, []base.BatchTime{5}},
		{6, 5, 10 * time.Millisecond, nil, nil},
		{0, 5, 0, nil, nil},
		{0, 5, -time.Second, nil, nil},
		{0, 5, time.Microsecond, nil, nil},
	} {
		if got := test.from.Until(test.to, test.step); !slices.Equal(got, test.until) {
			t.Errorf("%d until %d by %v: %d, want %d", test.from, test.to, test.step, got, test.until)
		}
		if got := test.from.Through(test.to, test.step); !slices.Equal(got, test.through) {
			t.Errorf("%d through %d by %v: %d, want %d", test.from, test.to, test.step, got, test.through)
		}
	}
}

func TestTimeConversions(t *testing.T) {
	at := time.Date(2024, 2, 29, 12, 30, 0, 123_999_999, time.FixedZone("", 3600))
	bt := base.TimeOf(at)
	if bt != 1709206200123 || bt.String() != "2024-02-29T11:30:00.123Z" || !bt.Time().Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("%v is %d: %s", at, bt, bt)
	}
	if bt.Add(1999*time.Microsecond) != bt+1 || bt.Add(-time.Second) != bt-1000 || (bt+5).Sub(bt) != 5*time.Millisecond {
		t.Error("sums and differences are wrong")
	}
	if base.IsMultiple(time.Second, 0) || !base.IsMultiple(time.Minute, time.Second) || base.IsMultiple(1500*time.Millisecond, time.Second) || !base.IsMultiple(0, time.Second) {
		t.Error("multiples are wrong")
	}
}

func TestCheckInterval(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second: "", time.Millisecond: "", 0: "positive", -time.Second: "positive", 1500 * time.Microsecond: "whole number",
	} {
		err := base.CheckInterval("the slide", d)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the slide is "+d.String())) {
			t.Errorf("%v: %v, want %q", d, err, want)
		}
	}
}

func TestErrorsTellWhereAndWhy(t *testing.T) {
	set := base.DataSet{UID: "words", Time: 1000}
	blocks := func(n uint64) (out []base.BlockID) {
		for i := range n {
			out = append(out, base.BlockID{Stream: "lines", Epoch: 2, Counter: i})
		}
		return out
	}
	for _, test := range []struct {
		err  error
		want string
	}{
		{
			&base.TaskError{Set: set, Operator: "map words", Partition: 3, Record: 7, Preview: `"x"`, Panic: true, Message: "boom", Stack: "long"},
			`map words: batch 1970-01-01T00:00:01.000Z, partition 3, record 7 ("x"): panic: boom`,
		},
		{&base.TaskError{Set: set, Operator: "map", Record: 7, Message: "boom"}, "map: batch 1970-01-01T00:00:01.000Z, partition 0, record 7: boom"},
		{&base.TaskError{Set: set, Operator: "map", Preview: "x", Message: "boom"}, "map: batch 1970-01-01T00:00:01.000Z, partition 0: boom"},
		{&base.TaskError{Set: set, Operator: "transform", Partition: -1, Message: "boom"}, "transform: batch 1970-01-01T00:00:01.000Z: boom"},
		{
			&base.LostBlocksError{Batch: 1000, Blocks: blocks(1), Reason: "killed"},
			"batch 1970-01-01T00:00:01.000Z: 1 received block(s) are gone (lines/2/0): killed; set on-lost-blocks=skip to go on without them",
		},
		{
			&base.LostBlocksError{Batch: 1000, Blocks: blocks(5), Reason: "killed"},
			"batch 1970-01-01T00:00:01.000Z: 5 received block(s) are gone (lines/2/0, lines/2/1, lines/2/2 and 2 more): killed; set on-lost-blocks=skip to go on without them",
		},
		{&base.FetchError{Shuffle: "s/0", MapPart: 4, From: "e1", Reason: "gone"}, `fetch shuffle s/0, map partition 4 from "e1": gone`},
	} {
		if test.err.Error() != test.want {
			t.Errorf("got  %s\nwant %s", test.err, test.want)
		}
	}
}

func TestStorageLevels(t *testing.T) {
	for level, want := range map[base.StorageLevel]string{
		base.StorageNone: "none", base.MemoryOnly: "memory", base.MemoryAndDisk: "memory-and-disk", base.DiskOnly: "disk", 9: "storage-level-9",
	} {
		if level.String() != want || level.Valid() != (level < 4) {
			t.Errorf("level %d is %q, valid %v", level, level, level.Valid())
		}
	}
}
