package rdd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
)

func parquetFS(t testing.TB) *fsys.Mem {
	t.Helper()
	m := fsys.NewMem()
	if err := m.MkdirAll(rdd.StagingDir("d", "out", noon, 3)); err != nil {
		t.Fatal(err)
	}
	return m
}

func writeParquetPart[T any](m fsys.FS, l *local, n *plan.Node) (rdd.WrittenFile, error) {
	c, err := rdd.ColumnsOf[T]()
	if err != nil {
		return rdd.WrittenFile{}, err
	}
	out := rdd.WriteParquet(m, "out", `saveAsParquet "out"`, "d", c)
	result, err := rdd.OutputPart(l.task(0), n, 0, out)
	if err != nil {
		return rdd.WrittenFile{}, err
	}
	return rdd.DecodeWrittenFile(result)
}

func writeParquet[T any](m fsys.FS, records []T) (rdd.WrittenFile, error) {
	return writeParquetPart[T](m, newLocal(false), source(newScope("s"), records).Node())
}

func openParquet(t testing.TB, content string) *parquet.File {
	t.Helper()
	f, err := parquet.OpenFile(strings.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func readRows[R any](t testing.TB, content string) []R {
	t.Helper()
	r := parquet.NewGenericReader[R](strings.NewReader(content))
	defer func() { _ = r.Close() }()
	rows := make([]R, r.NumRows())
	if n, err := r.Read(rows); n != len(rows) {
		t.Fatalf("read %d rows of %d: %v", n, len(rows), err)
	}
	return rows
}

// parquetTrip writes records and reads them as the library gives them.
func parquetTrip[T, R any](t testing.TB, records []T) []R {
	t.Helper()
	m := parquetFS(t)
	w, err := writeParquet(m, records)
	if err != nil {
		t.Fatal(err)
	}
	content := readFile(t, m, w.Path)
	if w.Records != int64(len(records)) || w.Bytes != int64(len(content)) || w.CRC != crc32.Checksum([]byte(content), crc32.MakeTable(crc32.Castagnoli)) {
		t.Errorf("result %+v of %d bytes", w, len(content))
	}
	return readRows[R](t, content)
}

type (
	stop struct {
		City string
		Lat  float64
		Note *string
	}
	codes struct {
		A int8
		B uint16 `parquet:"b,delta"`
	}
	trip struct {
		ID      int64  `parquet:"id"`
		Name    string `parquet:"name,dict,zstd"`
		OK      bool
		Small   int8
		Word    uint32
		Big     uint64
		F       float32
		Raw     []byte
		Hash    [4]byte
		Took    time.Duration
		Clock   time.Duration `parquet:"clock,time(millisecond)"`
		Level   int64         `parquet:"level,int(16)"`
		At      time.Time
		Micro   time.Time `parquet:"micro,timestamp(microsecond)"`
		Seen    *time.Time
		Zero    time.Time `parquet:"zero,optional,timestamp"`
		Count   int       `parquet:"count,optional"`
		UUID    [16]byte  `parquet:"uuid,uuid"`
		From    stop
		Via     []stop
		To      *stop
		Tags    []string `parquet:"tags,list"`
		Nums    []int
		Bits    []bool            `parquet:"bits,list,optional"`
		Grid    [][]int32         `parquet:"grid,list"`
		Attrs   map[string]int64  `parquet:"attrs"`
		Stops   map[int32]stop    `parquet:"stops"`
		Names   map[string]string `parquet:",optional"`
		Skipped func()            `parquet:"-"`
		_       struct{}
		Codes
		Extra json.RawMessage `parquet:"extra,json"`
	}
	Codes codes
)

func someTrips() []trip {
	at := time.Date(2024, 2, 29, 12, 30, 0, 123456789, time.UTC)
	note := "über"
	return []trip{
		{
			ID: math.MinInt64, Name: "a", OK: true, Small: -128, Word: math.MaxUint32, Big: math.MaxUint64, F: 1.5,
			Raw: []byte{0, 255}, Hash: [4]byte{1, 2, 3, 4}, Took: time.Second, Clock: 90 * time.Minute, Level: -32768, At: at,
			Micro: at.Truncate(time.Microsecond), Seen: &at, Count: 7, UUID: [16]byte{15: 1},
			From: stop{"x", -1.25, &note}, Via: []stop{{"y", 1, nil}, {"z", 2, &note}}, To: &stop{"end", 3, nil},
			Tags: []string{"p", "", "q"}, Nums: []int{1, -2, 3}, Bits: []bool{true, false},
			Grid: [][]int32{{1, 2}, {}, {3}}, Attrs: map[string]int64{"b": 2, "a": 1},
			Stops: map[int32]stop{-1: {"m", 1, nil}, 5: {"n", 2, &note}}, Names: map[string]string{"k": "v"},
			Codes: Codes{A: 3, B: 9}, Extra: json.RawMessage(`{"a":1}`),
		},
		{At: at, Micro: at, Extra: json.RawMessage(`null`)},
		{At: at.Add(time.Nanosecond), Micro: time.Unix(-1, 0).UTC(), Names: map[string]string{"": ""}, Via: []stop{{}}, Bits: []bool{}, Extra: json.RawMessage(`2`)},
	}
}

var likeParquet = cmp.Options{
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	cmp.FilterValues(func(a, b func()) bool { return true }, cmp.Ignore()),
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == "._" }, cmp.Ignore()),
	// A missing list is an empty one.
	cmp.FilterValues(func(a, b any) bool {
		x, y := reflect.ValueOf(a), reflect.ValueOf(b)
		empty := func(v reflect.Value) bool {
			return v.IsValid() && (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
		}
		return empty(x) && empty(y)
	}, cmp.Ignore()),
}

func TestParquetRoundTrip(t *testing.T) {
	want := someTrips()
	got := parquetTrip[trip, trip](t, want)
	want[1].Micro = want[1].Micro.Truncate(time.Microsecond)
	if diff := cmp.Diff(want, got, likeParquet); diff != "" {
		t.Error(diff)
	}
	if got[2].Bits == nil || got[1].Bits != nil {
		t.Errorf("optional lists %v and %v, want one that is empty and one that is missing", got[2].Bits, got[1].Bits)
	}
}

// Files are what the library makes of the same type, where it makes something.
func TestParquetSchemaIsTheLibrarys(t *testing.T) {
	m := parquetFS(t)
	w, err := writeParquet(m, someTrips())
	if err != nil {
		t.Fatal(err)
	}
	got := openParquet(t, readFile(t, m, w.Path)).Schema().String()
	want := parquet.SchemaOf(trip{}).String()
	_, got, _ = strings.Cut(got, "{")
	_, want, _ = strings.Cut(want, "{")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, c := range openParquet(t, readFile(t, m, w.Path)).Metadata().RowGroups[0].Columns {
		want := parquet.Snappy.CompressionCodec()
		if c.MetaData.PathInSchema[0] == "name" {
			want = parquet.Zstd.CompressionCodec()
		}
		if c.MetaData.Codec != want {
			t.Errorf("column %v is compressed by %v, want %v", c.MetaData.PathInSchema, c.MetaData.Codec, want)
		}
	}
}

func TestParquetScalarsHaveOneColumn(t *testing.T) {
	at := time.Date(2024, 2, 29, 0, 0, 0, 1, time.UTC)
	t.Run("string", scalarTrip([]string{"a", "", "\x00"}))
	t.Run("int", scalarTrip([]int{math.MinInt64, 0, math.MaxInt64}))
	t.Run("uint8", scalarTrip([]uint8{0, 255}))
	t.Run("float64", scalarTrip([]float64{math.Inf(1), -0.5, math.MaxFloat64}))
	t.Run("bool", scalarTrip([]bool{true, false}))
	t.Run("bytes", scalarTrip([][]byte{{1}, {}, {2, 3}}))
	t.Run("array", scalarTrip([][2]byte{{1, 2}, {}}))
	t.Run("time", scalarTrip([]time.Time{at, at.Add(-time.Hour)}))
	t.Run("duration", scalarTrip([]time.Duration{1, -1}))
	t.Run("slice", scalarTrip([][]int{{1, 2}, {3}}))
	t.Run("map", scalarTrip([]map[string]int{{"a": 1}, {"b": 2, "c": 3}}))
}

func scalarTrip[T any](records []T) func(t *testing.T) {
	return func(t *testing.T) {
		type row struct {
			Value T `parquet:"value"`
		}
		want := []row{}
		for _, v := range records {
			want = append(want, row{v})
		}
		if diff := cmp.Diff(want, parquetTrip[T, row](t, records), likeParquet); diff != "" {
			t.Error(diff)
		}
	}
}

func TestParquetPairsHaveKeyAndValue(t *testing.T) {
	type row[K, V any] struct {
		Key   K `parquet:"key"`
		Value V `parquet:"value"`
	}
	check := func(name string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got, likeParquet); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	one, two := 1, 0
	check("scalar", parquetTrip[rdd.Pair[string, int], row[string, int]](t, []rdd.Pair[string, int]{rdd.KV("a", 1), rdd.KV("b", 2)}),
		[]row[string, int]{{"a", 1}, {"b", 2}})
	check("struct", parquetTrip[rdd.Pair[int, stop], row[int, stop]](t, []rdd.Pair[int, stop]{rdd.KV(1, stop{City: "x"})}),
		[]row[int, stop]{{1, stop{City: "x"}}})
	check("nested", parquetTrip[rdd.Pair[rdd.Pair[string, int], rdd.Pair[int, bool]], row[row[string, int], row[int, bool]]](t,
		[]rdd.Pair[rdd.Pair[string, int], rdd.Pair[int, bool]]{rdd.KV(rdd.KV("a", 1), rdd.KV(2, true))}),
		[]row[row[string, int], row[int, bool]]{{row[string, int]{"a", 1}, row[int, bool]{2, true}}})
	check("opt", parquetTrip[rdd.Pair[string, rdd.Opt[int]], row[string, *int]](t,
		[]rdd.Pair[string, rdd.Opt[int]]{rdd.KV("a", rdd.Some(1)), rdd.KV("b", rdd.None[int]()), rdd.KV("c", rdd.Some(0))}),
		[]row[string, *int]{{"a", &one}, {"b", nil}, {"c", &two}})
	type joined struct {
		Left  int   `parquet:"left"`
		Right *stop `parquet:"right"`
	}
	check("joined", parquetTrip[rdd.Pair[string, rdd.Joined[int, rdd.Opt[stop]]], row[string, joined]](t,
		[]rdd.Pair[string, rdd.Joined[int, rdd.Opt[stop]]]{
			rdd.KV("a", rdd.Joined[int, rdd.Opt[stop]]{Left: 1, Right: rdd.Some(stop{City: "x"})}),
			rdd.KV("b", rdd.Joined[int, rdd.Opt[stop]]{Left: 2}),
		}), []row[string, joined]{{"a", joined{1, &stop{City: "x"}}}, {"b", joined{2, nil}}})
	type grouped struct {
		Left  []int    `parquet:"left"`
		Right []string `parquet:"right"`
	}
	check("cogrouped", parquetTrip[rdd.Pair[string, rdd.CoGrouped[int, string]], row[string, grouped]](t,
		[]rdd.Pair[string, rdd.CoGrouped[int, string]]{
			rdd.KV("a", rdd.CoGrouped[int, string]{Left: []int{1, 2}}), rdd.KV("b", rdd.CoGrouped[int, string]{Right: []string{"", "y"}}),
		}), []row[string, grouped]{{"a", grouped{Left: []int{1, 2}}}, {"b", grouped{Right: []string{"", "y"}}}})
	type optList struct {
		Key   string   `parquet:"key"`
		Value []string `parquet:"value,list,optional"`
	}
	lists := parquetTrip[rdd.Pair[string, rdd.Opt[[]string]], optList](t,
		[]rdd.Pair[string, rdd.Opt[[]string]]{rdd.KV("a", rdd.Some([]string{"x"})), rdd.KV("b", rdd.Some([]string(nil))), rdd.KV("c", rdd.None[[]string]())})
	check("opt of slice", lists, []optList{{"a", []string{"x"}}, {"b", []string{}}, {"c", nil}})
	if lists[1].Value == nil || lists[2].Value != nil {
		t.Errorf("an empty and a missing list are %v and %v", lists[1].Value, lists[2].Value)
	}
}

// What the library's own writer loses or mixes up.
func TestParquetWritesWhatNeedsCare(t *testing.T) {
	type in struct {
		Ptrs  []*int
		Loose []int    `parquet:",optional"`
		Elems []string `parquet-element:",optional"`
		Opts  []rdd.Opt[string]
		Array [3]int
		Deep  [][][]string
		Lists map[string][]int
		Maps  []map[string]bool
		Inner []struct {
			At time.Time `parquet:",optional"`
		}
		Day    time.Time     `parquet:",date"`
		Before time.Time     `parquet:",date"`
		Clock  time.Duration `parquet:",time(microsecond)"`
		UUID   string        `parquet:",uuid"`
		Any    any           `parquet:",json"`
		Struct stop          `parquet:",json,optional"`
	}
	type out struct {
		Ptrs   []*int       `parquet:",list"`
		Loose  []*int       `parquet:",list"`
		Elems  []*string    `parquet:",list"`
		Opts   []*string    `parquet:",list"`
		Array  []int        `parquet:",list"`
		Deep   [][][]string `parquet:",list"`
		Inner  []struct{ At *time.Time }
		Day    int32    `parquet:",date"`
		Before int32    `parquet:",date"`
		Clock  int64    `parquet:",time(microsecond)"`
		UUID   [16]byte `parquet:",uuid"`
		Any    []byte   `parquet:",json"`
		Struct *string  `parquet:",optional"`
	}
	seven, s, empty := 7, "s", ""
	at := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
	rec := in{
		Ptrs: []*int{&seven, nil, &seven}, Loose: []int{0, 7}, Elems: []string{"s", "", "s"}, Opts: []rdd.Opt[string]{rdd.Some("s"), rdd.None[string](), rdd.Some("")},
		Array: [3]int{1, 2, 3}, Deep: [][][]string{{{"a"}, {}}, {}, {{"b", "c"}}},
		Lists: map[string][]int{"a": {1, 2}, "b": nil}, Maps: []map[string]bool{{"x": true}, nil, {"y": false}},
		Inner: []struct {
			At time.Time `parquet:",optional"`
		}{{at}, {}, {at}},
		Day: at, Before: time.Unix(-1, 0), Clock: 1500 * time.Microsecond, UUID: "00112233-4455-6677-8899-aabbccddeeff", Any: map[string]int{"a": 1},
	}
	got := parquetTrip[in, out](t, []in{rec})[0]
	want := out{
		Ptrs: []*int{&seven, nil, &seven}, Loose: []*int{nil, &seven}, Elems: []*string{&s, nil, &s}, Opts: []*string{&s, nil, &empty}, Array: []int{1, 2, 3}, Deep: rec.Deep,
		Inner: []struct{ At *time.Time }{{&at}, {nil}, {&at}}, Day: 19782, Before: -1, Clock: 1500,
		UUID: [16]byte{0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}, Any: []byte(`{"a":1}`),
	}
	if diff := cmp.Diff(want, got, likeParquet); diff != "" {
		t.Error(diff)
	}
}

type (
	flat struct {
		S  string
		I  int64
		J  int32
		U  uint64
		F  float64
		G  float32
		B  bool
		P  *string
		L  []string `parquet:",list"`
		In struct {
			N int16
			Q *bool
		}
		M map[string]int32
	}
)

func TestParquetRoundTripAnyFlatStruct(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a", "same"}))
	gen := rapid.Custom(func(t *rapid.T) flat {
		v := flat{
			S: text.Draw(t, "s"), I: rapid.Int64().Draw(t, "i"), J: rapid.Int32().Draw(t, "j"), U: rapid.Uint64().Draw(t, "u"),
			F: rapid.Float64().Draw(t, "f"), G: rapid.Float32().Draw(t, "g"), B: rapid.Bool().Draw(t, "b"),
			P: rapid.Ptr(text, true).Draw(t, "p"), L: rapid.SliceOfN(text, 0, 4).Draw(t, "l"),
			M: rapid.MapOfN(text, rapid.Int32(), 0, 3).Draw(t, "m"),
		}
		v.In.N = rapid.Int16().Draw(t, "n")
		v.In.Q = rapid.Ptr(rapid.Bool(), true).Draw(t, "q")
		return v
	})
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOfN(gen, 1, 50).Draw(rt, "records")
		got := parquetTrip[flat, flat](t, want)
		if diff := cmp.Diff(want, got, likeParquet); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func FuzzParquetRoundTrip(f *testing.F) {
	f.Add("a", int64(1), 1.5, true, uint8(3))
	f.Add("", int64(math.MinInt64), math.Inf(-1), false, uint8(200))
	f.Fuzz(func(t *testing.T, s string, i int64, x float64, b bool, n uint8) {
		type rec struct {
			S string `parquet:",dict"`
			I int64  `parquet:",delta"`
			F float64
			B bool
			O rdd.Opt[string]
		}
		type row struct {
			S string
			I int64
			F float64
			B bool
			O *string
		}
		if x != x {
			x = 0
		}
		var in []rec
		var want []row
		for k := range int(n) + 1 {
			r := rec{s + s[:k%(len(s)+1)], i + int64(k), x * float64(k), b != (k%3 == 0), rdd.Opt[string]{Value: s, OK: k%2 == 0}}
			w := row{S: r.S, I: r.I, F: r.F, B: r.B}
			if r.O.OK {
				w.O = &s
			}
			if r.F != r.F {
				r.F, w.F = 0, 0
			}
			in, want = append(in, r), append(want, w)
		}
		if diff := cmp.Diff(want, parquetTrip[rec, row](t, in)); diff != "" {
			t.Error(diff)
		}
	})
}

type (
	loop struct {
		N    int
		Next *loop
	}
	loops []loops
)

func columnsErr[T any]() error { return second(rdd.ColumnsOf[T]()) }

func TestParquetRefusesTypesByName(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"func":          {columnsErr[struct{ F func() }](), []string{".F", "func"}},
		"deep chan":     {columnsErr[rdd.Pair[string, []struct{ C chan int }]](), []string{".C", "chan"}},
		"interface":     {columnsErr[struct{ V any }](), []string{".V", "interface", "json"}},
		"scalar":        {columnsErr[complex128](), []string{"complex128"}},
		"uintptr":       {columnsErr[struct{ P uintptr }](), []string{".P", "uintptr"}},
		"error element": {columnsErr[[]error](), []string{"element", "interface"}},
		"unexported":    {columnsErr[struct{ A, b int }](), []string{".b", "not exported"}},
		"inside":        {columnsErr[map[string]struct{ y int }](), []string{".y", "not exported"}},
		"holds itself":  {columnsErr[loop](), []string{"loop", "holds itself"}},
		"slice of self": {columnsErr[loops](), []string{"loops", "holds itself"}},
		"empty":         {columnsErr[struct{}](), []string{"no field"}},
		"twice missing": {columnsErr[rdd.Opt[*int]](), []string{"missing in two ways"}},
		"pointers":      {columnsErr[struct{ P **int }](), []string{".P", "missing in two ways"}},
		"map key":       {columnsErr[map[struct{ A int }]int](), []string{"key", "must be"}},
		"embedded":      {columnsErr[struct{ *stop }](), []string{"stop"}},
		"json func": {columnsErr[struct {
			J struct{ F func() } `parquet:",json"`
		}](), []string{".F", "func"}},
		"same name": {columnsErr[struct {
			A int `parquet:"x"`
			B int `parquet:"x"`
		}](), []string{"two columns", `"x"`}},
		"unknown option": {columnsErr[struct {
			A int `parquet:",fast"`
		}](), []string{".A", "fast"}},
		"wrong option": {columnsErr[struct {
			A int `parquet:",uuid"`
		}](), []string{".A", "uuid"}},
		"optional struct": {columnsErr[struct {
			A stop `parquet:",optional"`
		}](), []string{".A", "pointer"}},
		"option of a struct": {columnsErr[struct {
			A stop `parquet:",zstd"`
		}](), []string{".A", "zstd"}},
		"option of a map": {columnsErr[struct {
			A map[string]int `parquet:",zstd"`
		}](), []string{".A", "zstd", "parquet-value"}},
		"array of none": {columnsErr[[0]byte](), []string{"length 0"}},
	} {
		if test.err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, want := range append(test.want, "can't be written as Parquet") {
			if !strings.Contains(test.err.Error(), want) {
				t.Errorf("%s: error %q does not tell %q", name, test.err, want)
			}
		}
	}
}

// A value that its column can't hold is an error, not another value.
func TestParquetRefusesValues(t *testing.T) {
	check := func(err error, want string) {
		t.Helper()
		var te *base.TaskError
		if !errors.As(err, &te) || te.Panic || te.Record != 1 || te.Operator != `saveAsParquet "out"` || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want the output's at record 1 that says %q", err, want)
		}
	}
	check(second(writeParquet(parquetFS(t), []time.Time{{}})), "timestamp(microsecond)")
	check(second(writeParquet(parquetFS(t), []struct {
		D int64 `parquet:",int(32)"`
	}{{1 << 31}})), "2147483648")
	check(second(writeParquet(parquetFS(t), []struct {
		D int `parquet:",uint(8)"`
	}{{-1}})), "-1")
	check(second(writeParquet(parquetFS(t), []struct {
		U string `parquet:",uuid"`
	}{{"nope"}})), "nope")
	check(second(writeParquet(parquetFS(t), []struct {
		T time.Duration `parquet:",time(millisecond)"`
	}{{1 << 62}})), "milliseconds")
	check(second(writeParquet(parquetFS(t), []struct {
		D []byte `parquet:",decimal(2:9)"`
	}{{[]byte{1}}})), "1 bytes")
	check(second(writeParquet(parquetFS(t), []*stop{nil})), "nil")
	check(second(writeParquet(parquetFS(t), []struct {
		J any `parquet:",json"`
	}{{make(chan int)}})), "unsupported type")
}

