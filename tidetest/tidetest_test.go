package tidetest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/tidetest"
)

func TestScriptedBatchesAreCapturedPerBatch(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		out := tidetest.NewCapture[int]()
		job := tidetest.Start(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
			in := tidetest.Script(ssc, "in", [][]int{{1, 2}, nil, {3}, {}})
			out.Of(tidemill.Map(in, func(v int) int { return 2 * v }), "out")
			return nil
		}})
		job.Advance(4)
		if diff := cmp.Diff([][]int{{2, 4}, {6}, {}}, out.Records()); diff != "" {
			t.Error(diff)
		}
		var times []tidemill.BatchTime
		for _, b := range out.Batches() {
			times = append(times, b.Time)
		}
		if diff := cmp.Diff([]tidemill.BatchTime{job.Time(1), job.Time(3), job.Time(4)}, times); diff != "" {
			t.Error(diff)
		}
	})
}
