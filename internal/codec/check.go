package codec

import (
	"fmt"
	"reflect"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// Check returns an error that names the field when values of T can't be
// encoded without loss: functions, channels, interfaces, and structs with
// fields that the encoder can't see.
func Check[T any]() error {
	t := reflect.TypeFor[T]()
	if err := checkType(t, t.String(), map[reflect.Type]bool{}); err != nil {
		return fmt.Errorf("records of type %s can't be encoded: %w", t, err)
	}
	return nil
}

var (
	timeType      = reflect.TypeFor[time.Time]()
	compositeType = reflect.TypeFor[Composite]()
	encoderTypes  = []reflect.Type{
		reflect.TypeFor[msgpack.CustomEncoder](),
		reflect.TypeFor[msgpack.Marshaler](),
	}
)

func hasOwnEncoding(t reflect.Type) bool {
	for _, e := range encoderTypes {
		if t.Implements(e) || reflect.PointerTo(t).Implements(e) {
			return true
		}
	}
	return false
}

func checkType(t reflect.Type, path string, seen map[reflect.Type]bool) error {
	if seen[t] || t == timeType {
		return nil
	}
	seen[t] = true
	if !t.Implements(compositeType) && hasOwnEncoding(t) {
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
		if err := checkType(t.Key(), path+" key", seen); err != nil {
			return err
		}
		return checkType(t.Elem(), path+" value", seen)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() && f.Name != "_msgpack" && f.Type.Size() > 0 {
				return fmt.Errorf("field %s.%s is not exported and would be lost; export it or give the type EncodeMsgpack and DecodeMsgpack", t, f.Name)
			}
			if f.Tag.Get("msgpack") == "-" {
				continue
			}
			if err := checkType(f.Type, t.String()+"."+f.Name, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// holdsReferences reports whether a value of t can share memory with another.
func holdsReferences(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	case reflect.Array:
		return t.Len() > 0 && holdsReferences(t.Elem())
	case reflect.Struct:
		if t == timeType {
			return false // a *Location is shared, never changed
		}
		for i := range t.NumField() {
			if holdsReferences(t.Field(i).Type) {
				return true
			}
		}
		return false
	}
	return true
}
