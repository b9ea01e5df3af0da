package rdd_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/rdd"
)

type event struct {
	Name string
	Tags map[string]int
	Pair rdd.Pair[string, rdd.Opt[int]]
	Left rdd.CoGrouped[int, string]
	Join []rdd.Joined[int, *int]
	At   time.Time
}

func compositeTrip[T any](records ...T) func(*testing.T) {
	return func(t *testing.T) {
		if err := codec.Check[T](); err != nil {
			t.Fatal(err)
		}
		c := codec.For[T]()
		b := frame(t, records...)
		f, err := codec.OpenFrame(b)
		if err != nil {
			t.Fatal(err)
		}
		var clones []T
		if _, err := codec.EachInFrame(c, f, func(v T) bool { clones = append(clones, c.Clone(v)); return true }); err != nil {
			t.Fatal(err)
		}
		clear(b)
		if d := cmp.Diff(records, clones); d != "" {
			t.Errorf("-appended, +read and cloned, the frame overwritten:\n%s", d)
		}
		// The same inside of a type that is encoded by msgpack.
		type outer struct{ In []T }
		oc := codec.For[outer]()
		enc, err := oc.Append(nil, outer{records})
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := oc.Read(enc)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(records, out.In); d != "" {
			t.Errorf("inside a struct: -appended +read:\n%s", d)
		}
	}
}

func TestCompositesRoundTrip(t *testing.T) {
	one := 1
	at := time.Unix(1709209800, 5).UTC()
	e := event{
		"n",
		map[string]int{"b": 2, "a": 1},
		rdd.KV("k", rdd.Some(3)),
		rdd.CoGrouped[int, string]{Left: []int{1}, Right: nil},
		[]rdd.Joined[int, *int]{{Left: 1, Right: &one}, {Left: 2}},
		at,
	}
	for name, test := range map[string]func(*testing.T){
		"pair":         compositeTrip(rdd.KV("k", 1), rdd.KV("", -1)),
		"pair bytes":   compositeTrip(rdd.KV("k", []byte("v")), rdd.KV("k", []byte(nil)), rdd.KV("k", []byte{})),
		"pair in pair": compositeTrip(rdd.KV(rdd.KV("a", 1), rdd.KV(2.5, []string{"x", ""}))),
		"opt":          compositeTrip(rdd.Some("x"), rdd.None[string](), rdd.Some("")),
		"opt opt":      compositeTrip(rdd.Some(rdd.Some(1)), rdd.Some(rdd.None[int]()), rdd.None[rdd.Opt[int]]()),
		"cogrouped":    compositeTrip(rdd.CoGrouped[string, int]{Left: []string{"a"}, Right: nil}, rdd.CoGrouped[string, int]{Right: []int{}}),
		"joined":       compositeTrip(rdd.Joined[string, rdd.Opt[int]]{Left: "l", Right: rdd.Some(1)}, rdd.Joined[string, rdd.Opt[int]]{}),
		"join of all":  compositeTrip(rdd.KV(true, rdd.Joined[rdd.CoGrouped[[]byte, []string], rdd.Pair[int32, uint64]]{Left: rdd.CoGrouped[[]byte, []string]{Left: [][]byte{[]byte("x"), nil}, Right: [][]string{nil, {"y"}}}})),
		"event":        compositeTrip(rdd.KV(7, e), rdd.KV(8, event{})),
		"time":         compositeTrip(rdd.KV("t", at)),
		"slices":       compositeTrip([]rdd.Pair[string, int]{{"a", 1}}, nil, []rdd.Pair[string, int]{}),
	} {
		t.Run(name, test)
	}
}

// Types that embedded a Pair made the codec panic.
func TestEmbeddedPairIsRefused(t *testing.T) {
	type wrapped struct {
		rdd.Pair[string, int]
		More int
	}
	if err := codec.Check[wrapped](); err == nil {
		t.Error("a type that embeds a Pair is accepted, and would lose its other fields")
	}
	if id := codec.For[wrapped]().ID; id == codec.For[pair]().ID {
		t.Errorf("its codec is %s", id)
	}
}

func TestCompositeText(t *testing.T) {
	for want, v := range map[string]fmt.Stringer{
		"(k,1)": rdd.KV("k", 1), "(1,none)": rdd.Joined[int, rdd.Opt[int]]{Left: 1}, "7": rdd.Some(7), "none": rdd.None[int](),
	} {
		if v.String() != want {
			t.Errorf("%#v prints %s, want %s", v, v, want)
		}
	}
	if rdd.Some(1).Or(2) != 1 || rdd.None[int]().Or(2) != 2 {
		t.Error("Or gives the other one")
	}
}

func TestPairFromMsgpackOfAnotherShapeIsAnError(t *testing.T) {
	b, err := msgpack.Marshal([]any{"k", 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	var p pair
	if err := msgpack.Unmarshal(b, &p); err == nil {
		t.Errorf("an array of 3 is read as %v", p)
	}
}

// FuzzReadComposite gives bytes that did not pass a checksum to the decoders
// of the engine's own types.
func FuzzReadComposite(f *testing.F) {
	for _, s := range []string{"", "\x01k\x02", "\x00", "\x01\x01\x02", "\x02\x01a\x00", "\xff\xff\xff\xff\x7f", "\x03\x00\x00\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		readComposite[rdd.Pair[string, int]](t, b)
		readComposite[rdd.Pair[string, event]](t, b)
		readComposite[rdd.Opt[[]byte]](t, b)
		readComposite[rdd.CoGrouped[string, []int]](t, b)
		readComposite[rdd.Joined[rdd.Opt[float64], rdd.Pair[bool, []string]]](t, b)
	})
}

func readComposite[T any](t *testing.T, b []byte) {
	t.Helper()
	c := codec.For[T]()
	v, n, err := c.Read(b)
	if err != nil {
		if !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", c.ID, err)
		}
		return
	}
	if n <= 0 || n > len(b) {
		t.Fatalf("%s: took %d of %d bytes", c.ID, n, len(b))
	}
	again, err := c.Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := c.Read(again)
	if err != nil {
		t.Fatal(err)
	}
	if last, err := c.Append(nil, w); err != nil || !reflect.DeepEqual(last, again) {
		t.Errorf("%s: written as %x, then as %x (%v)", c.ID, again, last, err)
	}
}
