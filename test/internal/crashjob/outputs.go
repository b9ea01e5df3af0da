package crashjob

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tidemill/tidemill/internal/fsys"
)

// Outputs are the lines of every output's committed directories, by batch time.
type Outputs map[string]map[int64][]string

// readers is how many directories are read at a time.
const readers = 8

// ReadOutputs reads what the job has committed under dir, once it has stopped
// gracefully: nothing else may be there.
func ReadOutputs(t testing.TB, f fsys.FS, dir string) Outputs {
	t.Helper()
	entries, err := f.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := Outputs{"lines": {}, "recent": {}, "window": {}, "counts": {}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, readers)
	for _, e := range entries {
		name, ms, _ := strings.Cut(e.Name, "-")
		at, err := strconv.ParseInt(ms, 10, 64)
		switch {
		case strings.HasPrefix(e.Name, "."):
			t.Errorf("staging directory %s is left after a graceful stop", e.Name)
			continue
		case err != nil || !e.Dir || out[name] == nil:
			t.Errorf("%s: no directory of a batch", e.Name)
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			lines, err := readBatch(f, dir+"/"+e.Name)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			out[name][at] = lines
		})
	}
	wg.Wait()
	return out
}

// readBatch reads one committed directory.
func readBatch(f fsys.FS, dir string) ([]string, error) {
	files, err := f.List(dir)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(files, func(i fsys.Info) bool { return i.Name == "_SUCCESS" }) {
		return nil, fmt.Errorf("%s: not committed", dir)
	}
	lines := []string{}
	for _, file := range files {
		if !strings.HasPrefix(file.Name, "part-") {
			continue
		}
		text, err := fsys.ReadFile(f, dir+"/"+file.Name)
		if err != nil {
			return nil, err
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	}
	return lines, nil
}
