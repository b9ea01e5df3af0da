package codec

import (
	"math"
	"reflect"

	"github.com/cespare/xxhash/v2"
)

// Hasher returns the hash of keys that decides their key group: equal keys
// have equal hashes in every process and version. So -0 hashes as 0; NaNs,
// which equal nothing, hash by their bits.
func Hasher[K comparable]() func(K) uint64 {
	var h any
	switch any((*K)(nil)).(type) {
	case *string:
		h = xxhash.Sum64String
	case *int:
		h = func(k int) uint64 { return mix(uint64(k)) }
	case *int64:
		h = func(k int64) uint64 { return mix(uint64(k)) }
	case *int32:
		h = func(k int32) uint64 { return mix(uint64(k)) }
	case *uint64:
		h = mix
	case *bool:
		h = func(k bool) uint64 {
			if k {
				return mix(1)
			}
			return mix(0)
		}
	case *float64:
		h = func(k float64) uint64 {
			if k == 0 {
				k = 0 // -0 equals 0, so it must hash alike
			}
			return mix(math.Float64bits(k))
		}
	default:
		c := For[K]()
		floats := reaches(reflect.TypeFor[K](), func(t reflect.Type) bool {
			return t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64
		})
		return func(k K) uint64 {
			if floats {
				plus := k
				plusZero(reflect.ValueOf(&plus).Elem())
				k = plus
			}
			b, err := c.Append(nil, k)
			if err != nil {
				panic(err.Error()) // contained as a task failure by the caller
			}
			return xxhash.Sum64(b)
		}
	}
	return h.(func(K) uint64)
}

// mix spreads the bits of an integer key (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Digest is a hash over a sequence of records, used to compare what two
// attempts of a task produced (Invariant 13).
type Digest[T any] struct {
	c   *Codec[T]
	h   xxhash.Digest
	buf []byte
	n   int64
}

// NewDigest returns the digest of an empty sequence.
func NewDigest[T any](c *Codec[T]) *Digest[T] {
	d := &Digest[T]{c: c}
	d.h.Reset()
	return d
}

// Add takes the next record in.
func (d *Digest[T]) Add(v T) error {
	b, err := d.c.Append(d.buf[:0], v)
	if err != nil {
		return err
	}
	d.buf = b
	_, _ = d.h.Write(b)
	d.n++
	return nil
}

// Sum returns the hash so far.
func (d *Digest[T]) Sum() uint64 { return d.h.Sum64() ^ mix(uint64(d.n)) }
