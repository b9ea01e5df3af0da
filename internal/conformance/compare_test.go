package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// outcome is what a run gave, ours or Spark's: named lists of lines, the same
// from both sides if and only if they agree. An empty list equals a missing
// one.
type outcome map[string][]string

// snapshots is the list of the states after each batch.
const snapshots = "state_snapshots"

// add appends a line.
func (o outcome) add(name, format string, args ...any) {
	o[name] = append(o[name], fmt.Sprintf(format, args...))
}

// clean drops empty lists.
func (o outcome) clean() outcome {
	out := outcome{}
	for name, lines := range o {
		if len(lines) > 0 {
			out[name] = lines
		}
	}
	return out
}

// outputs adds the entries of an output. Counts and contents of partitions are
// compared where the case records them.
func (o outcome) outputs(name string, c *golden, got []entry) {
	recorded := map[string][]entry{"output": c.Output, "output2": c.Output2, snapshots: c.Snapshots}[name]
	count := slices.ContainsFunc(recorded, func(e entry) bool { return e.Count != nil })
	parts := slices.ContainsFunc(recorded, func(e entry) bool { return e.Partitions != nil })
	for _, e := range got {
		line := fmt.Sprintf("%d %s", e.TimeMS, text(ordered(c, e.Records)))
		if count {
			line += fmt.Sprintf(" partitions=%s", text(e.Count))
		}
		if parts {
			for _, p := range e.Partitions {
				line += " | " + text(ordered(c, p))
			}
		}
		o[name] = append(o[name], line)
	}
}

// ordered brings records whose order is not defined into one.
func ordered(c *golden, records []any) []any {
	switch c.Order {
	case "exact":
		return records
	case "multiset":
		sorted := append([]any{}, records...)
		slices.SortStableFunc(sorted, compareTrees)
		return sorted
	}
	panic(fmt.Sprintf("case %s: order %q", c.Name, c.Order))
}

// tree is a record that is the JSON text of its tree, for functions whose
// records are not all of one shape.
type tree string

func treeText(v ...any) tree { return tree(text(v)) }

// treeOf turns a record into what its JSON form decodes to: numbers, strings,
// nil and arrays. A struct is the array of its fields, so a pair is [key,
// value]; a missing Opt is nil. With sort, groups of values, which are slices,
// are sorted, as they are in the cases; fields of structs keep their places.
func treeOf(v reflect.Value, sort bool) any {
	if v.Type() == reflect.TypeFor[tree]() {
		var out any
		if err := unmarshal([]byte(v.String()), &out); err != nil {
			panic(err)
		}
		return out
	}
	switch v.Kind() {
	case reflect.Int64:
		return json.Number(fmt.Sprint(v.Int()))
	case reflect.String:
		return v.String()
	case reflect.Struct:
		if ok := v.FieldByName("OK"); ok.IsValid() {
			if !ok.Bool() {
				return nil
			}
			return treeOf(v.FieldByName("Value"), sort)
		}
		fields := []any{}
		for _, f := range v.Fields() {
			fields = append(fields, treeOf(f, sort))
		}
		return fields
	case reflect.Slice:
		group := []any{}
		for i := range v.Len() {
			group = append(group, treeOf(v.Index(i), sort))
		}
		if sort {
			slices.SortStableFunc(group, compareTrees)
		}
		return group
	}
	panic(fmt.Sprintf("no tree for %v", v.Type()))
}

// trees turns records of any type into trees.
func trees[T any](records []T, sort bool) []any {
	out := make([]any, 0, len(records))
	for _, r := range records {
		out = append(out, treeOf(reflect.ValueOf(r), sort))
	}
	return out
}

// compareTrees orders trees: nil, truth values, numbers, strings, arrays.
func compareTrees(a, b any) int {
	if r := cmp.Compare(rank(a), rank(b)); r != 0 {
		return r
	}
	switch a := a.(type) {
	case bool:
		if a == b.(bool) {
			return 0
		} else if a {
			return 1
		}
		return -1
	case json.Number:
		return cmp.Compare(number(a), number(b.(json.Number)))
	case string:
		return strings.Compare(a, b.(string))
	case []any:
		return slices.CompareFunc(a, b.([]any), compareTrees)
	}
	return 0
}

func rank(v any) int {
	switch v.(type) {
	case nil:
		return 0
	case bool:
		return 1
	case json.Number:
		return 2
	case string:
		return 3
	case []any:
		return 4
	}
	panic(fmt.Sprintf("a %T in a tree", v))
}

func number(n json.Number) int64 {
	v, err := n.Int64()
	if err != nil {
		panic(err)
	}
	return v
}

// text is the JSON text of a value.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
