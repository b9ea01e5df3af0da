package state

import (
	"cmp"
	"slices"

	"github.com/tidemill/tidemill/internal/base"
)

// timers lists every record once, in the bucket of a time at or before its
// last update. It changes at commits only, so a rollback has nothing to undo,
// and a refresh costs nothing: when a bucket is due, its records are moved to
// where they belong by then.
type timers []timerBucket // ascending

type timerBucket struct {
	at   base.BatchTime
	recs []uint32
}

func (t *timers) add(at base.BatchTime, rec int) {
	i := len(*t) - 1
	if i < 0 || (*t)[i].at != at { // most come at the newest time
		i = t.search(at)
		if i == len(*t) || (*t)[i].at != at {
			*t = slices.Insert(*t, i, timerBucket{at: at})
		}
	}
	b := &(*t)[i]
	b.recs = append(b.recs, uint32(rec))
}

func (t *timers) search(at base.BatchTime) int {
	i, _ := slices.BinarySearchFunc(*t, at, func(b timerBucket, at base.BatchTime) int { return cmp.Compare(b.at, at) })
	return i
}

// due returns the buckets before cutoff.
func (t *timers) due(cutoff base.BatchTime) []timerBucket { return (*t)[:t.search(cutoff)] }

// take removes the buckets before cutoff and returns them.
func (t *timers) take(cutoff base.BatchTime) []timerBucket {
	out := slices.Clone(t.due(cutoff))
	*t = slices.Delete(*t, 0, len(out))
	return out
}
