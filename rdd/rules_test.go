package rdd_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
)

func take[T any](l *local, r rdd.RDD[T], part, limit int) ([]byte, error) {
	if err := l.shuffle(r.Node()); err != nil {
		return nil, err
	}
	task := l.task(part)
	defer task.Close()
	return rdd.CollectPart(task, r.Node(), part, limit)
}

// TestTakeStopsTheSources: no operator asks for more than it needs, and a stop
// is no error.
func TestTakeStopsTheSources(t *testing.T) {
	records := slices.Repeat([]rec{{Key: "k", Value: "v"}}, 5000)
	ignore := func(_ *rdd.Task, in iter.Seq[rec], emit func(rec) bool) error {
		for v := range in {
			if !emit(v) {
				break
			}
		}
		emit(rec{Key: "after the end"})
		return nil
	}
	for name, op := range map[string]func(rdd.RDD[rec]) rdd.RDD[rec]{
		"map":           func(r rdd.RDD[rec]) rdd.RDD[rec] { return rdd.Map(r, short) },
		"filter":        func(r rdd.RDD[rec]) rdd.RDD[rec] { return rdd.Filter(r, func(rec) bool { return true }) },
		"flatMapSlice":  func(r rdd.RDD[rec]) rdd.RDD[rec] { return rdd.FlatMapSlice(r, func(r rec) []rec { return []rec{r} }) },
		"flatMapValues": func(r rdd.RDD[rec]) rdd.RDD[rec] { return rdd.FlatMapValues(r, tripled) },
		"deaf sequence": func(r rdd.RDD[rec]) rdd.RDD[rec] {
			return rdd.FlatMap(r, func(r rec) iter.Seq[rec] {
				return func(yield func(rec) bool) { yield(r); yield(r); yield(r) }
			})
		},
		"deaf values": func(r rdd.RDD[rec]) rdd.RDD[rec] {
			return rdd.FlatMapValues(r, func(v string) iter.Seq[string] {
				return func(yield func(string) bool) { yield(v); yield(v); yield(v) }
			})
		},
		"mapPartitions": func(r rdd.RDD[rec]) rdd.RDD[rec] { return rdd.MapPartitions(r, ignore) },
		"coalesce":      func(r rdd.RDD[rec]) rdd.RDD[rec] { return rdd.Coalesce(r, 1) },
		"union":         func(r rdd.RDD[rec]) rdd.RDD[rec] { return rdd.UnionOf(r, r) },
		"alias":         func(r rdd.RDD[rec]) rdd.RDD[rec] { return rdd.Alias(r, newScope("alias")) },
		"cartesian": func(r rdd.RDD[rec]) rdd.RDD[rec] {
			return rdd.Map(rdd.Cartesian(r, source(newScope("o"), []int{1, 2})), func(j rdd.Joined[rec, int]) rec { return j.Left })
		},
	} {
		for _, limit := range []int{0, 1, 2, 4} {
			for _, checked := range []bool{false, true} {
				read := 0
				src := rdd.Filter(source(newScope("s"), records, records), func(rec) bool { read++; return true })
				l := newLocal(false)
				l.checked = checked
				frame, err := take(l, op(src), 0, limit)
				if err != nil {
					t.Errorf("%s: take %d: %v", name, limit, err)
					continue
				}
				if n := len(decode[rec](t, frame)); n != limit {
					t.Errorf("%s: take %d gives %d records", name, limit, n)
				}
				if read > limit {
					t.Errorf("%s: take %d reads %d records", name, limit, read)
				}
			}
		}
	}
	all, err := take(newLocal(false), source(newScope("s"), records), 0, -1)
	if n := len(decode[rec](t, all)); err != nil || n != len(records) {
		t.Errorf("collect gives %d records (%v), want %d", n, err, len(records))
	}
}

func TestTakeAfterAShuffle(t *testing.T) {
	src := source(newScope("s"), []int{5, 3, 9}, []int{7, 1})
	for _, encode := range []bool{false, true} {
		for limit, want := range map[int]string{1: "[1]", 4: "[1 3 5 7]", 9: "[1 3 5 7 9]"} {
			frame, err := take(newLocal(encode), rdd.Sort(src, func(a, b int) int { return a - b }), 0, limit)
			if got := fmt.Sprint(decode[int](t, frame)); err != nil || got != want {
				t.Errorf("take %d: %s (%v), want %s", limit, got, err, want)
			}
		}
	}
}

