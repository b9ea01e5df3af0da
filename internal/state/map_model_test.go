package state_test

import (
	"cmp"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/state"
)

// mapOracle is keyed state as a list, which is copied for undo.
type mapOracle[S any] struct {
	rows []row[S] // in the order in which keys came
}

type row[S any] struct {
	key string
	val S
	at  base.BatchTime
}

func (o *mapOracle[S]) find(k string) int {
	return slices.IndexFunc(o.rows, func(r row[S]) bool { return r.key == k })
}

func (o *mapOracle[S]) clone() *mapOracle[S] {
	c := &mapOracle[S]{rows: slices.Clone(o.rows)}
	for i := range c.rows {
		c.rows[i].val = codec.For[S]().Clone(c.rows[i].val)
	}
	return c
}

// expired lists keys by age, and those equally old by their coming.
func (o *mapOracle[S]) expired(cutoff base.BatchTime) (keys []string) {
	rows := slices.DeleteFunc(slices.Clone(o.rows), func(r row[S]) bool { return r.at >= cutoff })
	slices.SortStableFunc(rows, func(a, b row[S]) int { return cmp.Compare(a.at, b.at) })
	for _, r := range rows {
		keys = append(keys, r.key)
	}
	return keys
}

// mapModel is one partition and all that is known of it.
type mapModel[S any] struct {
	kind  kind[S]
	timed bool
	m     state.Keyed[string, S]
	o     *mapOracle[S]
	files [][]byte
	// rescaled says that the next delta is full.
	rescaled bool
	now      base.BatchTime
}

func newMapModel[S any](k kind[S], timed bool) *mapModel[S] {
	return &mapModel[S]{kind: k, timed: timed, m: newKeyed[string, S](timed), o: &mapOracle[S]{}, now: 1000 * second}
}

var modelKeys = []string{"", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"}

// batch runs one batch and finishes it one way or another.
func (x *mapModel[S]) batch(t *rapid.T, keys []string) {
	x.now += second * base.BatchTime(rapid.IntRange(1, 3).Draw(t, "pause"))
	before := x.o.clone()
	for attempt := rapid.IntRange(1, 3).Draw(t, "attempts"); attempt > 0; attempt-- {
		x.o = before.clone()
		x.m.Begin(x.now)
		x.ops(t, keys)
		x.check(t)
		if rapid.Bool().Draw(t, "delta of an attempt") { // which may be lost
			_, _, err := x.m.Delta()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "outcome") == 0 {
		x.m.Rollback()
		x.o = before
	} else {
		delta, full, err := x.m.Delta()
		if err != nil || full != x.rescaled {
			t.Fatalf("full delta: %t, %v; of rescaled state: %t", full, err, x.rescaled)
		}
		x.m.Commit()
		if full {
			x.files, x.rescaled = nil, false
		}
		x.files = append(x.files, delta)
		if x.m.Version() != x.now {
			t.Fatalf("version %s, want %s", x.m.Version(), x.now)
		}
	}
	if x.m.Running() != 0 {
		t.Fatalf("%s still runs", x.m.Running())
	}
	x.check(t)
}

func (x *mapModel[S]) ops(t *rapid.T, keys []string) {
	var buf buffer
	for range rapid.IntRange(0, 12).Draw(t, "ops") {
		k := rapid.SampledFrom(keys).Draw(t, "key")
		at := x.o.find(k)
		rec, ok := x.m.Find(buf.string(k))
		if ok != (at >= 0) {
			t.Fatalf("Find(%q) = %t", k, ok)
		}
		insert := func() {
			v := x.kind.draw(t)
			lent, overwrite := lend(&buf, v)
			x.m.Insert(buf.string(k), lent)
			x.o.rows = append(x.o.rows, row[S]{k, v, x.now})
			overwrite()
		}
		remove := func() {
			x.m.Remove(rec)
			x.o.rows = slices.Delete(x.o.rows, at, at+1)
		}
		switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
		case op == 9 && x.timed:
			x.expire(t)
		case !ok:
			insert()
		case op == 0:
			remove()
		case op == 1:
			x.m.Open(rec) // user code saw it
			remove()
			insert()
		case op == 2 && x.timed:
			x.m.Refresh(rec)
			x.o.rows[at].at = x.now
		case op == 3: // in place, and not given back
			n := rapid.IntRange(0, 20).Draw(t, "mutation")
			x.kind.mutate(n, x.m.Open(rec))
			x.kind.mutate(n, x.o.rows[at].val)
		case op == 4: // in place, and given back
			v := x.m.Open(rec)
			n := rapid.IntRange(0, 20).Draw(t, "mutation")
			x.kind.mutate(n, v)
			x.m.Set(rec, v)
			x.kind.mutate(n, x.o.rows[at].val)
			x.o.rows[at].at = x.now
			x.kind.mutate(n+1, v) // too late
		default:
			v := x.kind.draw(t)
			if op == 5 {
				x.m.Open(rec)
			}
			lent, overwrite := lend(&buf, v)
			x.m.Set(rec, lent)
			overwrite()
			x.o.rows[at].val, x.o.rows[at].at = v, x.now
		}
		buf.overwrite()
	}
}

// expire compares what is due and removes it, as mapWithState does, or part of it.
func (x *mapModel[S]) expire(t *rapid.T) {
	cutoff := x.now - second*base.BatchTime(rapid.IntRange(0, 8).Draw(t, "timeout"))
	var got []string
	recs := x.m.Expired(cutoff)
	for _, rec := range recs {
		got = append(got, x.m.Key(rec))
	}
	if want := x.o.expired(cutoff); !slices.Equal(got, want) {
		t.Fatalf("expired before %s: %q, want %q", cutoff, got, want)
	}
	keep := rapid.IntRange(0, 4).Draw(t, "keep") // none, mostly
	for i, rec := range recs {
		if keep == 1 && i%2 == 0 {
			continue
		}
		x.m.Remove(rec)
		at := x.o.find(got[i])
		x.o.rows = slices.Delete(x.o.rows, at, at+1)
	}
}

func (x *mapModel[S]) check(t tb) {
	t.Helper()
	checkMap(t, x.m.Map, x.o, x.timed)
}

func checkMap[S any](t tb, m *state.Map[string, S], o *mapOracle[S], timed bool) {
	t.Helper()
	var got []row[S]
	m.Each(func(rec int) bool {
		r := row[S]{key: m.Key(rec), val: m.Peek(rec)}
		if timed {
			r.at = m.UpdatedAt(rec)
		}
		if i, ok := m.Find(r.key); !ok || i != rec {
			t.Fatalf("Find(%q) = %d, %t, want %d", r.key, i, ok, rec)
		}
		got = append(got, r)
		return true
	})
	want := slices.Clone(o.rows)
	if !timed {
		for i := range want {
			want[i].at = 0
		}
	}
	if !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		t.Fatalf("state is\n%+v, want\n%+v", got, want)
	}
	if m.Len() != len(want) {
		t.Fatalf("Len() = %d, want %d", m.Len(), len(want))
	}
}