type grumpy struct{ N int }

func (g grumpy) MarshalJSON() ([]byte, error) {
	if g.N == 2 {
		panic("boom")
	}
	return []byte("1"), nil
}

func TestWriteParquetClosesItsFileAfterAPanic(t *testing.T) {
	m := parquetFS(t)
	var ops []string
	m.FailWith(func(op, _ string) error { ops = append(ops, op); return nil })
	type rec struct {
		G grumpy `parquet:",json"`
		S string
	}
	big := strings.Repeat("x", 2<<20)
	l := newLocal(false)
	l.limit = 1
	_, err := writeParquetPart[rec](m, l, source(newScope("s"), []rec{{S: big}, {G: grumpy{2}}}).Node())
	var te *base.TaskError
	if !errors.As(err, &te) || te.Operator != `saveAsParquet "out"` || te.Record != 2 || !te.Panic || !strings.Contains(te.Message, "boom") {
		t.Errorf("error %+v, want the panic of the output at record 2", err)
	}
	if got := strings.Join(ops, " "); !strings.Contains(got, "create") || !strings.HasSuffix(got, "close") || strings.Contains(got, "sync") {
		t.Errorf("operations %s, want a file that is closed and not made durable", got)
	}
}

func TestWriteParquetFaults(t *testing.T) {
	for _, op := range []string{"create", "write", "sync", "close"} {
		m := parquetFS(t)
		reached := false
		m.FailWith(func(o, _ string) error {
			if o == op {
				reached = true
				return errors.New("disk is full")
			}
			return nil
		})
		if _, err := writeParquet(m, []string{"a"}); err == nil || !strings.Contains(err.Error(), "disk is full") || !reached {
			t.Errorf("%s fails: reached %t, %v", op, reached, err)
		}
	}
}

