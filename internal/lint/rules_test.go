package lint

import (
	"slices"
	"testing"
	"testing/fstest"
)

// files is a small repository: path to content.
type files map[string]string

func TestRulesFindViolations(t *testing.T) {
	for _, test := range []struct {
		name  string
		check func(*tree) []finding
		files files
		want  []string
	}{
		{
			name:  "words: paths of a machine and unfinished work, in any text file",
			check: words,
			files: files{
				"README.md":      "first\nsee " + "/ho" + "me/ann/notes\n",
				"deploy/a.yaml":  "path: \"/wo" + "rk/state\"\nurl: file:///ro" + "ot/x\n",
				"a.go":           "package a\n\n// TO" + "DO: later\n// FIX" + "ME\n",
				"docs/a.md":      "https://example.test/wo" + "rk/x /workspace /rooted a/ho" + "me/b ./wo" + "rk/ PASTODON\n",
				"testdata/image": "\x00/ro" + "ot/",
			},
			want: []string{
				"README.md:2: path of one machine: /ho" + "me/",
				"a.go:3: finish it or file an issue: TO" + "DO",
				"a.go:4: finish it or file an issue: FIX" + "ME",
				"deploy/a.yaml:1: path of one machine: /wo" + "rk/",
				"deploy/a.yaml:2: path of one machine: /ro" + "ot/",
			},
		},
		{
			name:  "package names: by clause or by directory, once each",
			check: packageNames,
			files: files{
				"util/a.go":               "package strs",
				"util/b.go":               "package strs",
				"x/a.go":                  "package helpers",
				"y/common/a_test.go":      "package common_test",
				"commonest/a.go":          "package commonest",
				"y/testdata/util/a.go":    "package util",
				"third/go.mod":            "module third",
				"third/utils/a.go":        "package utils",
				"y/_old/helper/helper.go": "package helper",
			},
			want: []string{
				"util: package named util: name it after what it provides",
				"x: package named helpers: name it after what it provides",
				"y/common: package named common: name it after what it provides",
			},
		},
		{
			name:  "package docs: doc.go of a library, any file of a command",
			check: packageDocs,
			files: files{
				"a/a.go":            "// Package a is in the wrong file.\npackage a",
				"a/sub/doc.go":      "// Package sub is right.\npackage sub",
				"a/z.go":            "package a",
				"b/doc.go":          "// Provides b.\npackage b",
				"c/doc.go":          "// Package c is apart.\n\npackage c",
				"d/d_test.go":       "package d_test",
				"cmd/good/main.go":  "package main",
				"cmd/good/flags.go": "// Good does good.\npackage main",
				"cmd/bad/main.go":   "package main",
				"cmd/bad/a_test.go": "// Tests bad.\npackage main",
			},
			want: []string{
				`a: no doc.go with a package comment that begins "Package a "`,
				`b: no doc.go with a package comment that begins "Package b "`,
				`c: no doc.go with a package comment that begins "Package c "`,
				"cmd/bad: command without a package comment",
				`d: no doc.go with a package comment that begins "Package d "`,
			},
		},
		{
			name:  "exported docs: functions, methods, types, values of public packages",
			check: exportedDocs,
			files: files{
				"a/a.go": `package a

func F() {}

// G is documented.
func G() {}

type T[K, V any] struct{ Field int }

func (t *T[K, V]) M() {}
func (t *T[K, V]) m() {}

type u struct{}

func (u) M() {}

const A, b = 1, 2

// Colours.
const (
	Red = iota
	Blue
)

var (
	X = 1
	Y = 2 // Y is documented.
	// Z is documented.
	Z = 3
)

// Types share no comment.
type (
	P int
	// Q is documented.
	Q int
)
`,
				"a/a_test.go":     "package a\n\nfunc TestF() {}\n",
				"internal/b/b.go": "package b\n\nfunc F() {}\n",
				"c/internal/d.go": "package internal\n\nfunc F() {}\n",
				"cmd/c/main.go":   "package main\n\nfunc F() {}\n",
			},
			want: []string{
				"a/a.go:3: exported F has no doc comment",
				"a/a.go:8: exported T has no doc comment",
				"a/a.go:10: exported T.M has no doc comment",
				"a/a.go:17: exported A has no doc comment",
				"a/a.go:26: exported X has no doc comment",
				"a/a.go:34: exported P has no doc comment",
			},
		},
		{
			name:  "init functions: not outside main packages",
			check: initFunctions,
			files: files{
				"a/a.go":        "package a\n\nfunc init() {}\n\ntype t int\n\nfunc (t) init() {}\n",
				"cmd/c/main.go": "package main\n\nfunc init() {}\n",
			},
			want: []string{"a/a.go:3: init function outside a main package"},
		},
		{
			name:  "loggers: no package-level variable holds one",
			check: loggers,
			files: files{
				"a/a.go": `package a

import (
	"log"
	sl "log/slog"

	"github.com/hashicorp/go-hclog"
)

var one hclog.Logger

var (
	two   = log.New(nil, "", 0)
	three = sl.With("a", 1)
	four  struct{ log *sl.Logger }
	five  = hclog.NewNullLogger()

	makes   = func() hclog.Logger { return hclog.Default() }
	options = hclog.LoggerOptions{}
)

func f() { var local hclog.Logger = hclog.Default(); _ = local }
`,
				"b/b.go":        "package b\n\nimport log \"math\"\n\nvar x = log.New()\n",
				"cmd/c/main.go": "package main\n\nimport \"log\"\n\nvar l = log.Default()\n",
			},
			want: []string{
				"a/a.go:10: package-level logger (go-hclog.Logger): inject it",
				"a/a.go:13: package-level logger (log.New): inject it",
				"a/a.go:14: package-level logger (slog.With): inject it",
				"a/a.go:15: package-level logger (slog.Logger): inject it",
				"a/a.go:16: package-level logger (go-hclog.NewNullLogger): inject it",
			},
		},
		{
			name:  "sleeps: tests sleep in fake time only",
			check: sleeps,
			files: files{
				"a/a.go":      "package a\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n",
				"a/a_test.go": "package a\n\nimport clock \"time\"\n\nvar wait = clock.Sleep\n\nfunc f() { clock.Sleep(1) }\n",
				"a/b_test.go": "package a\n\nimport (\n\t\"testing/synctest\"\n\t\"time\"\n)\n\nfunc f() { synctest.Wait(); time.Sleep(1) }\n",
				"a/c_test.go": "package a\n\nimport \"fake/clock\"\n\nvar time clock.Clock\n\nfunc f() { time.Sleep(1) }\n",
			},
			want: []string{
				"a/a_test.go:5: time.Sleep in a test without testing/synctest",
				"a/a_test.go:7: time.Sleep in a test without testing/synctest",
			},
		},
		{
			name:  "file names: those of file systems are no mere paths",
			check: fileNames,
			files: files{
				"a/fs.go":              "package a\n\nimport _ \"github.com/tidemill/tidemill/internal/fsys\"\n",
				"a/a.go":               "package a\n\nimport (\n\t\"path\"\n\tfp \"path/filepath\"\n)\n\nvar x, y, z = path.Ext, fp.Abs, path.Match\n\nfunc f() { path.Join(fp.Dir(\"\")); path.Base(\"\"); fp.Clean(\"\") }\n",
				"a/a_test.go":          "package a\n\nimport \"path\"\n\nvar y = path.Join()\n",
				"b/b.go":               "package b\n\nimport \"path\"\n\nvar y = path.Join()\n",
				"b/b_test.go":          "package b\n\nimport _ \"github.com/tidemill/tidemill/internal/fsys\"\n",
				"internal/fsys/x/x.go": "package x\n\nimport (\n\t\"path\"\n\t_ \"github.com/tidemill/tidemill/internal/fsys\"\n)\n\nvar y = path.Join()\n",
				"bench/x.go":           "package main\n\nimport (\n\t\"path\"\n\t_ \"github.com/tidemill/tidemill/internal/fsys\"\n)\n\nvar y = path.Join()\n",
			},
			want: []string{
				"a/a.go:10: path.Join of a name: fsys.Join knows those on other file systems",
				"a/a.go:10: path/filepath.Dir of a name: fsys.Dir knows those on other file systems",
				"a/a.go:10: path.Base of a name: fsys.Base knows those on other file systems",
				"a/a.go:10: path/filepath.Clean of a name: fsys.Clean knows those on other file systems",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect(t, test.check(mustLoad(t, test.files)), test.want)
		})
	}
}