// A data set of slices was empty the second time.
func TestPartitionCanBeRangedOverTwice(t *testing.T) {
	lines := frame(t, 1, 2, 3)
	for name, src := range map[string]rdd.RDD[int]{
		"slices": source(newScope("s"), []int{1, 2, 3}),
		"frames": rdd.FromFrames(newScope("s"), "frames", codec.For[int](), [][]byte{lines}),
	} {
		twice := rdd.MapPartitions(src, func(_ *rdd.Task, in iter.Seq[int], emit func(int) bool) error {
			sum := 0
			for v := range in {
				sum += v
			}
			for v := range in {
				emit(v * sum)
			}
			return nil
		})
		same(t, name, mustRun(t, newLocal(false), twice), [][]int{{6, 12, 18}})
	}
}

func TestCancelledTaskStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	l := newLocal(false)
	l.ctx = ctx
	n := 0
	src := rdd.Map(source(newScope("s"), make([]int, 10_000)), func(int) int {
		if n++; n == 10 {
			cancel()
		}
		return 0
	})
	if _, err := run(l, src); !errors.Is(err, context.Canceled) || n == 10_000 {
		t.Errorf("error %v after %d records, want that of the context, soon", err, n)
	}
}

// TestCombinersMayChangeTheirAccumulator: neither the data set nor the buckets
// handed over within a process may show it (Invariant 15).
func TestCombinersMayChangeTheirAccumulator(t *testing.T) {
	type counts = map[string]int
	addTo := func(a, b []int) []int {
		for i := range a {
			a[i] += b[i]
		}
		return a
	}
	merge := func(a, b counts) counts {
		for k, n := range b {
			a[k] += n
		}
		return a
	}
	slicePairs := func() [][]rdd.Pair[string, []int] {
		return [][]rdd.Pair[string, []int]{{{"a", []int{1, 2}}, {"a", []int{3, 4}}, {"b", []int{5, 6}}}, {{"a", []int{7, 8}}, {"b", []int{9, 9}}}}
	}
	mapPairs := func() [][]rdd.Pair[string, counts] {
		return [][]rdd.Pair[string, counts]{{{"a", counts{"x": 1}}, {"a", counts{"y": 2}}}, {{"a", counts{"x": 3}}}}
	}
	for name, test := range map[string]func(t *testing.T, l *local) (got string){
		"reduceByKey of slices": func(t *testing.T, l *local) string {
			return mutates(t, l, slicePairs(), func(r rdd.RDD[rdd.Pair[string, []int]]) rdd.RDD[rdd.Pair[string, []int]] {
				return rdd.ReduceByKey(r, hash2, addTo)
			})
		},
		"reduceByKey of maps": func(t *testing.T, l *local) string {
			return mutates(t, l, mapPairs(), func(r rdd.RDD[rdd.Pair[string, counts]]) rdd.RDD[rdd.Pair[string, counts]] {
				return rdd.ReduceByKey(r, hash2, merge)
			})
		},
		"twice in place": func(t *testing.T, l *local) string {
			return mutates(t, l, slicePairs(), func(r rdd.RDD[rdd.Pair[string, []int]]) rdd.RDD[rdd.Pair[string, []int]] {
				return rdd.ReduceByKey(rdd.ReduceByKey(r, hash2, addTo).Persist(base.MemoryOnly), hash2, addTo)
			})
		},
		// Create gives the value itself, and there is no map side to copy it.
		"combineByKey on the reduce side": func(t *testing.T, l *local) string {
			return mutates(t, l, slicePairs(), func(r rdd.RDD[rdd.Pair[string, []int]]) rdd.RDD[rdd.Pair[string, []int]] {
				c := rdd.Combiner[[]int, []int]{Create: func(v []int) []int { return v }, Merge: addTo, Join: addTo}
				return rdd.CombineByKey(r, hash2, c, false)
			})
		},
		"reduce": func(t *testing.T, l *local) string {
			return mutates(t, l, slicePairs(), func(r rdd.RDD[rdd.Pair[string, []int]]) rdd.RDD[[]int] {
				return rdd.Reduce(rdd.Values(r), addTo)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			typed, encoded := newLocal(false), newLocal(true)
			got := test(t, typed)
			if again := test(t, newLocal(false)); again != got {
				t.Errorf("run again: %s, was %s", again, got)
			}
			if other := test(t, encoded); other != got {
				t.Errorf("encoded: %s, typed: %s", other, got)
			}
			want := map[string]string{
				"reduceByKey of slices": "a:[11 14] b:[14 15]", "twice in place": "a:[11 14] b:[14 15]",
				"combineByKey on the reduce side": "a:[11 14] b:[14 15]", "reduce": "[25 29]",
				"reduceByKey of maps": "a:map[x:4 y:2]",
			}[name]
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func mutates[V, R any](t *testing.T, l *local, parts [][]rdd.Pair[string, V], op func(rdd.RDD[rdd.Pair[string, V]]) rdd.RDD[R]) string {
	t.Helper()
	before := fmt.Sprint(parts)
	r := op(rdd.FromSlices(newScope("s"), "test", parts))
	out := mustRun(t, l, r)
	// A reader that comes again must find the same.
	if again := mustRun(t, l, r); fmt.Sprint(again) != fmt.Sprint(out) {
		t.Errorf("read again: %v, was %v", again, out)
	}
	l.unchanged(t)
	if after := fmt.Sprint(parts); after != before {
		t.Errorf("the data set was changed to %s, was %s", after, before)
	}
	var texts []string
	for _, v := range slices.Concat(out...) {
		texts = append(texts, strings.Trim(strings.Replace(fmt.Sprint(v), ",", ":", 1), "()"))
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

// TestSmallCombineLimitChangesNoValue: partial results that were handed on or
// put on disk early combine to the same, and the same way with typed and
// encoded buckets.
func TestSmallCombineLimitChangesNoValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record := rapid.Custom(func(t *rapid.T) rec {
			return rec{Key: rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 2, -1).Draw(t, "key"), Value: rapid.SampledFrom([]string{"v", "w", "xy"}).Draw(t, "value")}
		})
		parts := rapid.SliceOfN(rapid.SliceOfN(record, 0, 40), 1, 3).Draw(t, "partitions")
		limit := int64(rapid.IntRange(0, 600).Draw(t, "limit"))
		n := rapid.IntRange(1, 3).Draw(t, "n")
		for _, s := range steps {
			switch s.name {
			case "reduceByKey", "groupByKey", "combineByKey", "cogroup", "distinct", "join", "subtractByKey":
			default:
				continue
			}
			r := s.apply(rdd.FromSlices(newScope("s"), "test", parts), n)
			var outs [][][]rec
			for _, encode := range []bool{false, true} {
				l := newLocal(encode)
				l.limit = limit
				out, err := run(l, r)
				if err != nil {
					if strings.Contains(err.Error(), "must fit in memory") {
						return
					}
					t.Fatalf("%s with limit %d: %v", s.name, limit, err)
				}
				l.unchanged(t)
				outs = append(outs, out)
			}
			same(t, s.name+" encoded", outs[1], outs[0])
			want := s.want(parts, n)
			for i := range outs[0] {
				sortRecs(outs[0][i])
				sortRecs(want[i])
			}
			same(t, fmt.Sprintf("%s with limit %d", s.name, limit), outs[0], want)
		}
	})
}

func sortRecs(rs []rec) {
	slices.SortFunc(rs, func(a, b rec) int { return strings.Compare(a.Key+"\x00"+a.Value, b.Key+"\x00"+b.Value) })
}

// A large value that is reduced over many runs was taken for one that grows.
func TestReducingOverManyRunsIsNotGrowing(t *testing.T) {
	big := strings.Repeat("x", 400)
	var parts [][]rec
	for range 20 {
		parts = append(parts, []rec{{Key: "a", Value: big}, {Key: "b", Value: big}})
	}
	src := rdd.FromSlices(newScope("s"), "test", parts)
	l := newLocal(false)
	l.limit = 500
	longest := func(a, b string) string { return max(a, b) }
	out, err := run(l, rdd.ReduceByKey(src, rdd.Hash[string](1), longest))
	if err != nil {
		t.Fatal(err)
	}
	if l.runs < 20 || len(out[0]) != 2 || out[0][0].Value != big || out[0][1].Value != big {
		t.Errorf("%d keys after %d runs, want both keys after many", len(out[0]), l.runs)
	}
	_, err = run(l, rdd.GroupByKey(src, rdd.Hash[string](1)))
	var te *base.TaskError
	if !errors.As(err, &te) || !strings.Contains(te.Operator, "groupByKey") || !strings.Contains(te.Message, "must fit in memory") {
		t.Errorf("error %v, want one that tells that groups must fit in memory", err)
	}
}

// A map side that hands on early keeps even the order, since a key's first
// occurrence is where it was.
func TestMapSideHandsOnInOrder(t *testing.T) {
	var parts [][]rec
	for p := range 3 {
		var part []rec
		for i := range 500 {
			part = append(part, rec{Key: fmt.Sprint("key-", (i*7+p)%90), Value: "v"})
		}
		parts = append(parts, part)
	}
	r := rdd.ReduceByKey(rdd.FromSlices(newScope("s"), "test", parts), rdd.Hash[string](2), ends)
	want := mustRun(t, newLocal(false), r)
	l := newLocal(false)
	l.limit = 4000
	if err := l.shuffle(r.Node()); err != nil {
		t.Fatal(err)
	}
	if n := l.typed[bucketKey(r.Node().Shuffles[0], 0, 0)].Len() + l.typed[bucketKey(r.Node().Shuffles[0], 0, 1)].Len(); n <= 90 {
		t.Fatalf("%d records for 90 keys: the limit had no effect", n)
	}
	l.limit = math.MaxInt64 // of the reduce side
	out := make([][]rec, 2)
	for part := range out {
		frame, err := rdd.CollectPart(l.task(part), r.Node(), part, -1)
		if err != nil {
			t.Fatal(err)
		}
		out[part] = decode[rec](t, frame)
	}
	same(t, "with early hand-on", out, want)
}

func TestCoPartitionedDataNeedsNoShuffle(t *testing.T) {
	p := rdd.Hash[string](3)
	src := source(newScope("s"), pairs(1, 2), pairs(3))
	reduced := rdd.ReduceByKey(src, p, max2)
	one := func(name string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d shuffles, want %d", name, got, want)
		}
	}
	shuffles := func(n *plan.Node) int { _, s := plan.Index([]*plan.Node{n}); return len(s) }
	one("reduceByKey", shuffles(reduced.Node()), 1)
	one("join after reduceByKey", shuffles(rdd.Join(reduced, reduced, p).Node()), 1)
	kept := rdd.Filter(rdd.MapValues(reduced, identityInt), func(pair) bool { return true })
	one("group after filter and mapValues", shuffles(rdd.GroupByKey(kept, p).Node()), 1)
	one("flatMapValues", shuffles(rdd.GroupByKey(rdd.FlatMapValues(kept, func(v int) iter.Seq[int] { return slices.Values([]int{v}) }), p).Node()), 1)
	one("alias", shuffles(rdd.GroupByKey(rdd.Alias(kept, newScope("t")), p).Node()), 1)
	one("map forgets", shuffles(rdd.GroupByKey(rdd.Map(reduced, func(p pair) pair { return p }), p).Node()), 2)
	one("another count", shuffles(rdd.GroupByKey(reduced, rdd.Hash[string](2)).Node()), 2)
	one("half", shuffles(rdd.Cogroup(reduced, src, p).Node()), 2)
	one("union forgets", shuffles(rdd.GroupByKey(rdd.UnionOf(reduced, reduced), p).Node()), 2)
	one("coalesce forgets", shuffles(rdd.GroupByKey(rdd.Coalesce(reduced, 2), p).Node()), 2)
	mine := rdd.PartitionBy("mine", 3, func(string) int { return 1 })
	one("own partitioner", shuffles(rdd.GroupByKey(rdd.ReduceByKey(src, mine, max2), mine).Node()), 1)
	// A user's partitioner named as the engine's was taken for it.
	one("named hash", shuffles(rdd.GroupByKey(reduced, rdd.PartitionBy("hash", 3, func(string) int { return 1 })).Node()), 2)
	joined := both(t, rdd.Join(reduced, kept, p))
	if got := fmt.Sprint(slices.Concat(joined...)); got != "[(k,(3,3))]" {
		t.Errorf("join of co-partitioned data: %s", got)
	}
}

func TestHashPartitionerGivesRangesOfKeyGroups(t *testing.T) {
	h := codec.Hasher[int]()
	for _, parts := range []int{1, 2, 3, 7, 1024, 2000} {
		p := rdd.Hash[int](parts)
		for k := range 5000 {
			if got, want := p.Place(k), int(h(k)%rdd.KeyGroups)*parts/rdd.KeyGroups; got != want {
				t.Fatalf("key %d of %d partitions is in %d, want %d", k, parts, got, want)
			}
		}
	}
	if p := rdd.Hash[int](3); p.Parts() != 3 || p.Name() == rdd.Hash[int](4).Name() || p.IsZero() || !(rdd.Partitioner[int]{}).IsZero() {
		t.Error("name or number of partitions are wrong")
	}
}

func TestBadPartitionCountsPanic(t *testing.T) {
	src := source(newScope("s"), []int{1})
	for name, f := range map[string]func(){
		"hash":        func() { rdd.Hash[int](0) },
		"own":         func() { rdd.PartitionBy("p", -1, identityInt) },
		"repartition": func() { rdd.Repartition(src, 0) },
		"coalesce":    func() { rdd.Coalesce(src, 0) },
		"topN":        func() { rdd.TopN(src, 0, func(a, b int) int { return 0 }) },
		"recordFiles": func() { rdd.RecordFiles(newScope("s"), nil, nil, 0) },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "must be positive") {
					t.Errorf("%s: panic %v, want one that tells the rule", name, r)
				}
			}()
			f()
		}()
	}
}

