package rdd_test

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
)

type pair = rdd.Pair[string, int]

var hash2 = rdd.Hash[string](2)

func pairs(values ...int) (out []pair) {
	for _, v := range values {
		out = append(out, rdd.KV("k", v))
	}
	return out
}

// bad is the record at which user code fails: the third of partition 1.
const bad = 13

func boom(v int) int {
	if v == bad {
		panic("boom")
	}
	return v
}

// moody can't always be encoded.
type moody struct{ N int }

func (m moody) EncodeMsgpack(e *msgpack.Encoder) error {
	switch m.N {
	case bad:
		panic("boom")
	case -bad:
		return errors.New("boom")
	}
	return e.EncodeInt(int64(m.N))
}

func (m *moody) DecodeMsgpack(d *msgpack.Decoder) (err error) {
	m.N, err = d.DecodeInt()
	return err
}

// TestFaultsNameOperatorPartitionAndRecord puts user code that fails at one
// record into every operator (Invariant 10), with innocent operators on both
// sides.
func TestFaultsNameOperatorPartitionAndRecord(t *testing.T) {
	type in = rdd.RDD[pair]
	identity := func(v pair) pair { return v }
	before := func(sign int) in {
		src := source(newScope("src"), pairs(1, 2, 3, 4), pairs(11*sign, 12*sign, bad*sign, 14*sign), pairs(21))
		scope := newScope("before")
		r := rdd.Alias(src, scope)
		return rdd.Filter(rdd.Map(r, identity), func(pair) bool { return true })
	}
	key := func(p pair) string { return fmt.Sprintf("(%s,%d)", p.Key, p.Value) }
	badKey := key(rdd.KV("k", bad))
	for name, test := range map[string]struct {
		op      func(r in) rdd.RDD[pair]
		sign    int    // of the record at fault; set when user code returns an error
		kind    string // of the node that is blamed
		record  int64  // 3 if 0
		preview string
	}{
		"map": {op: func(r in) in { return rdd.Map(r, func(p pair) pair { boom(p.Value); return p }) }, kind: "map", preview: badKey},
		"filter": {op: func(r in) in {
			return rdd.Filter(r, func(p pair) bool { return boom(p.Value) > 0 })
		}, kind: "filter", preview: badKey},
		"flatMap": {op: func(r in) in {
			return rdd.FlatMap(r, func(p pair) iter.Seq[pair] { boom(p.Value); return slices.Values([]pair{p}) })
		}, kind: "flatMap", preview: badKey},
		"flatMap sequence": {op: func(r in) in {
			return rdd.FlatMap(r, func(p pair) iter.Seq[pair] {
				return func(yield func(pair) bool) {
					if yield(p) {
						boom(p.Value)
					}
				}
			})
		}, kind: "flatMap", preview: badKey},
		"flatMapSlice": {op: func(r in) in {
			return rdd.FlatMapSlice(r, func(p pair) []pair { boom(p.Value); return []pair{p} })
		}, kind: "flatMap", preview: badKey},
		"mapValues": {op: func(r in) in { return rdd.MapValues(r, boom) }, kind: "mapValues", preview: badKey},
		"flatMapValues": {op: func(r in) in {
			return rdd.FlatMapValues(r, func(v int) iter.Seq[int] {
				return func(yield func(int) bool) {
					if yield(v) {
						boom(v)
					}
				}
			})
		}, kind: "flatMapValues", preview: badKey},
		"keyBy": {op: func(r in) in {
			return rdd.Values(rdd.KeyBy(r, func(p pair) int { return boom(p.Value) }))
		}, kind: "keyBy", preview: badKey},
		"mapPartitions": {op: func(r in) in {
			return rdd.MapPartitions(r, func(_ *rdd.Task, in iter.Seq[pair], emit func(pair) bool) error {
				for p := range in {
					emit(p)
					boom(p.Value)
				}
				return nil
			})
		}, kind: "mapPartitions", preview: badKey},
		"mapPartitions error": {op: func(r in) in {
			return rdd.MapPartitions(r, func(_ *rdd.Task, in iter.Seq[pair], emit func(pair) bool) error {
				for p := range in {
					if p.Value == bad {
						return errors.New("boom")
					}
					emit(p)
				}
				return nil
			})
		}, kind: "mapPartitions", preview: badKey, sign: 1},
		"mapPartitions by pull": {op: func(r in) in {
			return rdd.MapPartitions(r, func(_ *rdd.Task, in iter.Seq[pair], emit func(pair) bool) error {
				next, stop := iter.Pull(in)
				defer stop()
				for p, ok := next(); ok; p, ok = next() {
					boom(p.Value)
					emit(p)
				}
				return nil
			})
		}, kind: "mapPartitions", preview: badKey},
		"partitioner": {op: func(r in) in {
			return asPairs(rdd.GroupByKey(rdd.KeyBy(rdd.Values(r), identityInt), rdd.PartitionBy("mine", 2, func(v int) int { return boom(v) % 2 })))
		}, kind: "groupByKey", preview: "(13,13)"},
		"partitioner of a combiner": {op: func(r in) in {
			return asPairs(rdd.ReduceByKey(rdd.KeyBy(rdd.Values(r), identityInt), rdd.PartitionBy("mine", 2, func(v int) int { return boom(v) % 2 }), max2))
		}, kind: "reduceByKey", preview: "13"},
		"partitioner out of range": {op: func(r in) in {
			p := rdd.PartitionBy("mine", 2, func(v int) int {
				if v == bad {
					return 2
				}
				return 0
			})
			return asPairs(rdd.GroupByKey(rdd.KeyBy(rdd.Values(r), identityInt), p))
		}, kind: "groupByKey", preview: "(13,13)"},
		"create": {op: func(r in) in {
			keyed := rdd.Map(r, func(p pair) pair { return rdd.KV(fmt.Sprint(p.Value), p.Value) })
			return rdd.CombineByKey(keyed, hash2, rdd.Combiner[int, int]{Create: boom, Merge: max2, Join: max2}, true)
		}, kind: "combineByKey", preview: "(13,13)"},
		"merge": {op: func(r in) in {
			return rdd.ReduceByKey(r, hash2, func(_, b int) int { return boom(b) })
		}, kind: "reduceByKey", preview: badKey},
		"join of partial results": {op: func(r in) in {
			c := rdd.Combiner[int, int]{Create: identityInt, Merge: max2, Join: func(a, b int) int {
				if b == 14 { // the greatest of partition 1
					panic("boom")
				}
				return b
			}}
			return rdd.CombineByKey(r, rdd.PartitionBy("one", 2, func(string) int { return 1 }), c, true)
		}, kind: "combineByKey", record: 2, preview: "(k,14)"},
		"reduce": {op: func(r in) in {
			return rdd.Reduce(r, func(_, b pair) pair { boom(b.Value); return b })
		}, kind: "reduce", preview: badKey},
		"topN": {op: func(r in) in {
			return rdd.TopN(r, 2, func(a, b pair) int { boom(a.Value); boom(b.Value); return cmp.Compare(a.Value, b.Value) })
		}, kind: "topN", preview: badKey},
		"collect": {op: func(r in) in {
			return rdd.Map(rdd.Map(r, func(p pair) moody { return moody{p.Value} }).Persist(base.MemoryOnly), func(m moody) pair { return rdd.KV("", m.N) })
		}, kind: "map", preview: "{N:13}"},
		"encoding": {op: func(r in) in {
			return rdd.Map(rdd.Repartition(rdd.Map(r, func(p pair) moody { return moody{p.Value} }), 1), func(m moody) pair { return rdd.KV("", m.N) })
		}, kind: "map", preview: "{N:13}"},
		"encoding error": {op: func(r in) in {
			return rdd.Map(rdd.Repartition(rdd.Map(r, func(p pair) moody { return moody{p.Value} }), 1), func(m moody) pair { return rdd.KV("", m.N) })
		}, sign: -1, kind: "map", preview: "{N:-13}"},
	} {
		t.Run(name, func(t *testing.T) {
			sign := 1
			if test.sign != 0 {
				sign = test.sign
			}
			r := rdd.Filter(rdd.MapValues(test.op(before(sign)), identityInt), func(pair) bool { return true })
			_, err := run(newLocal(false), r)
			var te *base.TaskError
			if !errors.As(err, &te) {
				t.Fatalf("error %v, want a task error", err)
			}
			if test.record == 0 {
				test.record = 3
			}
			if !strings.Contains(te.Operator, "before") || !strings.Contains(te.Operator, "("+test.kind+")") {
				t.Errorf("operator %q is blamed, want the %s of before", te.Operator, test.kind)
			}
			if te.Set.Time != noon || te.Partition != 1 || te.Record != test.record || te.Preview != test.preview {
				t.Errorf("batch %s, partition %d, record %d (%s), want %s, 1, %d (%s)", te.Set.Time, te.Partition, te.Record, te.Preview, noon, test.record, test.preview)
			}
			wantPanic := test.sign == 0
			if te.Panic != wantPanic || (te.Stack != "") != wantPanic {
				t.Errorf("panic %v with a stack of %d bytes", te.Panic, len(te.Stack))
			}
			if !strings.Contains(te.Message, "boom") && !strings.Contains(te.Message, "into partition 2: must be from 0 to 1") {
				t.Errorf("message %q", te.Message)
			}
		})
	}
}

