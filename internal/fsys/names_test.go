package fsys_test

import (
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/fsys"
)

func TestNames(t *testing.T) {
	for _, c := range []struct{ name, scheme, authority, path, dir, base, clean string }{
		{"hdfs://nn:8020/a/b", "hdfs", "nn:8020", "/a/b", "hdfs://nn:8020/a", "b", "hdfs://nn:8020/a/b"},
		{"hdfs://nn:8020/a", "hdfs", "nn:8020", "/a", "hdfs://nn:8020/", "a", "hdfs://nn:8020/a"},
		{"hdfs://nn1:8020,nn2:8020/a//./b/../c/", "hdfs", "nn1:8020,nn2:8020", "/a//./b/../c/", "hdfs://nn1:8020,nn2:8020/a/c", "c", "hdfs://nn1:8020,nn2:8020/a/c"},
		{"hdfs://nn:8020/", "hdfs", "nn:8020", "/", "hdfs://nn:8020/", "/", "hdfs://nn:8020/"},
		{"hdfs://nn:8020", "hdfs", "nn:8020", "", "hdfs://nn:8020/", "/", "hdfs://nn:8020/"},
		{"hdfs:///a/b", "hdfs", "", "/a/b", "hdfs:///a", "b", "hdfs:///a/b"},
		{"hdfs://", "hdfs", "", "", "hdfs:///", "/", "hdfs:///"},
		{"hdfs://nn/../..", "hdfs", "nn", "/../..", "hdfs://nn/", "..", "hdfs://nn/"},
		{"s3a+x-1.0://b/k", "s3a+x-1.0", "b", "/k", "s3a+x-1.0://b/", "k", "s3a+x-1.0://b/k"},
		{"hdfs://nn/a://b", "hdfs", "nn", "/a://b", "hdfs://nn/a:", "b", "hdfs://nn/a:/b"},
		// Local ones, as package path has them.
		{"/a/../b/c", "", "", "/a/../b/c", "/b", "c", "/b/c"},
		{"/", "", "", "/", "/", "/", "/"},
		{"", "", "", "", ".", ".", "."},
		{"a", "", "", "a", ".", "a", "a"},
		{"c://x", "", "", "c://x", "c:", "x", "c:/x"},
		{"1a://x/y", "", "", "1a://x/y", "1a:/x", "y", "1a:/x/y"},
		{"a_b://x/y", "", "", "a_b://x/y", "a_b:/x", "y", "a_b:/x/y"},
		{"/a://b", "", "", "/a://b", "/a:", "b", "/a:/b"},
		{"hdfs:a", "", "", "hdfs:a", ".", "hdfs:a", "hdfs:a"},
	} {
		if s, a, p := fsys.SplitURL(c.name); s != c.scheme || a != c.authority || p != c.path {
			t.Errorf("SplitURL(%q) = %q, %q, %q, want %q, %q, %q", c.name, s, a, p, c.scheme, c.authority, c.path)
		}
		if d, b, n := fsys.Dir(c.name), fsys.Base(c.name), fsys.Clean(c.name); d != c.dir || b != c.base || n != c.clean {
			t.Errorf("%q: Dir %q, Base %q, Clean %q, want %q, %q, %q", c.name, d, b, n, c.dir, c.base, c.clean)
		}
		if err := fsys.CheckName(c.name); err != nil {
			t.Error(err)
		}
	}
}

