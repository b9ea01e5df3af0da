package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// layers returns the package table, top first: a package imports only packages
// of rows below its own. "x/..." is x and everything under it.
func layers() []string {
	return []string{
		"examples/...",
		"test/...",
		"bench/...",
		"internal/conformance",
		"tidetest",
		"tidetest/hdfstest",
		"cmd/tidemill",
		".",
		"kafka",
		"segment",
		"driver",
		"executor",
		"receiver",
		"checkpoint",
		"wal",
		"rdd",
		"internal/cluster",
		"internal/web",
		"internal/rpc",
		"internal/graph",
		"internal/plan",
		"internal/sched",
		"internal/state",
		"internal/block",
		"internal/codec",
		"internal/fsys/fsystest",
		"internal/fsys/hdfs",
		"internal/fsys",
		"internal/script",
		"internal/base",
	}
}

const (
	// apart neither imports packages of the module nor is imported by them.
	apart = "internal/lint"
	// bottom imports the standard library only.
	bottom = "internal/base"
)

// A listed package is what "go list -deps" says of one. Imports are those of
// the package itself: a test may import what it needs.
type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Module     *struct {
		Path string
		Main bool
	}
}

func (p listed) inModule() bool { return p.Module != nil && p.Module.Main }

// rel is the package's path below the module's, "." for the root.
func (p listed) rel() string {
	if p.ImportPath == p.Module.Path {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")
}

// list asks the go command for the packages of the module at dir and all they
// depend on.
func list(dir string) ([]listed, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Module", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("lint: go list: %w\n%s", err, stderr.Bytes())
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("lint: go list: %w", err)
		}
		all = append(all, p)
	}
}

// imports checks every arrow between packages of the module against the table.
// Since each arrow goes down, so does each chain of them.
func imports(all []listed, table []string) []finding {
	byPath := make(map[string]listed, len(all))
	for _, p := range all {
		byPath[p.ImportPath] = p
	}
	var found []finding
	for _, p := range all {
		if !p.inModule() {
			continue
		}
		from := p.rel()
		rank := row(table, from)
		if rank < 0 && from != apart {
			found = append(found, finding{path: from, text: "package is not in the package table (layers in internal/lint/imports.go)"})
			continue
		}
		for _, path := range p.Imports {
			imp := byPath[path]
			if !imp.inModule() {
				if from == bottom && !imp.Standard {
					found = append(found, finding{path: from, text: "imports " + path + ", may import the standard library only"})
				}
				continue
			}
			to := imp.rel()
			switch {
			case from == apart || to == apart:
				found = append(found, finding{path: from, text: "imports " + to + ", but " + apart + " stands apart"})
			case within(from, "examples/...") && strings.HasPrefix(to, "internal/"):
				found = append(found, finding{path: from, text: "imports " + to + ", which a reader of the example cannot"})
			case row(table, to) < 0:
				// Reported where the package itself is listed.
			case row(table, to) < rank:
				found = append(found, finding{path: from, text: "imports " + to + ", which stands above it in the package table"})
			}
		}
	}
	return found
}

func row(table []string, rel string) int {
	return slices.IndexFunc(table, func(pattern string) bool { return within(rel, pattern) })
}

func within(rel, pattern string) bool {
	prefix, ok := strings.CutSuffix(pattern, "/...")
	return rel == prefix || ok && strings.HasPrefix(rel, prefix+"/")
}
