package rdd

import (
	"strconv"

	"github.com/tidemill/tidemill/internal/codec"
)

// KeyGroups is the fixed number of key groups. A hash partitioner gives each
// partition a contiguous range of them, so that a change of the partition
// count moves whole groups.
const KeyGroups = 1024

// Partitioner says in which partition a key lives. Two partitioners with the
// same name must place all keys alike.
type Partitioner[K comparable] struct {
	name  string
	parts int
	of    func(K) int
}

// Hash spreads keys over parts partitions by key group. Keys are equal as Go
// says (==): -0 is 0, and every NaN is a key of its own. Keys must not hold
// pointers or times, whose equality does not survive a trip between processes.
func Hash[K comparable](parts int) Partitioner[K] {
	mustParts("hash partitioner", parts)
	h := codec.Hasher[K]()
	return Partitioner[K]{
		name: "hash/" + strconv.Itoa(parts), parts: parts,
		of: func(k K) int { return int(h(k)%KeyGroups) * parts / KeyGroups },
	}
}

// PartitionBy places keys by f, which must be deterministic and return a
// number from 0 to parts-1 (Invariant 11).
func PartitionBy[K comparable](name string, parts int, f func(K) int) Partitioner[K] {
	mustParts("partitioner "+strconv.Quote(name), parts)
	// Quoted, so that no name is that of the hash partitioner.
	return Partitioner[K]{name: strconv.Quote(name) + "/" + strconv.Itoa(parts), parts: parts, of: f}
}

// Parts returns the number of partitions.
func (p Partitioner[K]) Parts() int { return p.parts }

// Name returns the name that stands for the placement, with the count.
func (p Partitioner[K]) Name() string { return p.name }

// IsZero reports whether p was never set.
func (p Partitioner[K]) IsZero() bool { return p.of == nil }
