package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/examples/internal/proc"
	"github.com/tidemill/tidemill/tidetest"
)

func TestMain(m *testing.M) { proc.Main(m, main) }

func TestVisitEndsAfterItsLastPage(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		out := tidetest.NewCapture[string]()
		job := tidetest.Start(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
			pages := tidemill.QueueStream(ssc, "pages", evening())
			spec := tidemill.StateSpec[string, visit]{Timeout: tidemill.Some(3 * time.Second)}
			out.Of(tidemill.MapWithState(pages, "visits", spec, follow).DStream, "out")
			return nil
		}})
		job.Advance(12)
		got := map[int][]string{}
		for i, b := range out.Records() {
			if len(b) > 0 {
				got[i+1] = b
			}
		}
		// Ben's last page is in batch 2, Ada's in batch 5; a visit ends in the first
		// batch that lies more than three seconds behind.
		want := map[int][]string{6: {"ben saw 2 pages in 1s"}, 9: {"ada saw 10 pages in 4s"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRunsAsItStands(t *testing.T) {
	end := proc.Start(t, "-set", "batch-interval=50ms", "-idle", "150ms", "-executors", "3", "-for", "1s").Wait()
	if end.Code != 0 || !strings.Contains(end.Stdout, "ada saw 10 pages in 200ms") || !strings.Contains(end.Stdout, "visitors") {
		t.Error(end)
	}
}
