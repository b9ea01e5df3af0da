package state_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
)

// TestStateDoesNotGrowWithEvents runs three million random events over 30,000
// keys, with rollbacks and a restore, against a plain map and list.
func TestStateDoesNotGrowWithEvents(t *testing.T) {
	const keys, events, perBatch = 30_000, 3_000_000, 10_000
	r := rand.New(rand.NewPCG(1, 2))
	m := newKeyed[int64, int64](true)
	oracle := make(map[int64]int64, keys)
	var first, most uint64
	events1 := func(apply bool) {
		for range perBatch {
			k, v := r.Int64N(keys), r.Int64()
			rec, ok := m.Find(k)
			switch {
			case !ok:
				m.Insert(k, v)
			case v%4 == 0:
				m.Remove(rec)
			case v%4 == 1:
				m.Refresh(rec)
				continue
			default:
				m.Set(rec, v)
			}
			if apply {
				if ok && v%4 == 0 {
					delete(oracle, k)
				} else {
					oracle[k] = v
				}
			}
		}
	}
	for now := base.BatchTime(1); now <= events/perBatch; now++ {
		if now%50 == 0 {
			m.Begin(now)
			events1(false) // and again
		}
		m.Begin(now)
		events1(true)
		if now%10 == 0 {
			nextDelta(m)
		}
		m.Expired(now - 100)
		m.Commit()
		switch {
		case now == 100_000/perBatch:
			first = heap()
		case now%50 == 0:
			most = max(most, heap())
		}
		if now == 150 {
			snap := must(m.Snapshot())
			m = newKeyed[int64, int64](true)
			if err := m.Restore([][]byte{snap}); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("heap %d KiB after 100,000 events, %d KiB at most later; %d keys, %d records", first>>10, most>>10, m.Len(), m.Records())
	if most > first*3/2 {
		t.Errorf("heap grew from %d to %d bytes", first, most)
	}
	if m.Len() != len(oracle) {
		t.Fatalf("%d keys, want %d", m.Len(), len(oracle))
	}
	m.Each(func(rec int) bool {
		if v, ok := oracle[m.Key(rec)]; !ok || v != m.Peek(rec) {
			t.Fatalf("key %d is %d, want %d, %t", m.Key(rec), m.Peek(rec), v, ok)
		}
		return true
	})
	runtime.KeepAlive(oracle)
}

// TestCompactionKeepsTheOrder of entries, and what is found by time.
func TestCompactionKeepsTheOrder(t *testing.T) {
	m := newKeyed[int64, int64](true)
	var order []int64
	compacted := 0
	for now := base.BatchTime(1); now <= 60; now++ {
		m.Begin(now)
		for i := range int64(500) {
			m.Insert(int64(now)*1000+i, i)
			order = append(order, int64(now)*1000+i)
		}
		gone := m.Expired(now - 1)
		for _, rec := range gone {
			m.Remove(rec)
		}
		order = order[len(gone):]
		before := m.Records()
		m.Commit()
		if m.Records() < before {
			compacted++
		}
		var got []int64
		m.Each(func(rec int) bool { got = append(got, m.Key(rec)); return true })
		if !slices.Equal(got, order) {
			t.Fatalf("batch %d: another order", now)
		}
	}
	if compacted < 10 || len(order) != 1000 {
		t.Errorf("compacted %d times, %d keys", compacted, len(order))
	}
}
