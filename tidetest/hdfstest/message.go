package hdfstest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	_ "github.com/colinmarc/hdfs/v2" // registers Hadoop's messages
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// A message is one of Hadoop's, its fields reached by name: the Go types are
// internal to the client library, but importing it registers them. Names are
// constants of this package, so an unknown one is a mistake in it and panics.
type message struct{ m protoreflect.Message }

// newMessage makes the message called name, such as "hadoop.hdfs.FsyncRequestProto".
func newMessage(name string) message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		panic(fmt.Sprintf("hdfstest: message %s: %v", name, err))
	}
	return message{t.New()}
}

func hdfsMessage(name string) message   { return newMessage("hadoop.hdfs." + name) }
func commonMessage(name string) message { return newMessage("hadoop.common." + name) }

func (m message) field(name string) protoreflect.FieldDescriptor {
	fd := m.m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if fd == nil {
		panic(fmt.Sprintf("hdfstest: message %s has no field %s", m.m.Descriptor().FullName(), name))
	}
	return fd
}

func (m message) has(name string) bool    { return m.m.Has(m.field(name)) }
func (m message) str(name string) string  { return m.m.Get(m.field(name)).String() }
func (m message) flag(name string) bool   { return m.m.Get(m.field(name)).Bool() }
func (m message) raw(name string) []byte  { return m.m.Get(m.field(name)).Bytes() }
func (m message) sub(name string) message { return message{m.m.Get(m.field(name)).Message()} }

// num reads an integer or enum of any width.
func (m message) num(name string) int64 {
	fd := m.field(name)
	return integer(fd, m.m.Get(fd))
}

func integer(fd protoreflect.FieldDescriptor, v protoreflect.Value) int64 {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		return int64(v.Enum())
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return int64(v.Uint())
	default:
		return v.Int()
	}
}

// list reads a repeated message field.
func (m message) list(name string) []message {
	l := m.m.Get(m.field(name)).List()
	out := make([]message, l.Len())
	for i := range out {
		out[i] = message{l.Get(i).Message()}
	}
	return out
}

// nums reads a repeated integer or enum field.
func (m message) nums(name string) []int64 {
	fd := m.field(name)
	l := m.m.Get(fd).List()
	out := make([]int64, l.Len())
	for i := range out {
		out[i] = integer(fd, l.Get(i))
	}
	return out
}

// setNum sets an integer or enum of any width.
func (m message) setNum(name string, v int64) message {
	fd := m.field(name)
	m.m.Set(fd, numValue(fd, v))
	return m
}

func numValue(fd protoreflect.FieldDescriptor, v int64) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(v))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(v))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(v))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(v))
	default:
		return protoreflect.ValueOfInt64(v)
	}
}

func (m message) setStr(name, v string) message {
	m.m.Set(m.field(name), protoreflect.ValueOfString(v))
	return m
}

func (m message) setRaw(name string, v []byte) message {
	m.m.Set(m.field(name), protoreflect.ValueOfBytes(v))
	return m
}

func (m message) setFlag(name string, v bool) message {
	m.m.Set(m.field(name), protoreflect.ValueOfBool(v))
	return m
}

func (m message) setSub(name string, v message) message {
	m.m.Set(m.field(name), protoreflect.ValueOfMessage(v.m))
	return m
}

// add appends messages to a repeated field.
func (m message) add(name string, vs ...message) message {
	l := m.m.Mutable(m.field(name)).List()
	for _, v := range vs {
		l.Append(protoreflect.ValueOfMessage(v.m))
	}
	return m
}

// addNum appends to a repeated integer or enum field.
func (m message) addNum(name string, vs ...int64) message {
	fd := m.field(name)
	l := m.m.Mutable(fd).List()
	for _, v := range vs {
		l.Append(numValue(fd, v))
	}
	return m
}

func (m message) addStr(name string, vs ...string) message {
	l := m.m.Mutable(m.field(name)).List()
	for _, v := range vs {
		l.Append(protoreflect.ValueOfString(v))
	}
	return m
}

func (m message) unmarshal(b []byte) error { return proto.Unmarshal(b, m.m.Interface()) }

func (m message) marshal() ([]byte, error) { return proto.Marshal(m.m.Interface()) }

// appendDelimited appends the varint length of m and m itself.
func appendDelimited(b []byte, m message) ([]byte, error) {
	body, err := m.marshal()
	if err != nil {
		return b, err
	}
	return append(binary.AppendUvarint(b, uint64(len(body))), body...), nil
}

// cutDelimited reads a message with its varint length from the front of b and
// returns what follows.
func cutDelimited(b []byte, m message) ([]byte, error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, fmt.Errorf("hdfstest: %s: length does not fit", m.m.Descriptor().Name())
	}
	b = b[n:]
	return b[size:], m.unmarshal(b[:size])
}

// maxMessage bounds a length read from a connection.
const maxMessage = 64 << 20

// readDelimited reads a message with its varint length.
func readDelimited(r *bufio.Reader, m message) error {
	size, err := binary.ReadUvarint(r)
	if err != nil {
		return err
	}
	if size > maxMessage {
		return fmt.Errorf("hdfstest: %s of %d bytes, may have %d", m.m.Descriptor().Name(), size, maxMessage)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return m.unmarshal(b)
}
