package wal_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// model drives a log and a store at once, with processes that end cleanly, are
// killed, or lose power, and compares them with maps.
type model struct {
	m     *fsys.Mem
	level wal.Level
	n     int // records made, for their contents
	size  int64

	faulty bool // an operation of this process may have failed

	claimed *wal.Claimed
	log     *wal.Writer
	store   *wal.Store
	blocks  *wal.StoreWriter
	epoch   base.Epoch // of blocks

	records []string               // of the log: acknowledged, from sequence 1
	live    map[base.Handle]string // of the store
	freed   map[base.Handle]bool
}

func (d *model) config() wal.Config {
	return quick(wal.Config{FS: d.m, Level: d.level, SegmentBytes: d.size})
}

// start is a new process: it claims, recovers, compares, and opens its writers.
func (d *model) start(t *rapid.T) {
	d.faulty = false
	ctx := context.Background()
	ok := func(err error) {
		if err != nil {
			t.Fatalf("%v\n%s", err, d.m)
		}
	}
	var err error
	d.claimed, err = wal.Claim(ctx, d.m, "log", wal.ClaimOptions{})
	ok(err)
	var got []string
	for _, e := range d.claimed.Sealed {
		_, err := wal.Scan(ctx, d.m, e.Dir, wal.ScanOptions{}, func(seq uint64, _ base.Handle, rec []byte) error {
			if seq != uint64(len(got)+1) {
				t.Fatalf("sequence %d after %d", seq, len(got))
			}
			got = append(got, string(rec))
			return nil
		})
		ok(err)
	}
	if diff := cmp.Diff(d.records, got); diff != "" {
		t.Fatalf("log (-want +got):\n%s", diff)
	}
	d.log, err = wal.Create(d.config(), d.claimed.Dir, "log", d.claimed.Epoch, uint64(len(got)+1))
	ok(err)
	d.store, err = wal.OpenStore(wal.StoreConfig{Config: d.config(), Dir: "store"})
	ok(err)
	r, err := d.store.Recover(ctx, slices.Collect(maps.Keys(d.live)))
	ok(err)
	if len(r.Missing) > 0 {
		t.Fatalf("missing: %v\n%s", r.Missing, d.m)
	}
	d.epoch++
	d.blocks, err = d.store.Writer(ctx, "blocks", d.epoch)
	ok(err)
	d.check(t)
}

func (d *model) check(t *rapid.T) {
	for h, want := range d.live {
		got, err := d.store.Read(context.Background(), h)
		if err != nil || string(got) != want {
			t.Fatalf("%s is %q, want %q: %v\n%s", h, got, want, err, d.m)
		}
	}
	var bytes int64
	for h := range d.live {
		bytes += h.Length
	}
	if u := d.store.Usage(); u.Live != bytes {
		t.Fatalf("usage %+v, want %d live bytes", u, bytes)
	}
}

func (d *model) record(t *rapid.T) string {
	d.n++
	return fmt.Sprintf("%d:%s", d.n, rapid.StringN(0, 60, 60).Draw(t, "record"))
}

func (d *model) kill() {
	d.log.Kill()
	d.blocks.Kill()
	d.m.Crash()
	d.store.Close()
}

func TestLogAndStoreAgainstMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &model{
			m: fsys.NewMem(), size: rapid.Int64Range(40, 400).Draw(t, "segment bytes"),
			level: rapid.SampledFrom([]wal.Level{wal.LevelFlush, wal.LevelSync}).Draw(t, "level"),
			live:  map[base.Handle]string{}, freed: map[base.Handle]bool{},
		}
		d.start(t)
		defer func() { d.kill() }()
		ctx := context.Background()
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				var tickets []*wal.Ticket
				for range rapid.IntRange(1, 5).Draw(t, "records") {
					rec := d.record(t)
					d.records = append(d.records, rec)
					tickets = append(tickets, d.log.Start([]byte(rec)))
				}
				for _, ticket := range tickets {
					if _, err := ticket.Wait(ctx); err != nil {
						t.Fatal(err)
					}
				}
				if want := uint64(len(d.records) + 1); d.log.Next() != want {
					t.Fatalf("next is %d, want %d", d.log.Next(), want)
				}
			},
			"store": func(t *rapid.T) {
				rec := d.record(t)
				h, err := d.blocks.Append(ctx, []byte(rec))
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := d.live[h]; ok || d.freed[h] {
					t.Fatalf("handle %s was given twice", h)
				}
				d.live[h] = rec
			},
			"roll": func(t *rapid.T) {
				if err := d.log.Roll(ctx); err != nil {
					t.Fatal(err)
				}
				if err := d.blocks.Roll(ctx); err != nil {
					t.Fatal(err)
				}
			},
			"sync": func(t *rapid.T) {
				// What a failed sync has lost stays lost at the lower level.
				if err := d.log.Sync(ctx); err != nil && !(d.faulty && d.level == wal.LevelFlush) {
					t.Fatal(err)
				}
			},
			"release": func(t *rapid.T) {
				if len(d.live) == 0 {
					t.Skip("nothing is live")
				}
				handles := slices.SortedFunc(maps.Keys(d.live), func(a, b base.Handle) int { return compareHandles(a, b) })
				h := rapid.SampledFrom(handles).Draw(t, "handle")
				delete(d.live, h)
				d.freed[h] = true
				d.store.Release(h)
			},
			"release again": func(t *rapid.T) {
				for h := range d.freed {
					d.store.Release(h)
				}
			},
			"fault": func(t *rapid.T) {
				f := &faults{
					op:  rapid.SampledFrom([]string{"create", "write", "flush", "sync", "syncdir", "remove"}).Draw(t, "op"),
					at:  rapid.IntRange(1, 4).Draw(t, "at"),
					err: rapid.SampledFrom([]error{fsys.ErrLocked, &fsys.ShortWrite{N: 25}, &fsys.AppliedError{}}).Draw(t, "error"),
				}
				d.m.FailWith(f.hook)
				d.faulty = true
			},
			"restart": func(t *rapid.T) {
				d.m.FailWith(nil)
				if err := d.log.Close(); err != nil {
					t.Fatal(err)
				}
				if err := d.store.Close(); err != nil {
					t.Fatal(err)
				}
				d.m = d.m.AfterKill(seeded(uint64(d.n)))
				d.start(t)
			},
			"kill": func(t *rapid.T) {
				d.kill()
				d.m = d.m.AfterKill(seeded(uint64(d.n)))
				d.start(t)
			},
			"power loss": func(t *rapid.T) {
				if d.level != wal.LevelSync {
					t.Skip("not promised")
				}
				d.kill()
				d.m = d.m.AfterPowerLoss(seeded(rapid.Uint64().Draw(t, "seed")))
				d.start(t)
			},
			"": d.check,
		})
	})
}

func compareHandles(a, b base.Handle) int {
	switch {
	case a.Epoch != b.Epoch:
		return int(a.Epoch) - int(b.Epoch)
	case a.Segment != b.Segment:
		return int(a.Segment) - int(b.Segment)
	}
	return int(a.Offset - b.Offset)
}
