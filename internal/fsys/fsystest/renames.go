package fsystest

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/google/go-cmp/cmp"
)

func renames() []rule {
	return []rule{
		{"RenameNeverReplaces", func(s scene) {
			s.fill()
			s.must(s.FS.Mkdir(s.at("vacant")))
			s.write("other", "other")
			before := s.tree()
			one := func(err error) []error { return []error{err} }
			for _, c := range []struct {
				from, to string
				causes   []error // nil: any
			}{
				{"file", "other", one(fs.ErrExist)},
				{"file", "file", one(fs.ErrExist)},
				{"file", "empty", one(fs.ErrExist)},
				{"file", "full", one(fs.ErrExist)},
				{"file", "full/one", one(fs.ErrExist)},
				{"empty", "vacant", one(fs.ErrExist)},
				{"empty", "full", one(fs.ErrExist)},
				{"empty", "empty", one(fs.ErrExist)},
				{"full", "full", one(fs.ErrExist)},
				{"full", "empty", one(fs.ErrExist)},
				{"full", "file", one(fs.ErrExist)},
				{"full/one", "full", one(fs.ErrExist)},
				{"none", "other", one(fs.ErrNotExist)},
				{"none", "free", one(fs.ErrNotExist)},
				{"none/x", "free", one(fs.ErrNotExist)},
				{"file", "none/x", one(fs.ErrNotExist)},
				{"file", "other/x", []error{syscall.ENOTDIR, fs.ErrNotExist}},
				{"full", "full/below", nil},
			} {
				err := s.FS.Rename(s.at(c.from), s.at(c.to))
				var le *os.LinkError
				if !errors.As(err, &le) || le.Op != "rename" || le.Old != s.at(c.from) || le.New != s.at(c.to) || !isOneOf(err, c.causes) {
					s.Errorf("rename %s %s: %v, want both names and cause %v", c.from, c.to, err, c.causes)
				}
			}
			if diff := cmp.Diff(before, s.tree()); diff != "" {
				s.Errorf("refused renames changed the tree (-want +got):\n%s", diff)
			}
		}},

		{"RenameMovesFilesAndTrees", func(s scene) {
			s.fill()
			s.must(s.FS.MkdirAll(s.at("full/a/b")))
			s.write("full/a/b/two", "2")
			s.must(s.FS.Rename(s.at("file"), s.at("empty/moved")))
			s.must(s.FS.Rename(s.at("full"), s.at("tree")))
			s.must(s.FS.Rename(s.at("tree/a"), s.at("empty/a")))
			s.must(s.FS.Rename(s.at("empty"), s.at("full")))
			want := map[string]string{
				"full/": "", "full/moved": "content", "full/a/": "", "full/a/b/": "", "full/a/b/two": "2",
				"tree/": "", "tree/one": "1",
			}
			if diff := cmp.Diff(want, s.tree()); diff != "" {
				s.Errorf("tree (-want +got):\n%s", diff)
			}
		}},

		// A fenced writer has a file open in a directory that is renamed: it must
		// not make another there, and what it flushed is not lost (Invariant 7).
		{"DirectoryOfAnOpenFileCanBeRenamed", func(s scene) {
			s.fill()
			w, err := s.FS.Create(s.at("full/log"))
			s.must(err)
			_, err = w.Write([]byte("flushed"))
			s.must(err)
			s.must(w.Flush())
			s.must(s.FS.Rename(s.at("full"), s.at("sealed")))
			s.wantFile("sealed/log", "flushed")
			_, err = s.FS.Create(s.at("full/next"))
			s.wantPathError(err, "create", s.at("full/next"), fs.ErrNotExist)
			_ = w.Close() // may fail: who renamed the directory meant that
			s.wantFile("sealed/log", "flushed")
		}},
	}
}
