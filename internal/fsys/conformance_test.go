package fsys_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidemill/tidemill/internal/fsys"
)

// system is what the suite needs of an implementation.
type system interface {
	fsys.FS
	fsys.Locker
	SetModTime(name string, t time.Time) error
}

// TestConformance holds every implementation to the same answers.
func TestConformance(t *testing.T) {
	systems := []struct {
		name string
		make func(t *testing.T) (f system, root string)
	}{
		{"local", func(t *testing.T) (system, string) { return fsys.Local(), t.TempDir() }},
		{"local-checked-rename", func(t *testing.T) (system, string) { return fsys.LocalWithoutNoReplace(), t.TempDir() }},
		{"mem", func(t *testing.T) (system, string) {
			m := fsys.NewMem()
			noErr(t, m.MkdirAll("/tmp/root"))
			return m, "/tmp/root"
		}},
	}
	for _, s := range systems {
		t.Run(s.name, func(t *testing.T) {
			for _, c := range slices.Concat(conformance, lockConformance) {
				t.Run(c.name, func(t *testing.T) {
					f, root := s.make(t)
					c.run(t, f, root)
				})
			}
		})
	}
}

// scene makes a small tree below root: an empty directory "empty", a
// directory "full" with the file "full/one", and the file "file".
func scene(t *testing.T, f fsys.FS, root string) (at func(string) string) {
	t.Helper()
	at = func(name string) string { return path.Join(root, name) }
	noErr(t, f.Mkdir(at("empty")))
	noErr(t, f.Mkdir(at("full")))
	noErr(t, fsys.WriteFile(f, at("full/one"), []byte("1")))
	noErr(t, fsys.WriteFile(f, at("file"), []byte("content")))
	return at
}

// rule is what every implementation must do in a scene of its own.
type rule struct {
	name string
	run  func(t *testing.T, f system, root string)
}

