package rdd_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/rdd"
)

func put(t testing.TB, m fsys.FS, name, content string) rdd.File {
	t.Helper()
	f, err := m.Create(name)
	if err == nil {
		_, err = f.Write([]byte(content))
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := m.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return rdd.File{Path: name, Size: info.Size, ModTime: info.ModTime.UnixMilli()}
}

func TestTextFilesGiveLines(t *testing.T) {
	long := strings.Repeat("x", 3*rdd.FileChunk+5)
	edge := strings.Repeat("y", rdd.FileChunk-1)
	for name, test := range map[string]struct {
		content string
		want    []string
	}{
		"empty":            {"", nil},
		"one":              {"a\n", []string{"a"}},
		"no final newline": {"a\nb", []string{"a", "b"}},
		"crlf":             {"a\r\nb\r\n", []string{"a", "b"}},
		"cr at the end":    {"a\nb\r", []string{"a", "b"}},
		"cr inside":        {"a\rb\n", []string{"a\rb"}},
		"two cr":           {"a\r\r\n", []string{"a\r"}},
		"empty lines":      {"\n\r\n\na", []string{"", "", "", "a"}},
		"only newline":     {"\n", []string{""}},
		"long":             {long + "\nshort\n" + long, []string{long, "short", long}},
		"chunk ends line":  {edge + "\nb", []string{edge, "b"}},
		"chunk cuts crlf":  {edge + "\r\nb", []string{edge, "b"}},
		"bad utf-8":        {"a\xff\xfeb\nok\n\xc3", []string{"a\uFFFDb", "ok", "\uFFFD"}},
		"zero byte":        {"a\x00b\n", []string{"a\x00b"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := fsys.NewMem()
			r := rdd.TextFiles(newScope("s"), m, []rdd.File{put(t, m, "f", test.content), put(t, m, "g", "other")})
			got := mustRun(t, newLocal(false), r)
			if len(got) != 2 || fmt.Sprint(len(got[0])) != fmt.Sprint(len(test.want)) || strings.Join(got[0], "|") != strings.Join(test.want, "|") || got[1][0] != "other" {
				t.Errorf("%d lines %.80q, want %d %.80q", len(got[0]), got[0], len(test.want), test.want)
			}
			if len(test.want) > 1 {
				frame, err := take(newLocal(false), r, 0, 1)
				if lines := decode[string](t, frame); err != nil || len(lines) != 1 || lines[0] != test.want[0] {
					t.Errorf("take 1: %d lines, %v", len(lines), err)
				}
			}
		})
	}
}

func TestTextFilesMatchSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.StringOfN(rapid.RuneFrom([]rune("ab\n\r")), 0, 30, -1).Draw(t, "content")
		m := fsys.NewMem()
		f, err := m.Create("f")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write([]byte(content))
		_ = f.Close()
		info, err := m.Stat("f")
		if err != nil {
			t.Fatal(err)
		}
		got, err := run(newLocal(false), rdd.TextFiles(newScope("s"), m, []rdd.File{{Path: "f", Size: info.Size, ModTime: info.ModTime.UnixMilli()}}))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{}
		for line := range strings.Lines(content) {
			want = append(want, strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"))
		}
		same(t, fmt.Sprintf("lines of %q", content), got, [][]string{want})
	})
}

