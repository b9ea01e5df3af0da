package tidemill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/state"
	"github.com/tidemill/tidemill/rdd"
)

// balance is a state that has grown out of an int64.
type balance struct {
	Cents int64
	Seen  int
}

func fromCents(v int64) (balance, error) { return balance{Cents: v}, nil }

func newest(values []int, old Opt[balance]) Opt[balance] {
	return Some(balance{Cents: int64(len(values)), Seen: old.Value.Seen + 1})
}

// buildOver builds a job over pairs of a constant stream.
func buildOver(t *testing.T, build func(in DStream[Pair[string, int]])) (*StreamingContext, error) {
	t.Helper()
	app := App{Name: "test", Build: func(ssc *StreamingContext) error {
		in := ConstantStream(ssc, "in", []Pair[string, int]{KV("a", 1)})
		build(in)
		Print(in, "out", 1)
		return nil
	}}
	return New(app, Config{Parallelism: 3}, WithDir(t.TempDir()))
}

// TestStatefulOperatorsTellWhatTheyKeep, of which kind and in how many partitions.
func TestStatefulOperatorsTellWhatTheyKeep(t *testing.T) {
	const money = "msgpack:tidemill.balance"
	ssc, err := buildOver(t, func(in DStream[Pair[string, int]]) {
		UpdateStateByKey(in, "plain", newest)
		UpdateStateByKey(in, "told", newest, StateVersion(3), MigrateState(2, fromCents), Partitions(5),
			MigrateState(0, func(balance) (balance, error) { return balance{}, nil }), InitialState(KV("a", balance{})))
		MapWithState(in, "mapped", StateSpec[string, string]{}, func(BatchTime, string, Opt[int], *State[string]) (int, bool) { return 0, false },
			StateVersion(1), MigrateState(1, func(n int) (string, error) { return fmt.Sprint(n), nil }))
		add := func(a, b int) int { return a + b }
		ReduceByKeyAndWindow(in, "window", add, nil, 4*time.Second, 2*time.Second, Partitions(2))
		ReduceByKeyAndWindow(in, "inverse", add, add, 4*time.Second, 2*time.Second)
		CountByWindow(in, "count", 4*time.Second, 2*time.Second)
		Map(in, func(p Pair[string, int]) int { return p.Value })
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[base.UID]*plan.StateInfo{
		"plain": {Schema: state.Schema{Key: "string", Value: money}},
		"told": {Schema: state.Schema{Key: "string", Value: money, Version: 3}, From: []state.Schema{
			{Key: "string", Value: "int64", Version: 2}, {Key: "string", Value: money},
		}},
		"mapped": {Schema: state.Schema{Key: "string", Value: "string", Version: 1}, From: []state.Schema{
			{Key: "string", Value: "int", Version: 1},
		}},
		"window":  {Schema: state.Schema{Key: "string", Value: "int over 4s every 2s"}},
		"inverse": {Schema: state.Schema{Key: "string", Value: "totals of int over 4s every 2s"}},
		"count":   {Schema: state.Schema{Key: "bool", Value: "totals of int64 over 4s every 2s"}},
	}
	parts := map[base.UID]int{"plain": 3, "told": 5, "mapped": 3, "window": 2, "inverse": 3, "count": 1}
	got := map[base.UID]*plan.StateInfo{}
	for _, op := range ssc.g.Ops {
		if op.State != nil {
			got[op.UID] = op.State
		}
		if (op.State != nil) != (op.Advance != nil) || ssc.g.Parts(op.UID) != parts[op.UID] {
			t.Errorf("%s: stateful %t, keeps something %t, in %d partitions, want %d", op.UID, op.Advance != nil, op.State != nil, ssc.g.Parts(op.UID), parts[op.UID])
		}
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(plan.StateInfo{}, "Repack")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := ssc.Describe(); !strings.Contains(d, fmt.Sprintf("op told kind=updateStateByKey slide=1s stateful=%q from=in\n", want["told"].Schema)) {
		t.Errorf("the graph's description does not tell the schema:\n%s", d)
	}
}

// freshState is an executor that only looks at what state a task would begin with.
type freshState struct {
	rdd.Env
	part state.Part
}

var errSeen = errors.New("seen")

func (f *freshState) State(_ context.Context, _ base.UID, _ int, fresh func() state.Part) (state.Part, error) {
	f.part = fresh()
	return nil, errSeen
}

func (*freshState) Emit(context.Context, plan.CacheKey, []byte) error { return errSeen }

func (*freshState) Emission(context.Context, plan.CacheKey) ([]byte, error) { return nil, errSeen }

// TestTasksMigrateStateAsTheProgramSays, and write it in the version that it says.
func TestTasksMigrateStateAsTheProgramSays(t *testing.T) {
	old := state.Keyed[string, int64]{Map: state.NewMap(codec.For[string](), codec.For[int64](), false)}
	old.Migrate(2)
	old.Begin(1000)
	old.Insert("a", 77)
	file, _, err := old.Delta()
	if err != nil {
		t.Fatal(err)
	}
	opts := []Option{StateVersion(3), MigrateState(2, fromCents)}
	ssc, err := buildOver(t, func(in DStream[Pair[string, int]]) {
		UpdateStateByKey(in, "updated", newest, opts...)
		UpdateStateByKeyWhole(in, "whole", nothing, opts...)
		MapWithState(in, "mapped", StateSpec[string, balance]{}, func(BatchTime, string, Opt[int], *State[balance]) (int, bool) { return 0, false }, opts...)
	})
	if err != nil {
		t.Fatal(err)
	}
	lineage := plan.NewLineage(ssc.g.Ops)
	lineage.SetStarted([]base.UID{"updated", "whole"})
	if err := lineage.Add(&plan.Batch{Time: 2000}); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []base.UID{"updated", "whole", "mapped"} {
		n, err := lineage.Advance(ssc.g.Op(uid), 2000)
		if err != nil || n == nil {
			t.Fatalf("%s: %v, %v", uid, n, err)
		}
		env := &freshState{}
		err = rdd.AdvancePart(rdd.NewTask(t.Context(), env, rdd.TaskSpec{Batch: 2000}), n, 0)
		if env.part == nil {
			t.Fatalf("%s: the task never asked for its state: %v", uid, err)
		}
		if err := env.part.Restore([][]byte{file}); err != nil {
			t.Errorf("%s: %v", uid, err)
			continue
		}
		m := env.part.(state.Keyed[string, balance])
		if rec, ok := m.Find("a"); !ok || m.Peek(rec) != (balance{Cents: 77}) {
			t.Errorf("%s: migrated to %d keys, a found: %t", uid, m.Len(), ok)
		}
		snap, err := m.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		again := state.Keyed[string, balance]{Map: state.NewMap(codec.For[string](), codec.For[balance](), false)}
		again.Migrate(3)
		if err := again.Restore([][]byte{snap}); err != nil {
			t.Errorf("%s: written again: %v", uid, err)
		}
	}
}

func nothing(BatchTime, iter.Seq[StateRow[string, int, balance]]) iter.Seq[Pair[string, balance]] {
	return slices.Values([]Pair[string, balance]{})
}

func TestWrongMigrationsAreRefusedAtBuild(t *testing.T) {
	type bad struct{ C chan int }
	add := func(a, b int) int { return a + b }
	over := func(opts ...Option) func(DStream[Pair[string, int]]) {
		return func(in DStream[Pair[string, int]]) { UpdateStateByKey(in, "counts", newest, opts...) }
	}
	window := func(opts ...Option) func(DStream[Pair[string, int]]) {
		return func(in DStream[Pair[string, int]]) {
			ReduceByKeyAndWindow(in, "tops", add, nil, 4*time.Second, 2*time.Second, opts...)
		}
	}
	for name, c := range map[string]struct {
		build func(DStream[Pair[string, int]])
		want  []string
	}{
		"makes another type": {
			over(MigrateState(4, func(int) (string, error) { return "", nil })),
			[]string{`updateStateByKey "counts"`, "the migration from version 4 makes a string", "the state is a tidemill.balance"},
		},
		"of mapWithState": {func(in DStream[Pair[string, int]]) {
			MapWithState(in, "m", StateSpec[string, int]{}, func(BatchTime, string, Opt[int], *State[int]) (int, bool) { return 0, false }, MigrateState(4, fromCents))
		}, []string{`mapWithState "m"`, "makes a tidemill.balance", "the state is a int"}},
		"no function":          {over(MigrateState[int, balance](1, nil)), []string{`updateStateByKey "counts"`, "from int, version 1", "the function is nil"}},
		"unreadable":           {over(MigrateState(1, func(bad) (balance, error) { return balance{}, nil })), []string{`"counts"`, "from tidemill.bad, version 1", "bad.C is a chan"}},
		"negative version":     {over(StateVersion(-1)), []string{`"counts"`, "version is -1", "negative"}},
		"from a negative one":  {over(MigrateState(-2, fromCents)), []string{`"counts"`, "version -2", "negative"}},
		"twice from one":       {over(MigrateState(1, fromCents), MigrateState(1, fromCents)), []string{`"counts"`, "int64 in version 1 is read already"}},
		"from what it is":      {over(StateVersion(1), MigrateState(1, func(b balance) (balance, error) { return b, nil })), []string{`"counts"`, "tidemill.balance in version 1 is read already", "raise StateVersion"}},
		"version of a window":  {window(StateVersion(0)), []string{`reduceByKeyAndWindow "tops"`, "can't be migrated", "--drop-state=tops", "within 4s"}},
		"migrated window":      {window(MigrateState(1, func(int) (int, error) { return 0, nil })), []string{`reduceByKeyAndWindow "tops"`, "can't be migrated"}},
		"initial of another S": {over(InitialState(KV("a", 1)), StateVersion(1)), []string{`"counts"`, "the initial state is a []rdd.Pair[string,int]", "want a []rdd.Pair[string,github.com/tidemill/tidemill.balance]"}},
	} {
		_, err := buildOver(t, c.build)
		for _, part := range c.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %v, want one that says %q", name, err, part)
			}
		}
	}
}
