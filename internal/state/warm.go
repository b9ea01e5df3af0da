package state

import "iter"

// WarmBatch is how many keys are worth warming at once: enough for their cache
// misses to overlap, few enough to stay in the first cache.
const WarmBatch = 32

// Warm brings the entries of up to [WarmBatch] keys close to the processor.
// A look-up in a large table waits for memory three times in a row, for the
// slot, the record and the bytes of its key; the waits of independent keys
// overlap when the steps are taken for all of them together. It changes
// nothing, and returns how many keys were found at the first try.
func (tb *Table[K, V]) Warm(keys []K) (found int) {
	var at [WarmBatch]uint64
	keys = keys[:min(len(keys), WarmBatch)]
	mask := uint64(len(tb.slots) - 1)
	for i, k := range keys {
		at[i] = tb.hash(k) >> 32 & mask
	}
	for i := range keys {
		at[i] = uint64(uint32(tb.slots[at[i]]))
	}
	for i := range keys {
		// Record 0 stands for an empty slot: any record will do.
		if n := max(at[i], 1); n <= uint64(len(tb.Recs)) && tb.Recs[n-1].Key == keys[i] {
			found++
		}
	}
	return found
}

// Warm is [Table.Warm] for the entries of the state.
func (m *Map[K, S]) Warm(keys []K) { m.tb.Warm(keys) }

// warmed ranges over the records of a table whose keys are then looked up in m.
func warmed[K comparable, V, S any](m *Map[K, S], tb *Table[K, V]) iter.Seq[*Record[K, V]] {
	return func(yield func(*Record[K, V]) bool) {
		var keys [WarmBatch]K
		for at := 0; at < len(tb.Recs); at += WarmBatch {
			recs := tb.Recs[at:min(at+WarmBatch, len(tb.Recs))]
			for i := range recs {
				keys[i] = recs[i].Key
			}
			m.Warm(keys[:len(recs)])
			for i := range recs {
				if !yield(&recs[i]) {
					return
				}
			}
		}
	}
}
