package rdd

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// valueOf makes the value of a leaf column. Errors go to s.
type valueOf func(s *shredded, v reflect.Value) parquet.Value

// leaf is the node of a value that is one column. What options mean is the
// library's business.
func (b *columnBuilder) leaf(t reflect.Type, path string, tag columnTag) (columnNode, error) {
	err := writable(t, path, tag.has("json"), nil)
	if err != nil {
		return columnNode{}, err
	}
	n, err := leafNode(t, tag.options)
	if err != nil {
		return columnNode{}, fmt.Errorf("%s: %w", path, err)
	}
	value := leafValue(t, n, path)
	if value == nil {
		return columnNode{}, fmt.Errorf("%s: options %q make no column of a %s", path, tag.options, t)
	}
	column := b.columns
	b.columns++
	return columnNode{node: n, first: column, end: column + 1, write: func(s *shredded, v reflect.Value, l levels) {
		x := value(s, v)
		s.size += 8
		if k := x.Kind(); k == parquet.ByteArray || k == parquet.FixedLenByteArray {
			s.size += int64(len(x.ByteArray()))
		}
		s.add(column, x, l)
	}}, nil
}

// writable refuses types that no column stands for. A value that becomes JSON
// may hold more.
func writable(t reflect.Type, path string, asJSON bool, within []reflect.Type) error {
	if slices.Contains(within, t) {
		return nil
	}
	within = append(within, t)
	switch t.Kind() {
	case reflect.Func, reflect.Chan, reflect.UnsafePointer, reflect.Uintptr, reflect.Complex64, reflect.Complex128:
		return fmt.Errorf("%s is a %s", path, t.Kind())
	case reflect.Interface:
		if !asJSON {
			return fmt.Errorf("%s is an interface: its dynamic type would be lost; use a concrete type, or the tag option json", path)
		}
	case reflect.Array, reflect.Slice:
		if t.Kind() == reflect.Array && t.Len() == 0 {
			return fmt.Errorf("%s is an array of length 0", path)
		}
		return writable(t.Elem(), path+" element", asJSON, within)
	case reflect.Pointer, reflect.Map:
		return writable(t.Elem(), path+" element", asJSON, within)
	case reflect.Struct:
		if t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
			return nil
		}
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				if err := writable(f.Type, "field "+t.String()+"."+f.Name, asJSON, within); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func leafNode(t reflect.Type, options []string) (n parquet.Node, err error) {
	defer contain(&err)
	tag := fmt.Sprintf("parquet:%q", strings.Join(append([]string{"f"}, options...), ","))
	s := reflect.StructOf([]reflect.StructField{{Name: "F", Type: t, Tag: reflect.StructTag(tag)}})
	n = parquet.SchemaOf(reflect.New(s).Interface()).Fields()[0]
	if !n.Leaf() || !n.Required() {
		return nil, fmt.Errorf("options %q make no column of a %s", options, t)
	}
	return n, nil
}

// leafValue returns how values of t go into column n, nil if they don't.
func leafValue(t reflect.Type, n parquet.Node, path string) valueOf {
	kind := n.Type().Kind()
	var logical format.LogicalTypeValue
	if l := n.Type().LogicalType(); l != nil {
		logical = l.Value
	}
	switch x := logical.(type) {
	case *format.JsonType:
		return jsonValue(t, path)
	case *format.TimestampType:
		if t == reflect.TypeFor[time.Time]() {
			return timestampValue(x.Unit, path)
		}
	case *format.DateType:
		if t == reflect.TypeFor[time.Time]() {
			return dateValue(path)
		}
	case *format.TimeType:
		if t == reflect.TypeFor[time.Duration]() {
			return durationValue(x.Unit, path)
		}
	case *format.UUIDType:
		if t.Kind() == reflect.String {
			return uuidValue(path)
		}
	}
	switch {
	case t.Kind() == reflect.Bool && kind == parquet.Boolean:
		return func(_ *shredded, v reflect.Value) parquet.Value { return parquet.BooleanValue(v.Bool()) }
	case t.Kind() == reflect.Float32 && kind == parquet.Float:
		return func(_ *shredded, v reflect.Value) parquet.Value { return parquet.FloatValue(float32(v.Float())) }
	case t.Kind() == reflect.Float64 && kind == parquet.Double:
		return func(_ *shredded, v reflect.Value) parquet.Value { return parquet.DoubleValue(v.Float()) }
	case t.Kind() == reflect.String && kind == parquet.ByteArray:
		return func(_ *shredded, v reflect.Value) parquet.Value { return viewOf(v.String()) }
	case isBytes(t) && kind == parquet.ByteArray && t.Kind() == reflect.Slice:
		return func(_ *shredded, v reflect.Value) parquet.Value { return parquet.ByteArrayValue(v.Bytes()) }
	case isBytes(t) && kind == parquet.FixedLenByteArray:
		return fixedValue(n.Type().Length(), path)
	case reflect.Zero(t).CanInt() || reflect.Zero(t).CanUint():
		return integerValue(t, kind, logical, path)
	}
	return nil
}

// viewOf returns the value that shares the bytes of s, which the writer copies.
func viewOf(s string) parquet.Value {
	return parquet.ByteArrayValue(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// fixedValue also takes slices, for decimals.
func fixedValue(size int, path string) valueOf {
	return func(s *shredded, v reflect.Value) parquet.Value {
		b := v.Bytes()
		if len(b) != size {
			s.fail("%s has %d bytes, its column %d", path, len(b), size)
			return parquet.NullValue()
		}
		return parquet.FixedLenByteArrayValue(b)
	}
}

// integerValue checks the range if the column is narrower than t.
func integerValue(t reflect.Type, kind parquet.Kind, logical format.LogicalTypeValue, path string) valueOf {
	bits, signed := 64, true
	switch kind {
	case parquet.Int64:
	case parquet.Int32:
		bits = 32
	default:
		return nil
	}
	if i, ok := logical.(*format.IntType); ok {
		bits, signed = int(i.BitWidth), i.IsSigned
	}
	least, most := int64(math.MinInt64)>>(64-bits), uint64(math.MaxInt64)>>(64-bits)
	if !signed {
		least, most = 0, math.MaxUint64>>(64-bits)
	}
	value := parquet.Int64Value
	if kind == parquet.Int32 {
		value = func(x int64) parquet.Value { return parquet.Int32Value(int32(x)) }
	}
	if reflect.Zero(t).CanUint() {
		return func(s *shredded, v reflect.Value) parquet.Value {
			x := v.Uint()
			if x > most {
				s.fail("%s is %d, its column holds at most %d", path, x, most)
			}
			return value(int64(x))
		}
	}
	return func(s *shredded, v reflect.Value) parquet.Value {
		x := v.Int()
		if x < least || x > 0 && uint64(x) > most {
			s.fail("%s is %d, its column holds from %d to %d", path, x, least, most)
		}
		return value(x)
	}
}

// timestampValue refuses times that the unit can't count: the zero time is
// out of the reach of nanoseconds.
func timestampValue(u format.TimeUnit, path string) valueOf {
	perSecond, unit, count := int64(1e9), "nanosecond", time.Time.UnixNano
	switch u.Value.(type) {
	case *format.MilliSeconds:
		perSecond, unit, count = 1e3, "millisecond", time.Time.UnixMilli
	case *format.MicroSeconds:
		perSecond, unit, count = 1e6, "microsecond", time.Time.UnixMicro
	}
	most := math.MaxInt64/perSecond - 1
	return func(s *shredded, v reflect.Value) parquet.Value {
		t := *v.Addr().Interface().(*time.Time)
		if x := t.Unix(); x < -most || x > most {
			s.fail("%s is %s, which a column of %ss can't hold; tag it timestamp(microsecond), or use a pointer if it may be missing", path, t, unit)
		}
		return parquet.Int64Value(count(t))
	}
}

// dateValue is the day on which the instant falls in UTC.
func dateValue(path string) valueOf {
	const day = 24 * 60 * 60
	return func(s *shredded, v reflect.Value) parquet.Value {
		t := *v.Addr().Interface().(*time.Time)
		seconds := t.Unix()
		days := seconds / day
		if seconds%day < 0 {
			days--
		}
		if days != int64(int32(days)) {
			s.fail("%s is %s, which a date column can't hold", path, t)
		}
		return parquet.Int32Value(int32(days))
	}
}

func durationValue(u format.TimeUnit, path string) valueOf {
	switch u.Value.(type) {
	case *format.MilliSeconds:
		return func(s *shredded, v reflect.Value) parquet.Value {
			x := time.Duration(v.Int()).Milliseconds()
			if x != int64(int32(x)) {
				s.fail("%s is %s, which a column of milliseconds can't hold", path, time.Duration(v.Int()))
			}
			return parquet.Int32Value(int32(x))
		}
	case *format.MicroSeconds:
		return func(_ *shredded, v reflect.Value) parquet.Value {
			return parquet.Int64Value(time.Duration(v.Int()).Microseconds())
		}
	}
	return func(_ *shredded, v reflect.Value) parquet.Value { return parquet.Int64Value(v.Int()) }
}

func uuidValue(path string) valueOf {
	return func(s *shredded, v reflect.Value) parquet.Value {
		var id [16]byte
		text := strings.ReplaceAll(v.String(), "-", "")
		if n, err := hex.Decode(id[:], []byte(text[:min(len(text), 2*len(id))])); err != nil || n != len(id) || len(text) != 2*len(id) {
			s.fail("%s is %s: not a UUID", path, Preview(v.String()))
			return parquet.NullValue()
		}
		return parquet.FixedLenByteArrayValue(s.keep(id[:]))
	}
}

// jsonValue takes strings and bytes as JSON text, and encodes all else.
func jsonValue(t reflect.Type, path string) valueOf {
	switch {
	case t.Kind() == reflect.String:
		return func(_ *shredded, v reflect.Value) parquet.Value { return viewOf(v.String()) }
	case isBytes(t) && t.Kind() == reflect.Slice:
		return func(_ *shredded, v reflect.Value) parquet.Value { return parquet.ByteArrayValue(v.Bytes()) }
	}
	return func(s *shredded, v reflect.Value) parquet.Value {
		b, err := json.Marshal(v.Addr().Interface())
		if err != nil {
			s.fail("%s: %w", path, err)
		}
		return parquet.ByteArrayValue(b)
	}
}

// keep copies b to where it stays until the record is written.
func (s *shredded) keep(b []byte) []byte {
	n := len(s.scratch)
	s.scratch = append(s.scratch, b...)
	return s.scratch[n:len(s.scratch):len(s.scratch)]
}
