package tidemill

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/fsys"
)

// TestScratchOfKilledProcessesGoes finds what other processes left in the
// system's temporary directory: only those of the same job that are dead.
func TestScratchOfKilledProcessesGoes(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	const job = "hdfs://nn:8020/jobs/one"
	left := func(dir string, alive bool) string {
		name, _ := scratchName(dir)
		at := filepath.Join(tmp, name)
		if err := os.MkdirAll(filepath.Join(at, "exec-1"), 0o777); err != nil {
			t.Fatal(err)
		}
		held, err := fsys.Local().Lock(at + scratchLock)
		if err != nil {
			t.Skip("no locks here: ", err)
		}
		if !alive {
			if err := held.Close(); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _ = held.Close() })
		return name
	}
	left(job, false)
	alive, other := left(job, true), left("hdfs://nn:8020/jobs/two", false)
	e := surroundings(Config{}, []ContextOption{WithDir(job)})
	release := e.holdScratch()
	if err := os.MkdirAll(e.scratch, 0o777); err != nil {
		t.Fatal(err)
	}
	names := func() (all []string) {
		entries, err := os.ReadDir(tmp)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	both := func(names ...string) (all []string) {
		for _, n := range names {
			all = append(all, n, n+scratchLock)
		}
		return slices.Sorted(slices.Values(all))
	}
	if diff := cmp.Diff(both(alive, other, filepath.Base(e.scratch)), names()); diff != "" {
		t.Errorf("while the job runs (-want +got):\n%s", diff)
	}
	release()
	if diff := cmp.Diff(both(alive, other), names()); diff != "" {
		t.Errorf("after the job (-want +got):\n%s", diff)
	}
}
