package conformance

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/rdd"
)

func runUpdateState(t *testing.T, c *golden) outcome {
	return job{build: func(ssc *tidemill.StreamingContext, r *recorder) error {
		in := input[pair](ssc, c, 0)
		switch c.Op {
		case "updateStateByKey":
			switch c.str("update") {
			case "sum_idle2":
				watch(r, tidemill.UpdateStateByKey(in, "state", sumIdle2, placed(c)...), "output")
			case "sorted_values":
				watch(r, tidemill.UpdateStateByKey(in, "state", sortedValues, placed(c)...), "output")
			default:
				watch(r, tidemill.UpdateStateByKey(in, "state", byName(c, "update", updates), started(c)...), "output")
			}
		case "updateStateByKey_time":
			f := byName(c, "update", timedUpdates)
			watch(r, tidemill.UpdateStateByKeyWithTime(in, "state", func(t tidemill.BatchTime, _ string, values []int64, old tidemill.Opt[int64]) tidemill.Opt[int64] {
				return f(caseTime(t), values, old)
			}, started(c)...), "output")
		case "updateStateByKey_iterator":
			opts := started(c)
			if c.str("update") == "iter_rename" {
				opts = append(opts, tidemill.Partitions(1)) // a key must not be in two partitions
			}
			watch(r, tidemill.UpdateStateByKeyWhole(in, "state", byName(c, "update", wholeUpdates), opts...), "output")
		case "window+updateStateByKey":
			windowed := tidemill.Window(in, millis(c.WindowMS), millis(c.SlideMS))
			watch(r, tidemill.UpdateStateByKey(windowed, "state", byName(c, "update", updates)), "output")
		case "updateStateByKey+updateStateByKey":
			first := tidemill.UpdateStateByKey(in, "state", sumState)
			watch(r, tidemill.UpdateStateByKey(first, "second", sumState), "output")
		default:
			return fmt.Errorf("operation %q is not known", c.Op)
		}
		return nil
	}}.run(t, c)
}

// placed says how the case places keys.
func placed(c *golden) []tidemill.Option {
	switch n := int(c.num("num_partitions", 0)); {
	case c.has("partitioner"):
		return []tidemill.Option{tidemill.PartitionWith(byName(c, "partitioner", map[string]tidemill.Partitioner[string]{
			"mod": rdd.PartitionBy("mod", n, func(k string) int {
				sum := 0
				for _, b := range []byte(k) {
					sum += int(b)
				}
				return sum % n
			}),
		}))}
	case n > 0:
		return []tidemill.Option{tidemill.Partitions(n)}
	}
	return nil
}

// started adds the initial state of the case.
func started(c *golden) []tidemill.Option {
	opts := placed(c)
	if c.has("initial") {
		opts = append(opts, tidemill.InitialState(initialOf(c)...))
	}
	return opts
}

func initialOf(c *golden) []pair {
	if !c.has("initial") {
		return nil
	}
	return batchesOf[pair](&golden{OneInput: [][]any{c.Params["initial"].([]any)}}, 0)[0]
}

type opt64 = tidemill.Opt[int64]

func total(values []int64) (sum int64) {
	for _, v := range values {
		sum += v
	}
	return sum
}

func sumState(values []int64, old opt64) opt64 { return tidemill.Some(old.Or(0) + total(values)) }

// keepIf returns v or nothing, which drops the key.
func keepIf(keep bool, v int64) opt64 { return opt64{Value: v, OK: keep} }

var updates = map[string]func(values []int64, old opt64) opt64{
	"sum": sumState,
	"sum_drop_if_no_values": func(values []int64, old opt64) opt64 {
		return keepIf(len(values) > 0, sumState(values, old).Value)
	},
	"sum_drop_if_ge_10": func(values []int64, old opt64) opt64 {
		sum := sumState(values, old).Value
		return keepIf(sum < 10, sum)
	},
	"only_new_values": func(values []int64, old opt64) opt64 {
		if len(values) == 0 {
			return old
		}
		return tidemill.Some(total(values))
	},
	"count_updates": func(_ []int64, old opt64) opt64 { return tidemill.Some(old.Or(0) + 1) },
}

// sumIdle2 keeps (sum, idle).
func sumIdle2(values []int64, old tidemill.Opt[tidemill.Joined[int64, int64]]) tidemill.Opt[tidemill.Joined[int64, int64]] {
	s := old.Value
	s.Left += total(values)
	s.Right++
	if len(values) > 0 {
		s.Right = 0
	}
	return tidemill.Opt[tidemill.Joined[int64, int64]]{Value: s, OK: s.Right < 2}
}

// sortedValues changes its old state in place where there is room.
func sortedValues(values []int64, old tidemill.Opt[[]int64]) tidemill.Opt[[]int64] {
	all := append(old.Value, values...)
	slices.Sort(all)
	return tidemill.Some(all)
}

var timedUpdates = map[string]func(at int64, values []int64, old opt64) opt64{
	"add_time_if_values": func(at int64, values []int64, old opt64) opt64 {
		if len(values) == 0 {
			return old
		}
		return tidemill.Some(old.Or(0) + at)
	},
	"last_time": func(at int64, values []int64, old opt64) opt64 {
		if len(values) == 0 {
			at = old.Or(0)
		}
		return tidemill.Some(at)
	},
	"drop_after_2s_idle": func(at int64, values []int64, old opt64) opt64 {
		if len(values) > 0 {
			return tidemill.Some(at)
		}
		return keepIf(at-old.Value < 2000, old.Value)
	},
}

type (
	row    = tidemill.StateRow[string, int64, int64]
	rows   = iter.Seq[row]
	states = iter.Seq[pair]
)

var wholeUpdates = map[string]func(at tidemill.BatchTime, in rows) states{
	"iter_sum": eachRow(func(r row) pair { return tidemill.KV(r.Key, sumState(r.Values, r.State).Value) }),
	"iter_rename": eachRow(func(r row) pair {
		p := tidemill.KV(r.Key, sumState(r.Values, r.State).Value)
		if p.Value%2 != 0 {
			p.Key += "!"
		}
		return p
	}),
	"iter_drop_all": func(_ tidemill.BatchTime, in rows) states {
		return func(func(pair) bool) {
			for range in { //nolint:revive // looks at all and keeps none
			}
		}
	},
}

func eachRow(f func(r row) pair) func(tidemill.BatchTime, rows) states {
	return func(_ tidemill.BatchTime, in rows) states {
		return func(yield func(pair) bool) {
			for r := range in {
				if !yield(f(r)) {
					return
				}
			}
		}
	}
}
