package state_test

import (
	"fmt"
	"maps"
	"runtime"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/state"
)

const second base.BatchTime = 1000

// record is a state of type struct with references.
type record struct {
	Name  string
	Count int
	Tags  []string
	By    map[string]int
}

// words is a state of type struct that can't be changed through a copy.
type words struct{ First, Last string }

// kind is what tests must know of a type of values.
type kind[S any] struct {
	draw func(t *rapid.T) S
	// mutate changes a value through its references, as far as it has any, in
	// the way that n says.
	mutate func(n int, v S)
}

var vocabulary = []string{"", "a", "b", "tide", "mill"}

func kinds() (kind[int64], kind[string], kind[words], kind[[]string], kind[map[string]int], kind[record]) {
	word := rapid.SampledFrom(vocabulary)
	number := rapid.IntRange(-3, 3)
	slice := kind[[]string]{
		draw: func(t *rapid.T) []string {
			n := number.Draw(t, "length")
			if n < 0 {
				return nil
			}
			v := make([]string, n)
			for i := range v {
				v[i] = word.Draw(t, "word")
			}
			return v
		},
		mutate: func(n int, v []string) {
			if len(v) > 0 {
				v[n%len(v)] = vocabulary[n%len(vocabulary)]
			}
		},
	}
	table := kind[map[string]int]{
		draw: func(t *rapid.T) map[string]int {
			v := map[string]int{}
			for range number.Draw(t, "length") {
				v[word.Draw(t, "word")] = number.Draw(t, "number")
			}
			return v
		},
		mutate: func(n int, v map[string]int) {
			if w := vocabulary[n%len(vocabulary)]; n%2 == 0 {
				delete(v, w)
			} else {
				v[w] = n
			}
		},
	}
	return kind[int64]{func(t *rapid.T) int64 { return int64(number.Draw(t, "number")) }, func(int, int64) {}},
		kind[string]{func(t *rapid.T) string { return word.Draw(t, "word") }, func(int, string) {}},
		kind[words]{func(t *rapid.T) words { return words{word.Draw(t, "first"), word.Draw(t, "last")} }, func(int, words) {}},
		slice, table,
		kind[record]{
			func(t *rapid.T) record {
				return record{word.Draw(t, "name"), number.Draw(t, "count"), slice.draw(t), table.draw(t)}
			},
			func(n int, v record) { slice.mutate(n, v.Tags); table.mutate(n, v.By) },
		}
}

// buffer holds strings until it is overwritten, as a pooled input buffer does.
type buffer struct{ all [][]byte }

func (b *buffer) string(s string) string {
	if s == "" {
		return s
	}
	c := []byte(s)
	b.all = append(b.all, c)
	return unsafe.String(&c[0], len(c))
}

func (b *buffer) overwrite() {
	for _, c := range b.all {
		for i := range c {
			c[i] = '#'
		}
	}
	b.all = nil
}

// lend returns a deep copy of v whose strings are views of the buffer, and what
// overwrites its other references.
func lend[S any](b *buffer, v S) (S, func()) {
	none := func() {}
	switch v := any(v).(type) {
	case string:
		return any(b.string(v)).(S), none
	case words:
		return any(words{b.string(v.First), b.string(v.Last)}).(S), none
	case []string:
		if v == nil {
			break
		}
		c := make([]string, len(v))
		for i := range v {
			c[i] = b.string(v[i])
		}
		return any(c).(S), func() { clear(c) }
	case map[string]int:
		c := maps.Clone(v)
		return any(c).(S), func() { c["overwritten"] = 1 }
	case record:
		tags, clearTags := lend(b, v.Tags)
		by, clearBy := lend(b, v.By)
		return any(record{b.string(v.Name), v.Count, tags, by}).(S), func() {
			clearTags()
			if by != nil {
				clearBy()
			}
		}
	}
	return v, none
}

func newKeyed[K comparable, S any](timed bool) state.Keyed[K, S] {
	return state.Keyed[K, S]{Map: state.NewMap(codec.For[K](), codec.For[S](), timed)}
}

// must returns v.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// nextDelta returns a delta that goes behind the files before it.
func nextDelta(p interface {
	Delta() (data []byte, full bool, err error)
},
) []byte {
	data, full, err := p.Delta()
	if err != nil || full {
		panic(fmt.Sprint("a full delta: ", full, ", error ", err))
	}
	return data
}

// tb is what *testing.T and *rapid.T have in common.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// heap returns the bytes in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// panicOf returns what f panics with.
func panicOf(f func()) (msg string) {
	defer func() {
		if r := recover(); r != nil {
			msg = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

var _ tb = (*testing.T)(nil)
