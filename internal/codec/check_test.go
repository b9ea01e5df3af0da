package codec_test

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/tidemill/tidemill/internal/codec"
)

type (
	list struct {
		Value int
		Next  *list
	}
	oneWay    struct{ A int }
	textOnly  int
	embedTime struct {
		time.Time
		N int
	}
	embedPointer struct{ *Open }
	embedFlat    struct {
		flat2
		Extra int
	}
	flat2 struct{ A int }
	Open  struct{ A int }
	opens struct {
		Open
		B int
	}
)

func (oneWay) EncodeMsgpack(e *msgpack.Encoder) error { return e.EncodeInt(1) }
func (textOnly) MarshalText() ([]byte, error)         { return nil, nil }

func TestCheckNamesTheField(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"func":       {codec.Check[struct{ F func() }](), []string{".F", "func"}},
		"chan":       {codec.Check[struct{ A struct{ C chan int } }](), []string{".C", "chan"}},
		"interface":  {codec.Check[struct{ V any }](), []string{".V", "interface"}},
		"error":      {codec.Check[[]error](), []string{"element", "interface"}},
		"complex":    {codec.Check[complex128](), []string{"complex128"}},
		"unexported": {codec.Check[struct{ A, b int }](), []string{".b", "not exported"}},
		"deep":       {codec.Check[map[string][]*struct{ X map[int]struct{ y int } }](), []string{".y", "not exported"}},
		"map key":    {codec.Check[map[any]int](), []string{"key", "interface"}},
		"map value":  {codec.Check[map[int]func()](), []string{"value", "func"}},
		"left out": {codec.Check[struct {
			A int `msgpack:"-"`
		}](), []string{".A", `msgpack:\"-\"`}},
		"one way":          {codec.Check[struct{ W oneWay }](), []string{".W", "CustomEncoder", "CustomDecoder"}},
		"text one way":     {codec.Check[textOnly](), []string{"TextMarshaler", "TextUnmarshaler"}},
		"pointer receiver": {codec.Check[map[string]byPointer](), []string{"value", "pointer receiver"}},
		"embedded time":    {codec.Check[embedTime](), []string{"embedTime", "time.Time"}},
		"embedded pointer": {codec.Check[embedPointer](), []string{"Open", "pointer"}},
		"embedded private": {codec.Check[embedFlat](), []string{"flat2", "not exported"}},
		"uintptr":          {codec.Check[struct{ P uintptr }](), []string{".P", "uintptr"}},
		"key pointer":      {codec.CheckKey[struct{ P *int }](), []string{"pointer"}},
		"key time":         {codec.CheckKey[time.Time](), []string{"time.Time"}},
		"key interface":    {codec.CheckKey[any](), []string{"interface"}},
	} {
		if test.err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(test.err.Error(), want) {
				t.Errorf("%s: error %q does not tell %q", name, test.err, want)
			}
		}
	}
}

func TestCheckAccepts(t *testing.T) {
	for name, err := range map[string]error{
		"recursive": codec.Check[list](),
		"big int":   codec.Check[big.Int](),
		"embedded":  codec.Check[opens](),
		"blank": codec.Check[struct {
			_msgpack struct{} `msgpack:",as_array"`
			A        int
		}](),
		"key":       codec.CheckKey[struct{ A, B string }](),
		"float key": codec.CheckKey[float64](),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("embedded", roundTrip(opens{Open{1}, 2}))
	t.Run("as array", roundTrip(struct {
		_msgpack struct{} `msgpack:",as_array"`
		A        int
		B        string
	}{A: 1, B: "x"}))
	t.Run("recursive", roundTrip(list{1, &list{2, nil}}))
}
