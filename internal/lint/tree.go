package lint

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A finding is one violation of a rule. Line is 0 where the file or package as
// a whole is meant.
type finding struct {
	path string
	line int
	text string
}

func (f finding) String() string {
	if f.line == 0 {
		return fmt.Sprintf("%s: %s", f.path, f.text)
	}
	return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.text)
}

// A tree is what the rules look at: the text files of a repository and, parsed,
// those of them that the go command would compile.
type tree struct {
	fset  *token.FileSet
	texts []text
	files []goFile // sorted by path
}

type text struct {
	path string
	body []byte
}

type goFile struct {
	path string // relative to the root, with slashes
	test bool
	ast  *ast.File
}

func (f goFile) dir() string { return path.Dir(f.path) }

// isMain reports whether the file belongs to a command rather than a library.
func (f goFile) isMain() bool { return strings.TrimSuffix(f.ast.Name.Name, "_test") == "main" }

// isInternal reports whether only this module can import the file's package.
func (f goFile) isInternal() bool { return slices.Contains(strings.Split(f.dir(), "/"), "internal") }

// load reads the named files. Names that are gone or are no regular files are
// passed over: git lists deleted files and links too.
func load(fsys fs.FS, names []string) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	modules := map[string]bool{}
	for _, name := range names {
		if path.Base(name) == "go.mod" && name != "go.mod" {
			modules[path.Dir(name)] = true
		}
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		info, err := fs.Lstat(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lint: %w", err)
		}
		if !info.Mode().IsRegular() {
			continue
		}
		body, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("lint: %w", err)
		}
		if bytes.IndexByte(body, 0) < 0 {
			t.texts = append(t.texts, text{name, body})
		}
		if !compiled(name, modules) {
			continue
		}
		parsed, err := parser.ParseFile(t.fset, name, body, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("lint: %w", err)
		}
		t.files = append(t.files, goFile{name, strings.HasSuffix(name, "_test.go"), parsed})
	}
	return t, nil
}

// compiled reports whether the go command takes the file for part of the
// module, build constraints aside.
func compiled(name string, modules map[string]bool) bool {
	if path.Ext(name) != ".go" || ignored(path.Base(name)) {
		return false
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		base := path.Base(dir)
		if ignored(base) || base == "testdata" || base == "vendor" || modules[dir] {
			return false
		}
	}
	return true
}

func ignored(base string) bool { return strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") }

func (t *tree) at(f goFile, pos token.Pos, format string, args ...any) finding {
	return finding{f.path, t.fset.Position(pos).Line, fmt.Sprintf(format, args...)}
}

// imported returns the name by which the file calls the package, "" when the
// file does not import it.
func (f goFile) imported(pkg string) string {
	for _, spec := range f.ast.Imports {
		if strings.Trim(spec.Path.Value, "`\"") != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		// go-hclog is the one package here whose name is not its last element.
		return strings.TrimPrefix(path.Base(pkg), "go-")
	}
	return ""
}

// selected returns Sel if the node is pkg.Sel, else "".
func selected(node ast.Node, pkg string) string {
	sel, ok := node.(*ast.SelectorExpr)
	if !ok || pkg == "" {
		return ""
	}
	if id, ok := sel.X.(*ast.Ident); !ok || id.Name != pkg {
		return ""
	}
	return sel.Sel.Name
}