// TestMapEqualsAList runs random batches with commits, rollbacks, re-runs,
// snapshots, restores and merges of files (Invariants 6 and 13).
func TestMapEqualsAList(t *testing.T) {
	ints, strings, words, slices, maps, records := kinds()
	testMap(t, "int64", ints)
	testMap(t, "string", strings)
	testMap(t, "words", words)
	testMap(t, "slice", slices)
	testMap(t, "map", maps)
	testMap(t, "struct", records)
}

func testMap[S any](t *testing.T, name string, k kind[S]) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			timed := rapid.Bool().Draw(t, "timed")
			x := newMapModel(k, timed)
			t.Repeat(map[string]func(*rapid.T){
				"batch": func(t *rapid.T) { x.batch(t, modelKeys) },
				"again": func(t *rapid.T) { x.batch(t, modelKeys) },
				"snapshot": func(t *rapid.T) {
					x.files = [][]byte{must(x.m.Snapshot())}
				},
				"merge": func(t *rapid.T) {
					n := rapid.IntRange(0, len(x.files)).Draw(t, "files")
					if n == 0 {
						return
					}
					x.files = append([][]byte{must(state.MergeFiles(x.files[:n]))}, x.files[n:]...)
				},
				"restore": func(t *rapid.T) {
					was := x.m.Version()
					x.m = newKeyed[string, S](timed)
					if err := x.m.Restore(x.files); err != nil {
						t.Fatal(err)
					}
					if len(x.files) > 0 && x.m.Version() != was {
						t.Fatalf("restored version %s, want %s", x.m.Version(), was)
					}
				},
				"": func(t *rapid.T) { x.check(t) },
			})
		})
	})
}

// TestRescaledStateIsTheSame moves the files of some partitions to another
// number of them (bug B38: a key is never in two partitions).
func TestRescaledStateIsTheSame(t *testing.T) {
	_, _, _, slices, _, _ := kinds()
	group := func(k string, parts int) int { return int(codec.Hasher[string]()(k) % uint64(parts)) }
	rapid.Check(t, func(t *rapid.T) {
		var now base.BatchTime
		var parts []*mapModel[[]string]
		for range rapid.IntRange(1, 4).Draw(t, "partitions") {
			parts = append(parts, newMapModel(slices, true))
		}
		t.Repeat(map[string]func(*rapid.T){
			"batch": func(t *rapid.T) {
				for i, p := range parts {
					var keys []string
					for _, k := range modelKeys {
						if group(k, len(parts)) == i {
							keys = append(keys, k)
						}
					}
					if len(keys) > 0 {
						p.batch(t, keys)
					}
					now = max(now, p.now)
				}
			},
			"rescale": func(t *rapid.T) {
				old := parts
				parts = nil
				n := rapid.IntRange(1, 4).Draw(t, "to")
				for i := range n {
					p := newMapModel(slices, true)
					p.now = now
					keep := func(k string) bool { return group(k, n) == i }
					for _, from := range old {
						for _, f := range from.files {
							if err := p.m.Load(f, keep); err != nil {
								t.Fatal(err)
							}
						}
						for _, r := range from.o.rows {
							if keep(r.key) {
								p.o.rows = append(p.o.rows, r)
							}
						}
					}
					if err := p.m.Loaded(true); err != nil {
						t.Fatal(err)
					}
					p.check(t)
					p.files, p.rescaled = [][]byte{must(p.m.Snapshot())}, true
					parts = append(parts, p)
				}
			},
			"restore": func(t *rapid.T) {
				for _, p := range parts {
					p.m = newKeyed[string, []string](true)
					if err := p.m.Restore(p.files); err != nil {
						t.Fatal(err)
					}
					p.rescaled = false
				}
			},
			"": func(t *rapid.T) {
				for _, p := range parts {
					p.check(t)
				}
			},
		})
	})
}
