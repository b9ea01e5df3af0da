package state

import (
	"hash/maphash"

	"github.com/tidemill/tidemill/internal/codec"
)

// Record is an entry of a [Table].
type Record[K comparable, V any] struct {
	Key   K
	Value V
}

// Table is an open-addressing hash table over a slice of records, which keeps
// the order in which keys came (Invariant 13). A map from key to index would cost a second
// look-up per new key, and a hash of every key at each growth.
type Table[K comparable, V any] struct {
	// slots hold the upper half of a key's hash in their upper half and the
	// number of its record, from 1, in their lower; 0 is empty. The lower half
	// of the hash decides the key group, so it says little within a partition.
	slots []uint64
	// Recs are the records in the order they were added.
	Recs []Record[K, V]
	used int // records that are in slots
	hash func(K) uint64
}

// minSlots is the size of the smallest table, a power of two.
const minSlots = 64

const tagMask = ^uint64(1<<32 - 1)

// NewTable returns an empty table with room for about want keys.
func NewTable[K comparable, V any](want int) *Table[K, V] {
	tb := &Table[K, V]{hash: tableHash[K]()}
	size := minSlots
	for size*3 < want*4 {
		size *= 2
	}
	tb.slots = make([]uint64, size)
	if want > 0 {
		tb.Recs = make([]Record[K, V], 0, want)
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

// Find returns the number of k's record, or -1 and the slot for [Table.Add].
func (tb *Table[K, V]) Find(k K) (rec int, slot uint64) {
	tag := tb.hash(k) & tagMask
	mask := uint64(len(tb.slots) - 1)
	at := tag >> 32 & mask
	for {
		s := tb.slots[at]
		if s == 0 {
			return -1, tag | at
		}
		if s&tagMask == tag {
			if i := int(uint32(s)) - 1; tb.Recs[i].Key == k {
				return i, 0
			}
		}
		at = (at + 1) & mask
	}
}

// Add puts a new key where Find said and returns its record, which is valid
// until the next Add.
func (tb *Table[K, V]) Add(slot uint64, k K, v V) *Record[K, V] {
	tb.Recs = append(tb.Recs, Record[K, V]{k, v})
	n := uint64(len(tb.Recs))
	tb.slots[uint32(slot)] = slot&tagMask | n
	if tb.used++; tb.used*4 > len(tb.slots)*3 {
		tb.resize(2 * len(tb.slots))
	}
	return &tb.Recs[n-1]
}

func (tb *Table[K, V]) resize(size int) {
	old := tb.slots
	tb.slots = make([]uint64, size)
	for _, s := range old {
		if s != 0 {
			tb.place(s)
		}
	}
}

func (tb *Table[K, V]) place(s uint64) {
	mask := uint64(len(tb.slots) - 1)
	at := s >> 32 & mask
	for tb.slots[at] != 0 {
		at = (at + 1) & mask
	}
	tb.slots[at] = s
}

// Unlink makes record i unreachable by its key; the record itself stays.
func (tb *Table[K, V]) Unlink(i int) {
	mask := uint64(len(tb.slots) - 1)
	at := tb.hash(tb.Recs[i].Key) >> 32 & mask
	for uint32(tb.slots[at]) != uint32(i+1) {
		if tb.slots[at] == 0 {
			panic("state: record is not linked")
		}
		at = (at + 1) & mask
	}
	// Close the gap: move back what would not be found across it.
	for next := (at + 1) & mask; tb.slots[next] != 0; next = (next + 1) & mask {
		home := tb.slots[next] >> 32 & mask
		if (next-home)&mask >= (next-at)&mask {
			tb.slots[at] = tb.slots[next]
			at = next
		}
	}
	tb.slots[at] = 0
	tb.used--
}

// Link makes record i reachable by its key again.
func (tb *Table[K, V]) Link(i int) {
	tb.place(tb.hash(tb.Recs[i].Key)&tagMask | uint64(i+1))
	if tb.used++; tb.used*4 > len(tb.slots)*3 {
		tb.resize(2 * len(tb.slots))
	}
}

// Compact drops the records for which keep returns false, unlinked or not, and
// keeps the order of the others.
func (tb *Table[K, V]) Compact(keep func(*V) bool) {
	n := 0
	for i := range tb.Recs {
		if keep(&tb.Recs[i].Value) {
			if n != i {
				tb.Recs[n] = tb.Recs[i]
			}
			n++
		}
	}
	clear(tb.Recs[n:])
	tb.Recs = tb.Recs[:n]
	if cap(tb.Recs) > 4*n+minSlots {
		tb.Recs = append(make([]Record[K, V], 0, n+n/4), tb.Recs...)
	}
	size := minSlots
	for size*3 < n*4 {
		size *= 2
	}
	if size == len(tb.slots) {
		clear(tb.slots)
	} else {
		tb.slots = make([]uint64, size)
	}
	for i := range tb.Recs {
		tb.place(tb.hash(tb.Recs[i].Key)&tagMask | uint64(i+1))
	}
	tb.used = n
}

// Reset empties the table and keeps its memory.
func (tb *Table[K, V]) Reset() {
	clear(tb.slots)
	clear(tb.Recs)
	tb.Recs, tb.used = tb.Recs[:0], 0
}
