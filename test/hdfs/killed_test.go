package hdfs

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/test/internal/crashjob"
	"github.com/tidemill/tidemill/test/realcluster"
)

// Rounds in which a node dies or comes back while the job runs.
const (
	datanodeDies  = 2
	datanodeBack  = 5
	namenodeDies  = 8
	fewestRounds  = 10
	defaultRounds = 12
)

func rounds(t *testing.T) int {
	text := os.Getenv("TIDEMILL_HDFS_ROUNDS")
	if text == "" {
		return defaultRounds
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < fewestRounds {
		t.Fatalf("TIDEMILL_HDFS_ROUNDS=%q: must be a number, at least %d", text, fewestRounds)
	}
	return n
}

// options are those of a job whose files are all on the cluster.
func options(t *testing.T, h *realcluster.HDFS, dir string) crashjob.Options {
	return crashjob.Options{
		Addr: crashjob.FreeAddr(t), Dir: h.URL(dir + "/state"), Out: h.URL(dir + "/out"),
		Interval: 500 * time.Millisecond, Patience: 2 * time.Minute,
	}
}

// TestKilledJobOnHDFS kills a job again and again, and now and then a node under
// it, which the job has to live through. Package crashjob says what is checked.
func TestKilledJobOnHDFS(t *testing.T) {
	h := cluster(t)
	f := files(t, h)
	const victim = realcluster.Node(2)
	o := options(t, h, "killed")
	c := crashjob.NewClient()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	posting := make(chan struct{})
	go func() {
		defer close(posting)
		c.Run(ctx, o.Addr, 3, time.Minute)
	}()
	created, err := h.Creates()
	must(t, err)
	created = -created
	var ready []time.Duration
	var killed time.Time
	var stalls [2]time.Duration
	n, began := rounds(t), time.Now()
	for round := range n {
		p := crashjob.Start(t, o)
		if round%4 != 3 { // else it is killed while it starts
			p.Await(t)
			if round > 0 {
				ready = append(ready, time.Since(killed))
			}
		}
		switch round {
		case datanodeDies:
			takesLines(t, p, c)
			must(t, h.Kill(victim))
			stalls[0] = takesLines(t, p, c)
		case datanodeBack:
			must(t, h.Restart(victim))
			must(t, h.Wait())
		case namenodeDies:
			takesLines(t, p, c)
			n, err := h.Creates()
			must(t, err)
			created += n
			must(t, h.Kill(realcluster.Namenode))
			must(t, h.Restart(realcluster.Namenode))
			stalls[1] = takesLines(t, p, c)
		}
		if round%4 == 1 {
			commits(t, p, f, o.Out, 1)
		}
		<-time.After(time.Duration(rand.IntN(3000)) * time.Millisecond)
		p.Kill(t)
		killed = time.Now()
		t.Logf("%d of %d kills in %v", round+1, n, time.Since(began).Round(time.Second))
	}
	p := crashjob.Start(t, o)
	p.Await(t)
	ready = append(ready, time.Since(killed))
	commits(t, p, f, o.Out, 12) // more than a window
	stop()
	<-posting
	p.Stop(t)
	last, err := h.Creates()
	must(t, err)
	out := crashjob.ReadOutputs(t, f, o.Out)
	c.Check(t, out["lines"])
	out.Check(t, o.Interval)
	sameForJava(t, h, o.Out, out["lines"])
	t.Logf("summary: %d kills, %d batches; %d lines acknowledged, %d with an unknown outcome; %d files created",
		n, len(out["lines"]), c.Acked(), c.Unknown(), created+last)
	t.Logf("summary: from kill to ready %s; lines again %v after a datanode's death, %v after the namenode's return",
		spread(ready), stalls[0].Round(10*time.Millisecond), stalls[1].Round(10*time.Millisecond))
	if c.Acked() < 20*n {
		t.Errorf("that is too little to tell anything")
	}
}

// limit bounds how long a job that runs may make no progress.
const limit = 2 * time.Minute

// takesLines waits until the job has acknowledged more lines, and says how long
// that took.
func takesLines(t *testing.T, p *crashjob.Process, c *crashjob.Client) time.Duration {
	t.Helper()
	had := c.Acked()
	return until(t, p, "takes lines", func() bool { return c.Acked() >= had+50 })
}

// commits waits until the job has committed n more batches.
func commits(t *testing.T, p *crashjob.Process, f fsys.FS, out string, n int) {
	t.Helper()
	committed := func() (n int) {
		entries, err := f.List(out)
		if !errors.Is(err, fs.ErrNotExist) {
			must(t, err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name, "lines-") {
				n++
			}
		}
		return n
	}
	had := committed()
	until(t, p, "commits batches", func() bool { return committed() >= had+n })
}

func until(t *testing.T, p *crashjob.Process, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		p.Running(t)
		if time.Since(began) > limit {
			t.Fatalf("it is not so after %v that the job %s", limit, what)
		}
		<-time.After(20 * time.Millisecond)
	}
	return time.Since(began)
}

// sameForJava reads the committed lines once more with Hadoop's own client.
func sameForJava(t *testing.T, h *realcluster.HDFS, dir string, lines map[int64][]string) {
	t.Helper()
	text, err := h.DFS("-cat", dir+"/lines-*/part-*")
	must(t, err)
	got := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	var want []string
	for _, l := range lines {
		want = append(want, l...)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what Java reads differs (-read +Java):\n%s", diff)
	}
}
