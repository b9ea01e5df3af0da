package driver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/wal"
)

// history is a list of events that a driver could log, of batches with two
// blocks each. It leaves the last batch pending and a block waiting.
func history(batches int) []driver.Event {
	events := []driver.Event{driver.ReceiverRegistered{Stream: "in", Epoch: 1}}
	counter := uint64(0)
	block := func() plan.Block {
		counter++
		return plan.Block{
			ID: base.BlockID{Stream: "in", Epoch: 1, Counter: counter}, Key: fmt.Sprintf("k%d", counter), Records: 3, Bytes: 30, Executor: "exec-1",
			Handle: base.Handle{Log: "in", Epoch: 1, Segment: 1, Offset: int64(counter), Length: 30}, Position: []byte{byte(counter)},
		}
	}
	for i := 1; i <= batches; i++ {
		t := base.BatchTime(i * 1000)
		a, b := block(), block()
		events = append(events, driver.BlockAdded{Block: a}, driver.BlockAdded{Block: b},
			driver.BatchPlanned{Batch: plan.Batch{Time: t, Inputs: []plan.Input{{UID: "in", Records: 6, Bytes: 60, Parts: 2, Blocks: []plan.Block{a, b}}}}},
			driver.OutputDone{Time: t, Output: "out"})
		if i == batches {
			break
		}
		file := base.Handle{Log: "state", Epoch: 1, Segment: 1, Offset: int64(i), Length: 9}
		events = append(events, driver.BatchDone{Time: t, States: []driver.StateDelta{{Op: "counts", File: file}}})
		if i%3 == 0 {
			file.Segment = 2
			events = append(events, driver.StateMerged{Op: "counts", Replaced: 2, File: file})
		}
		events = append(events, driver.Released{Done: t, Batches: []base.BatchTime{t}, Forgotten: []driver.Forgotten{{Op: "in", Time: t}}})
	}
	return append(events, driver.BlockAdded{Block: block()})
}

