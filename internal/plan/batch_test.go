package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/plan"
)

func TestBlocksAreSpreadInOrderAndEvenly(t *testing.T) {
	blocks := func(bytes ...int64) []plan.Block {
		out := make([]plan.Block, len(bytes))
		for i, b := range bytes {
			out[i].Bytes = b
		}
		return out
	}
	for _, test := range []struct {
		bytes []int64
		parts int
		want  []int
	}{
		{nil, 0, []int{}},
		{[]int64{5, 900, 5}, 3, []int{1, 2, 3}}, // as many as there are: one each
		{[]int64{10, 10, 10, 10}, 2, []int{2, 4}},
		{[]int64{10, 10, 10, 970}, 2, []int{3, 4}},
		{[]int64{970, 10, 10, 10}, 2, []int{1, 4}},
		{[]int64{0, 0, 0, 0, 0}, 2, []int{2, 5}},
		{[]int64{1, 1, 1000, 1, 1}, 4, []int{2, 2, 3, 5}},
	} {
		if diff := cmp.Diff(test.want, plan.SpreadBlocks(blocks(test.bytes...), test.parts)); diff != "" {
			t.Errorf("%v over %d (-want +got):\n%s", test.bytes, test.parts, diff)
		}
	}
}