// asPairs makes records for the innocent operators that follow.
func asPairs[V any](r rdd.RDD[rdd.Pair[int, V]]) rdd.RDD[pair] {
	return rdd.Map(r, func(p rdd.Pair[int, V]) pair { return rdd.KV("k", p.Key) })
}

func identityInt(v int) int { return v }
func max2(a, b int) int     { return max(a, b) }

// A panic in an operator after one whose sequence is running is laid at the
// later one's door, and the other way round.
func TestFaultBelowASequenceIsNotTheSequences(t *testing.T) {
	src := source(newScope("src"), []int{1, 2, bad})
	r := rdd.FlatMap(src, func(v int) iter.Seq[int] { return slices.Values([]int{v, v}) })
	up := rdd.MapPartitions(r, func(_ *rdd.Task, in iter.Seq[int], emit func(int) bool) error {
		for v := range in {
			emit(v)
		}
		return nil
	})
	_, err := run(newLocal(false), rdd.Map(up, boom))
	var te *base.TaskError
	if !errors.As(err, &te) || !strings.Contains(te.Operator, "(map)") || te.Record != 5 {
		t.Errorf("error %v, want that of map at record 5", err)
	}
}

func TestSortCompareFaultNamesSort(t *testing.T) {
	src := source(newScope("src"), []int{3, 1}, []int{2})
	_, err := run(newLocal(false), rdd.Sort(src, func(_, _ int) int { panic("boom") }))
	var te *base.TaskError
	if !errors.As(err, &te) || !strings.Contains(te.Operator, "(sort)") || !te.Panic {
		t.Errorf("error %v, want a panic of sort", err)
	}
}