func TestKeysFollowGosEquality(t *testing.T) {
	nan, minus := math.NaN(), math.Copysign(0, -1)
	type key = float64
	src := source(newScope("s"),
		[]rdd.Pair[key, int]{{nan, 1}, {0, 2}, {nan, 3}},
		[]rdd.Pair[key, int]{{minus, 4}, {nan, 5}, {0, 6}})
	for _, limit := range []int64{math.MaxInt64, 16} {
		for _, encode := range []bool{false, true} {
			l := newLocal(encode)
			l.limit = limit
			sums := map[string]int{}
			for _, p := range slices.Concat(mustRun(t, l, rdd.ReduceByKey(src, rdd.Hash[key](4), func(a, b int) int { return a + b }))...) {
				sums[fmt.Sprint(p)] = p.Value
			}
			// 0 and -0 are one key; no NaN equals another.
			want := map[string]int{"(NaN,1)": 1, "(NaN,3)": 3, "(NaN,5)": 5, "(0,12)": 12}
			if !maps.Equal(sums, want) {
				t.Errorf("limit %d, encoded %v: %v, want %v", limit, encode, sums, want)
			}
		}
	}
	// Inside a struct, -0 was put into another partition than 0.
	type deep struct{ F [1]float32 }
	inside := source(newScope("s"), []rdd.Pair[deep, int]{{deep{[1]float32{0}}, 1}, {deep{[1]float32{float32(minus)}}, 2}})
	if got := slices.Concat(both(t, rdd.ReduceByKey(inside, rdd.Hash[deep](64), func(a, b int) int { return a + b }))...); len(got) != 1 || got[0].Value != 3 {
		t.Errorf("0 and -0 in a struct: %v, want one key", got)
	}
	huge := strings.Repeat("k", 1<<20)
	long := source(newScope("s"), []pair{rdd.KV(huge, 1), rdd.KV("", 2)}, []pair{rdd.KV("", 3), rdd.KV(huge, 4)})
	got := map[int]int{}
	for _, p := range slices.Concat(both(t, rdd.ReduceByKey(long, hash2, max2))...) {
		got[len(p.Key)] = p.Value
	}
	if !maps.Equal(got, map[int]int{1 << 20: 4, 0: 3}) {
		t.Errorf("huge and empty keys: %v", got)
	}
}

