package state_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/state"
)

func expired(m state.Keyed[string, int64], cutoff base.BatchTime) (keys []string) {
	for _, rec := range m.Expired(cutoff) {
		keys = append(keys, m.Key(rec))
	}
	return keys
}

func wantExpired(t *testing.T, m state.Keyed[string, int64], cutoff base.BatchTime, want ...string) {
	t.Helper()
	if got := expired(m, cutoff); !slices.Equal(got, want) {
		t.Errorf("before %d: %q, want %q", cutoff, got, want)
	}
}

func TestExpiryIsStrictlyBeforeAndOldestFirst(t *testing.T) {
	m := newKeyed[string, int64](true)
	m.Begin(1000)
	m.Insert("b", 1)
	m.Insert("a", 1)
	m.Commit()
	m.Begin(2000)
	m.Insert("c", 1)
	m.Set(0, 2)
	m.Commit()
	m.Begin(3000)
	wantExpired(t, m, 1000)
	wantExpired(t, m, 1001, "a")
	wantExpired(t, m, 2000, "a")
	wantExpired(t, m, 2001, "a", "b", "c")
}

// TestRefreshSurvivesARestore: a key that is only read is not idle, also after
// the files were read.
func TestRefreshSurvivesARestore(t *testing.T) {
	m := newKeyed[string, int64](true)
	m.Begin(1000)
	m.Insert("read", 1)
	m.Insert("idle", 1)
	files := [][]byte{nextDelta(m)}
	m.Commit()
	m.Begin(2000)
	m.Refresh(0)
	files = append(files, nextDelta(m))
	m.Commit()
	for _, files := range [][][]byte{files, {must(m.Snapshot())}, {must(state.Merge(files))}} {
		again := newKeyed[string, int64](true)
		if err := again.Restore(files); err != nil {
			t.Fatal(err)
		}
		again.Begin(3000)
		wantExpired(t, again, 2000, "idle")
		wantExpired(t, again, 2001, "idle", "read")
	}
}

// TestKeyRemovedWhenDueExpiresAfterARollback: it was dropped from the index,
// and a rollback brought back only the key.
func TestKeyRemovedWhenDueExpiresAfterARollback(t *testing.T) {
	m := newKeyed[string, int64](true)
	m.Begin(1000)
	m.Insert("a", 1)
	m.Commit()
	m.Begin(5000)
	m.Remove(0)
	wantExpired(t, m, 2000)
	m.Rollback()
	m.Begin(5000)
	wantExpired(t, m, 2000, "a")
}

// TestKeyRefreshedWhenDueTwiceExpiresOnce: a batch that was run again listed
// the key twice.
func TestKeyRefreshedWhenDueTwiceExpiresOnce(t *testing.T) {
	m := newKeyed[string, int64](true)
	m.Begin(1000)
	m.Insert("a", 1)
	m.Commit()
	for range 3 {
		m.Begin(5000)
		m.Refresh(0)
		wantExpired(t, m, 2000)
	}
	m.Commit()
	m.Begin(9000)
	wantExpired(t, m, 6000, "a")
	if buckets, records := m.Timers(); buckets != 1 || records != 1 {
		t.Errorf("index has %d records in %d buckets", records, buckets)
	}
}

// TestTimerIndexIsBounded by the keys, not by their refreshes, comings and
// goings.
func TestTimerIndexIsBounded(t *testing.T) {
	const keys, batches, timeout = 1000, 2000, 50
	m := newKeyed[int64, int64](true)
	refreshes := 0
	for now := base.BatchTime(1); now <= batches; now++ {
		m.Begin(now)
		for k := range int64(keys) {
			if rec, ok := m.Find(k); ok {
				m.Refresh(rec)
				refreshes++
			} else {
				m.Insert(k, 1)
			}
		}
		for range 50 {
			k := keys + rand.Int64N(1_000_000)
			if _, ok := m.Find(k); !ok {
				m.Insert(k, 1)
			}
		}
		for _, rec := range m.Expired(now - timeout) {
			m.Remove(rec)
		}
		m.Commit()
		if now%7 == 0 { // a batch that fails
			m.Begin(now + 1)
			m.Each(func(rec int) bool { m.Set(rec, 2); return true })
			m.Expired(now)
			m.Rollback()
		}
		if buckets, records := m.Timers(); buckets > timeout+2 || records > m.Records() {
			t.Fatalf("%d records in %d buckets for %d entries with timeout %d", records, buckets, m.Records(), timeout)
		}
	}
	if refreshes < 1_900_000 {
		t.Errorf("only %d refreshes", refreshes)
	}
	if most := 2*m.Len() + 1100; m.Records() > most {
		t.Errorf("%d records for %d keys", m.Records(), m.Len())
	}
}