// broken is a source that fails after some records.
func broken(scope *plan.Scope, records int) rdd.RDD[int] {
	frames := [][]byte{{1, 2, 3}}
	good := rdd.FromSlices(scope, "good", [][]int{slices.Repeat([]int{7}, records)})
	return rdd.Coalesce(rdd.Union(scope, good, rdd.FromFrames(scope, "bad", codec.For[int](), frames)), 1)
}

// TestSourceErrorBeatsThatOfUserCode: user code sees a sequence that ends
// early and may well return nil, or an error of its own.
func TestSourceErrorBeatsThatOfUserCode(t *testing.T) {
	for name, end := range map[string]error{"nil": nil, "error": errors.New("too few")} {
		for _, times := range []int{1, 2} {
			seen := 0
			read := func(in iter.Seq[int]) error {
				for range times {
					for range in {
						seen++
					}
				}
				return end
			}
			r := rdd.MapPartitions(broken(newScope("s"), 3), func(_ *rdd.Task, in iter.Seq[int], _ func(int) bool) error { return read(in) })
			if _, err := run(newLocal(false), r); !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("mapPartitions returning %s: %v, want that of the source", name, err)
			}
			if seen != 3 {
				t.Errorf("%d records seen when ranging %d times, want 3: the source failed", seen, times)
			}
			l := newLocal(false)
			n := broken(newScope("s"), 3).Node()
			_, err := rdd.OutputPart(l.task(0), n, 0, rdd.ForeachPartition("out", "foreach", func(_ *rdd.Task, in iter.Seq[int]) error { return read(in) }))
			if !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("foreachPartition returning %s: %v, want that of the source", name, err)
			}
		}
	}
}

