package rdd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
	"github.com/tidemill/tidemill/rdd"
)

// keeper is a local that keeps the state of one partition, as an executor does.
type keeper struct {
	*local
	part    state.Part
	files   [][]byte // a state that was written before
	emitted []byte
}

func (k *keeper) State(_ context.Context, _ base.UID, _ int, fresh func() state.Part) (state.Part, error) {
	if k.part == nil {
		p := fresh()
		if err := p.Restore(k.files); err != nil {
			return nil, err
		}
		k.part = p
	}
	return k.part, nil
}

func (k *keeper) Emit(_ context.Context, _ plan.CacheKey, frame []byte) error {
	k.emitted = frame
	return nil
}

func (k *keeper) Emission(context.Context, plan.CacheKey) ([]byte, error) { return k.emitted, nil }

// advance runs the batch t and commits it. The delta goes behind the files
// before it, or in their place if it is full.
func (k *keeper) advance(n *plan.Node, t base.BatchTime) (full bool, err error) {
	if err := k.shuffle(n); err != nil {
		return false, err
	}
	task := rdd.NewTask(k.ctx, k, rdd.TaskSpec{Job: "job", Run: "run", Operator: "counts", Batch: t, Executor: "e1"})
	defer task.Close()
	if err := rdd.AdvancePart(task, n, 0); err != nil {
		return false, err
	}
	data, full, err := k.part.Delta()
	if err != nil {
		return false, err
	}
	k.part.Commit()
	if full {
		k.files = nil
	}
	k.files = append(k.files, data)
	return full, nil
}

// counter is a program that keeps state of type S under the keys of its input.
type counter struct {
	name string
	node func(r rdd.RDD[rdd.Pair[string, int]], version int, from ...state.Migration[string]) *plan.Node
}

func counters() []counter {
	one := rdd.Hash[string](1)
	return []counter{
		{"updateStateByKey", func(r rdd.RDD[rdd.Pair[string, int]], version int, from ...state.Migration[string]) *plan.Node {
			return rdd.UpdateState(r, rdd.UpdateSpec[string, int, string]{
				Op: "counts", Partitioner: one, Version: version, Migrations: from,
				Update: func(_ base.BatchTime, _ string, vs []int, old rdd.Opt[string]) rdd.Opt[string] {
					return rdd.Some(old.Or("") + strings.Repeat("|", len(vs)))
				},
			})
		}},
		{"mapWithState", func(r rdd.RDD[rdd.Pair[string, int]], version int, from ...state.Migration[string]) *plan.Node {
			return rdd.MapState(r, rdd.MapSpec[string, int, string, string]{
				Op: "counts", Partitioner: one, Version: version, Migrations: from,
				Call: func(_ base.BatchTime, k string, _ rdd.Opt[int], s *rdd.State[string]) (string, bool) {
					s.Update(s.GetOption().Or("") + "|")
					return k, true
				},
			})
		}},
	}
}

// TestOldStateIsMigratedAndGoesOn: files of another type are restored, the first delta
// takes their place, and it alone and the deltas after it are the state.
func TestOldStateIsMigratedAndGoesOn(t *testing.T) {
	old := state.Keyed[string, int]{Map: state.NewMap(codec.For[string](), codec.For[int](), false)}
	old.Begin(noon - 2000)
	old.Insert("tide", 3)
	old.Insert("mill", 1)
	before, _, err := old.Delta()
	if err != nil {
		t.Fatal(err)
	}
	old.Commit()
	strokes := state.From(codec.For[int](), 0, func(n int) (string, error) {
		if n < 0 {
			return "", errors.New("a negative count")
		}
		return strings.Repeat("|", n), nil
	})
	for _, c := range counters() {
		in := func(t base.BatchTime, keys ...string) rdd.RDD[rdd.Pair[string, int]] {
			var records []rdd.Pair[string, int]
			for _, k := range keys {
				records = append(records, rdd.KV(k, 1))
			}
			return source(&plan.Scope{Set: base.DataSet{UID: "in", Time: t}, Op: "in"}, records)
		}
		k := &keeper{local: newLocal(false), files: [][]byte{before}}
		if full, err := k.advance(c.node(in(noon, "tide", "new"), 2, strokes), noon); !full || err != nil {
			t.Fatalf("%s: the first delta is full: %t, %v", c.name, full, err)
		}
		if full, err := k.advance(c.node(in(noon+1000, "mill"), 2, strokes), noon+1000); full || err != nil {
			t.Fatalf("%s: the second delta is full: %t, %v", c.name, full, err)
		}
		want := "map[mill:|| new:| tide:||||]"
		merged, err := state.MergeFiles(k.files)
		if err != nil {
			t.Fatal(err)
		}
		for how, files := range map[string][][]byte{"as they are": k.files, "merged": {merged}} {
			again := state.Keyed[string, string]{Map: state.NewMap(codec.For[string](), codec.For[string](), false)}
			again.Migrate(2) // without the migration
			if err := again.Restore(files); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			again.Each(func(rec int) bool { got[again.Key(rec)] = again.Peek(rec); return true })
			if fmt.Sprint(got) != want {
				t.Errorf("%s: files %s hold %v, want %s", c.name, how, got, want)
			}
		}

		k = &keeper{local: newLocal(false), files: [][]byte{before}}
		var schema *state.SchemaError
		if _, err := k.advance(c.node(in(noon), 2), noon); !errors.As(err, &schema) && (err == nil || !strings.Contains(err.Error(), "state was written with")) {
			t.Errorf("%s: without a migration: %v", c.name, err)
		}
		old.Begin(noon - 1000)
		rec, _ := old.Find("mill")
		old.Set(rec, -1)
		bad, _, err := old.Delta()
		if err != nil {
			t.Fatal(err)
		}
		old.Rollback()
		k = &keeper{local: newLocal(false), files: [][]byte{before, bad}}
		if _, err := k.advance(c.node(in(noon), 2, strokes), noon); err == nil || !strings.Contains(err.Error(), "a negative count") {
			t.Errorf("%s: a migration that fails: %v", c.name, err)
		}
	}
}
