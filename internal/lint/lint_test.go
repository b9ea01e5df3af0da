package lint

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// TestRepository runs every rule and tool over the repository.
func TestRepository(t *testing.T) {
	wholeRun(t)

	t.Run("gofumpt", func(t *testing.T) {
		t.Parallel()
		if out, err := run(root, tool(t, "gofumpt"), gofumptArgs()...); err != nil || out != "" {
			t.Errorf("not formatted (make fmt mends it):\n%s", out)
		}
	})
	t.Run("vet", func(t *testing.T) {
		t.Parallel()
		for _, tags := range []string{"", "e2e"} {
			if out, err := run(root, "go", vetArgs(tags)...); err != nil {
				t.Errorf("go vet -tags %q: %v\n%s", tags, err, out)
			}
		}
	})
	t.Run("staticcheck", func(t *testing.T) {
		t.Parallel()
		if out, err := run(root, tool(t, "staticcheck"), staticcheckArgs()...); err != nil {
			t.Errorf("staticcheck: %v\n%s", err, out)
		}
	})
	t.Run("imports", func(t *testing.T) {
		t.Parallel()
		all, err := list(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range imports(all, layers()) {
			t.Error(f)
		}
	})

	repository, err := load(os.DirFS(root), repositoryFiles(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(repository.files) == 0 {
		t.Fatal("no Go files found")
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			for _, f := range r.findings(repository) {
				t.Error(f)
			}
		})
	}
}

// TestToolsReportViolations shows that a silent tool in TestRepository means
// clean code and not a tool that did not look.
func TestToolsReportViolations(t *testing.T) {
	wholeRun(t)
	dir := t.TempDir()
	for name, body := range map[string]string{
		"go.mod":      "module example.test/bad\n\ngo 1.26\n",
		"bad.go":      "// Package bad is bad.\npackage bad\n\nimport \"fmt\"\n\nfunc Bad() {\n\n\tfmt.Printf(\"%d\\n\", \"x\")\n}\n\nfunc unused() {}\n",
		"bad_test.go": "//go:build e2e\n\npackage bad\n\nfunc unusedInE2E() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		path string
		args []string
		want []string
	}{
		{"vet", "go", vetArgs(""), []string{"wrong type"}},
		{"staticcheck", tool(t, "staticcheck"), staticcheckArgs(), []string{"func unused is unused", "func unusedInE2E is unused"}},
		{"gofumpt", tool(t, "gofumpt"), gofumptArgs(), []string{"bad.go"}},
	} {
		out, err := run(dir, test.path, test.args...)
		if err == nil && test.name != "gofumpt" { // which reports by its output alone
			t.Errorf("%s succeeded", test.name)
		}
		for _, want := range test.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s printed %q, want a line with %q", test.name, out, want)
			}
		}
	}
}

func gofumptArgs() []string        { return []string{"-l", "."} }
func vetArgs(tags string) []string { return []string{"vet", "-tags", tags, "./..."} }
func staticcheckArgs() []string    { return []string{"-tags", "e2e", "./..."} }

func wholeRun(t *testing.T) {
	t.Helper()
	if os.Getenv("TIDEMILL_LINT") != "1" {
		t.Skip("checks the whole repository: run it by make lint (TIDEMILL_LINT=1)")
	}
}

// tool returns the executable of a tool named in go.mod, built if need be.
func tool(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command("go", "tool", "-n", name)
	cmd.Dir = root
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go tool -n %s: %v", name, err)
	}
	return string(bytes.TrimSpace(out))
}

// run returns all that the command printed. Output alone is no failure: the go
// command speaks while it downloads modules.
func run(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// repositoryFiles names what git tracks or would track. In a source archive,
// without git, it names every file.
func repositoryFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil {
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	}
	t.Log("no git checkout: looking at every file")
	return allFiles(t, os.DirFS(root))
}

func allFiles(t *testing.T, fsys fs.FS) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if !d.IsDir() {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