func TestJoin(t *testing.T) {
	for _, c := range []struct {
		dir  string
		elem []string
		want string
	}{
		{"hdfs://nn:8020/a", []string{"../b"}, "hdfs://nn:8020/b"},
		{"hdfs://nn:8020/a", []string{"../../../b", "c"}, "hdfs://nn:8020/b/c"},
		{"hdfs://nn:8020", []string{"a"}, "hdfs://nn:8020/a"},
		{"hdfs://nn:8020/", []string{"", "a/"}, "hdfs://nn:8020/a"},
		{"hdfs:///x", nil, "hdfs:///x"},
		{"", []string{"", "hdfs://nn/a", "b"}, "hdfs://nn/a/b"},
		{"hdfs://nn/a", []string{"hdfs://nn/b"}, "hdfs://nn/a/hdfs:/nn/b"},
		{"", nil, ""},
		{"", []string{"a"}, "a"},
		{"a", []string{"..", "b"}, "b"},
		{"/a", []string{"b://c"}, "/a/b:/c"},
	} {
		if got := fsys.Join(c.dir, c.elem...); got != c.want {
			t.Errorf("Join(%q, %q) = %q, want %q", c.dir, c.elem, got, c.want)
		}
	}
}

func TestNameWithOneSlashIsRefused(t *testing.T) {
	const want = `name "hdfs:/a": names of a file system other than the local one look like hdfs://host:port/path`
	if err := fsys.CheckName("hdfs:/a"); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	// What package path makes of a name must never pass for a local one.
	if err := fsys.CheckName(path.Join("hdfs://nn:8020/a", "b")); err == nil {
		t.Error("a name joined by package path passes")
	}
	for _, local := range []string{"", "/hdfs:/a", "c:/x", "a/b:/c", "12:/x", "hdfs:a", "hdfs:"} {
		if err := fsys.CheckName(local); err != nil {
			t.Error(err)
		}
	}
}

// checkNames compares the functions of names with those of package path.
func checkNames(t interface {
	Errorf(format string, args ...any)
}, front, p, elem string,
) {
	name := front + p
	local := front == ""
	if !local && p == "" {
		p = "/" // the root, which has no shorter name
	}
	for f, pair := range map[string][2]string{
		"Clean": {fsys.Clean(name), front + path.Clean(p)},
		"Dir":   {fsys.Dir(name), front + path.Dir(p)},
		"Base":  {fsys.Base(name), path.Base(p)},
		"Join":  {fsys.Join(name, elem, "x"), front + path.Join(p, elem, "x")},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s of %q (and %q) is %q, want %q", f, name, elem, pair[0], pair[1])
		}
	}
	clean := fsys.Clean(name)
	if got := fsys.Join(fsys.Dir(clean), fsys.Base(clean)); got != clean {
		t.Errorf("Join(Dir, Base) of %q is %q", clean, got)
	}
	scheme, authority, _ := fsys.SplitURL(name)
	for _, made := range []string{fsys.Clean(name), fsys.Dir(name), fsys.Join(name, elem)} {
		if s, a, p := fsys.SplitURL(made); s != scheme || a != authority || !local && !strings.HasPrefix(p, "/") {
			t.Errorf("%q, made of %q, is on another file system or below none", made, name)
		}
	}
}

func TestNamesAgreeWithPackagePath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		front := rapid.SampledFrom([]string{"", "hdfs://", "hdfs://nn:8020", "x1://[::1]:1,b:2"}).Draw(t, "front")
		parts := rapid.SliceOf(rapid.SampledFrom([]string{"a", "bc", ".", "..", "", ":", "x:"}))
		p := strings.Join(parts.Draw(t, "path"), "/")
		if front != "" && p != "" {
			p = "/" + p
		} else if front == "" && strings.Contains(p, "://") {
			t.Skip("not a local name")
		}
		checkNames(t, front, p, strings.Join(parts.Draw(t, "elem"), "/"))
	})
}

func FuzzNames(f *testing.F) {
	f.Add("hdfs://nn:8020/a/../b", "../c")
	f.Add("hdfs:/a", "x")
	f.Add("/a//b", "..")
	f.Add("://", "://")
	f.Fuzz(func(t *testing.T, name, elem string) {
		scheme, authority, p := fsys.SplitURL(name)
		front := ""
		if scheme != "" {
			front = scheme + "://" + authority
		}
		if front+p != name {
			t.Errorf("SplitURL(%q) = %q, %q, %q", name, scheme, authority, p)
		}
		if name != "" {
			checkNames(t, front, p, elem)
		}
	})
}
