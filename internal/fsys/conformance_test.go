package fsys_test

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/fsystest"
)

// diskScheme is one whose names the operating system takes too: in a current
// directory that holds "disk:/one", the name disk://one/x is that of a file in it.
const diskScheme = "disk"

// diskRouter returns a router whose scheme leads to the local file system.
func diskRouter(t *testing.T) *fsys.Router {
	t.Helper()
	t.Chdir(t.TempDir())
	r := fsys.NewRouter(fsys.Local(), map[string]func(string) (fsys.FS, error){
		diskScheme: func(authority string) (fsys.FS, error) {
			return fsys.Local(), fsys.Local().MkdirAll(diskScheme + "://" + authority + "/")
		},
	})
	t.Cleanup(func() { noErr(t, r.Close()) })
	return r
}

// opener is what the suite wants of an implementation.
type opener struct {
	name   string
	open   func(t *testing.T) (f fsys.FS, root string)
	except []fsystest.Exception
}

func implementations() []opener {
	return []opener{
		{name: "local", open: func(t *testing.T) (fsys.FS, string) { return fsys.Local(), t.TempDir() }},
		{
			name: "local-checked-rename",
			open: func(t *testing.T) (fsys.FS, string) { return fsys.LocalWithoutNoReplace(), t.TempDir() },
			except: []fsystest.Exception{{
				Rule: "OneOfManyRenamesToOneNameWins", Why: "the checked rename documents that it does not promise this",
			}},
		},
		{name: "mem", open: func(t *testing.T) (fsys.FS, string) {
			m := fsys.NewMem()
			noErr(t, m.MkdirAll("/tmp/root"))
			return m, "/tmp/root"
		}},
		{name: "router-local", open: func(t *testing.T) (fsys.FS, string) { return diskRouter(t), t.TempDir() }},
		{name: "router-scheme", open: func(t *testing.T) (fsys.FS, string) {
			r, root := diskRouter(t), "disk://one:1/root"
			noErr(t, r.Mkdir(root))
			return r, root
		}},
	}
}

// TestConformance holds every implementation to the same answers.
func TestConformance(t *testing.T) {
	for _, i := range implementations() {
		t.Run(i.name, func(t *testing.T) { fsystest.Run(t, i.open, i.except...) })
	}
}

// TestAsOnUnix is about what package fsys does not promise but Unix does, so that
// Mem, on which the engine is tested, is no kinder than Local.
func TestAsOnUnix(t *testing.T) {
	for _, i := range implementations() {
		t.Run(i.name, func(t *testing.T) {
			f, root := i.open(t)
			at := func(name string) string { return fsys.Join(root, name) }
			noErr(t, f.Mkdir(at("dir")))
			noErr(t, fsys.WriteFile(f, at("file"), []byte("content")))
			for op, call := range map[string]func(string) error{
				"create":    func(name string) error { _, err := f.Create(name); return err },
				"open":      func(name string) error { _, err := f.Open(name); return err },
				"list":      func(name string) error { _, err := f.List(name); return err },
				"stat":      func(name string) error { _, err := f.Stat(name); return err },
				"mkdir":     f.Mkdir,
				"remove":    f.Remove,
				"removeall": f.RemoveAll,
			} {
				var pe *fs.PathError
				err := call(at("file/x"))
				if !errors.Is(err, syscall.ENOTDIR) || !errors.As(err, &pe) || pe.Op != op || pe.Path != at("file/x") {
					t.Errorf("%s below a file: %v", op, err)
				}
			}
			isErr(t, f.Rename(at("dir"), at("dir/below")), syscall.EINVAL)
			isErr(t, f.Rename(at("file"), at("file/x")), syscall.ENOTDIR)

			// A file that is removed while it is open can be read on.
			r, err := f.Open(at("file"))
			noErr(t, err)
			noErr(t, f.Remove(at("file")))
			noErr(t, fsys.WriteFile(f, at("file"), []byte("another")))
			if b, err := io.ReadAll(r); string(b) != "content" || err != nil {
				t.Errorf("read %q, %v, want the removed file's content", b, err)
			}
			noErr(t, r.Close())

			// A reader sees what is written after it was opened, flushed or not.
			w, err := f.Create(at("log"))
			noErr(t, err)
			_, err = w.Write([]byte("one"))
			noErr(t, err)
			r, err = f.Open(at("log"))
			noErr(t, err)
			_, err = w.Write([]byte("two"))
			noErr(t, err)
			noErr(t, w.Close())
			if b, err := io.ReadAll(r); string(b) != "onetwo" || r.Size() != 3 || err != nil {
				t.Errorf("read %q, size %d, %v, want all bytes and the size at Open", b, r.Size(), err)
			}
			noErr(t, r.Close())
		})
	}
}

func TestGlobBelowAURL(t *testing.T) {
	r := fsys.NewRouter(fsys.NewMem(), map[string]func(string) (fsys.FS, error){
		"mem": func(authority string) (fsys.FS, error) {
			m := fsys.NewMem()
			return m, errors.Join(m.MkdirAll("mem://"+authority+"/in/a"), m.MkdirAll("mem://"+authority+"/in/b/c"))
		},
	})
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{"mem://[::1]:80/in/*", []string{"mem://[::1]:80/in/a", "mem://[::1]:80/in/b"}},
		{"mem://[::1]:80/*/b/?", []string{"mem://[::1]:80/in/b/c"}},
		{"mem://h*/i?", []string{"mem://h*/in"}},
		{"mem://h?/in", []string{"mem://h?/in"}},
		{"mem:///*", []string{"mem:///in"}},
		{"mem://h", []string{"mem://h"}},
		{"mem://h/none*", nil},
	} {
		got, err := fsys.Glob(r, c.pattern)
		noErr(t, err)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("Glob(%q) (-want +got):\n%s", c.pattern, diff)
		}
	}
	_, err := fsys.Glob(r, "mem:/h/*")
	if err == nil {
		t.Error("a pattern with one slash was taken for a local one")
	}
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
