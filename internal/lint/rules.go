package lint

import (
	"bytes"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A rule looks at a whole tree. Allowed maps the paths of files that a rule
// passes over to the reason.
type rule struct {
	name    string
	check   func(*tree) []finding
	allowed map[string]string
}

func (r rule) findings(t *tree) []finding {
	return slices.DeleteFunc(r.check(t), func(f finding) bool {
		_, ok := r.allowed[f.path]
		return ok
	})
}

// rules returns every rule that needs no more than the files. An exception is
// written here, with its reason, and is seen in review.
func rules() []rule {
	return []rule{
		{name: "words", check: words, allowed: map[string]string{
			"go.sum": "hashes, not words",
		}},
		{name: "package names", check: packageNames},
		{name: "package docs", check: packageDocs},
		{name: "exported docs", check: exportedDocs},
		{name: "init functions", check: initFunctions},
		{name: "loggers", check: loggers},
		{name: "sleeps", check: sleeps},
		{name: "file names", check: fileNames},
	}
}

// Neither expression matches its own text.
var (
	machinePath = regexp.MustCompile(`(?m)(?:^|[^\w.-])(/(?:work|root|home)/)`)
	unfinished  = regexp.MustCompile(`\b(TO[D]O|FIX[M]E)\b`)
)

// words finds absolute paths of somebody's machine and marks of unfinished
// work, in files of every kind.
func words(t *tree) []finding {
	var found []finding
	for _, file := range t.texts {
		for _, m := range machinePath.FindAllSubmatchIndex(file.body, -1) {
			found = append(found, finding{file.path, lineAt(file.body, m[2]), "path of one machine: " + string(file.body[m[2]:m[3]])})
		}
		for _, m := range unfinished.FindAllSubmatchIndex(file.body, -1) {
			found = append(found, finding{file.path, lineAt(file.body, m[2]), "finish it or file an issue: " + string(file.body[m[2]:m[3]])})
		}
	}
	return found
}

func lineAt(body []byte, offset int) int { return 1 + bytes.Count(body[:offset], []byte("\n")) }

// packageNames finds packages named after nothing in particular.
func packageNames(t *tree) []finding {
	vague := []string{"util", "utils", "common", "helper", "helpers"}
	var found []finding
	seen := map[string]bool{}
	for _, f := range t.files {
		name := strings.TrimSuffix(f.ast.Name.Name, "_test")
		if !slices.Contains(vague, name) {
			name = path.Base(f.dir())
		}
		if slices.Contains(vague, name) && !seen[f.dir()] {
			seen[f.dir()] = true
			found = append(found, finding{path: f.dir(), text: "package named " + name + ": name it after what it provides"})
		}
	}
	return found
}

// packageDocs finds packages without a package comment. A library has it in
// doc.go, a command in any file.
func packageDocs(t *tree) []finding {
	packages := map[string][]goFile{}
	for _, f := range t.files {
		packages[f.dir()] = append(packages[f.dir()], f)
	}
	var found []finding
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		files := packages[dir]
		if slices.ContainsFunc(files, goFile.isMain) {
			if !slices.ContainsFunc(files, func(f goFile) bool { return !f.test && f.ast.Doc != nil }) {
				found = append(found, finding{path: dir, text: "command without a package comment"})
			}
			continue
		}
		begin := "Package " + strings.TrimSuffix(files[0].ast.Name.Name, "_test") + " "
		if !slices.ContainsFunc(files, func(f goFile) bool {
			return path.Base(f.path) == "doc.go" && strings.HasPrefix(f.ast.Doc.Text(), begin)
		}) {
			found = append(found, finding{path: dir, text: "no doc.go with a package comment that begins " + strconv.Quote(begin)})
		}
	}
	return found
}

