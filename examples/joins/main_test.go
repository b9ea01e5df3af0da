package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/examples/internal/proc"
	"github.com/tidemill/tidemill/tidetest"
)

func TestMain(m *testing.M) { proc.Main(m, main) }

// In fake time two batches take no time, and their output is known to the letter.
func TestTwoBatches(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		var out strings.Builder
		job := tidetest.Start(t, tidetest.Job{Build: app(tenMinutes()).Build, Stdout: &out})
		job.Advance(2)
		want := `
-------------------------------------------
Time: 2000-01-01T00:00:01.000Z  paid
-------------------------------------------
(1,(bread,320))
(2,(rolls,150))

-------------------------------------------
Time: 2000-01-01T00:00:01.000Z  all-orders
-------------------------------------------
(1,(bread,320))
(2,(rolls,150))
(3,(cake,none))

-------------------------------------------
Time: 2000-01-01T00:00:01.000Z  orders-and-payments
-------------------------------------------
(0,(none,1200))
(1,(bread,320))
(2,(rolls,150))
(3,(cake,none))

-------------------------------------------
Time: 2000-01-01T00:00:01.000Z  paid-also-late
-------------------------------------------
(1,(bread,320))
(2,(rolls,150))

-------------------------------------------
Time: 2000-01-01T00:00:02.000Z  paid
-------------------------------------------
(4,(bread,320))
(5,(rolls,150))

-------------------------------------------
Time: 2000-01-01T00:00:02.000Z  all-orders
-------------------------------------------
(4,(bread,320))
(5,(rolls,150))
(6,(cake,none))

-------------------------------------------
Time: 2000-01-01T00:00:02.000Z  orders-and-payments
-------------------------------------------
(3,(none,1200))
(4,(bread,320))
(5,(rolls,150))
(6,(cake,none))

-------------------------------------------
Time: 2000-01-01T00:00:02.000Z  paid-also-late
-------------------------------------------
(3,(cake,1200))
(4,(bread,320))
(5,(rolls,150))

`
		if diff := cmp.Diff(want[1:], out.String()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRunsAsItStands(t *testing.T) {
	end := proc.Start(t, "-set", "batch-interval=100ms", "-executors", "3", "-for", "500ms").Wait()
	if end.Code != 0 || !strings.Contains(end.Stdout, "\n(3,(none,1200))\n(4,(bread,320))\n") || !strings.Contains(end.Stderr, "nothing left") {
		t.Error(end)
	}
}
