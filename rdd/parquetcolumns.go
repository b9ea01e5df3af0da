package rdd

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
)

// Columns says how records of type T become the columns of a Parquet file.
type Columns[T any] struct {
	schema *parquet.Schema
	write  columnsOf
}

// ColumnsOf returns the columns for T, or an error that names the field that
// can't be written without loss.
func ColumnsOf[T any]() (c *Columns[T], err error) {
	t := reflect.TypeFor[T]()
	root, err := rootColumns(t)
	if err == nil {
		c = &Columns[T]{schema: parquet.NewSchema("record", root.node), write: root.write}
		err = c.probe()
	}
	if err != nil {
		return nil, fmt.Errorf("records of type %s can't be written as Parquet: %w", t, err)
	}
	return c, nil
}

// columnNode is a part of a schema and how values get there. Its leaves are
// the columns from first to before end.
type columnNode struct {
	node       parquet.Node
	first, end int
	write      columnsOf
}

// columnsOf appends v, which is addressable, to the columns of s.
type columnsOf func(s *shredded, v reflect.Value, l levels)

// levels are where a value stands in nested and repeated columns, as the
// format defines them: definition counts the optional and repeated parents
// that are there, repetition says which list goes on, depth counts lists.
type levels struct{ repetition, definition, depth int }

// shredded is a record cut into columns. Its values may be views of the record.
type shredded struct {
	columns [][]parquet.Value
	scratch []byte // what values that are no views point to
	size    int64  // about what the values take in pages
	err     error
}

func (s *shredded) reset() {
	for i := range s.columns {
		s.columns[i] = s.columns[i][:0]
	}
	s.scratch, s.size, s.err = s.scratch[:0], 0, nil
}

func (s *shredded) add(column int, v parquet.Value, l levels) {
	s.columns[column] = append(s.columns[column], v.Level(l.repetition, l.definition, column))
}

// null says that a part of the record is not there.
func (s *shredded) null(c *columnNode, l levels) {
	for i := c.first; i < c.end; i++ {
		s.add(i, parquet.NullValue(), l)
	}
}

func (s *shredded) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// columnBuilder numbers the columns in the order of the fields.
type columnBuilder struct {
	columns int
	within  []reflect.Type // types being built
}

// rootColumns makes the fields of a struct columns, and anything else one
// column "value".
func rootColumns(t reflect.Type) (columnNode, error) {
	var b columnBuilder
	if isPlainStruct(t) {
		return b.group(t)
	}
	if t.Kind() == reflect.Pointer && isPlainStruct(t.Elem()) {
		c, err := b.group(t.Elem())
		write := c.write
		c.write = func(s *shredded, v reflect.Value, l levels) {
			if v.IsNil() {
				s.fail("the record is nil")
				return
			}
			write(s, v.Elem(), l)
		}
		return c, err
	}
	c, err := b.node(t, t.String(), columnTag{})
	c.node = &orderedGroup{fields: []parquet.Field{&groupField{c.node, "value"}}}
	return c, err
}

func isOpt(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && strings.HasPrefix(t.Name(), "Opt[") && t.PkgPath() == reflect.TypeFor[Opt[int]]().PkgPath()
}

func isPlainStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]() && !isOpt(t)
}

