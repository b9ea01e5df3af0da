package codec

import (
	"encoding"
	"fmt"
	"reflect"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// Check returns an error that names the field when values of T can't be
// encoded without loss: functions, channels, interfaces, fields that the
// encoder can't see or is told to leave out, and encoding methods without
// their decoding counterpart.
func Check[T any]() error {
	t := reflect.TypeFor[T]()
	if err := checkType(t, t.String(), map[reflect.Type]bool{}); err != nil {
		return fmt.Errorf("records of type %s can't be encoded: %w", t, err)
	}
	return nil
}

// CheckKey is Check for keys, which must also be equal (==) exactly when what
// they stand for is, before and after a trip between processes. Pointers and
// [time.Time], which is also a zone, are not. Float keys follow Go: -0 is 0,
// and a NaN equals nothing, so each is a key of its own.
func CheckKey[K comparable]() error {
	if err := Check[K](); err != nil {
		return err
	}
	t := reflect.TypeFor[K]()
	for _, bad := range []struct {
		is  func(reflect.Type) bool
		why string
	}{
		{func(t reflect.Type) bool { return t.Kind() == reflect.Pointer }, "holds a pointer, which is equal to itself only"},
		{func(t reflect.Type) bool { return t == timeType }, "holds a time.Time, which differs from the same instant in another zone; use UnixNano or a formatted time"},
	} {
		if reaches(t, bad.is) {
			return fmt.Errorf("keys of type %s can't be compared: it %s", t, bad.why)
		}
	}
	return nil
}

var (
	timeType      = reflect.TypeFor[time.Time]()
	compositeType = reflect.TypeFor[Composite]()
	// ownEncodings are the methods that the encoder prefers, in its order, and their counterparts.
	ownEncodings = []struct{ encode, decode reflect.Type }{
		{reflect.TypeFor[msgpack.CustomEncoder](), reflect.TypeFor[msgpack.CustomDecoder]()},
		{reflect.TypeFor[msgpack.Marshaler](), reflect.TypeFor[msgpack.Unmarshaler]()},
		{reflect.TypeFor[encoding.BinaryMarshaler](), reflect.TypeFor[encoding.BinaryUnmarshaler]()},
		{reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()},
	}
)

// ownEncoding returns the interfaces by which the encoder will encode t and
// must decode it, nil if it does so by its kind.
func ownEncoding(t reflect.Type) (encode, decode reflect.Type) {
	if t.Kind() == reflect.Pointer {
		return nil, nil // its element tells
	}
	for _, o := range ownEncodings {
		if t.Implements(o.encode) {
			return o.encode, o.decode
		}
	}
	for _, o := range ownEncodings {
		if reflect.PointerTo(t).Implements(o.encode) {
			return o.encode, o.decode
		}
	}
	return nil, nil
}

// isComposite reports whether t is one of the engine's own generic types, not
// a type that embeds one.
func isComposite(t reflect.Type) bool {
	if t.Kind() != reflect.Struct || !t.Implements(compositeType) {
		return false
	}
	c := reflect.TypeOf(reflect.Zero(t).Interface().(Composite).TidemillCodec())
	read, ok := c.Elem().FieldByName("Read")
	return ok && read.Type.Out(0) == t
}

// foreignEncoding reports whether methods that are not the engine's encode t.
func foreignEncoding(t reflect.Type) bool {
	encode, _ := ownEncoding(t)
	return encode != nil && t != timeType && !isComposite(t)
}

func isMap(t reflect.Type) bool { return t.Kind() == reflect.Map }

func checkType(t reflect.Type, path string, seen map[reflect.Type]bool) error {
	if seen[t] || t == timeType {
		return nil
	}
	seen[t] = true
	encode, decode := ownEncoding(t)
	if e := embedded(t, encode); e != "" {
		return fmt.Errorf("%s embeds a %s, whose encoding methods would stand for the whole and lose the other fields; give that field a name", path, e)
	}
	if foreignEncoding(t) {
		if !reflect.PointerTo(t).Implements(decode) {
			return fmt.Errorf("%s encodes itself as a %s but is no %s", path, encode, decode)
		}
		return nil
	}
	switch t.Kind() {
	case reflect.Func, reflect.Chan, reflect.UnsafePointer, reflect.Uintptr, reflect.Complex64, reflect.Complex128:
		return fmt.Errorf("%s is a %s", path, t.Kind())
	case reflect.Interface:
		return fmt.Errorf("%s is an interface: its dynamic type would be lost; use a concrete type", path)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return checkType(t.Elem(), path+" element", seen)
	case reflect.Map:
		for _, part := range []struct {
			t    reflect.Type
			name string
		}{{t.Key(), " key"}, {t.Elem(), " value"}} {
			if err := checkType(part.t, path+part.name, seen); err != nil {
				return err
			}
			if encode, _ := ownEncoding(part.t); encode != nil && !part.t.Implements(encode) {
				return fmt.Errorf("%s: method of %s has a pointer receiver, and what is in a map has no address", path+part.name, encode)
			}
		}
	case reflect.Struct:
		return checkFields(t, seen)
	}
	return nil
}

// embedded names a type embedded in t that brings methods of the encoder or of
// the engine along, "" if there is none.
func embedded(t, encode reflect.Type) string {
	if t.Kind() != reflect.Struct {
		return ""
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && (f.Type.Implements(compositeType) || encode != nil && reflect.PointerTo(f.Type).Implements(encode)) {
			return f.Type.String()
		}
	}
	return ""
}

func checkFields(t reflect.Type, seen map[reflect.Type]bool) error {
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Name == "_msgpack" || f.Name == "_" && f.Type.Size() == 0:
			continue
		case !f.IsExported() && f.Type.Size() > 0:
			return fmt.Errorf("field %s.%s is not exported and would be lost; export it or give the type EncodeMsgpack and DecodeMsgpack", t, f.Name)
		case f.Tag.Get("msgpack") == "-":
			return fmt.Errorf("field %s.%s is tagged %q and would be lost", t, f.Name, `msgpack:"-"`)
		case f.Anonymous && f.Type.Kind() == reflect.Pointer:
			return fmt.Errorf("field %s.%s is an embedded pointer, which would not stay nil; give it a name", t, f.Name)
		}
		if err := checkType(f.Type, t.String()+"."+f.Name, seen); err != nil {
			return err
		}
	}
	return nil
}