// TestNilAndEmptyStayApart: whether a bucket was encoded must not show.
func TestNilAndEmptyStayApart(t *testing.T) {
	src := source(newScope("s"), [][]string{nil, {}, {"a"}}, [][]string{{}, nil})
	texts := rdd.Map(rdd.Repartition(src, 2), func(v []string) string { return fmt.Sprintf("%#v", v) })
	want := [][]string{{"[]string(nil)", `[]string{"a"}`, "[]string(nil)"}, {"[]string{}", "[]string{}"}}
	same(t, "slices", both(t, texts), want)
	raw := source(newScope("s"), [][]byte{nil, {}})
	same(t, "bytes", both(t, rdd.Map(rdd.Repartition(raw, 1), func(v []byte) bool { return v == nil })), [][]bool{{true, false}})
}

// Tables compare half of the hash first; keys that share it are still apart.
func TestKeysOfOneHashStayApart(t *testing.T) {
	unmixed := func(x uint64) int { // the key that hashes to x
		x ^= x>>31 ^ x>>62
		x *= 0x319642b2d24d8ec3
		x ^= x>>27 ^ x>>54
		x *= 0x96de1b173f119089
		return int(x ^ x>>30 ^ x>>60)
	}
	var records []rdd.Pair[int, int]
	for i := range 300 {
		key := unmixed(0x1234_5678_0000_0000 | uint64(i))
		if h := codec.Hasher[int]()(key); h>>32 != 0x1234_5678 {
			t.Fatalf("key %d hashes to %x", key, h)
		}
		records = append(records, rdd.KV(key, 1), rdd.KV(key, 2))
	}
	sums := concat(both(t, rdd.ReduceByKey(source(newScope("s"), records, records[:10]), rdd.Hash[int](2), func(a, b int) int { return a + b })))
	if len(sums) != 300 {
		t.Errorf("%d keys, want 300", len(sums))
	}
}