func TestAllowedFilesArePassedOver(t *testing.T) {
	sleepy := "package a\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n"
	tree := mustLoad(t, files{"a/a_test.go": sleepy, "a/b_test.go": sleepy})
	r := rule{check: sleeps, allowed: map[string]string{"a/b_test.go": "waits for a process"}}
	expect(t, r.findings(tree), []string{"a/a_test.go:5: time.Sleep in a test without testing/synctest"})
}

func TestLoadRefusesFilesThatDoNotParse(t *testing.T) {
	fsys := fstest.MapFS{"a.go": {Data: []byte("package")}}
	if _, err := load(fsys, []string{"a.go"}); err == nil {
		t.Error("load returned no error")
	}
}

func TestLoadPassesOverDeletedFiles(t *testing.T) {
	if _, err := load(fstest.MapFS{}, []string{"gone.go"}); err != nil {
		t.Error(err)
	}
}

func mustLoad(t *testing.T, contents files) *tree {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, body := range contents {
		fsys[name] = &fstest.MapFile{Data: []byte(body)}
	}
	loaded, err := load(fsys, allFiles(t, fsys))
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// expect compares findings with the wanted lines, in order.
func expect(t *testing.T, found []finding, want []string) {
	t.Helper()
	var got []string
	for _, f := range found {
		got = append(got, f.String())
	}
	if slices.Equal(got, want) {
		return
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("unwanted: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing:  %s", line)
		}
	}
	if !t.Failed() {
		t.Errorf("order or number differs:\n got %q\nwant %q", got, want)
	}
}