func TestWriteParquetWithoutRecordsMakesNoFile(t *testing.T) {
	m := parquetFS(t)
	before := m.String()
	w, err := writeParquet(m, []stop{})
	if err != nil || w != (rdd.WrittenFile{}) || m.String() != before {
		t.Errorf("%+v, %v", w, err)
	}
}

// Attempts write the same bytes, in files of their own.
func TestParquetBytesAreAFunctionOfTheRecords(t *testing.T) {
	m := parquetFS(t)
	many := map[string]int{}
	for i := range 50 {
		many[fmt.Sprint(i)] = i
	}
	c, err := rdd.ColumnsOf[map[string]int]()
	if err != nil {
		t.Fatal(err)
	}
	out := rdd.WriteParquet(m, "out", `saveAsParquet "out"`, "d", c)
	write := func() rdd.WrittenFile {
		result, err := rdd.OutputPart(newLocal(false).task(0), source(newScope("s"), []map[string]int{many}).Node(), 0, out)
		if err != nil {
			t.Fatal(err)
		}
		w, err := rdd.DecodeWrittenFile(result)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	a, b := write(), write()
	if a.Name() != rdd.PartFile(0)+rdd.ParquetSuffix {
		t.Errorf("path %s, name %s", a.Path, a.Name())
	}
	if a.Path == b.Path || a.CRC != b.CRC || readFile(t, m, a.Path) != readFile(t, m, b.Path) {
		t.Errorf("files %+v and %+v differ", a, b)
	}
}

func TestParquetRowGroupsAreBounded(t *testing.T) {
	m := parquetFS(t)
	l := newLocal(false)
	l.limit = 1 // the least is 1 MiB
	type rec struct {
		N int
		S string `parquet:",dict"`
	}
	var records []rec
	for i := range 5000 {
		records = append(records, rec{i, fmt.Sprintf("%0*d", 1000, i)})
	}
	w, err := writeParquetPart[rec](m, l, source(newScope("s"), records).Node())
	if err != nil {
		t.Fatal(err)
	}
	content := readFile(t, m, w.Path)
	groups := openParquet(t, content).RowGroups()
	if len(groups) != 5 {
		t.Errorf("%d row groups, want 5 of about 1 MiB", len(groups))
	}
	if diff := cmp.Diff(records, readRows[rec](t, content)); diff != "" {
		t.Error(diff)
	}
}

// A record is its producer's again once it is written (Invariant 15).
func TestParquetKeepsNoRecord(t *testing.T) {
	m := parquetFS(t)
	buf := make([]byte, 8)
	type rec struct {
		S string
		D string `parquet:",dict"`
		B []byte
		J json.RawMessage `parquet:",json"`
		L []string
	}
	views := rdd.FlatMap(source(newScope("s"), []int{1000}), func(n int) iter.Seq[rec] {
		return func(yield func(rec) bool) {
			for i := range n {
				copy(buf, fmt.Sprintf("%08d", i+1e7))
				s := unsafe.String(&buf[0], len(buf))
				if !yield(rec{s, s, buf, buf, []string{s, s}}) {
					return
				}
			}
		}
	})
	w, err := writeParquetPart[rec](m, newLocal(false), views.Node())
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range readRows[rec](t, readFile(t, m, w.Path)) {
		want := fmt.Sprintf("%08d", i+1e7)
		if r.S != want || r.D != want || !bytes.Equal(r.B, []byte(want)) || string(r.J) != want || r.L[0] != want || r.L[1] != want {
			t.Fatalf("record %d is %+v", i, r)
		}
	}
}

func TestParquetAllocatesNothingPerRecord(t *testing.T) {
	type rec struct {
		S  string
		N  int
		At time.Time
		O  rdd.Opt[float64]
		P  rdd.Pair[string, bool]
		L  []int `parquet:",list"`
	}
	one := rec{"some text", 1, time.Unix(1, 0), rdd.Some(1.5), rdd.KV("k", true), []int{1, 2, 3}}
	allocs := func(n int) float64 {
		records := make([]rec, n)
		for i := range records {
			records[i] = one
		}
		return testing.AllocsPerRun(5, func() {
			if _, err := writeParquet(parquetFS(t), records); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := allocs(2000), allocs(22000)
	if per := (many - few) / 20000; per > 0.01 {
		t.Errorf("%.3f allocations per record", per)
	}
}

func BenchmarkWriteParquet(b *testing.B) {
	type rec struct {
		S string
		N int
		F float64
		B bool
		D string `parquet:",dict"`
	}
	records := make([]rec, 100000)
	for i := range records {
		records[i] = rec{fmt.Sprint("text ", i), i, float64(i) / 3, i%2 == 0, fmt.Sprint(i % 10)}
	}
	b.ReportAllocs()
	for b.Loop() {
		m := parquetFS(b)
		w, err := writeParquet(m, records)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(w.Bytes)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(records)), "ns/record")
}
