package tidemill_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/receiver"
	"github.com/tidemill/tidemill/tidetest"
)

// countUp is a source that counts from 1 to last, and can begin anywhere.
type countUp struct{ last int64 }

func (n countUp) Receive(ctx context.Context, s *tidemill.Sink[int64]) error {
	next := int64(1)
	if from := s.From(); from != nil {
		next = int64(binary.BigEndian.Uint64(from)) + 1
	}
	s.Ready()
	for ; next <= n.last; next++ {
		if err := s.StoreAt(ctx, next, binary.BigEndian.AppendUint64(nil, uint64(next))); err != nil {
			return err
		}
		select {
		case <-time.After(70 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
	return receiver.ErrDone
}

// crashJob counts numbers by their last digit: in all, in the last 4 s by an
// inverse window, and raw.
func crashJob(disk *fsys.Mem, last int64, level string) tidetest.Job {
	return tidetest.Job{
		FS: disk, Name: "crash",
		Config: tidemill.Config{
			Executors: 2, Parallelism: 2, Durability: level, SnapshotBytes: 2000, SnapshotsKept: 2,
			CatchUp: "merged", StopTimeout: time.Minute,
		},
		Options: []tidemill.ContextOption{tidemill.WithDir("/job"), tidemill.WithLogger(silent())},
		Build: func(ssc *tidemill.StreamingContext) error {
			in := tidemill.ReceiverStream(ssc, "numbers", func() tidemill.Receiver[int64] { return countUp{last} })
			digit := tidemill.Map(in, func(n int64) tidemill.Pair[int64, int64] { return tidemill.KV(n%10, int64(1)) })
			text := func(p tidemill.Pair[int64, int64]) string { return fmt.Sprint(p.Key, " ", p.Value) }
			add, sub := func(a, b int64) int64 { return a + b }, func(a, b int64) int64 { return a - b }
			tidemill.SaveAsTextFiles(in, "in", "/out", nil, tidemill.KeepEmpty())
			tidemill.SaveAsTextFiles(tidemill.Window(in, 3*time.Second, time.Second), "raw", "/out", nil, tidemill.KeepEmpty())
			tidemill.SaveAsTextFiles(tidemill.ReduceByKeyAndWindow(digit, "lately", add, sub, 4*time.Second, 2*time.Second), "window", "/out", text, tidemill.KeepEmpty())
			counts := tidemill.UpdateStateByKey(digit, "counts", func(vs []int64, s tidemill.Opt[int64]) tidemill.Opt[int64] {
				return tidemill.Some(s.Value + int64(len(vs)))
			})
			tidemill.SaveAsTextFiles(counts, "total", "/out", text, tidemill.KeepEmpty())
			// A window over what a stateful operator emits reads its state log.
			tidemill.SaveAsTextFiles(tidemill.Window(counts, 2*time.Second, time.Second), "totals", "/out", text, tidemill.KeepEmpty())
			return nil
		},
	}
}

// TestJobThatCrashesAnywhereLosesNothing crashes a whole job at random IO
// operations, several times, and compares all that it committed in the end with
// a plain loop (Invariants 1 to 7, 14).
func TestJobThatCrashesAnywhereLosesNothing(t *testing.T) {
	for _, mode := range []struct {
		level string
		after func(*fsys.Mem, *rand.Rand) *fsys.Mem
	}{
		{"flush", (*fsys.Mem).AfterKill},
		{"sync", (*fsys.Mem).AfterPowerLoss},
	} {
		t.Run(mode.level, func(t *testing.T) {
			for seed := range uint64(25) {
				tidetest.Run(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, 11))
					disk := fsys.NewMem()
					const last = 200
					var at []int64
					for range 5 {
						n := 1 + rng.Int64N(600)
						at = append(at, n)
						slow(disk, rng)
						crashOnce(t, crashJob(disk, last, mode.level), disk, n)
						disk = mode.after(disk, rng)
					}
					finishJob(t, crashJob(disk, last, mode.level))
					checkCrashJob(t, disk, last)
					if t.Failed() {
						t.Logf("seed %d, crashes at IO %v:\n%s", seed, at, disk)
					}
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// slow makes some part of the disk slow, so that crashes meet what waits for it.
func slow(disk *fsys.Mem, rng *rand.Rand) {
	part := []string{"/job/log/", "/job/blocks/", "/job/state/", "/out/", "nothing"}[rng.IntN(5)]
	by := time.Duration(rng.IntN(400)) * time.Millisecond
	disk.Slow(func(_, name string) time.Duration {
		if strings.HasPrefix(name, part) {
			return by
		}
		return 0
	})
}

// crashOnce runs the job until its disk's n-th operation, or for 20 batches.
func crashOnce(t *testing.T, j tidetest.Job, disk *fsys.Mem, n int64) {
	t.Helper()
	ssc, err := tidetest.New(t, j)
	if err != nil {
		t.Fatal(err)
	}
	disk.CrashAt(n)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a log on a dead disk waits
	defer cancel()
	if err := ssc.Start(ctx); err == nil {
		for range 20 {
			sleep(time.Second)
			if disk.Crashed() {
				break
			}
		}
	} else if !disk.Crashed() {
		t.Fatal(err)
	}
	disk.Crash()
	_, _ = ssc.Stop(context.Background(), false) // its disk is gone: it has nothing to say
}

// finishJob runs the job to the end of its source and stops it.
func finishJob(t *testing.T, j tidetest.Job) {
	t.Helper()
	ssc, err := tidetest.New(t, j)
	if err != nil {
		t.Fatal(err)
	}
	if err := ssc.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sleep(30 * time.Second)
	report, err := ssc.Stop(context.Background(), true)
	if err != nil || ssc.AwaitTermination(t.Context()) != nil || !report.Graceful || len(report.Pending) > 0 || report.Blocks > 0 {
		t.Fatalf("stop: %+v, %v, %v", report, err, ssc.AwaitTermination(t.Context()))
	}
}

// committed reads the text files of an output, by batch time, records sorted.
func committed(t *testing.T, f fsys.FS, name string) map[int64][]string {
	t.Helper()
	dirs, err := f.List("/out")
	if err != nil {
		t.Fatal(err)
	}
	out := map[int64][]string{}
	for _, d := range dirs {
		ms, ok := strings.CutPrefix(d.Name, name+"-")
		if !ok {
			continue
		}
		at, err := strconv.ParseInt(ms, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		files, err := f.List(path.Join("/out", d.Name))
		if err != nil {
			t.Fatal(err)
		}
		out[at] = []string{}
		for _, p := range files {
			if !strings.HasPrefix(p.Name, "part-") {
				continue
			}
			text, err := fsys.ReadFile(f, path.Join("/out", d.Name, p.Name))
			if err != nil {
				t.Fatal(err)
			}
			out[at] = append(out[at], strings.Fields(strings.ReplaceAll(string(text), " ", ":"))...)
		}
		slices.Sort(out[at])
	}
	return out
}

func checkCrashJob(t *testing.T, f fsys.FS, last int64) {
	t.Helper()
	in := committed(t, f, "in")
	times := slices.Sorted(maps.Keys(in))
	var all []int64
	for _, at := range times {
		for _, s := range in[at] {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
		}
	}
	slices.Sort(all)
	want := make([]int64, last)
	for i := range want {
		want[i] = int64(i + 1)
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Fatalf("numbers (-want +got):\n%s", diff)
	}
	within := func(at, ms int64) (out []string) {
		for _, u := range times {
			if u > at-ms && u <= at {
				out = append(out, in[u]...)
			}
		}
		slices.Sort(out)
		return out
	}
	count := func(ns []string) map[string]int64 {
		sum := map[string]int64{}
		for _, s := range ns {
			sum[s[len(s)-1:]]++
		}
		return sum
	}
	rows := func(sum map[string]int64) []string {
		out := []string{}
		for k, n := range sum {
			out = append(out, fmt.Sprintf("%s:%d", k, n))
		}
		slices.Sort(out)
		return out
	}
	raw, window, total, totals := committed(t, f, "raw"), committed(t, f, "window"), committed(t, f, "total"), committed(t, f, "totals")
	emptyIsNil := cmp.Transformer("emptyIsNil", func(s []string) []string { return append([]string(nil), s...) })
	same := func(what string, at int64, want, got []string) {
		if diff := cmp.Diff(want, got, emptyIsNil); diff != "" {
			t.Errorf("%s at %d (-want +got):\n%s", what, at, diff)
		}
	}
	var before []string // the totals of the batch before
	var lastAt int64
	for _, at := range times {
		same("raw", at, within(at, 3000), raw[at])
		now := rows(count(within(at, at)))
		same("total", at, now, total[at])
		both := slices.Clone(now)
		if at-lastAt < 2000 {
			both = append(both, before...)
		}
		slices.Sort(both)
		same("totals", at, both, totals[at])
		before, lastAt = now, at
		if at%2000 == 0 {
			got := slices.DeleteFunc(slices.Clone(window[at]), func(s string) bool { return strings.HasSuffix(s, ":0") })
			same("window", at, rows(count(within(at, 4000))), got)
		}
	}
	for name, out := range map[string]map[int64][]string{"raw": raw, "total": total, "totals": totals} {
		if diff := cmp.Diff(times, slices.Sorted(maps.Keys(out))); diff != "" {
			t.Errorf("batches of %s (-in +%s):\n%s", name, name, diff)
		}
	}
}
