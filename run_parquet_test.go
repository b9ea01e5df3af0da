package tidemill_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

type sale struct {
	Item  string   `parquet:"item"`
	Cents int64    `parquet:"cents"`
	Tags  []string `parquet:"tags,list"`
}

// readParquet checks a committed directory against its manifest and returns
// its records in partition order.
func readParquet[R any](t *testing.T, f fsys.FS, dir string) []R {
	t.Helper()
	text, err := fsys.ReadFile(f, dir+"/_SUCCESS")
	if err != nil {
		t.Fatal(err)
	}
	var m driver.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	infos, err := f.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(infos) != len(m.Parts)+1 {
		t.Errorf("%s has %d files, the manifest %d parts", dir, len(infos), len(m.Parts))
	}
	out := []R{}
	for _, p := range m.Parts {
		b, err := fsys.ReadFile(f, dir+"/"+p.Name)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := parquet.Read[R](bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		crc := fmt.Sprintf("%08x", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
		if int64(len(rows)) != p.Records || int64(len(b)) != p.Bytes || crc != p.CRC32C || !strings.HasSuffix(p.Name, ".parquet") {
			t.Errorf("%s: %d records, %d bytes, CRC %s, manifest has %+v", dir, len(rows), len(b), crc, p)
		}
		out = append(out, rows...)
	}
	if int64(len(out)) != m.Records {
		t.Errorf("%s: %d records, manifest has %d", dir, len(out), m.Records)
	}
	return out
}

func names(t *testing.T, f fsys.FS, dir string) []string {
	t.Helper()
	infos, err := f.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, i := range infos {
		out = append(out, i.Name)
	}
	return out
}

func TestParquetDirectoryPerBatch(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		m := fsys.NewMem()
		in := [][]sale{{{"a", 1, []string{"x", "y"}}, {"b", 2, nil}, {"a", 3, nil}}, {}, {{"c", 4, nil}}}
		job := tidetest.Start(t, tidetest.Job{FS: m, Build: func(ssc *tidemill.StreamingContext) error {
			sales := tidetest.Script(ssc, "in", in)
			tidemill.SaveAsParquet(sales, "sales", "/out")
			byItem := tidemill.Map(sales, func(s sale) tidemill.Pair[string, int64] { return tidemill.KV(s.Item, s.Cents) })
			tidemill.SaveAsParquet(tidemill.ReduceByKey(byItem, func(a, b int64) int64 { return a + b }), "sums", "/out", tidemill.KeepEmpty())
			return nil
		}})
		job.Advance(3)
		if err := job.Err(); err != nil {
			t.Fatal(err)
		}
		at := func(name string, i int) string { return fmt.Sprintf("/out/%s-%d", name, ms(job.Time(i))) }
		var want []string
		for _, dir := range []string{at("sales", 1), at("sales", 3), at("sums", 1), at("sums", 2), at("sums", 3)} {
			want = append(want, strings.TrimPrefix(dir, "/out/"))
		}
		if diff := cmp.Diff(want, names(t, m, "/out")); diff != "" {
			t.Error(diff)
		}
		for i, w := range map[int][]sale{1: in[0], 3: in[2]} {
			got := readParquet[sale](t, m, at("sales", i))
			for j := range got {
				if len(got[j].Tags) == 0 {
					got[j].Tags = nil
				}
			}
			if diff := cmp.Diff(w, got); diff != "" {
				t.Errorf("batch %d: %s", i, diff)
			}
		}
		if diff := cmp.Diff([]string{"_SUCCESS", "part-00000.parquet", "part-00001.parquet"}, names(t, m, at("sales", 1))); diff != "" {
			t.Error(diff)
		}
		type sum struct {
			Key   string `parquet:"key"`
			Value int64  `parquet:"value"`
		}
		sums := map[string]int64{}
		for _, s := range readParquet[sum](t, m, at("sums", 1)) {
			sums[s.Key] += s.Value
		}
		if diff := cmp.Diff(map[string]int64{"a": 4, "b": 2}, sums); diff != "" {
			t.Error(diff)
		}
		if got := readParquet[sum](t, m, at("sums", 2)); len(got) != 0 {
			t.Errorf("empty batch has %v", got)
		}
	})
}