func TestRepartitionBalances(t *testing.T) {
	// Small partitions must not all go to the first.
	parts := [][]int{{1}, {2}, {3}, {4}, {5}, {6}}
	same(t, "six of one record", both(t, rdd.Repartition(rdd.FromSlices(newScope("s"), "test", parts), 6)), parts)
	for i, p := range both(t, rdd.Repartition(source(newScope("s"), make([]int, 10)), 3)) {
		if len(p) < 3 || len(p) > 4 {
			t.Errorf("partition %d has %d of 10 records, want 3 or 4", i, len(p))
		}
	}
}

func TestKeptPartitionsAreComputedOnce(t *testing.T) {
	computed := 0
	src := source(newScope("s"), []int{1, 2}, []int{3})
	kept := rdd.Map(src, func(v int) int { computed++; return v * 2 }).Persist(base.MemoryOnly)
	twice := rdd.UnionOf(kept, rdd.Map(kept, func(v int) int { return -v }))
	l := newLocal(false)
	same(t, "union of a kept data set", mustRun(t, l, twice), [][]int{{2, 4}, {6}, {-2, -4}, {-6}})
	if computed != 3 || len(l.kept) != 2 {
		t.Errorf("%d records computed and %d partitions kept, want 3 and 2", computed, len(l.kept))
	}
	// What is kept is read, even where it could be computed again.
	l.kept[plan.CacheKey{Node: kept.Node().ID, Part: 1}] = frame(t, 7)
	same(t, "from what is kept", mustRun(t, l, kept), [][]int{{2, 4}, {7}})
	if computed != 3 {
		t.Errorf("%d records computed, want 3", computed)
	}
}

