package tidemill_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

type kv = tidemill.Pair[string, int]

// manyKeys gives n records over keys that do not fit into the smallest
// combine limit, a megabyte, each key a few times.
func manyKeys(n int) []kv {
	var out []kv
	for i := range n {
		out = append(out, tidemill.KV(fmt.Sprintf("key-%05d", i*7919%(n/3)), i))
	}
	return out
}

// TestAggregationsLargerThanMemoryGoToDiskAndComeBackWhole also shows that the
// order does not depend on luck: checked mode compares the attempts that a
// killed executor forces, and two runs must agree.
func TestAggregationsLargerThanMemoryGoToDiskAndComeBackWhole(t *testing.T) {
	in := manyKeys(120_000)
	sums := map[string]int{}
	groups := map[string][]int{}
	for _, p := range in {
		sums[p.Key] += p.Value
		groups[p.Key] = append(groups[p.Key], p.Value)
	}
	type grouped = tidemill.Pair[string, []int]
	type cogrouped = tidemill.Pair[string, tidemill.CoGrouped[int, int]]
	run := func(t *testing.T) (order []string) {
		tidetest.Run(t, func(t *testing.T) {
			mem := fsys.NewMem()
			spilled := 0
			mem.FailWith(func(op, name string) error {
				if op == "open" && strings.HasPrefix(name, "/scratch/") {
					spilled++ // a hook is told of every operation; it lets all pass
				}
				return nil
			})
			reduced, byKey, both := tidetest.NewCapture[kv](), tidetest.NewCapture[grouped](), tidetest.NewCapture[cogrouped]()
			job := tidetest.Start(t, tidetest.Job{
				FS:     mem,
				Config: tidemill.Config{MemoryLimit: 4 << 20, TaskSlots: 1, Parallelism: 1},
				Build: func(ssc *tidemill.StreamingContext) error {
					s := tidetest.Script(ssc, "in", [][]kv{in})
					reduced.Of(tidemill.ReduceByKey(s, func(a, b int) int { return a + b }), "reduced")
					byKey.Of(tidemill.GroupByKey(s), "grouped")
					both.Of(tidemill.Cogroup(s, s), "cogrouped")
					return nil
				},
			})
			job.Advance(1)
			if err := job.Err(); err != nil {
				t.Fatal(err)
			}
			if spilled == 0 {
				t.Error("nothing went to disk: the test does not test what it says")
			}
			gotSums := map[string]int{}
			for _, p := range reduced.Records()[0] {
				order = append(order, p.Key)
				gotSums[p.Key] += p.Value
			}
			if len(order) != len(gotSums) {
				t.Errorf("%d keys were emitted, %d of them different", len(order), len(gotSums))
			}
			if diff := cmp.Diff(sums, gotSums); diff != "" {
				t.Error("reduceByKey:", diff)
			}
			gotGroups := map[string][]int{}
			for _, p := range byKey.Records()[0] {
				gotGroups[p.Key] = p.Value
			}
			if diff := cmp.Diff(groups, gotGroups); diff != "" {
				t.Error("groupByKey:", diff)
			}
			for _, p := range both.Records()[0] {
				if want := groups[p.Key]; !slices.Equal(p.Value.Left, want) || !slices.Equal(p.Value.Right, want) {
					t.Fatalf("cogroup of %s: %v, want %v on both sides", p.Key, p.Value, want)
				}
			}
		})
		return order
	}
	if first, second := run(t), run(t); !slices.Equal(first, second) {
		t.Error("two runs emitted keys in different orders")
	}
}

func TestKeyWhoseValuesDoNotFitGivesAnErrorThatNamesIt(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		big := strings.Repeat("x", 1000)
		var in []tidemill.Pair[string, string]
		for i := range 6000 {
			in = append(in, tidemill.KV("hot", fmt.Sprint(i, big)))
		}
		job := tidetest.Start(t, tidetest.Job{
			Config: tidemill.Config{MemoryLimit: 4 << 20, TaskSlots: 1, Parallelism: 1, MaxTaskFailures: 1, MaxBatchBytes: 64 << 20},
			Build: func(ssc *tidemill.StreamingContext) error {
				s := tidetest.Script(ssc, "in", [][]tidemill.Pair[string, string]{in})
				tidetest.NewCapture[tidemill.Pair[string, []string]]().Of(tidemill.GroupByKey(s), "out")
				return nil
			},
		})
		job.Advance(1)
		err := job.Err()
		if err == nil || !strings.Contains(err.Error(), `"hot"`) || !strings.Contains(err.Error(), "must fit in memory") {
			t.Errorf("got %v, want an error that names the key and the rule", err)
		}
	})
}
