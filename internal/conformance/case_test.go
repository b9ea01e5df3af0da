package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// file is one file of testdata/golden.
type file struct {
	Family string            `json:"family"`
	Cases  []json.RawMessage `json:"cases"`
}

// golden is a case as it was recorded; the README beside the files says what
// the fields mean. Records are trees, see [treeOf].
type golden struct {
	Family string `json:"-"`
	// fields holds the case as it is, for what only one family has.
	fields map[string]json.RawMessage

	Name      string         `json:"name"`
	Op        string         `json:"op"`
	Params    map[string]any `json:"params"`
	BatchMS   int64          `json:"batch_ms"`
	Batches   int            `json:"batches"`
	WindowMS  int64          `json:"window_ms"`
	SlideMS   int64          `json:"slide_ms"`
	OneInput  [][]any        `json:"input"`
	AllInputs [][][]any      `json:"inputs"`
	Order     string         `json:"order"`
	Output    []entry        `json:"output"`
	Output2   []entry        `json:"output2"`
	Snapshots []entry        `json:"state_snapshots"`
}

// entry is a call of an output operation.
type entry struct {
	TimeMS     int64   `json:"time_ms"`
	Records    []any   `json:"records"`
	Count      *int    `json:"partition_count"`
	Partitions [][]any `json:"partitions"`
}

// failure is where a run stopped.
type failure struct {
	Phase  string `json:"phase"`
	TimeMS int64  `json:"time_ms"`
	// Contains is set in the errors family, where the text counts too.
	Contains string `json:"error_contains"`
}

func goldenDir() (dir string, shipped bool) {
	if dir := os.Getenv("GOLDEN_DIR"); dir != "" {
		return dir, false
	}
	return filepath.Join("testdata", "golden"), true
}

// load reads all cases, by family.
func load(t *testing.T, dir string) map[string][]*golden {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases in %q: %v", dir, err)
	}
	all := map[string][]*golden{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var f file
		if err := unmarshal(data, &f); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		seen := map[string]bool{}
		for _, raw := range f.Cases {
			c := &golden{Family: f.Family}
			if err := unmarshal(raw, c); err != nil {
				t.Fatalf("%s: %s: %v", path, c.Name, err)
			}
			if err := unmarshal(raw, &c.fields); err != nil {
				t.Fatal(err)
			}
			if c.Name == "" || seen[c.Name] {
				t.Fatalf("%s: the name %q is empty or taken", path, c.Name)
			}
			seen[c.Name] = true
			all[f.Family] = append(all[f.Family], c)
		}
	}
	return all
}

// unmarshal keeps numbers as they are written.
func unmarshal(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

// get decodes one field into v and reports whether the case has it.
func (c *golden) get(name string, v any) bool {
	raw, ok := c.fields[name]
	if !ok {
		return false
	}
	if err := unmarshal(raw, v); err != nil {
		panic(fmt.Sprintf("case %s: field %s: %v", c.Name, name, err))
	}
	return true
}

// failed returns where Spark's run stopped, nil if it did not.
func (c *golden) failed() *failure {
	var f *failure
	c.get("error", &f)
	return f
}

func (c *golden) has(param string) bool { return c.Params[param] != nil }

// num returns a numeric parameter, def if there is none.
func (c *golden) num(param string, def int64) int64 {
	if !c.has(param) {
		return def
	}
	n, err := c.Params[param].(json.Number).Int64()
	if err != nil {
		panic(fmt.Sprintf("case %s: parameter %s: %v", c.Name, param, err))
	}
	return n
}

func (c *golden) str(param string) string { s, _ := c.Params[param].(string); return s }

// inputs returns the batches of every source.
func (c *golden) inputs() [][][]any {
	if c.AllInputs != nil {
		return c.AllInputs
	}
	return [][][]any{c.OneInput}
}

// absent reports whether a source has no data set in batch i, counted from 1.
func (c *golden) absent(i int) bool {
	return slices.ContainsFunc(c.inputs(), func(in [][]any) bool { return i <= len(in) && in[i-1] == nil })
}

// records returns what all sources have at a time.
func (c *golden) records(at int64) []any {
	var all []any
	for _, in := range c.inputs() {
		if i := at / c.BatchMS; at%c.BatchMS == 0 && i >= 1 && i <= int64(len(in)) {
			all = append(all, in[i-1]...)
		}
	}
	return all
}

// end is the time of the last batch.
func (c *golden) end() int64 { return int64(c.Batches) * c.BatchMS }

// batchesOf decodes the batches of source i; a batch without data set is nil.
func batchesOf[T any](c *golden, i int) [][]T {
	var out [][]T
	for _, b := range c.inputs()[i] {
		var records []T
		if b != nil {
			records = make([]T, len(b))
			for j, r := range b {
				fill(reflect.ValueOf(&records[j]).Elem(), r)
			}
		}
		out = append(out, records)
	}
	return out
}

// fill decodes a tree into v: structs are arrays of their fields.
func fill(v reflect.Value, tree any) {
	switch v.Kind() {
	case reflect.Int64:
		n, err := tree.(json.Number).Int64()
		if err != nil {
			panic(err)
		}
		v.SetInt(n)
	case reflect.String:
		v.SetString(tree.(string))
	case reflect.Struct:
		fields := tree.([]any)
		if len(fields) != v.NumField() {
			panic(fmt.Sprintf("%v has %d fields, the record has %d", v.Type(), v.NumField(), len(fields)))
		}
		for i, f := range fields {
			fill(v.Field(i), f)
		}
	default:
		panic(fmt.Sprintf("no records of type %v", v.Type()))
	}
}
