package lint

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestImportsFollowThePackageTable(t *testing.T) {
	for _, test := range []struct {
		name    string
		imports map[string][]string // package below the module to what it imports
		want    []string
	}{
		{
			name: "arrows down",
			imports: map[string][]string{
				"examples/wordcount": {"m", "m/tidetest", "m/kafka", "m/examples/data", "fmt"},
				"examples/data":      {"strings"},
				"bench":              {"m/internal/conformance"},
				".":                  {"m/driver", "fmt"},
				"driver":             {"m/internal/base", "third/party"},
				"internal/base":      {"fmt"},
				"internal/lint":      {"go/ast"},
			},
		},
		{
			name:    "an arrow up",
			imports: map[string][]string{"wal": {"m/internal/base", "m/driver"}, "internal/block": {"m"}},
			want: []string{
				"internal/block: imports ., which stands above it in the package table",
				"wal: imports driver, which stands above it in the package table",
			},
		},
		{
			name:    "an arrow up to the kit that tests use",
			imports: map[string][]string{"driver": {"m/tidetest"}},
			want:    []string{"driver: imports tidetest, which stands above it in the package table"},
		},
		{
			name:    "a package that the table does not know",
			imports: map[string][]string{"internal/strs": {}, "kafka/fetch": {}, "driver": {"m/internal/strs"}},
			want: []string{
				"internal/strs: package is not in the package table (layers in internal/lint/imports.go)",
				"kafka/fetch: package is not in the package table (layers in internal/lint/imports.go)",
			},
		},
		{
			name:    "the bottom uses a module",
			imports: map[string][]string{"internal/base": {"third/party"}},
			want:    []string{"internal/base: imports third/party, may import the standard library only"},
		},
		{
			name:    "an example looks inside",
			imports: map[string][]string{"examples/wordcount": {"m/internal/base"}},
			want:    []string{"examples/wordcount: imports internal/base, which a reader of the example cannot"},
		},
		{
			name:    "lint is not apart",
			imports: map[string][]string{"internal/lint": {"m/internal/base"}, "driver": {"m/internal/lint"}},
			want: []string{
				"driver: imports internal/lint, but internal/lint stands apart",
				"internal/lint: imports internal/base, but internal/lint stands apart",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect(t, imports(packages(test.imports), layers()), test.want)
		})
	}
}

// packages lists module m with the given packages, and all that they import.
func packages(of map[string][]string) []listed {
	type module = struct {
		Path string
		Main bool
	}
	all := map[string]listed{}
	add := func(path string) {
		p := listed{ImportPath: path}
		switch {
		case path == "third/party":
			p.Module = &module{Path: "third/party"}
		case path == "m" || strings.HasPrefix(path, "m/"):
			p.Module = &module{Path: "m", Main: true}
		default:
			p.Standard = true
		}
		all[path] = p
	}
	for _, paths := range of {
		for _, path := range paths {
			add(path)
		}
	}
	for rel, paths := range of {
		path := "m/" + rel
		if rel == "." {
			path = "m"
		}
		add(path)
		p := all[path]
		p.Imports = paths
		all[path] = p
	}
	var sorted []listed
	for _, path := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[path])
	}
	return sorted
}

func TestListReadsTheImportsOfAModuleWithoutThoseOfTests(t *testing.T) {
	dir := t.TempDir()
	for name, body := range map[string]string{
		"go.mod":                "module example.test/m\n\ngo 1.26\n",
		"doc.go":                "package m\n\nimport _ \"example.test/m/wal\"\n",
		"wal/wal.go":            "package wal\n\nimport _ \"example.test/m/driver\"\n",
		"driver/driver.go":      "package driver\n\nimport _ \"errors\"\n",
		"driver/driver_test.go": "package driver\n\nimport _ \"example.test/m/wal\"\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, imports(all, layers()), []string{"wal: imports driver, which stands above it in the package table"})
}