// TestKeptShufflesAreNotRunAgain: a shuffle behind a kept data set has no stage.
func TestKeptShufflesAreNotRunAgain(t *testing.T) {
	l := newLocal(false)
	sorted := rdd.Sort(source(newScope("s"), []int{2, 1}), func(a, b int) int { return a - b }).Persist(base.MemoryOnly)
	mustRun(t, l, sorted)
	l.typed, l.frames, l.tasks = map[string]rdd.Bucket{}, map[string][]byte{}, 0
	same(t, "kept", mustRun(t, l, rdd.Map(sorted, identityInt)), [][]int{{1, 2}})
	if l.tasks != 1 {
		t.Errorf("%d tasks, want 1", l.tasks)
	}
}

func TestBlocks(t *testing.T) {
	block := func(n uint64, lost bool) plan.Block {
		return plan.Block{ID: base.BlockID{Stream: "lines", Epoch: 1, Counter: n}, Key: fmt.Sprint(n), Lost: lost}
	}
	c := codec.For[string]()
	l := newLocal(false)
	l.blocks["1"], l.blocks["3"] = frame(t, "a", "b"), nil
	r := rdd.FromBlocks(newScope("s"), c, []plan.Block{block(1, false), block(2, true), block(3, false)}, 3)
	same(t, "blocks", mustRun(t, l, r), [][]string{{"a", "b"}, {}, {}})

	var lost *base.LostBlocksError
	_, err := run(l, rdd.FromBlocks(newScope("s"), c, []plan.Block{block(9, false)}, 1))
	if !errors.As(err, &lost) || lost.Batch != noon || len(lost.Blocks) != 1 || lost.Blocks[0].Counter != 9 {
		t.Errorf("error %v, want that of block 9", err)
	}
	l.blocks["4"] = []byte("no frame")
	if _, err := run(l, rdd.FromBlocks(newScope("s"), c, []plan.Block{block(4, false)}, 1)); !errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), "lines/1/4") {
		t.Errorf("error %v, want one that names the block", err)
	}
	gone := rdd.FromBlocks(newScope("s"), c, []plan.Block{block(1, false)}, 1)
	if skipped := rdd.FromBlocks(newScope("s"), c, []plan.Block{block(1, true)}, 1); gone.Node().Hash == skipped.Node().Hash {
		t.Error("a lost block does not show in the lineage hash")
	}
}