func TestForeachPartitionFaults(t *testing.T) {
	src := source(newScope("src"), []int{1, bad, 3})
	for name, f := range map[string]func(v int) error{
		"panic": func(v int) error { boom(v); return nil },
		"error": func(v int) error {
			if v == bad {
				return errors.New("boom")
			}
			return nil
		},
	} {
		out := rdd.ForeachPartition("out", `foreachPartition "out"`, func(_ *rdd.Task, in iter.Seq[int]) error {
			for v := range in {
				if err := f(v); err != nil {
					return err
				}
			}
			return nil
		})
		_, err := rdd.OutputPart(newLocal(false).task(0), src.Node(), 0, out)
		var te *base.TaskError
		if !errors.As(err, &te) || te.Operator != `foreachPartition "out"` || te.Set.UID != "out" || te.Record != 2 || te.Preview != "13" || te.Panic != (name == "panic") {
			t.Errorf("%s: %+v, want that of the output at record 2", name, err)
		}
	}
}

// A record whose own encoding panics used to take the process down when its
// bucket was encoded outside of a task.
func TestPanicInEncodingOfABucketIsAnError(t *testing.T) {
	src := rdd.FromSlices(newScope("s"), "test", [][]moody{{{1}, {bad}}})
	l := newLocal(false)
	sh := rdd.Repartition(src, 1).Node().Shuffles[0]
	buckets, err := rdd.MapPart(l.task(0), sh, 0)
	if err != nil {
		t.Fatal(err)
	}
	if buckets[0].Len() != 2 || buckets[0].Size() <= 0 {
		t.Errorf("bucket of %d records, size %d", buckets[0].Len(), buckets[0].Size())
	}
	_, err = buckets[0].Encode()
	var te *base.TaskError
	if !errors.As(err, &te) || !te.Panic || te.Record != 2 || te.Preview != "{N:13}" {
		t.Errorf("error %+v, want a task error at record 2", err)
	}
}

func TestPreviewIsShort(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, test := range []struct {
		v    any
		want string
	}{
		{"a\nb", `"a\nb"`},
		{[]byte("\xff"), `"\xff"`},
		{long, `"` + long[:120] + `"...`},
		{[]byte(long), `"` + long[:120] + `"...`},
		{rdd.KV("k", 1), "(k,1)"},
		{struct{ A []string }{[]string{long}}, "{A:[" + long[:116] + "..."},
		{rdd.Some(1), "1"},
		{rdd.None[int](), "none"},
		{nil, "<nil>"},
	} {
		if got := rdd.Preview(test.v); got != test.want {
			t.Errorf("Preview(%.20v) = %s, want %s", test.v, got, test.want)
		}
	}
}
