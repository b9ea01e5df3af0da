package state_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/state"
)

// TestTableEqualsAMap with good hashes, and with some that have few or one
// upper half.
func TestTableEqualsAMap(t *testing.T) {
	hashes := map[string]func(int) uint64{
		"own":        nil,
		"one":        func(int) uint64 { return 1<<63 | 7 },
		"last slots": func(k int) uint64 { return uint64(k%3+62) << 32 }, // probing wraps around
		"four":       func(k int) uint64 { return uint64(k%4) << 62 },
		"all lower":  func(k int) uint64 { return uint64(k) },
	}
	for name, hash := range hashes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { runTable(t, hash) })
		})
	}
}

type tableEntry struct {
	val  int
	dead bool
}

func runTable(t *rapid.T, hash func(int) uint64) {
	tb := state.NewTable[int, tableEntry](rapid.SampledFrom([]int{0, 1, 48, 49, 200}).Draw(t, "room"))
	if hash != nil {
		tb.SetHash(hash)
	}
	oracle := map[int]int{}
	var order []int // keys of all records; those that are unlinked are negative
	key := rapid.IntRange(1, 90)
	find := func(k int) int { i, _ := tb.Find(k); return i }
	add := func(k, v int) {
		i, slot := tb.Find(k)
		if i >= 0 {
			if r := &tb.Recs[i].Value; r.val != oracle[k] {
				t.Fatalf("key %d is %d, want %d", k, r.val, oracle[k])
			}
			tb.Recs[i].Value.val = v
		} else {
			r := tb.Add(slot, k, tableEntry{val: v})
			if r.Key != k {
				t.Fatalf("Add returned the record of %d", r.Key)
			}
			order = append(order, k)
		}
		oracle[k] = v
	}
	unlink := func(i int) {
		k := tb.Recs[i].Key
		tb.Unlink(i)
		tb.Recs[i].Value.dead = true
		delete(oracle, k)
		order[i] = -k
	}
	t.Repeat(map[string]func(*rapid.T){
		"add": func(t *rapid.T) {
			for range rapid.IntRange(1, 20).Draw(t, "n") {
				add(key.Draw(t, "key"), key.Draw(t, "value"))
			}
		},
		"unlink": func(t *rapid.T) {
			for range rapid.IntRange(1, 20).Draw(t, "n") {
				if i := find(key.Draw(t, "key")); i >= 0 {
					unlink(i)
				}
			}
		},
		"link": func(t *rapid.T) {
			for i, k := range order {
				if k < 0 && find(-k) < 0 && rapid.Bool().Draw(t, "back") {
					tb.Link(i)
					tb.Recs[i].Value.dead = false
					oracle[-k], order[i] = tb.Recs[i].Value.val, -k
				}
			}
		},
		"compact": func(*rapid.T) {
			tb.Compact(func(v *tableEntry) bool { return !v.dead })
			n := 0
			for _, k := range order {
				if k > 0 {
					order[n] = k
					n++
				}
			}
			order = order[:n]
		},
		"reset": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
				tb.Reset()
				clear(oracle)
				order = nil
			}
		},
		"": func(t *rapid.T) {
			if len(tb.Recs) != len(order) {
				t.Fatalf("%d records, want %d", len(tb.Recs), len(order))
			}
			for i, k := range order {
				if r := tb.Recs[i]; r.Key != max(k, -k) || r.Value.dead != (k < 0) {
					t.Fatalf("record %d is of key %d, dead %t, want %d", i, r.Key, r.Value.dead, k)
				}
			}
			tb.Warm([]int{1, 2, 3, 0}) // changes nothing
			for k := range 91 {
				v, ok := oracle[k]
				if i := find(k); (i >= 0) != ok || ok && tb.Recs[i].Value.val != v {
					t.Fatalf("Find(%d) = %d, want %d, %t", k, i, v, ok)
				}
			}
			if 4*len(oracle) > 3*tb.Slots() {
				t.Fatalf("%d keys in %d slots", len(oracle), tb.Slots())
			}
		},
	})
}

func TestUnlinkOfWhatIsNotLinkedIsABug(t *testing.T) {
	tb := state.NewTable[int, int](0)
	_, slot := tb.Find(1)
	tb.Add(slot, 1, 1)
	tb.Unlink(0)
	if msg := panicOf(func() { tb.Unlink(0) }); !strings.Contains(msg, "not linked") {
		t.Errorf("panics with %q", msg)
	}
}

// TestEqualHashesEnd: a few thousand keys whose hashes are the same take time,
// not for ever.
func TestEqualHashesEnd(t *testing.T) {
	tb := state.NewTable[int, int](0)
	tb.SetHash(func(k int) uint64 { return 5<<32 | uint64(k) })
	for k := range 3000 {
		i, slot := tb.Find(k)
		if i >= 0 {
			t.Fatalf("found %d", k)
		}
		tb.Add(slot, k, k)
	}
	for k := 0; k < 3000; k += 2 {
		tb.Unlink(k)
	}
	for k := range 3000 {
		if i, _ := tb.Find(k); i != k && k%2 == 1 || i != -1 && k%2 == 0 {
			t.Fatalf("Find(%d) = %d", k, i)
		}
	}
}

// TestTableGivesMemoryBack when most of its records are gone.
func TestTableGivesMemoryBack(t *testing.T) {
	tb := state.NewTable[string, int](0)
	for k := range 10_000 {
		_, slot := tb.Find(fmt.Sprint(k))
		tb.Add(slot, fmt.Sprint(k), k)
	}
	for i := 10; i < 10_000; i++ {
		tb.Unlink(i)
	}
	tb.Compact(func(v *int) bool { return *v < 10 })
	if len(tb.Recs) != 10 || cap(tb.Recs) > 100 || tb.Slots() != 64 {
		t.Errorf("%d records, room for %d, %d slots", len(tb.Recs), cap(tb.Recs), tb.Slots())
	}
}

// TestTableSizeFollowsItsKeys, not how often they came and went.
func TestTableSizeFollowsItsKeys(t *testing.T) {
	for name, empty := range map[string]func(*state.Table[int, int]){
		"unlink": func(tb *state.Table[int, int]) {
			for i := range tb.Recs {
				if tb.Recs[i].Value == 1 {
					tb.Unlink(i)
					tb.Recs[i].Value = 0
				}
			}
		},
		"compact": func(tb *state.Table[int, int]) {
			tb.Compact(func(*int) bool { return false })
		},
		"reset": func(tb *state.Table[int, int]) { tb.Reset() },
		"unlink and link": func(tb *state.Table[int, int]) {
			for range 50 {
				for i := range tb.Recs {
					tb.Unlink(i)
				}
				for i := range tb.Recs {
					tb.Link(i)
				}
			}
			tb.Reset()
		},
	} {
		tb := state.NewTable[int, int](0)
		for range 20 {
			for k := range 40 {
				_, slot := tb.Find(k)
				tb.Add(slot, k, 1)
			}
			if tb.Slots() != 64 {
				t.Fatalf("%s: %d slots for 40 keys", name, tb.Slots())
			}
			empty(tb)
		}
	}
}