func TestFetchFaults(t *testing.T) {
	r := rdd.Repartition(source(newScope("s"), []int{1}, []int{2}), 1)
	l := newLocal(true)
	mustRun(t, l, r)
	s := r.Node().Shuffles[0]
	l.frames[bucketKey(s, 1, 0)][3]++
	if _, err := rdd.CountPart(l.task(0), r.Node(), 0); err == nil || !strings.Contains(err.Error(), s.ID) || !strings.Contains(err.Error(), "map partition 1") {
		t.Errorf("damaged bucket: %v, want one that names it", err)
	}
	delete(l.frames, bucketKey(s, 1, 0))
	var fetch *base.FetchError
	if _, err := rdd.CountPart(l.task(0), r.Node(), 0); !errors.As(err, &fetch) || fetch.MapPart != 1 {
		t.Errorf("lost bucket: %v, want a fetch error", err)
	}
}

func TestLineageHashTellsWhatDiffers(t *testing.T) {
	src := func() rdd.RDD[rec] { return source(newScope("s"), []rec{}, []rec{}) }
	seen := map[uint64]string{}
	see := func(name string, n *plan.Node) {
		t.Helper()
		if other, ok := seen[n.Hash]; ok {
			t.Errorf("%s has the lineage hash of %s", name, other)
		}
		seen[n.Hash] = name
	}
	for _, s := range steps {
		if a, b := s.apply(src(), 3).Node().Hash, s.apply(src(), 3).Node().Hash; a != b {
			t.Errorf("%s: equal graphs have hashes %x and %x", s.name, a, b)
		}
	}
	see("source", src().Node())
	see("three partitions", source(newScope("s"), []rec{}, []rec{}, []rec{}).Node())
	see("another data set", source(newScope("other"), []rec{}, []rec{}).Node())
	see("persisted", src().Persist(base.MemoryOnly).Node())
	see("persisted on disk", src().Persist(base.DiskOnly).Node())
	see("top 2", rdd.TopN(src(), 2, byKey).Node())
	see("top 3", rdd.TopN(src(), 3, byKey).Node())
	see("hash 2", rdd.ReduceByKey(src(), rdd.Hash[string](2), ends).Node())
	see("hash 3", rdd.ReduceByKey(src(), rdd.Hash[string](3), ends).Node())
	see("mine 2", rdd.ReduceByKey(src(), rdd.PartitionBy("mine", 2, func(string) int { return 0 }), ends).Node())
	see("group", rdd.GroupByKey(src(), rdd.Hash[string](2)).Node())
	see("map", rdd.Map(src(), short).Node())
	see("filter", rdd.Filter(src(), odd).Node())
	see("frame", rdd.FromFrames(newScope("s"), "frames", codec.For[int](), [][]byte{frame(t, 1)}).Node())
	see("other frame", rdd.FromFrames(newScope("s"), "frames", codec.For[int](), [][]byte{frame(t, 2)}).Node())
	see("files", rdd.TextFiles(newScope("s"), nil, []rdd.File{{Path: "a", Size: 1, ModTime: 2}}).Node())
	see("other time", rdd.TextFiles(newScope("s"), nil, []rdd.File{{Path: "a", Size: 1, ModTime: 3}}).Node())
	see("records of 2", rdd.RecordFiles(newScope("s"), nil, []rdd.File{{Path: "a", Size: 1, ModTime: 2}}, 2).Node())
	see("records of 3", rdd.RecordFiles(newScope("s"), nil, []rdd.File{{Path: "a", Size: 1, ModTime: 2}}, 3).Node())
}