// reaches reports whether is holds for t or a type that values of t contain
// or point to.
func reaches(t reflect.Type, is func(reflect.Type) bool) bool {
	seen := map[reflect.Type]bool{}
	var visit func(t reflect.Type) bool
	visit = func(t reflect.Type) bool {
		if seen[t] {
			return false
		}
		seen[t] = true
		if is(t) {
			return true
		}
		if t == timeType {
			return false // its zone is shared, never changed
		}
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			return visit(t.Elem())
		case reflect.Map:
			return visit(t.Key()) || visit(t.Elem())
		case reflect.Struct:
			for i := range t.NumField() {
				if visit(t.Field(i).Type) {
					return true
				}
			}
		}
		return false
	}
	return visit(t)
}

// holdsReference reports whether a value of t itself, not of its parts, can
// share memory with another.
func holdsReference(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface,
		reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return true
	}
	return false
}

// walkValues calls f for the addressable values of basic kinds and the times
// that v holds. It rebuilds maps.
func walkValues(v reflect.Value, f func(reflect.Value)) {
	kind := v.Kind()
	if v.Type() == timeType {
		kind = reflect.Invalid // a leaf
	}
	switch kind {
	case reflect.Pointer:
		if !v.IsNil() {
			walkValues(v.Elem(), f)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			walkValues(v.Index(i), f)
		}
	case reflect.Map:
		if v.IsNil() || !v.CanSet() {
			return
		}
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.Set(it.Key())
			value.Set(it.Value())
			walkValues(key, f)
			walkValues(value, f)
			out.SetMapIndex(key, value)
		}
		v.Set(out)
	case reflect.Struct:
		for i := range v.NumField() {
			walkValues(v.Field(i), f)
		}
	default:
		if v.CanSet() {
			f(v)
		}
	}
}

// toUTC puts the times that v holds into UTC.
func toUTC(v reflect.Value) {
	walkValues(v, func(v reflect.Value) {
		if t, ok := v.Addr().Interface().(*time.Time); ok {
			*t = t.UTC()
		}
	})
}

// plusZero replaces -0 by 0 in all floats that v holds.
func plusZero(v reflect.Value) {
	walkValues(v, func(v reflect.Value) {
		if v.CanFloat() && v.Float() == 0 {
			v.SetFloat(0)
		}
	})
}
