package rdd

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/tidemill/tidemill/internal/codec"
)

// table combines values by key and remembers the order in which keys came,
// which is the order it emits them in (Invariant 13). It is an open-addressing
// hash table over a slice: a map would cost a second look-up per new key, a
// hash of every key at each growth, and an order of its own to be kept.
type table[K comparable, C any] struct {
	// slots hold the upper half of a key's hash in their upper half and the
	// number of its record, from 1, in their lower; 0 is empty. The lower half
	// of the hash decides the key group, so it says little within a partition.
	slots []uint64
	recs  []Pair[K, C]
	hash  func(K) uint64
}

// minSlots is the size of the smallest table, a power of two.
const minSlots = 64

// newTable returns an empty table with room for about want keys.
func newTable[K comparable, C any](want int) *table[K, C] {
	tb := &table[K, C]{hash: tableHash[K]()}
	size := minSlots
	for size*3 < want*4 {
		size *= 2
	}
	tb.slots = make([]uint64, size)
	if want > 0 {
		tb.recs = make([]Pair[K, C], 0, want)
	}
	return tb
}

// tableHash is the hash of keys within one table. It need not be the same
// elsewhere, as that of partitioners must, so it may be seeded, which costs no
// encoding of composite keys and keeps NaN keys, which equal nothing, apart.
func tableHash[K comparable]() func(K) uint64 {
	switch any((*K)(nil)).(type) {
	case *string, *int, *int64, *int32, *uint64:
		return codec.Hasher[K]()
	}
	seed := maphash.MakeSeed()
	return func(k K) uint64 { return maphash.Comparable(seed, k) }
}

// find returns the number of k's record, or -1 and the slot for [table.add].
func (tb *table[K, C]) find(k K) (rec int, slot uint64) {
	tag := tb.hash(k) &^ (1<<32 - 1)
	mask := uint64(len(tb.slots) - 1)
	at := tag >> 32 & mask
	for {
		s := tb.slots[at]
		if s == 0 {
			return -1, tag | at
		}
		if s&^(1<<32-1) == tag {
			if i := int(uint32(s)) - 1; tb.recs[i].Key == k {
				return i, 0
			}
		}
		at = (at + 1) & mask
	}
}

// add puts a new key where find said.
func (tb *table[K, C]) add(slot uint64, k K, v C) *Pair[K, C] {
	tb.recs = append(tb.recs, Pair[K, C]{k, v})
	n := uint64(len(tb.recs))
	tb.slots[uint32(slot)] = slot&^(1<<32-1) | n
	if n*4 > uint64(len(tb.slots))*3 {
		tb.grow()
	}
	return &tb.recs[n-1]
}

func (tb *table[K, C]) grow() {
	old := tb.slots
	tb.slots = make([]uint64, 2*len(old))
	mask := uint64(len(tb.slots) - 1)
	for _, s := range old {
		if s == 0 {
			continue
		}
		at := s >> 32 & mask
		for tb.slots[at] != 0 {
			at = (at + 1) & mask
		}
		tb.slots[at] = s
	}
}

// reset empties the table and keeps its memory.
func (tb *table[K, C]) reset() {
	clear(tb.slots)
	clear(tb.recs)
	tb.recs = tb.recs[:0]
}

// sizeHint remembers how many keys the tasks of a node met, so that the next
// one's table starts large enough. It changes no record.
type sizeHint struct{ keys atomic.Int64 }

func (h *sizeHint) get() int { return int(h.keys.Load()) }

func (h *sizeHint) met(n int) {
	if int64(n) > h.keys.Load() {
		h.keys.Store(int64(n))
	}
}
