package crashjob

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Check compares every output with what a plain loop makes of the committed
// lines.
func (o Outputs) Check(t testing.TB, interval time.Duration) {
	t.Helper()
	lines, counts, recents, windows := o["lines"], o["counts"], o["recent"], o["window"]
	ms := interval.Milliseconds()
	times := batches(lines)
	in := func(at, n int64) (out []string) { // the lines of that many batches, up to that of time at
		for _, u := range times {
			if u > at-n*ms && u <= at {
				out = append(out, lines[u]...)
			}
		}
		return out
	}
	total := map[string]int64{}
	for _, at := range times {
		for _, l := range lines[at] {
			total[word(l)]++
		}
		if diff := cmp.Diff(total, sums(t, counts[at])); diff != "" {
			t.Fatalf("counts at %d (-want +got):\n%s", at, diff)
		}
		want, got := in(at, recent), slices.Clone(recents[at])
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got, emptyIsNil()); diff != "" {
			t.Fatalf("the last lines at %d (-want +got):\n%s", at, diff)
		}
		if at%(slide*ms) != 0 {
			continue
		}
		sum := map[string]int64{}
		for _, l := range in(at, window) {
			sum[word(l)]++
		}
		have := sums(t, windows[at])
		maps.DeleteFunc(have, func(_ string, n int64) bool { return n == 0 }) // a key that was in the window
		if diff := cmp.Diff(sum, have); diff != "" {
			t.Fatalf("window at %d (-want +got):\n%s", at, diff)
		}
	}
	for name, out := range map[string]map[int64][]string{"counts": counts, "recent": recents} {
		if diff := cmp.Diff(times, batches(out)); diff != "" {
			t.Errorf("batches of %s (-lines +%s):\n%s", name, name, diff)
		}
	}
	onSlide := slices.DeleteFunc(slices.Clone(times), func(at int64) bool { return at%(slide*ms) != 0 })
	if diff := cmp.Diff(onSlide, batches(windows)); diff != "" {
		t.Errorf("batches of window (-lines +window):\n%s", diff)
	}
}

// batches are the times of an output's directories, ascending.
func batches(out map[int64][]string) []int64 {
	return append([]int64{}, slices.Sorted(maps.Keys(out))...)
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
func sums(t testing.TB, lines []string) map[string]int64 {
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
