package codec_test

import (
	"math"
	"testing"

	"github.com/tidemill/tidemill/internal/codec"
)

// TestHashesNeverChange: key groups of kept state depend on them.
func TestHashesNeverChange(t *testing.T) {
	type key struct {
		Name string
		At   float64
	}
	for name, test := range map[string]struct{ got, want uint64 }{
		"string empty": {codec.Hasher[string]()(""), 0xef46db3751d8e999},
		"string":       {codec.Hasher[string]()("tide"), 0x557e0ef432f5e5e7},
		"int 0":        {codec.Hasher[int]()(0), 0},
		"int 1":        {codec.Hasher[int]()(1), 0x5692161d100b05e5},
		"int -1":       {codec.Hasher[int]()(-1), 0xb4d055fcf2cbbd7b},
		"int64 -1":     {codec.Hasher[int64]()(-1), 0xb4d055fcf2cbbd7b},
		"int32 -1":     {codec.Hasher[int32]()(-1), 0xb4d055fcf2cbbd7b},
		"uint64 max":   {codec.Hasher[uint64]()(math.MaxUint64), 0xb4d055fcf2cbbd7b},
		"bool false":   {codec.Hasher[bool]()(false), 0},
		"bool true":    {codec.Hasher[bool]()(true), 0x5692161d100b05e5},
		"float 0":      {codec.Hasher[float64]()(0), 0},
		"float 1.5":    {codec.Hasher[float64]()(1.5), 0xe72b41d4576e3468},
		"word":         {codec.Hasher[word]()("tide"), 0x5c765afcb30e9d60},
		"uint8":        {codec.Hasher[uint8]()(7), 0x5fb3ee9c15a7cb5b},
		"array":        {codec.Hasher[[2]int]()([2]int{1, -2}), 0xfceaba517546ef91},
		"struct":       {codec.Hasher[key]()(key{"tide", 0}), 0xc481cb91e44f81d8},
	} {
		if test.got != test.want {
			t.Errorf("%s: hash %#x, was %#x", name, test.got, test.want)
		}
	}
}

// Keys that are equal must be in one partition; those with a float inside a
// struct, an array or a named type hashed by their bits.
func TestEqualKeysHashAlike(t *testing.T) {
	zero, minus := 0.0, math.Copysign(0, -1)
	type key struct {
		Name string
		At   [1]float64
	}
	for name, hash := range map[string]func(float64) uint64{
		"float64": codec.Hasher[float64](),
		"float32": func(f float64) uint64 { return codec.Hasher[float32]()(float32(f)) },
		"named":   func(f float64) uint64 { return codec.Hasher[celsius]()(celsius(f)) },
		"array":   func(f float64) uint64 { return codec.Hasher[[2]float64]()([2]float64{1, f}) },
		"struct":  func(f float64) uint64 { return codec.Hasher[key]()(key{"k", [1]float64{f}}) },
	} {
		if hash(zero) != hash(minus) {
			t.Errorf("%s: 0 and -0 hash apart", name)
		}
		if hash(zero) == hash(1) {
			t.Errorf("%s: 0 and 1 hash alike", name)
		}
		nan := math.NaN()
		if first, again := hash(nan), hash(nan); first != again {
			t.Errorf("%s: a NaN hashes differently each time", name)
		}
	}
}

func TestHashSpreadsKeysOverKeyGroups(t *testing.T) {
	const groups, keys = 1024, 1 << 16
	var ints, strings [groups]int
	hi, hs := codec.Hasher[int](), codec.Hasher[string]()
	for i := range keys {
		ints[hi(i*1000)%groups]++
		strings[hs(string([]byte{byte(i), byte(i >> 8)}))%groups]++
	}
	for name, counts := range map[string][groups]int{"int": ints, "string": strings} {
		for g, n := range counts {
			if n < keys/groups/3 || n > keys/groups*3 {
				t.Errorf("%s: group %d has %d keys, want about %d", name, g, n, keys/groups)
			}
		}
	}
}
