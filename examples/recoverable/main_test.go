package main

import (
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill/examples/internal/proc"
)

func TestMain(m *testing.M) { proc.Main(m, main) }

// quick makes the job work in small steps, so that a kill meets many of them.
func quick(args ...string) []string {
	return append([]string{"-set", "batch-interval=20ms", "-set", "block-interval=5ms", "-log-level", "error"}, args...)
}

var total = regexp.MustCompile(`(?m)^\(all,\{(\d+) (\d+)\}\)$`)

// totals checks that every printed total counts each number once, and that
// none falls behind one before it; it returns the newest number.
func totals(t *testing.T, stdout string, last int64) int64 {
	t.Helper()
	if cut := strings.LastIndexByte(stdout, '\n'); cut >= 0 {
		stdout = stdout[:cut+1] // a killed process may leave half a line
	}
	for _, m := range total.FindAllStringSubmatch(stdout, -1) {
		count, err := strconv.ParseInt(m[1], 10, 64)
		newest, err2 := strconv.ParseInt(m[2], 10, 64)
		if err != nil || err2 != nil || count != newest {
			t.Errorf("%s: numbers are lost, or count twice", m[0])
		}
		if newest < last {
			t.Errorf("%s: %d had been counted before", m[0], last)
		}
		last = newest
	}
	return last
}

func TestGoesOnAfterKillsAtAnyMoment(t *testing.T) {
	for _, executors := range []string{"1", "3"} {
		t.Run("executors="+executors, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			seed := uint64(time.Now().UnixNano())
			rng := rand.New(rand.NewPCG(seed, 0))
			t.Logf("seed %d", seed)
			last := int64(0)
			for round := range 8 {
				p := proc.Start(t, quick("-dir", dir, "-executors", executors)...)
				// Every other process is killed while it starts, or soon after.
				wait := time.Duration(rng.Int64N(int64(200 * time.Millisecond)))
				if round%2 == 0 {
					p.Until("a total beyond the ones before", func() bool { return totals(t, p.Stdout(), last) > last })
					wait /= 2
				}
				<-time.After(wait)
				p.Signal(os.Kill)
				end := p.Wait()
				if end.Code != -1 {
					t.Fatal(end)
				}
				last = totals(t, end.Stdout, last)
			}
			end := proc.Start(t, quick("-dir", dir, "-executors", executors, "-for", "1s")...).Wait()
			newest := totals(t, end.Stdout, last)
			if end.Code != 0 || newest <= last || !strings.Contains(end.Stderr, "recoverable: going on with run ") {
				t.Errorf("the newest number is %d, %d before the last start; %s", newest, last, end)
			}
		})
	}
}

func TestRunsAsItStands(t *testing.T) {
	t.Parallel()
	end := proc.Start(t, "-for", "3s").Wait()
	if end.Code != 0 || totals(t, end.Stdout, 0) == 0 || !strings.HasSuffix(end.Stderr, ", nothing left\n") {
		t.Error(end)
	}
}