// factsOf adds up events without a log.
func factsOf(t testing.TB, events ...driver.Event) *driver.Facts {
	t.Helper()
	f := &driver.Facts{}
	for _, e := range events {
		if err := f.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func journal(f fsys.FS, change ...func(*driver.JournalConfig)) (*driver.Journal, error) {
	cfg := driver.JournalConfig{FS: f, Dir: "/log"}
	for _, c := range change {
		c(&cfg)
	}
	return driver.OpenJournal(context.Background(), cfg)
}

// same compares facts but for what each driver epoch writes anew.
func same(t testing.TB, want, got *driver.Facts) {
	t.Helper()
	ignore := cmpopts.IgnoreFields(driver.Facts{}, "Epoch", "Accepted", "Started", "Job")
	executor := cmpopts.IgnoreFields(plan.Block{}, "Executor")
	if diff := cmp.Diff(want, got, ignore, executor, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestJournalRecoversWhatItWasGiven(t *testing.T) {
	for _, snapshotBytes := range []int64{1, 700, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			disk := fsys.NewMem()
			small := func(c *driver.JournalConfig) { c.SnapshotBytes = snapshotBytes }
			events := history(8)
			var given []driver.Event
			for part := range 4 { // four drivers, one after another
				j, err := journal(disk, small)
				if err != nil {
					t.Fatal(err)
				}
				got, err := j.Facts()
				if err != nil {
					t.Fatal(err)
				}
				same(t, factsOf(t, given...), got)
				begin := driver.DriverStarted{Epoch: j.Epoch(), Run: "run", At: 5, Job: checkpoint.Job{Name: "job"}}
				if err := j.Begin(t.Context(), begin.Run, begin.At, begin.Job); err != nil {
					t.Fatal(err)
				}
				given = append(given, begin)
				for _, e := range events[part*len(events)/4 : (part+1)*len(events)/4] {
					if err := j.Append(t.Context(), e); err != nil {
						t.Fatal(err)
					}
					given = append(given, e)
				}
				if err := j.Close(part%2 == 0); err != nil {
					t.Fatal(err)
				}
				if err := j.Close(true); err != nil {
					t.Errorf("a second close: %v", err)
				}
			}
			// What is left is bounded: three snapshots and the log since the oldest.
			// The close may have cut the removal of one more.
			if n := strings.Count(disk.String(), ".tms"); n > 4 {
				t.Errorf("%d snapshots:\n%s", n, disk)
			}
			f, _, err := driver.ReadFacts(t.Context(), disk, "/log")
			if err != nil {
				t.Fatal(err)
			}
			same(t, factsOf(t, given...), f)
		})
	}
}

// Whatever IO a crash meets, every event that was acknowledged is there once,
// and none that was not begun.
func TestJournalLosesNoAcknowledgedEventAtAnyCrash(t *testing.T) {
	for _, mode := range []struct {
		name  string
		level wal.Level
		after func(*fsys.Mem, *rand.Rand) *fsys.Mem
	}{
		{"killed", wal.LevelFlush, (*fsys.Mem).AfterKill},
		{"power lost", wal.LevelSync, (*fsys.Mem).AfterPowerLoss},
	} {
		t.Run(mode.name, func(t *testing.T) {
			cfg := func(c *driver.JournalConfig) { c.Level, c.SnapshotBytes, c.Keep = mode.level, 600, 2 }
			for at := int64(1); ; at++ {
				if crashed := crashJournal(t, at, cfg, mode.after); !crashed {
					t.Logf("%d IO operations", at-1)
					break
				}
			}
		})
	}
}

// crashJournal runs a driver's log on a disk whose IO ends at an operation, and
// recovers it twice. It reports whether the crash was met.
func crashJournal(t *testing.T, at int64, cfg func(*driver.JournalConfig), after func(*fsys.Mem, *rand.Rand) *fsys.Mem) (crashed bool) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(uint64(at), 1))
		disk := fsys.NewMem()
		events := history(5)
		acked := 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		write := func(disk *fsys.Mem, from int) {
			j, err := journal(disk, cfg)
			if err != nil {
				return
			}
			if err := j.Begin(ctx, "run", 5, checkpoint.Job{}); err != nil {
				disk.Crash()
				_ = j.Close(false)
				return
			}
			for _, e := range events[from:] {
				if j.Append(ctx, e) != nil {
					break
				}
				acked++
			}
			_ = j.Close(!disk.Crashed())
		}
		disk.CrashAt(at)
		done := make(chan struct{})
		go func() { write(disk, 0); close(done) }()
		synctest.Wait()
		if disk.Crashed() {
			cancel() // an append on a dead disk waits
		}
		<-done
		crashed = disk.Crashed()
		found := after(disk, rng)
		f, _, err := driver.ReadFacts(t.Context(), found, "/log")
		if err != nil {
			t.Fatalf("crash at IO %d, %d acknowledged: %v\n%s", at, acked, err, found)
		}
		// The event on the way may be there or not.
		want := []*driver.Facts{}
		for n := acked; n <= min(acked+1, len(events)); n++ {
			want = append(want, factsOf(t, append([]driver.Event{driver.DriverStarted{Epoch: 1, Run: "run"}}, events[:n]...)...))
		}
		if acked == 0 {
			want = append(want, &driver.Facts{})
		}
		ignore := cmp.Options{cmpopts.IgnoreFields(driver.Facts{}, "Epoch", "Accepted", "Started", "Job"), cmpopts.IgnoreFields(plan.Block{}, "Executor"), cmpopts.EquateEmpty()}
		ok := false
		for _, w := range want {
			ok = ok || cmp.Equal(w, f, ignore)
		}
		if !ok {
			t.Fatalf("crash at IO %d, %d acknowledged: facts (-acknowledged +found):\n%s", at, acked, cmp.Diff(want[0], f, ignore))
		}
		// A recovery from the snapshot before, or from the whole log, finds the same:
		// nothing that it needs was removed (Invariant 5).
		if damageNewest(t, found) {
			older, how, err := driver.ReadFacts(t.Context(), found, "/log")
			if err != nil || len(how.Bad) != 1 {
				t.Fatalf("crash at IO %d: without the newest snapshot: %v, %v\n%s", at, how.Bad, err, found)
			}
			if diff := cmp.Diff(f, older, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("crash at IO %d: without the newest snapshot (-with +without):\n%s", at, diff)
			}
		}
		// The next driver goes on from there.
		n := acked
		if len(want) > 1 && !cmp.Equal(want[0], f, ignore) && f.Epoch > 0 {
			n = acked + 1
		}
		j, err := journal(found, cfg)
		if err != nil {
			t.Fatalf("crash at IO %d: open again: %v", at, err)
		}
		if err := j.Begin(t.Context(), "run", 5, checkpoint.Job{}); err != nil {
			t.Fatal(err)
		}
		for _, e := range events[n:] {
			if err := j.Append(t.Context(), e); err != nil {
				t.Fatalf("crash at IO %d: event %T after it: %v", at, e, err)
			}
		}
		if err := errors.Join(j.Snapshot(t.Context()), j.Close(false)); err != nil {
			t.Fatal(err)
		}
		f, _, err = driver.ReadFacts(t.Context(), found, "/log")
		if err != nil {
			t.Fatal(err)
		}
		same(t, factsOf(t, append([]driver.Event{driver.DriverStarted{Epoch: 1, Run: "run"}}, events...)...), f)
	})
	return crashed
}

