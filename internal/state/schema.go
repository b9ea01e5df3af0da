package state

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemill/tidemill/internal/codec"
)

// Schema says what the keys and values of a state file are. It stands in every
// file, so state of another type is refused or migrated, never misread.
type Schema struct {
	Key     string // codec id
	Value   string // codec id; of a window also its lengths
	Version int    // the user's own, for changes that the codec does not show
}

func (s Schema) String() string {
	return fmt.Sprintf("keys %s, values %s, version %d", s.Key, s.Value, s.Version)
}

// SchemaError says that a file's schema is not the program's, and that there
// is no migration from it.
type SchemaError struct{ File, Program Schema }

// Error names both schemas and what helps.
func (e *SchemaError) Error() string {
	return fmt.Sprintf("state was written with %s; this program has %s: register a migration from the old values, or drop the state", e.File, e.Program)
}

func (s Schema) appendTo(b []byte) []byte {
	for _, id := range []string{s.Key, s.Value} {
		b = binary.AppendUvarint(b, uint64(len(id)))
		b = append(b, id...)
	}
	return binary.AppendVarint(b, int64(s.Version))
}

func (r *reader) schema() Schema {
	return Schema{Key: string(r.bytes()), Value: string(r.bytes()), Version: int(r.varint())}
}

// Migration reads values of an older schema as values of today's.
type Migration[S any] struct {
	value   string // codec id of the old values
	version int
	read    func(old []byte) (S, error)
}

// From returns the migration from values of type Old and a version.
func From[Old, S any](c *codec.Codec[Old], version int, f func(Old) (S, error)) Migration[S] {
	return Migration[S]{c.ID, version, func(b []byte) (S, error) {
		var s S
		old, err := readAll(c, b)
		if err == nil {
			s, err = f(old)
		}
		return s, err
	}}
}

// Reads returns the schema of the files that the migration reads, for keys of a
// codec id.
func (f Migration[S]) Reads(key string) Schema {
	return Schema{Key: key, Value: f.value, Version: f.version}
}

// Migrate sets the version of the schema of m's values, and how values of
// older ones are read. Keys can't be migrated: they decide the partition. State
// that was read by a migration goes on in files of today's schema, which can't
// be merged with the old ones, so its first delta is full.
func (m *Map[K, S]) Migrate(version int, from ...Migration[S]) {
	m.schema.Version = version
	m.from = from
}

// reading returns how values of a file are read.
func (m *Map[K, S]) reading(file Schema) (func([]byte) (S, error), error) {
	if file == m.schema {
		return func(b []byte) (S, error) { return readAll(m.sc, b) }, nil
	}
	for _, f := range m.from {
		if f.Reads(m.schema.Key) == file {
			return f.read, nil
		}
	}
	return nil, &SchemaError{File: file, Program: m.schema}
}
