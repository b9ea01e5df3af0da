package driver_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/receiver"
)

// TestGeneratorModel drives a generator with a random clock, which also goes
// back, and checks what must hold of every history of planned times.
func TestGeneratorModel(t *testing.T) {
	const interval = time.Second
	rapid.Check(t, func(t *rapid.T) {
		var rules []driver.SlideRule
		for range rapid.IntRange(0, 2).Draw(t, "rules") {
			slide := rapid.IntRange(2, 7).Draw(t, "slide")
			rules = append(rules, driver.SlideRule{
				Slide:  time.Duration(slide) * interval,
				Window: time.Duration(slide*rapid.IntRange(0, 3).Draw(t, "window")) * interval,
			})
		}
		catchUp := rapid.SampledFrom([]driver.CatchUp{driver.CatchUpMerged, driver.CatchUpAll}).Draw(t, "catch-up")
		maxPending := rapid.IntRange(1, 4).Draw(t, "pending")
		now := base.BatchTime(rapid.IntRange(10_000, 20_000).Draw(t, "now"))
		first := now.NextBoundary(interval, 0)
		g := driver.NewGenerator(interval, maxPending, catchUp, rules, now)
		var planned []base.BatchTime
		last := func() base.BatchTime {
			if len(planned) == 0 {
				return first.Add(-interval)
			}
			return planned[len(planned)-1]
		}
		pending, drained := 0, false
		var skipped int64
		take := func(next base.BatchTime) {
			if next <= last() || next%1000 != 0 {
				t.Fatalf("batch %v after %v", next, last())
			}
			skipped += int64(next-last())/1000 - 1
			planned = append(planned, next)
			pending++
			g.Planned(next)
		}
		t.Repeat(map[string]func(*rapid.T){
			"pass":  func(t *rapid.T) { now += base.BatchTime(rapid.IntRange(1, 3000).Draw(t, "ms")) },
			"stall": func(t *rapid.T) { now += base.BatchTime(rapid.IntRange(3000, 60_000).Draw(t, "ms")) },
			"back":  func(t *rapid.T) { now -= base.BatchTime(rapid.IntRange(1, 5000).Draw(t, "ms")) },
			"done": func(t *rapid.T) {
				if pending == 0 {
					t.Skip("nothing pending")
				}
				pending--
				g.Done()
			},
			"next": func(t *rapid.T) {
				if drained {
					t.Skip("no ticks after a stop")
				}
				step := g.Next(now)
				due := now >= last()+1000
				switch {
				case step.Ready:
					if !due || pending >= maxPending || step.Plan > now {
						t.Fatalf("plan %v at %v, last %v, %d pending", step.Plan, now, last(), pending)
					}
					if step.Skipped != int64(step.Plan-last())/1000-1 {
						t.Fatalf("says it skips %d between %v and %v", step.Skipped, last(), step.Plan)
					}
					if catchUp == driver.CatchUpAll && step.Plan != last()+1000 {
						t.Fatalf("all: plan %v after %v", step.Plan, last())
					}
					if again := g.Next(now); again != step {
						t.Fatalf("asked again it says %+v instead of %+v", again, step)
					}
					if len(rules) == 0 && catchUp == driver.CatchUpMerged && step.Plan != max(last()+1000, now.Floor(interval)) {
						t.Fatalf("merged: plan %v after %v at %v", step.Plan, last(), now)
					}
					take(step.Plan)
				case step.Full:
					if !due || pending < maxPending {
						t.Fatalf("full at %v, last %v, %d pending", now, last(), pending)
					}
				default:
					if due || step.Wait != last()+1000 {
						t.Fatalf("waits until %v at %v, last %v", step.Wait, now, last())
					}
				}
			},
			"drain": func(t *rapid.T) {
				if pending >= maxPending {
					t.Skip("no room")
				}
				drained = true
				next, missed := g.Drain(now)
				if !missed && next < now {
					t.Fatalf("drains with %v at %v", next, now)
				}
				take(next)
			},
			"": func(t *rapid.T) {
				if g.Pending() != pending || g.Last() != last() || g.SkippedTicks() != skipped || g.Full() != (pending >= maxPending) {
					t.Fatalf("%d pending, last %v, %d skipped; want %d, %v, %d", g.Pending(), g.Last(), g.SkippedTicks(), pending, last(), skipped)
				}
				// The window of every rule that holds a batch ends in a batch of its own,
				// unless that lies ahead: no input is left out of a tumbling window.
				for _, r := range rules {
					for _, b := range planned {
						if end := b.CeilBoundary(r.Slide); end < last() && !slices.Contains(planned, end) {
							t.Fatalf("batch %v is in the window of slide %v that ends at %v, which was never planned: %v", b, r.Slide, end, planned)
						}
					}
				}
			},
		})
	})
}

// trackerModel is the tracker as a list.
type trackerModel struct {
	epoch   base.Epoch
	high    map[base.Epoch]uint64
	flying  []plan.Block // one of an epoch at most
	waiting []plan.Block
}

