package crash

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// output reads the committed directories of an output, by batch time.
func output(t *testing.T, dir, name string) map[int64][]string {
	t.Helper()
	done, err := filepath.Glob(filepath.Join(dir, name+"-*"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[int64][]string{}
	for _, d := range done {
		at, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(d), name+"-"), 10, 64)
		if err != nil {
			t.Errorf("%s: no directory of a batch", d)
			continue
		}
		if _, err := os.Stat(filepath.Join(d, "_SUCCESS")); err != nil {
			t.Errorf("%s: not committed: %v", d, err)
		}
		out[at] = []string{}
		parts, err := filepath.Glob(filepath.Join(d, "part-*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			text, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			out[at] = append(out[at], strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("staging directories are left after a graceful stop: %v, %v", left, err)
	}
	return out
}

// checkOutputs compares every output with what a plain loop makes of the
// committed lines.
func checkOutputs(t *testing.T, dir string, lines map[int64][]string) {
	t.Helper()
	times := slices.Sorted(maps.Keys(lines))
	in := func(at, length int64) (out []string) { // the lines of (at - length, at]
		for _, u := range times {
			if u > at-length && u <= at {
				out = append(out, lines[u]...)
			}
		}
		return out
	}
	counts, recents, windows := output(t, dir, "counts"), output(t, dir, "recent"), output(t, dir, "window")
	total := map[string]int64{}
	for _, at := range times {
		for _, l := range lines[at] {
			total[word(l)]++
		}
		if diff := cmp.Diff(total, sums(t, counts[at])); diff != "" {
			t.Fatalf("counts at %d (-want +got):\n%s", at, diff)
		}
		want, got := in(at, recent.Milliseconds()), slices.Clone(recents[at])
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got, emptyIsNil()); diff != "" {
			t.Fatalf("the last lines at %d (-want +got):\n%s", at, diff)
		}
		if at%slide.Milliseconds() != 0 {
			continue
		}
		sum := map[string]int64{}
		for _, l := range in(at, window.Milliseconds()) {
			sum[word(l)]++
		}
		have := sums(t, windows[at])
		maps.DeleteFunc(have, func(_ string, n int64) bool { return n == 0 }) // a key that was in the window
		if diff := cmp.Diff(sum, have); diff != "" {
			t.Fatalf("window at %d (-want +got):\n%s", at, diff)
		}
	}
	for name, out := range map[string]map[int64][]string{"counts": counts, "recent": recents} {
		if diff := cmp.Diff(times, slices.Sorted(maps.Keys(out))); diff != "" {
			t.Errorf("batches of %s (-lines +%s):\n%s", name, name, diff)
		}
	}
	onSlide := slices.DeleteFunc(slices.Clone(times), func(at int64) bool { return at%slide.Milliseconds() != 0 })
	if diff := cmp.Diff(onSlide, slices.Sorted(maps.Keys(windows))); diff != "" {
		t.Errorf("batches of window (-lines +window):\n%s", diff)
	}
}

func emptyIsNil() cmp.Option {
	return cmp.Transformer("emptyIsNil", func(s []string) []string {
		if len(s) == 0 {
			return nil
		}
		return s
	})
}

// sums reads lines "WORD COUNT".
func sums(t *testing.T, lines []string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, l := range lines {
		w, n, _ := strings.Cut(l, " ")
		v, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			t.Errorf("line %q: %v", l, err)
		}
		if _, twice := out[w]; twice {
			t.Errorf("word %q is there twice", w)
		}
		out[w] = v
	}
	return out
}
