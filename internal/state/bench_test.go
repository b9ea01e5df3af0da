package state_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/state"
)

const (
	benchKeys    = 1_000_000
	benchTouched = benchKeys / 100
)

func reportTouched(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchTouched, "ns/touched")
}

// benchState updates one key of a hundred in each batch, random ones, and makes
// a delta and a commit.
func benchState[K comparable, S any](b *testing.B, timed bool, key func(int) K, val func(int) S) {
	before := heap()
	m := newKeyed[K, S](timed)
	m.Begin(1)
	for i := range benchKeys {
		m.Insert(key(i), val(i))
	}
	m.Commit()
	perKey := float64(heap()-before) / benchKeys
	keys := touched(key)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		m.Begin(base.BatchTime(n + 2))
		for _, k := range keys[n%len(keys)] {
			rec, _ := m.Find(k)
			m.Open(rec)
			m.Set(rec, val(n))
		}
		nextDelta(m)
		m.Commit()
		n++
	}
	reportTouched(b)
	b.ReportMetric(perKey, "B/key")
	runtime.KeepAlive(m)
}

// touched draws the keys of some batches.
func touched[K any](key func(int) K) [20][]K {
	var out [20][]K
	for i := range out {
		for range benchTouched {
			out[i] = append(out[i], key(rand.IntN(benchKeys)))
		}
	}
	return out
}

func benchPlainMap[K comparable, S any](b *testing.B, key func(int) K, val func(int) S) {
	before := heap()
	m := map[K]S{}
	for i := range benchKeys {
		m[key(i)] = val(i)
	}
	perKey := float64(heap()-before) / benchKeys
	keys := touched(key)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for _, k := range keys[n%len(keys)] {
			if _, ok := m[k]; ok {
				m[k] = val(n)
			}
		}
		n++
	}
	reportTouched(b)
	b.ReportMetric(perKey, "B/key")
	runtime.KeepAlive(m)
}

// BenchmarkTouchOnePercent updates 10,000 of a million keys per batch, beside
// the same updates of a plain map.
func BenchmarkTouchOnePercent(b *testing.B) {
	number := func(i int) int64 { return int64(i) }
	text := func(i int) string { return fmt.Sprintf("key-%07d", i) }
	list := func(i int) []string { return []string{"some", "words"} }
	object := func(i int) record { return record{Name: "name", Count: i, Tags: []string{"a"}} }
	b.Run("int64-int64/state", func(b *testing.B) { benchState(b, false, number, number) })
	b.Run("int64-int64/timed", func(b *testing.B) { benchState(b, true, number, number) })
	b.Run("int64-int64/map", func(b *testing.B) { benchPlainMap(b, number, number) })
	b.Run("string-int64/state", func(b *testing.B) { benchState(b, false, text, number) })
	b.Run("string-int64/map", func(b *testing.B) { benchPlainMap(b, text, number) })
	b.Run("int64-slice/state", func(b *testing.B) { benchState(b, false, number, list) })
	b.Run("int64-slice/map", func(b *testing.B) { benchPlainMap(b, number, list) })
	b.Run("int64-struct/state", func(b *testing.B) { benchState(b, false, number, object) })
	b.Run("int64-struct/map", func(b *testing.B) { benchPlainMap(b, number, object) })
}

// BenchmarkRollback touches 10,000 of a million keys and rolls back.
func BenchmarkRollback(b *testing.B) {
	m := newKeyed[int64, int64](true)
	m.Begin(1)
	for i := range int64(benchKeys) {
		m.Insert(i, i)
	}
	m.Commit()
	keys := touched(func(i int) int64 { return int64(i) })
	n := 0
	for b.Loop() {
		m.Begin(2)
		for _, k := range keys[n%len(keys)] {
			rec, _ := m.Find(k)
			m.Set(rec, k+1)
		}
		m.Rollback()
		n++
	}
	reportTouched(b)
}

// BenchmarkMerge merges a snapshot of a million keys and 20 deltas.
func BenchmarkMerge(b *testing.B) {
	m := newKeyed[int64, int64](false)
	m.Begin(1)
	for i := range int64(benchKeys) {
		m.Insert(i, i)
	}
	m.Commit()
	files := [][]byte{must(m.Snapshot())}
	for i, keys := range touched(func(i int) int64 { return int64(i) }) {
		m.Begin(base.BatchTime(i + 2))
		for _, k := range keys {
			rec, _ := m.Find(k)
			m.Set(rec, k+int64(i))
		}
		files = append(files, nextDelta(m))
		m.Commit()
	}
	b.ReportAllocs()
	for b.Loop() {
		must(state.Merge(files))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchKeys, "ns/key")
}