// Attempts that fail, early or when their file is all but done, leave nothing.
func TestParquetRetriedAttemptsLeaveOneCopy(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		m := fsys.NewMem()
		var syncs, panics atomic.Int64
		m.FailWith(func(op, name string) error {
			if op == "sync" && strings.HasSuffix(name, ".parquet") && syncs.Add(1) <= 2 {
				return errors.New("not yet")
			}
			return nil
		})
		job := tidetest.Start(t, tidetest.Job{FS: m, Build: func(ssc *tidemill.StreamingContext) error {
			in := tidetest.Script(ssc, "in", [][]int{{1, 2, 3, 4}})
			tidemill.SaveAsParquet(tidemill.Map(in, func(v int) int {
				if v == 4 && panics.Add(1) == 1 {
					panic("boom")
				}
				return v
			}), "out", "/out")
			return nil
		}})
		job.Advance(1)
		if err := job.Err(); err != nil {
			t.Fatal(err)
		}
		if syncs.Load() < 4 || panics.Load() < 2 {
			t.Errorf("%d syncs and %d panics: nothing was retried", syncs.Load(), panics.Load())
		}
		type row struct {
			Value int `parquet:"value"`
		}
		dir := fmt.Sprintf("/out/out-%d", ms(job.Time(1)))
		if diff := cmp.Diff([]row{{1}, {2}, {3}, {4}}, readParquet[row](t, m, dir)); diff != "" {
			t.Error(diff)
		}
		if got := names(t, m, "/out"); len(got) != 1 {
			t.Errorf("%q is left, want the batch alone", got)
		}
	})
}

type sulky struct{ N int }

func (s sulky) MarshalJSON() ([]byte, error) { panic("no " + fmt.Sprint(s.N)) }

func TestParquetUserPanicEndsTheJobOnly(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		type rec struct {
			S sulky `parquet:"s,json"`
		}
		m := fsys.NewMem()
		job := tidetest.Start(t, tidetest.Job{FS: m, Build: func(ssc *tidemill.StreamingContext) error {
			tidemill.SaveAsParquet(tidetest.Script(ssc, "in", [][]rec{{{sulky{7}}}}, 1), "out", "/out")
			return nil
		}})
		job.Advance(1)
		wantErr(t, job, `saveAsParquet "out"`, "partition 0", "record 1", "panic", "no 7", "4 attempts")
		if got := names(t, m, "/out"); len(got) != 0 {
			t.Errorf("%q is left", got)
		}
	})
}

func TestParquetOfATypeThatCantBeWritten(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		type bad struct {
			Name string
			Done func()
		}
		_, err := tidetest.New(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
			d := tidemill.Map(numbers(ssc, 1), func(int) bad { return bad{} })
			tidemill.SaveAsParquet(d, "out", "")
			return nil
		}})
		holds(t, err, `saveAsParquet "out": the directory is empty`, `saveAsParquet "out": records of type tidemill_test.bad can't be written as Parquet: field tidemill_test.bad.Done is a func`)
		if strings.Contains(fmt.Sprint(err), "no output operations") {
			t.Errorf("error %q complains of what follows from the rest", err)
		}
	})
}

func TestParquetOnTheLocalFileSystem(t *testing.T) {
	dir := t.TempDir()
	done := make(chan struct{}, 100)
	app := tidemill.App{Name: "sales", Build: func(ssc *tidemill.StreamingContext) error {
		in := tidetest.Script(ssc, "in", [][]sale{{{"a", 1, []string{"x"}}, {"b", 2, []string{}}}, {{"c", 3, []string{"", "y"}}}})
		tidemill.SaveAsParquet(in, "sales", filepath.Join(dir, "out"))
		return nil
	}}
	ssc, err := tidemill.New(app, tidemill.Config{BatchInterval: 50 * time.Millisecond}, tidemill.WithScratch(filepath.Join(dir, "scratch")))
	if err != nil {
		t.Fatal(err)
	}
	ssc.AddListener(completed(done))
	if err := ssc.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	limit := time.After(30 * time.Second)
	for range 3 {
		select {
		case <-done:
		case <-limit:
			t.Fatal("no batch is completed")
		}
	}
	if _, err := ssc.Stop(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(dir, "out", "*"))
	if err != nil {
		t.Fatal(err)
	}
	got := []sale{}
	for _, d := range dirs {
		got = append(got, readParquet[sale](t, fsys.Local(), d)...)
	}
	if diff := cmp.Diff([]sale{{"a", 1, []string{"x"}}, {"b", 2, []string{}}, {"c", 3, []string{"", "y"}}}, got); diff != "" || len(dirs) != 2 {
		t.Errorf("%d directories: %s", len(dirs), diff)
	}
	if hidden, err := os.ReadDir(filepath.Join(dir, "out")); err != nil || len(hidden) != len(dirs) {
		t.Errorf("%d entries, %v: want no staging directory", len(hidden), err)
	}
}

type completed chan struct{}

func (c completed) OnBatchCompleted(tidemill.BatchInfo) {
	select {
	case c <- struct{}{}:
	default:
	}
}