var conformance = []rule{
	{"ErrorsNameOperationPathAndCause", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		create := func(name string) error { _, err := f.Create(name); return err }
		open := func(name string) error { _, err := f.Open(name); return err }
		list := func(name string) error { _, err := f.List(name); return err }
		stat := func(name string) error { _, err := f.Stat(name); return err }
		setTime := func(name string) error { return f.SetModTime(name, time.Unix(1, 0)) }
		for _, c := range []struct {
			op    string
			call  func(string) error
			name  string
			cause error // nil: must succeed
		}{
			{"create", create, "file", fs.ErrExist},
			{"create", create, "empty", fs.ErrExist},
			{"create", create, "none/x", fs.ErrNotExist},
			{"create", create, "file/x", syscall.ENOTDIR},
			{"open", open, "none", fs.ErrNotExist},
			{"open", open, "empty", syscall.EISDIR},
			{"open", open, "file/x", syscall.ENOTDIR},
			{"open", open, "none/x", fs.ErrNotExist},
			{"mkdir", f.Mkdir, "file", fs.ErrExist},
			{"mkdir", f.Mkdir, "empty", fs.ErrExist},
			{"mkdir", f.Mkdir, "none/x", fs.ErrNotExist},
			{"mkdir", f.Mkdir, "file/x", syscall.ENOTDIR},
			{"mkdirall", f.MkdirAll, "file", syscall.ENOTDIR},
			{"mkdirall", f.MkdirAll, "file/x", syscall.ENOTDIR},
			{"mkdirall", f.MkdirAll, "empty", nil},
			{"mkdirall", f.MkdirAll, "a/b/c", nil},
			{"remove", f.Remove, "none", fs.ErrNotExist},
			{"remove", f.Remove, "full", syscall.ENOTEMPTY},
			{"remove", f.Remove, "file/x", syscall.ENOTDIR},
			{"removeall", f.RemoveAll, "none", nil},
			{"removeall", f.RemoveAll, "none/x", nil},
			{"removeall", f.RemoveAll, "file/x", syscall.ENOTDIR},
			{"list", list, "none", fs.ErrNotExist},
			{"list", list, "file", syscall.ENOTDIR},
			{"stat", stat, "none", fs.ErrNotExist},
			{"stat", stat, "file/x", syscall.ENOTDIR},
			{"syncdir", f.SyncDir, "none", fs.ErrNotExist},
			{"syncdir", f.SyncDir, "file", syscall.ENOTDIR},
			{"syncdir", f.SyncDir, "empty", nil},
			{"setmodtime", setTime, "none", fs.ErrNotExist},
			{"setmodtime", setTime, "file", nil},
		} {
			err := c.call(at(c.name))
			if c.cause == nil {
				if err != nil {
					t.Errorf("%s %s: %v, want success", c.op, c.name, err)
				}
				continue
			}
			var pe *fs.PathError
			if !errors.Is(err, c.cause) || !errors.As(err, &pe) || pe.Op != c.op || pe.Path != at(c.name) {
				t.Errorf("%s %s: %v, want op %q, path %q, cause %v", c.op, c.name, err, c.op, at(c.name), c.cause)
			}
		}
		if b, err := fsys.ReadFile(f, at("file")); string(b) != "content" || err != nil {
			t.Errorf("after all that, file holds %q, %v", b, err)
		}
	}},

	{"EmptyNameDoesNotExist", func(t *testing.T, f system, _ string) {
		_, err := f.Create("")
		isErr(t, err, fs.ErrNotExist)
		_, err = f.Open("")
		isErr(t, err, fs.ErrNotExist)
		_, err = f.List("")
		isErr(t, err, fs.ErrNotExist)
		isErr(t, f.Mkdir(""), fs.ErrNotExist)
		isErr(t, f.MkdirAll(""), fs.ErrNotExist)
		noErr(t, f.RemoveAll(""))
	}},

	{"RenameNeverReplaces", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		noErr(t, fsys.WriteFile(f, at("other"), []byte("other")))
		for _, c := range []struct {
			from, to string
			cause    error
		}{
			{"file", "other", fs.ErrExist},
			{"file", "file", fs.ErrExist},
			{"file", "empty", fs.ErrExist},
			{"full", "empty", fs.ErrExist},
			{"full", "file", fs.ErrExist},
			{"full/one", "full", fs.ErrExist},
			{"none", "other", fs.ErrNotExist},
			{"none", "free", fs.ErrNotExist},
			{"file", "none/x", fs.ErrNotExist},
			{"file", "other/x", syscall.ENOTDIR},
			{"full", "full/below", syscall.EINVAL},
		} {
			err := f.Rename(at(c.from), at(c.to))
			var le *os.LinkError
			if !errors.Is(err, c.cause) || !errors.As(err, &le) || le.Op != "rename" || le.Old != at(c.from) || le.New != at(c.to) {
				t.Errorf("rename %s %s: %v, want both names and cause %v", c.from, c.to, err, c.cause)
			}
		}
		want := []string{"empty/", "file", "full/", "other"}
		if diff := cmp.Diff(want, names(t, f, root)); diff != "" {
			t.Errorf("refused renames changed the directory (-want +got):\n%s", diff)
		}
	}},

	{"RenameMovesFilesAndTrees", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		noErr(t, f.Rename(at("file"), at("empty/moved")))
		noErr(t, f.Rename(at("full"), at("tree")))
		if b, err := fsys.ReadFile(f, at("empty/moved")); string(b) != "content" || err != nil {
			t.Errorf("moved file holds %q, %v", b, err)
		}
		if b, err := fsys.ReadFile(f, at("tree/one")); string(b) != "1" || err != nil {
			t.Errorf("file in moved tree holds %q, %v", b, err)
		}
		if diff := cmp.Diff([]string{"empty/", "tree/"}, names(t, f, root)); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
	}},

	{"OneOfManyRenamesToOneNameWins", func(t *testing.T, f system, root string) {
		if l, ok := f.(fsys.LocalFS); ok && l == fsys.LocalWithoutNoReplace() {
			t.Skip("the checked rename documents that it does not promise this")
		}
		const rounds, n = 100, 4
		for r := range rounds {
			dir := path.Join(root, fmt.Sprint(r))
			noErr(t, f.Mkdir(dir))
			var won atomic.Int32
			var wg sync.WaitGroup
			start := make(chan struct{})
			for i := range n {
				from := path.Join(dir, fmt.Sprint("from", i))
				noErr(t, fsys.WriteFile(f, from, []byte(from)))
				wg.Go(func() {
					<-start
					switch err := f.Rename(from, path.Join(dir, "to")); {
					case err == nil:
						won.Add(1)
					case !errors.Is(err, fs.ErrExist):
						t.Errorf("losing rename: %v, want fs.ErrExist", err)
					}
				})
			}
			close(start)
			wg.Wait()
			if won.Load() != 1 {
				t.Errorf("%d renames succeeded, want 1", won.Load())
			}
			if got := len(names(t, f, dir)); got != n {
				t.Errorf("%d files left, want %d", got, n)
			}
		}
	}},

	{"ListIsSortedAndDescribes", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		mod := time.Unix(1_700_000_000, 0)
		for _, n := range []string{"empty", "full", "file"} {
			noErr(t, f.SetModTime(at(n), mod))
		}
		infos, err := f.List(root)
		noErr(t, err)
		want := []fsys.Info{
			{Name: "empty", ModTime: mod, Dir: true},
			{Name: "file", Size: 7, ModTime: mod},
			{Name: "full", ModTime: mod, Dir: true},
		}
		if diff := cmp.Diff(want, infos); diff != "" {
			t.Errorf("List (-want +got):\n%s", diff)
		}
		for _, w := range want {
			in, err := f.Stat(at(w.Name))
			noErr(t, err)
			if diff := cmp.Diff(w, in); diff != "" {
				t.Errorf("Stat (-want +got):\n%s", diff)
			}
		}
		if infos, err := f.List(at("empty")); len(infos) != 0 || err != nil {
			t.Errorf("List of an empty directory: %v, %v", infos, err)
		}
	}},

	{"WriteMovesModTime", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		old := time.Unix(1_700_000_000, 0)
		w, err := f.Create(at("log"))
		noErr(t, err)
		noErr(t, f.SetModTime(at("log"), old))
		noErr(t, f.SetModTime(at("empty"), old))
		_, err = w.Write([]byte("x"))
		noErr(t, err)
		noErr(t, w.Close())
		noErr(t, f.Mkdir(at("empty/new")))
		for _, n := range []string{"log", "empty"} {
			if in, err := f.Stat(at(n)); !in.ModTime.After(old) || err != nil {
				t.Errorf("%s: ModTime %v, %v, want one after %v", n, in.ModTime, err, old)
			}
		}
	}},

	{"ReadAndReadAt", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		r, err := f.Open(at("file"))
		noErr(t, err)
		defer r.Close()
		if r.Size() != 7 {
			t.Errorf("Size %d, want 7", r.Size())
		}
		buf := make([]byte, 4)
		if n, err := r.ReadAt(buf, 1); string(buf[:n]) != "onte" || err != nil {
			t.Errorf("ReadAt(4, 1): %q, %v", buf[:n], err)
		}
		if n, err := r.ReadAt(buf, 5); string(buf[:n]) != "nt" || err != io.EOF {
			t.Errorf("ReadAt(4, 5): %q, %v, want io.EOF itself", buf[:n], err)
		}
		if n, err := r.ReadAt(buf, 7); n != 0 || err != io.EOF {
			t.Errorf("ReadAt(4, 7): %d, %v, want io.EOF itself", n, err)
		}
		if _, err := r.ReadAt(buf, -1); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("ReadAt(4, -1): %v, want an error other than io.EOF", err)
		}
		// ReadAt does not move Read.
		if b, err := io.ReadAll(r); string(b) != "content" || err != nil {
			t.Errorf("Read: %q, %v", b, err)
		}
		if n, err := r.Read(buf); n != 0 || err != io.EOF {
			t.Errorf("Read at the end: %d, %v, want io.EOF itself", n, err)
		}
	}},

	{"OpenFileSurvivesRemoval", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		r, err := f.Open(at("file"))
		noErr(t, err)
		noErr(t, f.Remove(at("file")))
		noErr(t, fsys.WriteFile(f, at("file"), []byte("another")))
		if b, err := io.ReadAll(r); string(b) != "content" || err != nil {
			t.Errorf("read %q, %v, want the removed file's content", b, err)
		}
		noErr(t, r.Close())
	}},

	{"ReaderSeesLaterWrites", func(t *testing.T, f system, root string) {
		w, err := f.Create(path.Join(root, "log"))
		noErr(t, err)
		_, err = w.Write([]byte("one"))
		noErr(t, err)
		r, err := f.Open(path.Join(root, "log"))
		noErr(t, err)
		_, err = w.Write([]byte("two"))
		noErr(t, err)
		noErr(t, w.Close())
		if b, err := io.ReadAll(r); string(b) != "onetwo" || r.Size() != 3 || err != nil {
			t.Errorf("read %q, size %d, %v, want all bytes and the size at Open", b, r.Size(), err)
		}
		noErr(t, r.Close())
	}},

	{"ClosedIsClosed", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		w, err := f.Create(at("w"))
		noErr(t, err)
		noErr(t, w.Flush())
		noErr(t, w.Sync())
		noErr(t, w.Close())
		_, err = w.Write([]byte("x"))
		isErr(t, err, fs.ErrClosed)
		isErr(t, w.Flush(), fs.ErrClosed)
		isErr(t, w.Sync(), fs.ErrClosed)
		isErr(t, w.Close(), fs.ErrClosed)
		r, err := f.Open(at("file"))
		noErr(t, err)
		noErr(t, r.Close())
		_, err = r.Read(make([]byte, 1))
		isErr(t, err, fs.ErrClosed)
		_, err = r.ReadAt(make([]byte, 1), 0)
		isErr(t, err, fs.ErrClosed)
		isErr(t, r.Close(), fs.ErrClosed)
	}},

	{"FlushedBytesAreSeen", func(t *testing.T, f system, root string) {
		name := path.Join(root, "log")
		w, err := f.Create(name)
		noErr(t, err)
		defer w.Close()
		_, err = w.Write([]byte("flushed"))
		noErr(t, err)
		noErr(t, w.Flush())
		if b, err := fsys.ReadFile(f, name); string(b) != "flushed" || err != nil {
			t.Errorf("file holds %q, %v", b, err)
		}
	}},

	{"WriteFileIsExclusive", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		isErr(t, fsys.WriteFile(f, at("file"), []byte("new")), fs.ErrExist)
		if b, err := fsys.ReadFile(f, at("file")); string(b) != "content" || err != nil {
			t.Errorf("file holds %q, %v, want it untouched", b, err)
		}
		noErr(t, fsys.WriteFile(f, at("nothing"), nil))
		if b, err := fsys.ReadFile(f, at("nothing")); len(b) != 0 || err != nil {
			t.Errorf("empty file holds %q, %v", b, err)
		}
	}},

	{"RemoveAndRemoveAll", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		noErr(t, f.Remove(at("file")))
		noErr(t, f.Remove(at("empty")))
		noErr(t, f.RemoveAll(at("full")))
		if got := names(t, f, root); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
	}},

	{"Glob", func(t *testing.T, f system, root string) {
		for _, d := range []string{"in/a1", "in/a2/sub", "in/b1/sub", "in/.hid", "out/a3", "in/x*y"} {
			noErr(t, f.MkdirAll(path.Join(root, d)))
		}
		noErr(t, fsys.WriteFile(f, path.Join(root, "in/a0"), nil))
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
			got, err := fsys.Glob(f, root+"/"+c.pattern)
			noErr(t, err)
			var want []string
			for _, w := range c.want {
				want = append(want, root+"/"+w)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Glob(%q) (-want +got):\n%s", c.pattern, diff)
			}
		}
		_, err := fsys.Glob(f, root+"/none/[a")
		isErr(t, err, path.ErrBadPattern)
	}},
}

// names lists a directory; directories have a slash at the end.
func names(t *testing.T, f fsys.FS, dir string) []string {
	t.Helper()
	infos, err := f.List(dir)
	noErr(t, err)
	var out []string
	for _, in := range infos {
		if in.Dir {
			in.Name += "/"
		}
		out = append(out, in.Name)
	}
	return out
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}