// damageNewest flips a bit of the newest snapshot; false if there is none.
func damageNewest(t *testing.T, f *fsys.Mem) bool {
	t.Helper()
	snaps, err := fsys.Glob(f, "/log/e-*/snap-*.tms")
	if err != nil {
		t.Fatal(err)
	}
	if len(snaps) == 0 {
		return false
	}
	newest := slices.MaxFunc(snaps, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	b, err := fsys.ReadFile(f, newest)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := errors.Join(f.Remove(newest), fsys.WriteFile(f, newest, b)); err != nil {
		t.Fatal(err)
	}
	return true
}

func TestSnapshotsAtOnceDoNotDisturbEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := fsys.NewMem()
		j, err := journal(disk, func(c *driver.JournalConfig) { c.Keep = 1 })
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Begin(t.Context(), "run", 5, checkpoint.Job{}); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 1))
		var mu sync.Mutex
		disk.Slow(func(string, string) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(rng.IntN(20)) * time.Millisecond
		})
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range 5 {
					if err := errors.Join(j.Append(t.Context(), driver.RateUpdated{Stream: "in", Rate: float64(10*i + n)}), j.Snapshot(t.Context())); err != nil {
						t.Errorf("snapshot %d of %d: %v", n, i, err)
					}
				}
			})
		}
		wg.Wait()
		if err := j.Close(false); err != nil {
			t.Error(err)
		}
	})
}

// A driver that is killed before it has logged much, again and again, still gets
// to snapshots: what a start replays, and what it leaves on disk, is bounded.
func TestKilledAgainAndAgainTheLogStaysSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		disk := fsys.NewMem()
		most, epochs := int64(0), 0
		for i := range 100 {
			j, err := journal(disk, func(c *driver.JournalConfig) { c.SnapshotBytes, c.Keep = 4000, 2 })
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, j.Found().Bytes)
			if err := j.Begin(t.Context(), "run", 5, checkpoint.Job{}); err != nil {
				t.Fatal(err)
			}
			if err := j.Append(t.Context(), driver.RateUpdated{Stream: "in", Rate: float64(i)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			infos, err := disk.List("/log")
			if err != nil {
				t.Fatal(err)
			}
			epochs = max(epochs, len(infos))
			disk.Crash()
			_ = j.Close(false)
			disk = disk.AfterKill(rng)
		}
		t.Logf("at most %d bytes replayed, %d epochs", most, epochs)
		if most > 8000 || epochs > 30 {
			t.Errorf("at most %d bytes replayed, %d epochs", most, epochs)
		}
	})
}
