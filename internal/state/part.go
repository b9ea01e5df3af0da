package state

import (
	"github.com/tidemill/tidemill/internal/base"
)

// Part is the state of one operator in one partition, without its types. It
// belongs to one goroutine at a time.
type Part interface {
	// Version is the time of the last finished batch, 0 before the first.
	Version() base.BatchTime
	// Running is the time of the batch that was begun and not finished, else 0.
	Running() base.BatchTime
	Begin(t base.BatchTime)
	// Delta encodes what the running batch changed. If full, data is a snapshot of
	// the running batch and takes the place of all files before, which it can't be
	// merged with.
	Delta() (data []byte, full bool, err error)
	Commit()
	Rollback()
	// Snapshot encodes the version. Call it while no batch runs.
	Snapshot() ([]byte, error)
	// Restore takes in a snapshot, or none, and all deltas after it, in order.
	// Call it on a Part that is new; after an error it is good for nothing.
	Restore(files [][]byte) error
	// Len is the number of keys.
	Len() int
}

// Keyed makes a Part of a Map.
type Keyed[K comparable, S any] struct{ *Map[K, S] }

// Restore implements [Part].
func (k Keyed[K, S]) Restore(files [][]byte) error {
	var o order
	for _, f := range files {
		if err := k.Load(f, nil); err != nil {
			return err
		}
		if err := o.next(f); err != nil {
			return err
		}
	}
	return k.Loaded(false)
}

// Gather takes in the files of all partitions of an operator that was cut into
// another number of them, and keeps the keys that belong here. It is called as
// Restore is.
func (k Keyed[K, S]) Gather(partitions [][][]byte, here func(K) bool) error {
	for _, files := range partitions {
		var o order
		for _, f := range files {
			if err := k.Load(f, here); err != nil {
				return err
			}
			if err := o.next(f); err != nil {
				return err
			}
		}
	}
	return k.Loaded(true)
}