func isBytes(t reflect.Type) bool {
	return (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && t.Elem().Kind() == reflect.Uint8
}

// isList reports whether t becomes a repeated column.
func isList(t reflect.Type) bool {
	return (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && !isBytes(t)
}

func isOptional(t reflect.Type) bool { return t.Kind() == reflect.Pointer || isOpt(t) }

// node makes the part of the schema for a value of type t. path names it in errors.
func (b *columnBuilder) node(t reflect.Type, path string, tag columnTag) (columnNode, error) {
	if !isPlainStruct(t) {
		done, err := b.enter(t)
		if err != nil {
			return columnNode{}, err
		}
		defer done()
	}
	switch {
	case isOpt(t):
		return b.optional(t.Field(0).Type, path, tag, func(v reflect.Value) (reflect.Value, bool) {
			return v.Field(0), v.Field(1).Bool()
		})
	case t.Kind() == reflect.Pointer:
		return b.optional(t.Elem(), path, tag, func(v reflect.Value) (reflect.Value, bool) { return v.Elem(), !v.IsNil() })
	case tag.has("json"):
		return b.ifSet(t, path, tag, b.leaf)
	case isList(t):
		return b.list(t, path, tag)
	case t.Kind() == reflect.Map:
		return b.ifSet(t, path, tag, b.mapping)
	case isPlainStruct(t):
		if tag.has("optional") {
			return columnNode{}, fmt.Errorf(`%s is a struct tagged "optional", which does not say when it is missing: use a pointer or an Opt`, path)
		}
		id := tag.takeID()
		if len(tag.options) > 0 {
			return columnNode{}, fmt.Errorf("%s is a struct, which takes no option %q", path, tag.options)
		}
		c, err := b.group(t)
		return identify(c, id), err
	}
	return b.ifSet(t, path, tag, b.leaf)
}

// optional is the node of a pointer or an Opt.
func (b *columnBuilder) optional(t reflect.Type, path string, tag columnTag, get func(reflect.Value) (reflect.Value, bool)) (columnNode, error) {
	if isOptional(t) {
		return columnNode{}, fmt.Errorf("%s may be missing in two ways (%s in another), and a column knows one", path, t)
	}
	id := tag.takeID()
	tag.take("optional")
	tag.list = true // a bare repeated column is never missing
	c, err := b.node(t, path, tag)
	return identify(maybe(c, get), id), err
}

// ifSet is a node that is optional if its tag says so: zero values and nil are
// missing then.
func (b *columnBuilder) ifSet(t reflect.Type, path string, tag columnTag, build func(reflect.Type, string, columnTag) (columnNode, error)) (columnNode, error) {
	if !tag.take("optional") {
		return build(t, path, tag)
	}
	id := tag.takeID()
	c, err := build(t, path, tag)
	set := func(v reflect.Value) bool { return !v.IsZero() }
	if t == reflect.TypeFor[time.Time]() {
		set = func(v reflect.Value) bool { return !v.Addr().Interface().(*time.Time).IsZero() }
	}
	return identify(maybe(c, func(v reflect.Value) (reflect.Value, bool) { return v, set(v) }), id), err
}

// maybe makes c optional.
func maybe(c columnNode, get func(reflect.Value) (reflect.Value, bool)) columnNode {
	if c.node == nil {
		return c
	}
	inner := c
	c.node = parquet.Optional(c.node)
	c.write = func(s *shredded, v reflect.Value, l levels) {
		v, ok := get(v)
		if !ok {
			s.null(&inner, l)
			return
		}
		l.definition++
		inner.write(s, v, l)
	}
	return c
}

// list is the node of a slice or array: a LIST if the tag asks for it or only
// a LIST can hold it, else a bare repeated column, as the library has it.
func (b *columnBuilder) list(t reflect.Type, path string, tag columnTag) (columnNode, error) {
	elem := t.Elem()
	id := tag.takeID()
	tagged := tag.take("list")
	asList := tagged || tag.list || t.Kind() == reflect.Array || isList(elem) || isOptional(elem)
	// On a list "optional" means the list, on a repeated column its elements.
	null := tag.take("optional")
	element := columnTag{options: slices.Concat(tag.options, tag.element), list: true}
	if null && !tagged {
		element.options = append(element.options, "optional")
		asList, null = true, false
	}
	asList = asList || element.has("optional")
	c, err := b.node(elem, path+" element", element)
	if err != nil {
		return c, err
	}
	inner := c
	c.write = func(s *shredded, v reflect.Value, l levels) {
		n := v.Len()
		if n == 0 {
			s.null(&inner, l)
			return
		}
		l.definition++
		l.depth++
		for i := range n {
			inner.write(s, v.Index(i), l)
			l.repetition = l.depth
		}
	}
	if asList {
		c.node = parquet.List(c.node)
	} else {
		c.node = parquet.Repeated(c.node)
	}
	if null {
		if t.Kind() == reflect.Array {
			return c, fmt.Errorf(`%s is an array tagged "optional", which does not say when it is missing: use a pointer or an Opt`, path)
		}
		c = maybe(c, func(v reflect.Value) (reflect.Value, bool) { return v, !v.IsNil() })
	}
	return identify(c, id), nil
}

// mapping is the node of a map. Entries are in the order of their keys, so that
// attempts write the same bytes.
func (b *columnBuilder) mapping(t reflect.Type, path string, tag columnTag) (columnNode, error) {
	id := tag.takeID()
	if len(tag.options) > 0 {
		return columnNode{}, fmt.Errorf("%s is a map, which takes no option %q: see the tags parquet-key and parquet-value", path, tag.options)
	}
	switch kt := t.Key(); {
	case isOptional(kt) || isPlainStruct(kt) || isList(kt) || kt == reflect.TypeFor[time.Time]():
		return columnNode{}, fmt.Errorf("%s key is a %s: must be a string, number, bool or byte array", path, kt)
	}
	keyTag := columnTag{options: tag.key}
	if keyTag.has("optional") {
		return columnNode{}, fmt.Errorf(`%s key is tagged "optional", and a key can't be missing`, path)
	}
	key, err := b.leaf(t.Key(), path+" key", keyTag)
	if err != nil {
		return key, err
	}
	value, err := b.node(t.Elem(), path+" value", columnTag{options: tag.value, list: true})
	if err != nil {
		return value, err
	}
	c := columnNode{node: parquet.Map(key.node, value.node), first: key.first, end: value.end}
	both := c
	c.write = func(s *shredded, v reflect.Value, l levels) {
		n := v.Len()
		if n == 0 {
			s.null(&both, l)
			return
		}
		l.definition++
		l.depth++
		for _, e := range sortedEntries(v) {
			key.write(s, e.key, l)
			value.write(s, e.value, l)
			l.repetition = l.depth
		}
	}
	return identify(c, id), nil
}

type mapEntry struct{ key, value reflect.Value }

// sortedEntries returns copies, which are addressable.
func sortedEntries(m reflect.Value) []mapEntry {
	out := make([]mapEntry, 0, m.Len())
	for it := m.MapRange(); it.Next(); {
		e := mapEntry{reflect.New(m.Type().Key()).Elem(), reflect.New(m.Type().Elem()).Elem()}
		e.key.SetIterKey(it)
		e.value.SetIterValue(it)
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b mapEntry) int { return compareKeys(a.key, b.key) })
	return out
}

func compareKeys(a, b reflect.Value) int {
	number := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	switch {
	case a.CanInt():
		return cmp.Compare(a.Int(), b.Int())
	case a.CanUint():
		return cmp.Compare(a.Uint(), b.Uint())
	case a.CanFloat():
		return cmp.Compare(a.Float(), b.Float())
	case a.Kind() == reflect.String:
		return cmp.Compare(a.String(), b.String())
	case a.Kind() == reflect.Bool:
		return number(a.Bool()) - number(b.Bool())
	}
	return slices.Compare(a.Bytes(), b.Bytes())
}

// group is the node of a struct.
func (b *columnBuilder) group(t reflect.Type) (columnNode, error) {
	done, err := b.enter(t)
	if err != nil {
		return columnNode{}, err
	}
	defer done()
	fields, err := b.fields(t, nil)
	if err != nil {
		return columnNode{}, err
	}
	if len(fields) == 0 {
		return columnNode{}, fmt.Errorf("%s has no field to write", t)
	}
	g := &orderedGroup{}
	names := map[string]bool{}
	for _, f := range fields {
		if names[f.name] {
			return columnNode{}, fmt.Errorf("%s has two columns %q", t, f.name)
		}
		names[f.name] = true
		g.fields = append(g.fields, &groupField{f.column.node, f.name})
	}
	return columnNode{
		node: g, first: fields[0].column.first, end: b.columns,
		write: func(s *shredded, v reflect.Value, l levels) {
			for i := range fields {
				fields[i].column.write(s, v.FieldByIndex(fields[i].index), l)
			}
		},
	}, nil
}

type columnField struct {
	name   string
	index  []int // also through embedded structs, whose fields are the outer one's
	column columnNode
}

func (b *columnBuilder) fields(t reflect.Type, index []int) ([]columnField, error) {
	var out []columnField
	for i := range t.NumField() {
		f := t.Field(i)
		path := t.String() + "." + f.Name
		at := append(index[:len(index):len(index)], i)
		tag, skip := fieldTag(f)
		switch {
		case skip || !f.IsExported() && f.Type.Size() == 0:
			continue
		case !f.IsExported():
			return nil, fmt.Errorf("field %s is not exported and would be lost; export it, or leave it out with the tag %s", path, "`parquet:\"-\"`")
		case f.Anonymous && f.Type.Kind() == reflect.Pointer:
			return nil, fmt.Errorf("field %s is an embedded pointer; give it a name", path)
		case f.Anonymous && isPlainStruct(f.Type):
			more, err := b.fields(f.Type, at) // it can't hold t but by way of a field
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
			continue
		}
		c, err := b.node(f.Type, "field "+path, tag)
		if err != nil {
			return nil, err
		}
		out = append(out, columnField{tag.name, at, c})
	}
	return out, nil
}

// enter refuses a type that is a part of itself.
func (b *columnBuilder) enter(t reflect.Type) (done func(), err error) {
	if slices.Contains(b.within, t) {
		return nil, fmt.Errorf("%s holds itself, and the number of columns is fixed", t)
	}
	b.within = append(b.within, t)
	return func() { b.within = b.within[:len(b.within)-1] }, nil
}

// orderedGroup is a group whose fields keep their order; the library's sorts them.
type orderedGroup struct {
	parquet.Group
	fields []parquet.Field
}

func (g *orderedGroup) Fields() []parquet.Field { return g.fields }

// GoType is not used: values are made by columnsOf.
func (g *orderedGroup) GoType() reflect.Type { return reflect.TypeFor[struct{}]() }

type groupField struct {
	parquet.Node
	name string
}

func (f *groupField) Name() string { return f.name }

// Value is not used: values are made by columnsOf.
func (f *groupField) Value(reflect.Value) reflect.Value { return reflect.Value{} }

// contain turns a panic of the library into an error.
func contain(err *error) {
	if r := recover(); r != nil {
		*err = errors.Join(*err, fmt.Errorf("%v", r))
	}
}