func TestTrackerModel(t *testing.T) {
	streams := []base.UID{"a", "b"}
	rapid.Check(t, func(t *rapid.T) {
		tr := driver.NewTracker(streams)
		model := map[base.UID]*trackerModel{}
		for _, s := range streams {
			model[s] = &trackerModel{high: map[base.Epoch]uint64{}}
		}
		batches := map[base.BlockID]int{} // how often each block was allocated
		stream := func(t *rapid.T) base.UID { return rapid.SampledFrom(streams).Draw(t, "stream") }
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				s := stream(t)
				m := model[s]
				if next := tr.NextEpoch(s); next != m.epoch+1 {
					t.Fatalf("next epoch %d after %d", next, m.epoch)
				}
				e := base.Epoch(rapid.IntRange(1, 4).Draw(t, "epoch"))
				tr.Register(s, e)
				m.epoch = max(m.epoch, e)
			},
			"begin": func(t *rapid.T) {
				s := stream(t)
				m := model[s]
				b := plan.Block{
					ID:      base.BlockID{Stream: s, Epoch: base.Epoch(rapid.IntRange(1, 4).Draw(t, "epoch")), Counter: uint64(rapid.IntRange(0, 6).Draw(t, "counter"))},
					Records: rapid.IntRange(0, 5).Draw(t, "records"), Bytes: int64(rapid.IntRange(0, 50).Draw(t, "bytes")),
					Executor: base.ExecutorID(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "executor")),
				}
				already, err := tr.Begin(b)
				high := m.high[b.ID.Epoch]
				flies := slices.ContainsFunc(m.flying, func(f plan.Block) bool { return f.ID.Epoch == b.ID.Epoch })
				switch {
				case b.ID.Counter > 0 && b.ID.Counter <= high:
					if !already || err != nil {
						t.Fatalf("%v again: %v, %v", b.ID, already, err)
					}
				case b.ID.Epoch < m.epoch:
					if already || !errors.Is(err, receiver.ErrFenced) {
						t.Fatalf("%v at epoch %d: %v, %v", b.ID, m.epoch, already, err)
					}
				case b.ID.Epoch == m.epoch && b.ID.Counter == high+1 && !flies:
					if already || err != nil {
						t.Fatalf("%v: %v, %v", b.ID, already, err)
					}
					m.flying = append(m.flying, b)
				case already || err == nil || errors.Is(err, receiver.ErrFenced):
					t.Fatalf("%v at epoch %d, high %d: %v, %v", b.ID, m.epoch, high, already, err)
				}
			},
			"end": func(t *rapid.T) {
				m := model[stream(t)]
				if len(m.flying) == 0 {
					t.Skip("nothing in flight")
				}
				b := m.flying[0]
				m.flying = m.flying[1:]
				if rapid.Bool().Draw(t, "logged") {
					tr.Commit(b)
					m.high[b.ID.Epoch] = b.ID.Counter
					m.waiting = append(m.waiting, b)
				} else {
					tr.Abort(b)
				}
			},
			"plan": func(t *rapid.T) {
				s := stream(t)
				m := model[s]
				limit := graph.Limit{Records: int64(rapid.IntRange(0, 8).Draw(t, "records")), Bytes: int64(rapid.IntRange(0, 80).Draw(t, "bytes"))}
				got := tr.Peek(s, limit)
				if !cmp.Equal(got, slices.Clone(m.waiting[:len(got)]), cmpopts.EquateEmpty()) {
					t.Fatalf("took %v of %v", got, m.waiting)
				}
				if n := len(got); n > 1 && over(got, limit) || n == 0 && len(m.waiting) > 0 || n < len(m.waiting) && !over(m.waiting[:n+1], limit) {
					t.Fatalf("took %v of %v within %+v", got, m.waiting, limit)
				}
				var dropped []base.BlockID
				if rapid.Bool().Draw(t, "drop") && len(got) > 0 { // between the plan and its being logged
					dropped = []base.BlockID{got[rapid.IntRange(0, len(got)-1).Draw(t, "which")].ID}
					tr.Drop(dropped)
				}
				if gone := tr.Allocate(s, got); !slices.Equal(gone, dropped) {
					t.Fatalf("allocated %v: gone %v, want %v", got, gone, dropped)
				}
				m.waiting = m.waiting[len(got):]
				for _, b := range got {
					if batches[b.ID]++; batches[b.ID] > 1 {
						t.Fatalf("block %v is in two batches", b.ID) // Invariant 2
					}
				}
			},
			"lose": func(t *rapid.T) {
				id := base.ExecutorID(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "executor"))
				want, ids := []plan.Block(nil), []base.BlockID(nil)
				for _, s := range streams {
					for _, b := range model[s].waiting {
						if b.Executor == id {
							want, ids = append(want, b), append(ids, b.ID)
						}
					}
				}
				if got := tr.LostOf(id); !cmp.Equal(got, want, cmpopts.EquateEmpty()) {
					t.Fatalf("lost of %s: %v, want %v", id, got, want)
				}
				tr.Drop(ids)
				for _, s := range streams {
					model[s].waiting = slices.DeleteFunc(model[s].waiting, func(b plan.Block) bool { return b.Executor == id })
				}
			},
			"": func(t *rapid.T) {
				blocks, records := 0, int64(0)
				for _, s := range streams {
					blocks += len(model[s].waiting)
					for _, b := range model[s].waiting {
						records += int64(b.Records)
					}
				}
				if b, r := tr.Waiting(); b != blocks || r != records {
					t.Fatalf("%d blocks, %d records wait, want %d, %d", b, r, blocks, records)
				}
			},
		})
	})
}

func over(blocks []plan.Block, limit graph.Limit) bool {
	var records, bytes int64
	for _, b := range blocks {
		records += int64(b.Records)
		bytes += b.Bytes
	}
	return limit.Records > 0 && records > limit.Records || limit.Bytes > 0 && bytes > limit.Bytes
}