// A plan means the same records at every run, or the batch fails (Invariant 3).
func TestFilesMustBeAsPlanned(t *testing.T) {
	for name, test := range map[string]struct {
		after func(m *fsys.Mem) error
		want  string
	}{
		"gone":    {func(m *fsys.Mem) error { return m.Remove("f") }, "is gone"},
		"longer":  {func(m *fsys.Mem) error { put(t, m, "g", "ab\nc\n"); _ = m.Remove("f"); return m.Rename("g", "f") }, "changed after it was planned"},
		"touched": {func(m *fsys.Mem) error { return m.SetModTime("f", time.UnixMilli(5)) }, "changed after it was planned"},
		"unreadable": {func(m *fsys.Mem) error {
			m.FailWith(func(op, _ string) error {
				if op == "open" {
					return errors.New("disk is on fire")
				}
				return nil
			})
			return nil
		}, "disk is on fire"},
	} {
		m := fsys.NewMem()
		files := []rdd.File{put(t, m, "f", "ab\n")}
		if err := test.after(m); err != nil {
			t.Fatal(err)
		}
		for kind, err := range map[string]error{
			"text":    second(run(newLocal(false), rdd.TextFiles(newScope("s"), m, files))),
			"records": second(run(newLocal(false), rdd.RecordFiles(newScope("s"), m, files, 3))),
		} {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %s: %v, want one that says %q", name, kind, err, test.want)
			}
			if name == "gone" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v is not fs.ErrNotExist", kind, err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestRecordFiles(t *testing.T) {
	m := fsys.NewMem()
	long := strings.Repeat("0123456", rdd.FileChunk/7*2)
	files := []rdd.File{put(t, m, "a", "abcdefg1234567"), put(t, m, "empty", ""), put(t, m, "long", long)}
	got := mustRun(t, newLocal(false), rdd.RecordFiles(newScope("s"), m, files, 7))
	if fmt.Sprintf("%s", got[0]) != "[abcdefg 1234567]" || len(got[1]) != 0 || len(got[2]) != len(long)/7 {
		t.Errorf("%s, %d and %d records", got[0], len(got[1]), len(got[2]))
	}
	for i, r := range got[2] {
		if string(r) != "0123456" {
			t.Fatalf("record %d is %q", i, r)
		}
	}
	if r := got[0][0]; cap(r) != len(r) {
		t.Errorf("a record has capacity %d: an append would change the next (Invariant 15)", cap(r))
	}
	big := mustRun(t, newLocal(false), rdd.RecordFiles(newScope("s"), m, files[2:], len(long)))
	if len(big[0]) != 1 || string(big[0][0]) != long {
		t.Errorf("a record longer than a chunk: %d records", len(big[0]))
	}
	_, err := run(newLocal(false), rdd.RecordFiles(newScope("s"), m, files[:1], 4))
	if err == nil || !strings.Contains(err.Error(), "14 bytes") || !strings.Contains(err.Error(), "length 4") {
		t.Errorf("error %v, want one that names size and length", err)
	}
}

func textOutput(m fsys.FS, format func([]byte, string) []byte) func(records []string) ([]byte, error) {
	out := rdd.WriteText(m, "out", `saveAsTextFiles "out"`, "d", format)
	return func(records []string) ([]byte, error) {
		return rdd.OutputPart(newLocal(false).task(0), source(newScope("s"), records).Node(), 0, out)
	}
}

func writeText(m fsys.FS, records []string, format func([]byte, string) []byte) ([]byte, error) {
	return textOutput(m, format)(records)
}

func plain(dst []byte, s string) []byte { return append(dst, s...) }

func TestWriteText(t *testing.T) {
	m := fsys.NewMem()
	staging := rdd.StagingDir("d", "out", noon, 3)
	if want := fmt.Sprintf("d/.out-%d.3", noon); staging != want {
		t.Errorf("staging directory %s, want %s", staging, want)
	}
	if got, want := rdd.FinalDir("d", "out", noon), fmt.Sprintf("d/out-%d", noon); got != want {
		t.Errorf("final directory %s, want %s", got, want)
	}
	if err := m.MkdirAll(staging); err != nil {
		t.Fatal(err)
	}
	write := textOutput(m, plain)
	result, err := write([]string{"a", "", "c"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := rdd.DecodeWrittenFile(result)
	if err != nil {
		t.Fatal(err)
	}
	const content = "a\n\nc\n"
	if got := readFile(t, m, w.Path); got != content {
		t.Errorf("file holds %q, want %q", got, content)
	}
	if w.Records != 3 || w.Bytes != 5 || w.CRC != crc32.Checksum([]byte(content), crc32.MakeTable(crc32.Castagnoli)) ||
		path.Dir(w.Path) != staging || w.Name() != rdd.PartFile(0) {
		t.Errorf("result %+v", w)
	}
	// Another attempt has a file of its own.
	again, err := write([]string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if none, err := rdd.DecodeWrittenFile(again); err != nil || none.Records != 1 {
		t.Errorf("%+v, %v", none, err)
	}
	before := m.String()
	empty, err := write(nil)
	if err != nil {
		t.Fatal(err)
	}
	if none, err := rdd.DecodeWrittenFile(empty); err != nil || none != (rdd.WrittenFile{}) || m.String() != before {
		t.Errorf("without records: %+v, %v", none, err)
	}
}

func readFile(t testing.TB, m fsys.FS, name string) string {
	t.Helper()
	r, err := m.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	b := make([]byte, r.Size())
	if _, err := r.ReadAt(b, 0); err != nil && r.Size() > 0 {
		t.Fatal(err)
	}
	return string(b)
}

func TestWriteTextFaults(t *testing.T) {
	for _, op := range []string{"create", "write", "sync", "close"} {
		m := fsys.NewMem()
		if err := m.MkdirAll(rdd.StagingDir("d", "out", noon, 3)); err != nil {
			t.Fatal(err)
		}
		reached := false
		m.FailWith(func(o, _ string) error {
			if o == op {
				reached = true
				return errors.New("disk is full")
			}
			return nil
		})
		if _, err := writeText(m, []string{"a"}, plain); reached && (err == nil || !strings.Contains(err.Error(), "disk is full")) {
			t.Errorf("%s fails: %v", op, err)
		} else if !reached {
			t.Errorf("%s was not reached", op)
		}
	}
}

// A format function that panicked left its file open.
func TestWriteTextClosesItsFileAfterAPanic(t *testing.T) {
	m := fsys.NewMem()
	if err := m.MkdirAll(rdd.StagingDir("d", "out", noon, 3)); err != nil {
		t.Fatal(err)
	}
	var ops []string
	m.FailWith(func(op, _ string) error { ops = append(ops, op); return nil })
	long := strings.Repeat("a", 1<<20) // more than any buffer holds back
	_, err := writeText(m, []string{long, "b"}, func(dst []byte, s string) []byte {
		if s == "b" {
			panic("boom")
		}
		return append(dst, s...)
	})
	var te *base.TaskError
	if !errors.As(err, &te) || te.Operator != `saveAsTextFiles "out"` || te.Record != 2 || te.Preview != `"b"` {
		t.Errorf("error %+v, want that of the output at record 2", err)
	}
	if got := strings.Join(ops, " "); !strings.Contains(got, "create") || !strings.HasSuffix(got, "close") || strings.Contains(got, "sync") {
		t.Errorf("operations %s, want a file that is closed and not made durable", got)
	}
}
