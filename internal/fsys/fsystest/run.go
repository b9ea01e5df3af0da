package fsystest

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
)

// Exception is a rule that a file system is known not to keep.
type Exception struct {
	Rule string // name of the subtest
	Why  string
}

// Run tests a file system. For each rule, open gives one and the name of an empty
// directory on it, which the test fills and leaves behind.
func Run(t *testing.T, open func(t *testing.T) (f fsys.FS, root string), except ...Exception) {
	t.Helper()
	all := slices.Concat(names(), renames(), lists(), contents(), races(), locks())
	for _, e := range except {
		if !slices.ContainsFunc(all, func(r rule) bool { return r.name == e.Rule }) {
			t.Errorf("there is no rule %q to make an exception of", e.Rule)
		}
	}
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) {
			for _, e := range except {
				if e.Rule == r.name {
					t.Skip(e.Why)
				}
			}
			f, root := open(t)
			r.run(scene{t, f, root})
		})
	}
}

// rule is what every implementation must do.
type rule struct {
	name string
	run  func(s scene)
}

// scene is the place of one test.
type scene struct {
	*testing.T
	fsys.FS
	root string
}

func (s scene) at(name string) string { return fsys.Join(s.root, name) }

// fill makes a small tree: an empty directory "empty", a directory "full" with
// the file "full/one", and the file "file".
func (s scene) fill() {
	s.Helper()
	s.must(s.FS.Mkdir(s.at("empty")))
	s.must(s.FS.Mkdir(s.at("full")))
	s.write("full/one", "1")
	s.write("file", "content")
}

func (s scene) write(name, content string) {
	s.Helper()
	s.must(fsys.WriteFile(s.FS, s.at(name), []byte(content)))
}

// wantFile checks the content of a file.
func (s scene) wantFile(name, content string) {
	s.Helper()
	if b, err := fsys.ReadFile(s.FS, s.at(name)); string(b) != content || err != nil {
		s.Errorf("%s holds %.100q, %v, want %.100q", name, b, err, content)
	}
}

// entries lists a directory; directories have a slash at the end.
func (s scene) entries(dir string) []string {
	s.Helper()
	infos, err := s.FS.List(s.at(dir))
	s.must(err)
	var out []string
	for _, in := range infos {
		if in.Dir {
			in.Name += "/"
		}
		out = append(out, in.Name)
	}
	return out
}

// tree returns all that is below the root: names, directories with a slash at the
// end, and the contents of files.
func (s scene) tree() map[string]string {
	s.Helper()
	all := map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		for _, e := range s.entries(dir) {
			name := dir + e
			if e[len(e)-1] == '/' {
				all[name] = ""
				walk(name)
				continue
			}
			b, err := fsys.ReadFile(s.FS, s.at(name))
			s.must(err)
			all[name] = string(b)
		}
	}
	walk("")
	return all
}

func (s scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// wantPathError checks operation, path and cause of an error, which is one of
// several; none: any cause.
func (s scene) wantPathError(err error, op, name string, causes ...error) {
	s.Helper()
	var pe *fs.PathError
	if !errors.As(err, &pe) || pe.Op != op || pe.Path != name || !isOneOf(err, causes) {
		s.Errorf("%s %s: error %v, want op %q, path %q, cause %v", op, name, err, op, name, causes)
	}
}

func isOneOf(err error, causes []error) bool {
	return len(causes) == 0 || slices.ContainsFunc(causes, func(c error) bool { return errors.Is(err, c) })
}

// modTimes sets modification times, as some file systems can.
type modTimes interface {
	SetModTime(name string, t time.Time) error
}

// modTimes returns the root's file system if it can set modification times.
func (s scene) modTimes() (modTimes, bool) {
	m, ok := s.served().(modTimes)
	return m, ok
}

// served is the file system that serves the root: a router has no abilities.
func (s scene) served() fsys.FS {
	s.Helper()
	f, err := fsys.For(s.FS, s.root)
	s.must(err)
	return f
}

func byName(a, b fsys.Info) int { return cmp.Compare(a.Name, b.Name) }
