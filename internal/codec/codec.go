package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/tidemill/tidemill/internal/base"
)

// Codec is the encoding of one record type.
type Codec[T any] struct {
	// ID is written into frame headers and compared when they are read.
	ID string
	// Append adds the encoding of v to dst.
	Append func(dst []byte, v T) ([]byte, error)
	// Read decodes the first record of src and says how many bytes it took.
	// Strings and byte slices in the result may be views of src.
	Read func(src []byte) (v T, n int, err error)
	// Each decodes count records of src in order until yield returns false.
	// It reports whether yield stopped it. Nil means a loop over Read.
	Each func(src []byte, count int, yield func(T) bool) (stopped bool, err error)
	// Clone returns a deep copy that shares no memory with v.
	Clone func(v T) T
	// Plain says that values hold no references at all, so Clone is the identity.
	Plain bool
	// Immutable says that values can't be changed through a copy: plain values and strings.
	Immutable bool
}

// Composite is implemented by the engine's own generic record types, which
// know the codecs of their parts. TidemillCodec returns a *Codec of the type.
type Composite interface{ TidemillCodec() any }

// For returns the codec of T: by hand for strings, byte slices, integers,
// floats, bool and the engine's own pairs of those; else msgpack. Whether T
// can be encoded at all is said by [Check].
//
// What is read equals what was appended, since a record may or may not have
// been encoded on its way: a nil slice stays nil and an empty one empty, floats
// keep their bits. Of a [time.Time] only the instant is kept: it is read in
// UTC, without monotonic clock. Two pointers to one value become two values.
func For[T any]() *Codec[T] {
	var c any
	switch any((*T)(nil)).(type) {
	case *string:
		c = stringCodec
	case *[]byte:
		c = bytesCodec
	case *int:
		c = intCodec
	case *int64:
		c = int64Codec
	case *int32:
		c = int32Codec
	case *uint64:
		c = uint64Codec
	case *float64:
		c = float64Codec
	case *bool:
		c = boolCodec
	case *[]string:
		c = stringsCodec
	case *[]int:
		c = intsCodec
	case *[]int64:
		c = int64sCodec
	case *[]float64:
		c = float64sCodec
	default:
		var zero T
		if comp, ok := any(zero).(Composite); ok {
			c = comp.TidemillCodec()
		}
	}
	if c, ok := c.(*Codec[T]); ok { // not so for a type that embeds a composite
		return c
	}
	return msgpackCodec[T]()
}

var errShort = fmt.Errorf("%w: record ends early", base.ErrCorrupt)

// readLen reads a length prefix and checks it against what is there.
func readLen(src []byte) (n, head int, err error) {
	if len(src) > 0 && src[0] < 0x80 { // most records are short
		if n = int(src[0]); n > len(src)-1 {
			return 0, 0, errShort
		}
		return n, 1, nil
	}
	u, head := binary.Uvarint(src)
	if head <= 0 || u > uint64(len(src)-head) {
		return 0, 0, errShort
	}
	return int(u), head, nil
}

// lenOf is what is written for the length of a slice: 0 for nil, else one more
// than the length.
func lenOf[T any](v []T) uint64 {
	if v == nil {
		return 0
	}
	return uint64(len(v)) + 1
}

// readSliceLen reads what lenOf gave and checks that as many bytes follow. The
// length of a nil slice is -1.
func readSliceLen(src []byte) (n, head int, err error) {
	u, head := binary.Uvarint(src)
	if head <= 0 || u > uint64(len(src)-head)+1 {
		return 0, 0, errShort
	}
	return int(u) - 1, head, nil
}

var stringCodec = &Codec[string]{
	ID: "string",
	Append: func(dst []byte, v string) ([]byte, error) {
		return append(binary.AppendUvarint(dst, uint64(len(v))), v...), nil
	},
	Read: func(src []byte) (string, int, error) {
		n, head, err := readLen(src)
		if err != nil || n == 0 {
			return "", head, err
		}
		return unsafe.String(&src[head], n), head + n, nil
	},
	Each: func(src []byte, count int, yield func(string) bool) (bool, error) {
		for ; count > 0; count-- {
			n, head, err := readLen(src)
			if err != nil {
				return false, err
			}
			s := ""
			if n > 0 {
				s = unsafe.String(&src[head], n)
			}
			if !yield(s) {
				return true, nil
			}
			src = src[head+n:]
		}
		return false, trailing(src)
	},
	Clone:     strings.Clone,
	Immutable: true,
}

