package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/fsys"
)

// TestDirectoriesMayBeOnAnotherFileSystem looks at a job's directory, moves it to
// where a URL leads, and sees the same there.
func TestDirectoriesMayBeOnAnotherFileSystem(t *testing.T) {
	const there = "mem://nn:8020/jobs/words"
	m := fsys.NewMem()
	poisoned(t, m)
	commands := [][]string{
		{"wal", "verify", "DIR"},
		{"wal", "verify", "DIR/blocks"},
		{"wal", "verify", "DIR/log/e-000001"},
		{"wal", "dump", "DIR"},
		{"wal", "dump", "DIR/blocks/lines"},
		{"wal", "dump", "DIR/blocks/none"},
		{"checkpoint", "show", "DIR"},
		{"checkpoint", "show", "DIR/"},
		{"checkpoint", "show", "DIR", "--json"},
		{"checkpoint", "show", "DIR/none"},
		{"checkpoint", "skip", "DIR", third, "--reason", "record 1 is poison"},
		{"wal", "verify", "DIR"},
		{"checkpoint", "show", "DIR"},
	}
	all := func(f fsys.FS, dir string) (results []result) {
		for _, c := range commands {
			args := strings.Split(strings.ReplaceAll(strings.Join(c, "\x00"), "DIR", dir), "\x00")
			r := tidemillCmd(t, f, args...)
			results = append(results, result{r.code, strings.ReplaceAll(r.out, dir, "DIR"), strings.ReplaceAll(r.err, dir, "DIR")})
		}
		return results
	}
	here, moved := m.AfterKill(nil), m.AfterKill(nil)
	want := all(here, "/job")
	if err := moved.MkdirAll("mem://nn:8020/jobs"); err != nil {
		t.Fatal(err)
	}
	if err := moved.Rename("/job", there); err != nil {
		t.Fatal(err)
	}
	r := fsys.NewRouter(fsys.NewMem(), map[string]func(string) (fsys.FS, error){
		"mem": func(string) (fsys.FS, error) { return moved, nil },
	})
	got := all(r, there)
	for i, c := range commands {
		if diff := cmp.Diff(want[i], got[i], cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%v (-local +there):\n%s", c, diff)
		}
	}
	if want[0].code != 0 || want[len(want)-1].code != 0 || !strings.Contains(want[10].out, "skipped batch") {
		t.Errorf("the local ones: %+v", want)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	expect(t, tidemillCmd(t, r, "wal", "verify", "hdfs:/job"), 1, nil, []string{"look like hdfs://host:port/path"})
}
