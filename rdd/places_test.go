package rdd_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
)

// TestFromTellsWhatAPartitionIsComputedFrom compares what nodes say with the
// records of their partitions, each of which names the one that it came from.
func TestFromTellsWhatAPartitionIsComputedFrom(t *testing.T) {
	scope := newScope("s")
	source := func(name string, parts int) rdd.RDD[string] {
		var records [][]string
		for p := range parts {
			records = append(records, []string{fmt.Sprintf("%s%d", name, p)})
		}
		return rdd.FromSlices(scope, name, records)
	}
	a, b := source("a", 5), source("b", 3)
	sources := map[*plan.Node]string{a.Node(): "a", b.Node(): "b"}
	for what, r := range map[string]rdd.RDD[string]{
		"map":         rdd.Map(a, func(s string) string { return s }),
		"union":       rdd.Union(scope, a, b, a),
		"coalesce":    rdd.Coalesce(a, 2),
		"coalesce up": rdd.Coalesce(a, 9),
		"both":        rdd.Coalesce(rdd.Union(scope, b, a), 3),
		"cartesian": rdd.FlatMapSlice(rdd.Cartesian(a, b), func(j rdd.Joined[string, string]) []string {
			return []string{j.Left, j.Right}
		}),
	} {
		want := both(t, r)
		for part := range want {
			names := plan.Places(r.Node(), part, func(n *plan.Node, part int) ([]plan.Place, bool) {
				name, ok := sources[n]
				return []plan.Place{{Name: fmt.Sprintf("%s%d", name, part)}}, ok
			})
			if !slices.Equal(names, want[part]) {
				t.Errorf("%s: partition %d is said to come from %q, and comes from %q", what, part, names, want[part])
			}
		}
	}
}
