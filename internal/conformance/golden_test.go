package conformance

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// family is how the cases of a family are run and read.
type family struct {
	// run runs a case on the engine.
	run func(t *testing.T, c *golden) outcome
	// spark brings what Spark gave into the same form.
	spark func(c *golden) outcome
}

func families() map[string]family {
	return map[string]family{
		"stateless":      {runStateless, sparkOutputs},
		"multi_stream":   {runMultiStream, sparkOutputs},
		"window":         {runWindow, sparkOutputs},
		"update_state":   {runUpdateState, sparkOutputs},
		"map_with_state": {runMapWithState, sparkMapWithState},
		"slice_remember": {runSliceRemember, sparkSliceRemember},
		"failures":       {runFailure, sparkFailure},
		"errors":         {runError, sparkError},
		"file_input":     {runFiles, sparkFiles},
		"time":           {runTime, sparkTime},
		"rate":           {runRate, sparkRate},
		"recovery":       {runRecovery, sparkRecovery},
		"wal":            {runWAL, sparkWAL},
		"graceful_stop":  {runGracefulStop, sparkGracefulStop},
	}
}

// sparkOutputs reads the cases that have outputs and, maybe, an error.
func sparkOutputs(c *golden) outcome {
	o := outcome{}
	o.outputs("output", c, c.Output)
	o.outputs("output2", c, c.Output2)
	o.outputs(snapshots, c, c.Snapshots)
	if f := c.failed(); f != nil {
		o.add("error", "%s %d", f.Phase, f.TimeMS)
	}
	return o
}

// tally counts the cases of a family.
type tally struct {
	ran, passed, differ, notHere int
	later                        map[string]int
}

func (y *tally) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d of %d", y.passed, y.ran)
	for _, more := range []struct {
		n    int
		what string
	}{{y.differ, "differ on purpose"}, {y.notHere, "do not apply"}} {
		if more.n > 0 {
			fmt.Fprintf(&s, ", %d %s", more.n, more.what)
		}
	}
	for _, part := range slices.Sorted(maps.Keys(y.later)) {
		fmt.Fprintf(&s, ", %d later: %s", y.later[part], part)
	}
	return s.String()
}

// tallies is filled by TestGolden and printed by TestMain.
var tallies = map[string]*tally{}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		fmt.Printf("family %s: %s\n", name, tallies[name])
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		code = 1
	}
	os.Exit(code)
}

func TestGolden(t *testing.T) {
	dir, shipped := goldenDir()
	used := map[*difference]bool{}
	all := load(t, dir)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			y := &tally{later: map[string]int{}}
			tallies[name] = y
			for _, c := range all[name] {
				t.Run(c.Name, func(t *testing.T) { check(t, c, y, used) })
			}
			if !shipped {
				return // another folder need not have the cases of every entry
			}
			for _, d := range differences {
				if d.family == name && !used[d] && y.ran+y.differ+y.notHere == len(all[name])-sum(y.later) {
					t.Errorf("stale entry in the table of differences: %q matches no case", d.cases)
				}
			}
		})
	}
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// check runs a case and counts how it ended.
func check(t *testing.T, c *golden, y *tally, used map[*difference]bool) {
	if part := later(c); part != "" {
		y.later[part]++
		t.Skipf("later: %s", part)
	}
	f, ok := families()[c.Family]
	if !ok {
		t.Fatalf("family %q is neither known nor listed as later", c.Family)
	}
	d := differs(t, c)
	count, want := &y.passed, f.spark(c).clean()
	if d == nil {
		y.ran++
	} else {
		used[d] = true
		spark := want
		want = d.want(c).clean()
		count = map[kind]*int{onPurpose: &y.differ, notHere: &y.notHere}[d.kind]
		if d.kind != notHere && cmp.Equal(spark, want) {
			t.Errorf("stale entry in the table of differences: %q does not differ from Spark in this case", d.cases)
		}
	}
	if diff := cmp.Diff(want, f.run(t, c).clean()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !t.Failed() {
		*count++
	} else if d != nil {
		y.ran++
	}
}
