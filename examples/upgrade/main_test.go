package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/examples/internal/proc"
)

func TestMain(m *testing.M) { proc.Main(m, main) }

// run runs the program for a while in small batches.
func run(t *testing.T, args ...string) proc.End {
	t.Helper()
	return proc.Start(t, append([]string{"-set", "batch-interval=50ms", "-rate", "200"}, args...)...).Wait()
}

// counted is what was printed of a word.
type counted struct {
	Count       int64
	First, Last string // empty in version 1
}

// printed gives what was printed in each batch.
func printed(t *testing.T, end proc.End) []map[string]counted {
	t.Helper()
	row := regexp.MustCompile(`(?m)^\((\w+),(\d+)(?:, first (.*), last (.*))?\)$`)
	var out []map[string]counted
	for _, batch := range strings.Split(end.Stdout, "\nTime: ")[1:] {
		rows := map[string]counted{}
		for _, m := range row.FindAllStringSubmatch(batch, -1) {
			n, err := strconv.ParseInt(m[2], 10, 64)
			if _, twice := rows[m[1]]; twice || err != nil {
				t.Errorf("%s: %v, before: %v", m[0], err, rows)
			}
			rows[m[1]] = counted{Count: n, First: m[3], Last: m[4]}
		}
		if len(rows) > 0 {
			out = append(out, rows)
		}
	}
	if end.Code != 0 || len(out) == 0 {
		t.Fatal(end)
	}
	return out
}

// check compares every batch with the text from its word number `from` on, and
// returns how far the last one got.
func check(t *testing.T, batches []map[string]counted, from int64) (to int64) {
	t.Helper()
	words := text()
	for _, rows := range batches {
		var n int64
		got := map[string]int64{}
		for w, c := range rows {
			got[w] = c.Count
			n += c.Count
		}
		want := map[string]int64{}
		for i := from; i < from+n; i++ {
			want[words[i%int64(len(words))]]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%d words from %d on: %s", n, from, diff)
		}
		if from+n < to {
			t.Errorf("%d words after %d", from+n, to)
		}
		to = from + n
	}
	return to
}

func TestVersion2GoesOnWithTheCountsOfVersion1(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := printed(t, run(t, "-version", "1", "-dir", dir, "-for", "1s"))
	n := check(t, before, 0)

	refused(t, run(t, "-version", "2", "-migrate=false", "-dir", dir, "-for", "1s"), dir,
		`~ updateStateByKey "counts": values int64 in version 0, now values msgpack:main.seen in version 1: refused: no migration reads the old values`,
		"  MigrateState(0, ...): a function from the old values, int64")

	after := printed(t, run(t, "-version", "2", "-dir", dir, "-for", "1s"))
	all := check(t, append(before, after...), 0)
	if all <= n {
		t.Errorf("version 2 counted up to word %d, version 1 up to %d", all, n)
	}
	const unknown = "before version 2"
	again := 0
	for w, c := range after[len(after)-1] {
		was := before[len(before)-1][w].Count
		if (c.First == unknown) != (was > 0) || (c.Last == unknown) != (c.Count == was) {
			t.Errorf("%s was there %d times in version 1, then %+v", w, was, c)
		}
		if c.First == unknown && c.Last != unknown {
			again++
		}
	}
	if again == 0 {
		t.Errorf("no word was in both versions: %v", after[len(after)-1])
	}
	for i, rows := range after[1:] {
		for w, c := range rows {
			if was := after[i][w]; (c.Last != was.Last) != (c.Count != was.Count) {
				t.Errorf("%s: %+v, a batch later %+v", w, was, c)
			}
		}
	}

	// Once its state is written anew, version 2 does without the migration, and
	// there is no way back.
	last := printed(t, run(t, "-version", "2", "-migrate=false", "-dir", dir, "-for", "500ms"))
	check(t, append(after, last...), 0)
	refused(t, run(t, "-version", "1", "-dir", dir, "-for", "1s"), dir,
		`~ updateStateByKey "counts": values msgpack:main.seen in version 1, now values int64 in version 0: refused: no migration reads the old values`)
}

// refused checks that a start was refused with lines of a diff.
func refused(t *testing.T, end proc.End, dir string, lines ...string) {
	t.Helper()
	lines = append(lines, "  --drop-state=counts: its state is forgotten", "upgrade: the job in "+dir+" can't go on with this program: see above")
	for _, l := range lines {
		if !strings.Contains("\n"+end.Stderr, "\n"+l+"\n") {
			t.Errorf("standard error lacks %q", l)
		}
	}
	if end.Code != 1 || end.Stdout != "" || t.Failed() {
		t.Error(end)
	}
}

func TestDropStateBeginsTheCountsAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := check(t, printed(t, run(t, "-version", "1", "-dir", dir, "-for", "1s")), 0)
	batches := printed(t, run(t, "-version", "2", "-migrate=false", "-drop-state", "counts", "-dir", dir, "-for", "1s"))
	check(t, batches, n) // the text goes on where it was
	for w, c := range batches[len(batches)-1] {
		if !strings.HasPrefix(c.First, "20") || !strings.HasPrefix(c.Last, "20") || c.First > c.Last {
			t.Errorf("%s: %+v, want both times", w, c)
		}
	}
}

func TestRunsAsItStands(t *testing.T) {
	t.Parallel()
	p := proc.Start(t)
	p.UntilSaid("(tide,")
	p.Signal(os.Interrupt)
	end := p.Wait()
	if check(t, printed(t, end), 0); !strings.HasSuffix(end.Stderr, ", nothing left\n") {
		t.Error(end)
	}
}

func TestUnknownVersionIsRefused(t *testing.T) {
	t.Parallel()
	if end := run(t, "-version", "3"); end.Code != 1 || !strings.HasSuffix(end.Stderr, "-version 3: must be 1 or 2\n") {
		t.Error(end)
	}
}
