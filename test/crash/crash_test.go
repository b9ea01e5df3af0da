package crash

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/test/internal/crashjob"
)

func TestMain(m *testing.M) {
	crashjob.MainIfJob()
	goleak.VerifyTestMain(m)
}

// rounds is how often the job is killed: TIDEMILL_CRASH_ROUNDS, or as often as
// takes less than a minute.
func rounds(t *testing.T) int {
	text := os.Getenv("TIDEMILL_CRASH_ROUNDS")
	if text == "" {
		return 50
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("TIDEMILL_CRASH_ROUNDS=%q: must be a positive number", text)
	}
	return n
}

// TestKilledJobLosesNothing is what the package doc says.
func TestKilledJobLosesNothing(t *testing.T) {
	dir := t.TempDir()
	o := crashjob.Options{
		Addr: crashjob.FreeAddr(t), Dir: filepath.Join(dir, "state"), Out: filepath.Join(dir, "out"),
		Interval: 100 * time.Millisecond, Patience: time.Minute,
	}
	c := crashjob.NewClient()
	ctx, stop := context.WithCancel(t.Context())
	posting := make(chan struct{})
	go func() {
		defer close(posting)
		c.Run(ctx, o.Addr, 6, 10*time.Second)
	}()
	n := rounds(t)
	began := time.Now()
	for round := range n {
		p := crashjob.Start(t, o)
		if round%4 != 3 { // else it is killed while it starts
			p.Await(t)
		}
		<-time.After(time.Duration(rand.IntN(900)) * time.Millisecond)
		p.Kill(t)
		if (round+1)%10 == 0 {
			t.Logf("%d of %d kills in %v", round+1, n, time.Since(began).Round(time.Second))
		}
	}
	p := crashjob.Start(t, o)
	p.Await(t)
	<-time.After(time.Second)
	stop()
	<-posting
	p.Stop(t)
	out := crashjob.ReadOutputs(t, fsys.Local(), o.Out)
	c.Check(t, out["lines"])
	out.Check(t, o.Interval)
	t.Logf("%d kills, %d batches; %d lines acknowledged, %d with an unknown outcome", n, len(out["lines"]), c.Acked(), c.Unknown())
	if c.Acked() < 20*n || len(out["lines"]) < n {
		t.Errorf("that is too little to tell anything")
	}
}