var bytesCodec = &Codec[[]byte]{
	ID: "bytes",
	Append: func(dst []byte, v []byte) ([]byte, error) {
		return append(binary.AppendUvarint(dst, lenOf(v)), v...), nil
	},
	Read: func(src []byte) ([]byte, int, error) {
		n, head, err := readSliceLen(src)
		if err != nil || n < 0 {
			return nil, head, err
		}
		return src[head : head+n : head+n], head + n, nil // capped: an append by user code copies (Invariant 15)
	},
	Clone: bytes.Clone,
}

var (
	intCodec   = signed[int]("int")
	int64Codec = signed[int64]("int64")
	int32Codec = signed[int32]("int32")
)

func signed[T int | int64 | int32](id string) *Codec[T] {
	return plain(id,
		func(dst []byte, v T) []byte { return binary.AppendVarint(dst, int64(v)) },
		func(src []byte) (T, int, error) {
			v, n := binary.Varint(src)
			if n <= 0 || int64(T(v)) != v {
				return 0, 0, fmt.Errorf("%w: bad %s", base.ErrCorrupt, id)
			}
			return T(v), n, nil
		})
}

var uint64Codec = plain("uint64",
	binary.AppendUvarint,
	func(src []byte) (uint64, int, error) {
		v, n := binary.Uvarint(src)
		if n <= 0 {
			return 0, 0, fmt.Errorf("%w: bad uint64", base.ErrCorrupt)
		}
		return v, n, nil
	})

var float64Codec = plain("float64",
	func(dst []byte, v float64) []byte { return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v)) },
	func(src []byte) (float64, int, error) {
		if len(src) < 8 {
			return 0, 0, errShort
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(src)), 8, nil
	})

var boolCodec = plain("bool",
	func(dst []byte, v bool) []byte {
		if v {
			return append(dst, 1)
		}
		return append(dst, 0)
	},
	func(src []byte) (bool, int, error) {
		if len(src) < 1 || src[0] > 1 {
			return false, 0, fmt.Errorf("%w: bad bool", base.ErrCorrupt)
		}
		return src[0] == 1, 1, nil
	})

func plain[T any](id string, app func([]byte, T) []byte, read func([]byte) (T, int, error)) *Codec[T] {
	return &Codec[T]{
		ID:        id,
		Append:    func(dst []byte, v T) ([]byte, error) { return app(dst, v), nil },
		Read:      read,
		Clone:     func(v T) T { return v },
		Plain:     true,
		Immutable: true,
	}
}

var (
	stringsCodec  = Slice(stringCodec)
	intsCodec     = Slice(intCodec)
	int64sCodec   = Slice(int64Codec)
	float64sCodec = Slice(float64Codec)
)

// Slice returns the codec of slices of what c encodes.
func Slice[T any](c *Codec[T]) *Codec[[]T] {
	return &Codec[[]T]{
		ID: "[]" + c.ID,
		Append: func(dst []byte, v []T) ([]byte, error) {
			dst = binary.AppendUvarint(dst, lenOf(v))
			var err error
			for i := range v {
				if dst, err = c.Append(dst, v[i]); err != nil {
					return nil, err
				}
			}
			return dst, nil
		},
		Read: func(src []byte) ([]T, int, error) {
			// Each element takes at least one byte but the empty struct, which
			// msgpack writes as one too: this bounds the count.
			count, at, err := readSliceLen(src)
			if err != nil || count < 0 {
				return nil, at, err
			}
			out := make([]T, 0, min(count, 4096))
			for range count {
				v, n, err := c.Read(src[at:])
				if err != nil {
					return nil, 0, err
				}
				out = append(out, v)
				at += n
			}
			return out, at, nil
		},
		Clone: func(v []T) []T {
			if v == nil {
				return nil
			}
			out := make([]T, len(v)) // not slices.Clone: a clone of an empty slice would pin what it was cut from
			copy(out, v)
			if !c.Plain {
				for i := range out {
					out[i] = c.Clone(out[i])
				}
			}
			return out
		},
	}
}

// trailing complains about bytes after the last record.
func trailing(src []byte) error {
	if len(src) > 0 {
		return fmt.Errorf("%w: %d bytes after the last record", base.ErrCorrupt, len(src))
	}
	return nil
}

// EachRecord decodes count records of body in order until yield returns
// false; it reports whether yield stopped it.
func EachRecord[T any](c *Codec[T], body []byte, count int, yield func(T) bool) (stopped bool, err error) {
	if c.Each != nil {
		return c.Each(body, count, yield)
	}
	for ; count > 0; count-- {
		v, n, err := c.Read(body)
		if err != nil {
			return false, err
		}
		if !yield(v) {
			return true, nil
		}
		body = body[n:]
	}
	return false, trailing(body)
}