// exportedDocs finds exported names without a doc comment in packages that
// users import. One comment serves all names of a const or var group; struct
// fields and interface methods are left to the reviewer.
func exportedDocs(t *tree) []finding {
	var found []finding
	for _, f := range t.files {
		if f.test || f.isMain() || f.isInternal() {
			continue
		}
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					recv := receiver(d.Recv.List[0].Type)
					if !ast.IsExported(recv) {
						continue
					}
					name = recv + "." + name
				}
				if d.Name.IsExported() && d.Doc == nil {
					found = append(found, t.at(f, d.Pos(), "exported %s has no doc comment", name))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						documented := s.Doc != nil || !d.Lparen.IsValid() && d.Doc != nil
						if s.Name.IsExported() && !documented {
							found = append(found, t.at(f, s.Pos(), "exported %s has no doc comment", s.Name.Name))
						}
					case *ast.ValueSpec:
						if d.Doc != nil || s.Doc != nil || s.Comment != nil {
							continue
						}
						for _, id := range s.Names {
							if id.IsExported() {
								found = append(found, t.at(f, id.Pos(), "exported %s has no doc comment", id.Name))
							}
						}
					}
				}
			}
		}
	}
	return found
}

// receiver returns the name of a method's receiver type, without pointer and
// type parameters.
func receiver(expr ast.Expr) string {
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.ParenExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// initFunctions finds work that an import alone would start.
func initFunctions(t *tree) []finding {
	var found []finding
	for _, f := range t.files {
		if f.test || f.isMain() {
			continue
		}
		for _, decl := range f.ast.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" {
				found = append(found, t.at(f, d.Pos(), "init function outside a main package"))
			}
		}
	}
	return found
}

// loggers finds package-level variables that hold a logger; a logger is
// injected.
func loggers(t *tree) []finding {
	packages := []string{"log", "log/slog", "github.com/hashicorp/go-hclog"}
	makers := []string{"New", "Default", "L", "With"}
	var found []finding
	for _, f := range t.files {
		if f.test || f.isMain() {
			continue
		}
		for _, decl := range f.ast.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.VAR {
				continue
			}
			ast.Inspect(d, func(node ast.Node) bool {
				switch node.(type) {
				case *ast.FuncType, *ast.FuncLit:
					return false // takes, gives or makes one when called
				}
				for _, pkg := range packages {
					name := selected(node, f.imported(pkg))
					if strings.HasSuffix(name, "Logger") || slices.Contains(makers, name) {
						found = append(found, t.at(f, node.Pos(), "package-level logger (%s.%s): inject it", path.Base(pkg), name))
						return false
					}
				}
				return true
			})
		}
	}
	return found
}

// sleeps finds tests that wait for real time to pass. A file that imports
// testing/synctest sleeps in fake time.
func sleeps(t *tree) []finding {
	var found []finding
	for _, f := range t.files {
		if !f.test || f.imported("testing/synctest") != "" {
			continue
		}
		clock := f.imported("time")
		ast.Inspect(f.ast, func(node ast.Node) bool {
			if selected(node, clock) == "Sleep" {
				found = append(found, t.at(f, node.Pos(), "time.Sleep in a test without testing/synctest"))
			}
			return true
		})
	}
	return found
}

// fileNames finds functions of path and path/filepath that don't know names on
// other file systems, in packages that use file systems. A package of a file
// system knows what it does, and benchmarks arrange files of this machine.
func fileNames(t *tree) []finding {
	const fsys = "github.com/tidemill/tidemill/internal/fsys"
	uses := map[string]bool{}
	for _, f := range t.files {
		exempt := within(f.dir(), "internal/fsys/...") || within(f.dir(), "bench/...")
		if !f.test && f.imported(fsys) != "" && !exempt {
			uses[f.dir()] = true
		}
	}
	var found []finding
	for _, f := range t.files {
		if f.test || !uses[f.dir()] {
			continue
		}
		ast.Inspect(f.ast, func(node ast.Node) bool {
			for _, pkg := range []string{"path", "path/filepath"} {
				name := selected(node, f.imported(pkg))
				if slices.Contains([]string{"Base", "Clean", "Dir", "Join"}, name) {
					found = append(found, t.at(f, node.Pos(), "%s.%s of a name: fsys.%[2]s knows those on other file systems", pkg, name))
				}
			}
			return true
		})
	}
	return found
}
