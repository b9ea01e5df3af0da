package hdfs

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemill/tidemill/test/internal/crashjob"
)

// TestFrozenDriverIsFenced freezes a job as a long pause of its machine would,
// lets another take its directory over, and wakes it (Invariant 7).
func TestFrozenDriverIsFenced(t *testing.T) {
	h := cluster(t)
	f := files(t, h)
	first := options(t, h, "frozen")
	second := first
	second.Addr = crashjob.FreeAddr(t)
	c := crashjob.NewClient()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var posting sync.WaitGroup
	// A line that the first job answers when it wakes up counts like any other.
	post := func(addr string) { posting.Go(func() { c.Run(ctx, addr, 3, 2*time.Minute) }) }

	p := crashjob.Start(t, first)
	p.Await(t)
	post(first.Addr)
	commits(t, p, f, first.Out, 3)
	p.Signal(t, syscall.SIGSTOP)
	began := time.Now()
	q := crashjob.Start(t, second)
	q.Await(t)
	took := time.Since(began)
	post(second.Addr)
	takesLines(t, q, c)
	commits(t, q, f, second.Out, 3)
	p.Signal(t, syscall.SIGCONT)
	began = time.Now()
	code, said := p.End(t)
	ended := time.Since(began)
	message := said[strings.LastIndexByte(strings.TrimSuffix(said, "\n"), '\n')+1:]
	if code <= 0 || !strings.Contains(message, "fenced") {
		t.Errorf("the first job ended with %d, want it to fail because it is fenced\n%s", code, said)
	}
	commits(t, q, f, second.Out, 3)
	stop()
	posting.Wait()
	q.Stop(t)
	out := crashjob.ReadOutputs(t, f, first.Out)
	c.Check(t, out["lines"])
	out.Check(t, first.Interval)
	t.Logf("summary: taken over in %v; the frozen job ended %v after it woke up: %s", took.Round(10*time.Millisecond), ended.Round(10*time.Millisecond), strings.TrimSpace(message))
}
