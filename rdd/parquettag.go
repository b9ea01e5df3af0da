package rdd

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// columnTag is what the tags of a field say.
type columnTag struct {
	name                string
	options             []string
	key, value, element []string // options of parts
	list                bool     // not from a tag: a bare repeated column won't do
}

func fieldTag(f reflect.StructField) (tag columnTag, skip bool) {
	text := f.Tag.Get("parquet")
	if text == "-" {
		return tag, true
	}
	name, _, _ := strings.Cut(text, ",")
	if name == "" {
		name = f.Name
	}
	return columnTag{
		name: name, options: options(text),
		key: options(f.Tag.Get("parquet-key")), value: options(f.Tag.Get("parquet-value")), element: options(f.Tag.Get("parquet-element")),
	}, false
}

// options returns what follows the name in a tag.
func options(text string) []string {
	_, text, _ = strings.Cut(text, ",")
	return slices.DeleteFunc(strings.Split(text, ","), func(o string) bool { return o == "" })
}

func (t *columnTag) has(option string) bool { return slices.Contains(t.options, option) }

func (t *columnTag) take(option string) bool {
	i := slices.Index(t.options, option)
	if i >= 0 {
		t.options = slices.Delete(slices.Clone(t.options), i, i+1)
	}
	return i >= 0
}

// takeID takes the option id(n), which belongs to the outermost node of a field.
func (t *columnTag) takeID() int {
	id := 0
	t.options = slices.DeleteFunc(slices.Clone(t.options), func(o string) bool {
		n, err := fmt.Sscanf(o, "id(%d)", &id)
		return n == 1 && err == nil
	})
	return id
}

func identify(c columnNode, id int) columnNode {
	if id != 0 && c.node != nil {
		c.node = parquet.FieldID(c.node, id)
	}
	return c
}
