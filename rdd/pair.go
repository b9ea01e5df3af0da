package rdd

import (
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/tidemill/tidemill/internal/codec"
)

// Pair is a record with a key.
type Pair[K comparable, V any] struct {
	Key   K `parquet:"key"`
	Value V `parquet:"value"`
}

// KV returns the pair of k and v.
func KV[K comparable, V any](k K, v V) Pair[K, V] { return Pair[K, V]{k, v} }

// String prints the pair as (key,value).
func (p Pair[K, V]) String() string { return fmt.Sprintf("(%v,%v)", p.Key, p.Value) }

// TidemillCodec tells the engine how to encode the pair.
func (Pair[K, V]) TidemillCodec() any {
	k, v := codec.For[K](), codec.For[V]()
	return two("pair", k, v,
		func(p Pair[K, V]) (K, V) { return p.Key, p.Value },
		func(k K, v V) Pair[K, V] { return Pair[K, V]{k, v} })
}

// EncodeMsgpack writes the pair as an array of two.
func (p Pair[K, V]) EncodeMsgpack(e *msgpack.Encoder) error { return encodeTwo(e, p.Key, p.Value) }

// DecodeMsgpack reads what EncodeMsgpack wrote.
func (p *Pair[K, V]) DecodeMsgpack(d *msgpack.Decoder) error { return decodeTwo(d, &p.Key, &p.Value) }

// Opt is a value that may be missing.
type Opt[T any] struct {
	Value T
	OK    bool
}

// Some returns an Opt that holds v.
func Some[T any](v T) Opt[T] { return Opt[T]{Value: v, OK: true} }

// None returns an empty Opt.
func None[T any]() Opt[T] { return Opt[T]{} }

// Or returns the value, or other if it is missing.
func (o Opt[T]) Or(other T) T {
	if o.OK {
		return o.Value
	}
	return other
}

// String prints the value, or none.
func (o Opt[T]) String() string {
	if o.OK {
		return fmt.Sprint(o.Value)
	}
	return "none"
}

// TidemillCodec tells the engine how to encode the value.
func (Opt[T]) TidemillCodec() any {
	c := codec.For[T]()
	return &codec.Codec[Opt[T]]{
		ID: "opt(" + c.ID + ")",
		Append: func(dst []byte, o Opt[T]) ([]byte, error) {
			if !o.OK {
				return append(dst, 0), nil
			}
			return c.Append(append(dst, 1), o.Value)
		},
		Read: func(src []byte) (Opt[T], int, error) {
			ok, n, err := codec.For[bool]().Read(src)
			if err != nil || !ok {
				return Opt[T]{}, n, err
			}
			v, m, err := c.Read(src[n:])
			return Opt[T]{Value: v, OK: true}, n + m, err
		},
		Clone: func(o Opt[T]) Opt[T] {
			if o.OK {
				o.Value = c.Clone(o.Value)
			}
			return o
		},
		Plain:     c.Plain,
		Immutable: c.Immutable,
	}
}

// CoGrouped holds the values of one key in two data sets, each side in the
// order of its data set.
type CoGrouped[V, W any] struct {
	Left  []V `parquet:"left"`
	Right []W `parquet:"right"`
}

// TidemillCodec tells the engine how to encode the value.
func (CoGrouped[V, W]) TidemillCodec() any {
	return two("cogrouped", codec.Slice(codec.For[V]()), codec.Slice(codec.For[W]()),
		func(g CoGrouped[V, W]) ([]V, []W) { return g.Left, g.Right },
		func(l []V, r []W) CoGrouped[V, W] { return CoGrouped[V, W]{l, r} })
}

// Joined holds one value of each side of a join.
type Joined[V, W any] struct {
	Left  V `parquet:"left"`
	Right W `parquet:"right"`
}

// String prints both sides as (left,right).
func (j Joined[V, W]) String() string { return fmt.Sprintf("(%v,%v)", j.Left, j.Right) }

// TidemillCodec tells the engine how to encode the value.
func (Joined[V, W]) TidemillCodec() any {
	return two("joined", codec.For[V](), codec.For[W](),
		func(j Joined[V, W]) (V, W) { return j.Left, j.Right },
		func(l V, r W) Joined[V, W] { return Joined[V, W]{l, r} })
}

// EncodeMsgpack writes the value as an array of two.
func (j Joined[V, W]) EncodeMsgpack(e *msgpack.Encoder) error { return encodeTwo(e, j.Left, j.Right) }

// DecodeMsgpack reads what EncodeMsgpack wrote.
func (j *Joined[V, W]) DecodeMsgpack(d *msgpack.Decoder) error {
	return decodeTwo(d, &j.Left, &j.Right)
}

// two is the codec of a type made of two parts.
func two[T, A, B any](name string, a *codec.Codec[A], b *codec.Codec[B], split func(T) (A, B), join func(A, B) T) *codec.Codec[T] {
	return &codec.Codec[T]{
		ID: name + "(" + a.ID + "," + b.ID + ")",
		Append: func(dst []byte, v T) ([]byte, error) {
			x, y := split(v)
			dst, err := a.Append(dst, x)
			if err != nil {
				return nil, err
			}
			return b.Append(dst, y)
		},
		Read: func(src []byte) (v T, n int, err error) {
			x, n, err := a.Read(src)
			if err != nil {
				return v, 0, err
			}
			y, m, err := b.Read(src[n:])
			if err != nil {
				return v, 0, err
			}
			return join(x, y), n + m, nil
		},
		Clone: func(v T) T {
			x, y := split(v)
			return join(a.Clone(x), b.Clone(y))
		},
		Plain:     a.Plain && b.Plain,
		Immutable: a.Immutable && b.Immutable,
	}
}

func encodeTwo(e *msgpack.Encoder, a, b any) error {
	if err := e.EncodeArrayLen(2); err != nil {
		return err
	}
	if err := e.Encode(a); err != nil {
		return err
	}
	return e.Encode(b)
}

func decodeTwo(d *msgpack.Decoder, a, b any) error {
	n, err := d.DecodeArrayLen()
	if err != nil {
		return err
	}
	if n != 2 {
		return fmt.Errorf("want an array of 2, got %d", n)
	}
	if err := d.Decode(a); err != nil {
		return err
	}
	return d.Decode(b)
}
