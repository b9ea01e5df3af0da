package fsystest

import (
	"errors"
	"io/fs"
	"path"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/fsys"
)

// names are the rules of what is found under a name, and of what an error says of
// one.
func names() []rule {
	return []rule{
		{"ErrorsNameOperationPathAndCause", errorsNameAll},
		{"EmptyNameDoesNotExist", func(s scene) {
			_, err := s.FS.Create("")
			s.wantPathError(err, "create", "", fs.ErrNotExist)
			_, err = s.FS.Open("")
			s.wantPathError(err, "open", "", fs.ErrNotExist)
			_, err = s.FS.List("")
			s.wantPathError(err, "list", "", fs.ErrNotExist)
			s.wantPathError(s.FS.Mkdir(""), "mkdir", "", fs.ErrNotExist)
			s.wantPathError(s.FS.MkdirAll(""), "mkdirall", "", fs.ErrNotExist)
			s.must(s.FS.RemoveAll(""))
		}},
		{"RemoveAndRemoveAll", func(s scene) {
			s.fill()
			s.must(s.FS.MkdirAll(s.at("full/a/b")))
			s.write("full/a/b/two", "2")
			before := s.tree()
			for _, dir := range []string{"full", "full/a"} {
				s.wantPathError(s.FS.Remove(s.at(dir)), "remove", s.at(dir), syscall.ENOTEMPTY)
			}
			if diff := cmp.Diff(before, s.tree()); diff != "" {
				s.Errorf("a refused Remove changed the tree (-want +got):\n%s", diff)
			}
			s.must(s.FS.Remove(s.at("file")))
			s.must(s.FS.Remove(s.at("empty")))
			if diff := cmp.Diff([]string{"full/"}, s.entries("")); diff != "" {
				s.Errorf("left (-want +got):\n%s", diff)
			}
			s.must(s.FS.RemoveAll(s.at("full")))
			if got := s.entries(""); len(got) != 0 {
				s.Errorf("left: %v", got)
			}
			s.write("full", "a file in place of the directory")
			s.must(s.FS.RemoveAll(s.at("full")))
		}},
		{"MakeDirs", func(s scene) {
			for range 2 {
				s.must(fsys.MakeDirs(s.FS, s.at("a/b/c")))
			}
			s.write("a/b/c/file", "")
			err := fsys.MakeDirs(s.FS, s.at("a/b/c/file"))
			s.wantPathError(err, "mkdir", s.at("a/b/c/file"), syscall.ENOTDIR)
		}},
		{"Glob", glob},
	}
}

func errorsNameAll(s scene) {
	s.fill()
	f := s.FS
	create := func(name string) error { _, err := f.Create(name); return err }
	open := func(name string) error { _, err := f.Open(name); return err }
	list := func(name string) error { _, err := f.List(name); return err }
	stat := func(name string) error { _, err := f.Stat(name); return err }
	// Nothing can be below a file. Not every file system says why.
	below := []error{syscall.ENOTDIR, fs.ErrNotExist}
	one := func(err error) []error { return []error{err} }
	calls := []struct {
		op     string
		call   func(string) error
		name   string
		causes []error // nil: must succeed
	}{
		{"create", create, "file", one(fs.ErrExist)},
		{"create", create, "empty", one(fs.ErrExist)},
		{"create", create, "none/x", one(fs.ErrNotExist)},
		{"create", create, "file/x", below},
		{"open", open, "none", one(fs.ErrNotExist)},
		{"open", open, "empty", one(syscall.EISDIR)},
		{"open", open, "file/x", below},
		{"open", open, "none/x", one(fs.ErrNotExist)},
		{"mkdir", f.Mkdir, "file", one(fs.ErrExist)},
		{"mkdir", f.Mkdir, "empty", one(fs.ErrExist)},
		{"mkdir", f.Mkdir, "none/x", one(fs.ErrNotExist)},
		{"mkdir", f.Mkdir, "file/x", below},
		{"mkdirall", f.MkdirAll, "file", one(syscall.ENOTDIR)},
		{"mkdirall", f.MkdirAll, "file/x", one(syscall.ENOTDIR)},
		{"mkdirall", f.MkdirAll, "empty", nil},
		{"mkdirall", f.MkdirAll, "a/b/c", nil},
		{"remove", f.Remove, "none", one(fs.ErrNotExist)},
		{"remove", f.Remove, "full", one(syscall.ENOTEMPTY)},
		{"remove", f.Remove, "file/x", below},
		{"removeall", f.RemoveAll, "none", nil},
		{"removeall", f.RemoveAll, "none/x", nil},
		{"list", list, "none", one(fs.ErrNotExist)},
		{"list", list, "file", one(syscall.ENOTDIR)},
		{"list", list, "file/x", below},
		{"stat", stat, "none", one(fs.ErrNotExist)},
		{"stat", stat, "none/x", one(fs.ErrNotExist)},
		{"stat", stat, "file/x", below},
		{"syncdir", f.SyncDir, "none", one(fs.ErrNotExist)},
		{"syncdir", f.SyncDir, "file", one(syscall.ENOTDIR)},
		{"syncdir", f.SyncDir, "empty", nil},
	}
	for _, c := range calls {
		err := c.call(s.at(c.name))
		switch {
		case c.causes != nil:
			s.wantPathError(err, c.op, s.at(c.name), c.causes...)
		case err != nil:
			s.Errorf("%s %s: %v, want success", c.op, c.name, err)
		}
	}
	if m, ok := s.modTimes(); ok {
		s.wantPathError(m.SetModTime(s.at("none"), time.Unix(1, 0)), "setmodtime", s.at("none"), fs.ErrNotExist)
		s.must(m.SetModTime(s.at("file"), time.Unix(1, 0)))
	}
	want := map[string]string{"empty/": "", "file": "content", "full/": "", "full/one": "1", "a/": "", "a/b/": "", "a/b/c/": ""}
	if diff := cmp.Diff(want, s.tree()); diff != "" {
		s.Errorf("after all that (-want +got):\n%s", diff)
	}
}

func glob(s scene) {
	for _, d := range []string{"in/a1", "in/a2/sub", "in/b1/sub", "in/.hid", "out/a3", "in/x*y"} {
		s.must(s.FS.MkdirAll(s.at(d)))
	}
	s.write("in/a0", "")
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{"in", []string{"in"}},
		{"none", nil},
		{"in/a0/x", nil},
		{"in/a*", []string{"in/a0", "in/a1", "in/a2"}},
		{"*/a[23]", []string{"in/a2", "out/a3"}},
		{"*/*/sub", []string{"in/a2/sub", "in/b1/sub"}},
		{"in/?1", []string{"in/a1", "in/b1"}},
		{"in/x\\*y", []string{"in/x*y"}},
		{"none/*", nil},
		{"in/a0/*", nil},
		{"in/.*", []string{"in/.hid"}},
	} {
		got, err := fsys.Glob(s.FS, s.root+"/"+c.pattern)
		s.must(err)
		var want []string
		for _, w := range c.want {
			want = append(want, s.root+"/"+w)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			s.Errorf("Glob(%q) (-want +got):\n%s", c.pattern, diff)
		}
	}
	if _, err := fsys.Glob(s.FS, s.root+"/none/[a"); !errors.Is(err, path.ErrBadPattern) {
		s.Errorf("Glob of a bad pattern: %v", err)
	}
}