func TestContentHashTellsOrder(t *testing.T) {
	hash := func(records ...int) uint64 {
		l := newLocal(false)
		l.checked = true
		mustRun(t, l, source(newScope("s"), records))
		return l.hashes[0]
	}
	first, again := hash(1, 2), hash(1, 2)
	if first != again || first == hash(2, 1) || first == hash(1, 2, 0) {
		t.Error("the content hash does not tell the sequence of records (Invariant 13)")
	}
}

func TestTaskTellsWhichAttemptItIs(t *testing.T) {
	task := rdd.NewTask(t.Context(), newLocal(false), rdd.TaskSpec{
		Job: "job", Run: "run", Operator: "out", Batch: noon, Partition: 3, Attempt: 2, Executor: "e1",
	})
	if got, want := task.Key(), fmt.Sprintf("job/run/out/%d/3", noon); got != want {
		t.Errorf("key %q, want %q", got, want)
	}
	if task.Batch() != noon || task.Partition() != 3 || task.Attempt() != 2 || task.Executor() != "e1" || task.Context() != t.Context() {
		t.Error("the task is another one")
	}
	task.Count("a", 1)
	task.Count("a", 2)
	task.Count("b", -1)
	if got := task.Counters(); !maps.Equal(got, map[string]int64{"a": 3, "b": -1}) {
		t.Errorf("counters %v", got)
	}
}

// TestNarrowChainAllocatesNothingPerRecord: records are views of their frame.
func TestNarrowChainAllocatesNothingPerRecord(t *testing.T) {
	allocs := func(records int) float64 {
		w := codec.NewFrameWriter(codec.For[string]())
		for i := range records {
			_ = w.Append(fmt.Sprint("line ", i))
		}
		src := rdd.FromFrames(newScope("s"), "frames", codec.For[string](), [][]byte{w.Finish()})
		r := rdd.Filter(rdd.Map(src, strings.TrimSpace), func(s string) bool { return !strings.HasSuffix(s, "7") })
		l := newLocal(false)
		return testing.AllocsPerRun(5, func() {
			n, err := rdd.CountPart(l.task(0), r.Node(), 0)
			if err != nil || n != int64(records*9/10) {
				t.Fatalf("%d records, %v", n, err)
			}
		})
	}
	few, many := allocs(100), allocs(100_000)
	if many > few {
		t.Errorf("%v allocations for 100 records, %v for 100000", few, many)
	}
}
