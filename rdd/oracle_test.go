package rdd_test

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/rdd"
)

// rec is the record of the random chains. Values are never empty.
type rec = rdd.Pair[string, string]

// ends is associative but not commutative, so it tells in which order it was
// applied.
func ends(a, b string) string { return a[:1] + b[len(b)-1:] }

func byKey(a, b rec) int { return cmp.Compare(a.Key, b.Key) }

// grouped gathers values by key in the order of first occurrence.
func grouped(records []rec) (keys []string, values map[string][]string) {
	values = map[string][]string{}
	for _, r := range records {
		if values[r.Key] == nil {
			keys = append(keys, r.Key)
		}
		values[r.Key] = append(values[r.Key], r.Value)
	}
	return keys, values
}

func mapAll(parts [][]rec, f func(rec) []rec) [][]rec {
	out := make([][]rec, len(parts))
	for i, p := range parts {
		out[i] = []rec{}
		for _, r := range p {
			out[i] = append(out[i], f(r)...)
		}
	}
	return out
}

// placed puts records where a hash partitioner puts their keys.
func placed(parts [][]rec, p rdd.Partitioner[string]) [][]rec {
	out := make([][]rec, p.Parts())
	for _, r := range slices.Concat(parts...) {
		out[p.Place(r.Key)] = append(out[p.Place(r.Key)], r)
	}
	return out
}

func list(vs []string) string { return fmt.Sprintf("%d%q", len(vs), vs) }

func wantGroups(parts [][]rec, n int) [][]rec {
	out := make([][]rec, n)
	for i, p := range placed(parts, rdd.Hash[string](n)) {
		out[i] = []rec{}
		keys, values := grouped(p)
		for _, k := range keys {
			out[i] = append(out[i], rec{Key: k, Value: list(values[k])})
		}
	}
	return out
}

// step is one operator and what it does to a list of partitions.
type step struct {
	name  string
	apply func(r rdd.RDD[rec], n int) rdd.RDD[rec]
	want  func(parts [][]rec, n int) [][]rec
}

func short(r rec) rec { // keeps records of long chains small
	return rec{Key: r.Key[:min(3, len(r.Key))], Value: r.Value[:min(8, len(r.Value))]}
}

func tripled(v string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, x := range []string{v, v + "'", v + "\""} {
			if !yield(x) {
				return
			}
		}
	}
}

// sides is a second data set derived from the first, for joins.
func sides(r rdd.RDD[rec]) rdd.RDD[rec] {
	return rdd.Map(rdd.Filter(r, odd), func(r rec) rec { return rec{Key: r.Key, Value: "r" + r.Value} })
}

func odd(r rec) bool { return len(r.Value)%2 == 1 }

func wantSides(parts [][]rec) [][]rec {
	return mapAll(parts, func(r rec) []rec {
		if !odd(r) {
			return nil
		}
		return []rec{{Key: r.Key, Value: "r" + r.Value}}
	})
}

// cogrouped is the oracle of all joins.
func cogrouped(parts [][]rec, n int, emit func(key string, left, right []string) []string) [][]rec {
	p := rdd.Hash[string](n)
	left, right := placed(parts, p), placed(wantSides(parts), p)
	out := make([][]rec, n)
	for i := range out {
		out[i] = []rec{}
		keys, _ := grouped(append(slices.Clone(left[i]), right[i]...))
		_, ls := grouped(left[i])
		_, rs := grouped(right[i])
		for _, k := range keys {
			for _, v := range emit(k, ls[k], rs[k]) {
				out[i] = append(out[i], rec{Key: k, Value: v})
			}
		}
	}
	return out
}

func orNone(vs []string) []string {
	if len(vs) == 0 {
		return []string{"none"}
	}
	return vs
}

func products(left, right []string) (out []string) {
	for _, l := range left {
		for _, r := range right {
			out = append(out, "("+l+","+r+")")
		}
	}
	return out
}

func text[T fmt.Stringer](v T) string { return v.String() }

func topOf(records []rec, n int) []rec {
	out := slices.Clone(records)
	slices.SortStableFunc(out, func(a, b rec) int { return -byKey(a, b) })
	return append([]rec{}, out[:min(n, len(out))]...)
}

var steps = []step{
	{
		"map",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] {
			return rdd.Map(r, func(r rec) rec { return rec{Key: r.Value, Value: r.Key + "!"} })
		},
		func(parts [][]rec, _ int) [][]rec {
			return mapAll(parts, func(r rec) []rec { return []rec{{Key: r.Value, Value: r.Key + "!"}} })
		},
	},
	{
		"filter",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] {
			return rdd.Filter(r, func(r rec) bool { return r.Key != "a" })
		},
		func(parts [][]rec, _ int) [][]rec {
			return mapAll(parts, func(r rec) []rec {
				if r.Key == "a" {
					return nil
				}
				return []rec{r}
			})
		},
	},
	{
		"flatMap",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			return rdd.FlatMap(r, func(r rec) iter.Seq[rec] {
				if r.Key == "b" {
					return nil // nothing, as an empty sequence
				}
				return slices.Values(slices.Repeat([]rec{r}, n%3))
			})
		},
		func(parts [][]rec, n int) [][]rec {
			return mapAll(parts, func(r rec) []rec {
				if r.Key == "b" {
					return nil
				}
				return slices.Repeat([]rec{r}, n%3)
			})
		},
	},
	{
		"flatMapSlice",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			return rdd.FlatMapSlice(r, func(r rec) []rec { return slices.Repeat([]rec{r}, n%3) })
		},
		func(parts [][]rec, n int) [][]rec {
			return mapAll(parts, func(r rec) []rec { return slices.Repeat([]rec{r}, n%3) })
		},
	},
	{
		"mapValues",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] {
			return rdd.MapValues(r, func(v string) string { return v + "v" })
		},
		func(parts [][]rec, _ int) [][]rec {
			return mapAll(parts, func(r rec) []rec { return []rec{{Key: r.Key, Value: r.Value + "v"}} })
		},
	},
	{
		"flatMapValues",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] { return rdd.FlatMapValues(r, tripled) },
		func(parts [][]rec, _ int) [][]rec {
			return mapAll(parts, func(r rec) (out []rec) {
				for v := range tripled(r.Value) {
					out = append(out, rec{Key: r.Key, Value: v})
				}
				return out
			})
		},
	},
	{
		"mapPartitions",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			return rdd.MapPartitions(r, func(t *rdd.Task, in iter.Seq[rec], emit func(rec) bool) error {
				i := 0
				for v := range in {
					if i++; i > n {
						break
					}
					emit(v)
				}
				emit(rec{Key: "end", Value: fmt.Sprint(i)})
				return nil
			})
		},
		func(parts [][]rec, n int) [][]rec {
			out := make([][]rec, len(parts))
			for i, p := range parts {
				out[i] = append(slices.Clone(p[:min(n, len(p))]), rec{Key: "end", Value: fmt.Sprint(min(n+1, len(p)))})
			}
			return out
		},
	},
	{
		"keys, keyBy and values",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] {
			keyed := rdd.KeyBy(rdd.Keys(r), func(k string) string { return "k" + k })
			return rdd.Map(rdd.Values(keyed), func(k string) rec { return rec{Key: k, Value: "k"} })
		},
		func(parts [][]rec, _ int) [][]rec {
			return mapAll(parts, func(r rec) []rec { return []rec{{Key: r.Key, Value: "k"}} })
		},
	},
	{
		"reduceByKey",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] { return rdd.ReduceByKey(r, rdd.Hash[string](n), ends) },
		func(parts [][]rec, n int) [][]rec {
			out := make([][]rec, n)
			for i, p := range placed(parts, rdd.Hash[string](n)) {
				out[i] = []rec{}
				keys, values := grouped(p)
				for _, k := range keys {
					v := values[k][0]
					for _, w := range values[k][1:] {
						v = ends(v, w)
					}
					out[i] = append(out[i], rec{Key: k, Value: v})
				}
			}
			return out
		},
	},
	{
		"groupByKey",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			return rdd.MapValues(rdd.GroupByKey(r, rdd.Hash[string](n)), list)
		},
		wantGroups,
	},
	{
		"combineByKey",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			c := rdd.Combiner[string, []string]{
				Create: func(v string) []string { return []string{v} },
				Merge:  func(c []string, v string) []string { return append(c, v) },
				Join:   func(a, b []string) []string { return append(a, b...) },
			}
			return rdd.MapValues(rdd.CombineByKey(r, rdd.Hash[string](n), c, n%2 == 0), list)
		},
		wantGroups,
	},
	{
		"distinct",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] { return rdd.Distinct(r, rdd.Hash[rec](n)) },
		func(parts [][]rec, n int) [][]rec {
			p, seen := rdd.Hash[rec](n), map[rec]bool{}
			out := make([][]rec, n)
			for i := range out {
				out[i] = []rec{}
			}
			for _, r := range slices.Concat(parts...) {
				if !seen[r] {
					out[p.Place(r)] = append(out[p.Place(r)], r)
				}
				seen[r] = true
			}
			return out
		},
	},
	{
		"sort",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] {
			return rdd.Sort(r, func(a, b rec) int { return -byKey(a, b) })
		},
		func(parts [][]rec, _ int) [][]rec {
			all := concat(parts)
			return [][]rec{topOf(all, len(all))}
		},
	},
	{
		"sortByKey",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] { return rdd.SortByKey(r) },
		func(parts [][]rec, _ int) [][]rec {
			all := concat(parts)
			slices.SortStableFunc(all, byKey)
			return [][]rec{all}
		},
	},
	{
		"topN",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] { return rdd.TopN(r, n, byKey) },
		func(parts [][]rec, n int) [][]rec { return [][]rec{topOf(concat(parts), n)} },
	},
	{
		"count",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] {
			return rdd.Map(rdd.Count(r), func(n int64) rec { return rec{Key: "n", Value: fmt.Sprint(n)} })
		},
		func(parts [][]rec, _ int) [][]rec {
			return [][]rec{{{Key: "n", Value: fmt.Sprint(len(concat(parts)))}}}
		},
	},
	{
		"reduce",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] {
			return rdd.Reduce(r, func(a, b rec) rec { return rec{Key: a.Key, Value: ends(a.Value, b.Value)} })
		},
		func(parts [][]rec, _ int) [][]rec {
			all := concat(parts)
			if len(all) == 0 {
				return [][]rec{{}}
			}
			out := all[0]
			for _, r := range all[1:] {
				out.Value = ends(out.Value, r.Value)
			}
			return [][]rec{{out}}
		},
	},
	{
		"repartition",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] { return rdd.Repartition(r, n) },
		func(parts [][]rec, n int) [][]rec {
			out := make([][]rec, n)
			for i := range out {
				out[i] = []rec{}
			}
			for m, p := range parts {
				for i, r := range p {
					out[(m+i)%n] = append(out[(m+i)%n], r)
				}
			}
			return out
		},
	},
	{
		"coalesce",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] { return rdd.Coalesce(r, n) },
		func(parts [][]rec, n int) [][]rec {
			n = min(n, len(parts))
			out := make([][]rec, n)
			for i := range out {
				out[i] = concat(parts[i*len(parts)/n : (i+1)*len(parts)/n])
			}
			return out
		},
	},
	{
		"union",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] { return rdd.UnionOf(r, sides(r), rdd.EmptyLike[rec](r)) },
		func(parts [][]rec, _ int) [][]rec { return append(slices.Clone(parts), wantSides(parts)...) },
	},
	{
		"cogroup",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			return rdd.MapValues(rdd.Cogroup(r, sides(r), rdd.Hash[string](n)), func(g rdd.CoGrouped[string, string]) string {
				return list(g.Left) + list(g.Right) + fmt.Sprint(g.Left == nil, g.Right == nil)
			})
		},
		func(parts [][]rec, n int) [][]rec {
			return cogrouped(parts, n, func(_ string, l, r []string) []string {
				return []string{list(l) + list(r) + fmt.Sprint(l == nil, r == nil)}
			})
		},
	},
	{
		"join",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			return rdd.MapValues(rdd.Join(r, sides(r), rdd.Hash[string](n)), text[rdd.Joined[string, string]])
		},
		func(parts [][]rec, n int) [][]rec {
			return cogrouped(parts, n, func(_ string, l, r []string) []string { return products(l, r) })
		},
	},
	{
		"leftOuterJoin",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			return rdd.MapValues(rdd.LeftOuterJoin(r, sides(r), rdd.Hash[string](n)), text[rdd.Joined[string, rdd.Opt[string]]])
		},
		func(parts [][]rec, n int) [][]rec {
			return cogrouped(parts, n, func(_ string, l, r []string) []string { return products(l, orNone(r)) })
		},
	},
	{
		"rightOuterJoin",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			other := rdd.Map(r, func(r rec) rec { return rec{Key: r.Key, Value: r.Value} })
			return rdd.MapValues(rdd.RightOuterJoin(sides(r), other, rdd.Hash[string](n)), func(j rdd.Joined[rdd.Opt[string], string]) string {
				return "(" + j.Right + "," + j.Left.Or("none") + ")"
			})
		},
		func(parts [][]rec, n int) [][]rec {
			p := rdd.Hash[string](n)
			out := make([][]rec, n)
			left, right := placed(wantSides(parts), p), placed(parts, p)
			for i := range out {
				out[i] = []rec{}
				keys, _ := grouped(append(slices.Clone(left[i]), right[i]...))
				_, ls := grouped(left[i])
				_, rs := grouped(right[i])
				for _, k := range keys {
					for _, l := range orNone(ls[k]) {
						for _, r := range rs[k] {
							out[i] = append(out[i], rec{Key: k, Value: "(" + r + "," + l + ")"})
						}
					}
				}
			}
			return out
		},
	},
	{
		"fullOuterJoin",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			return rdd.MapValues(rdd.FullOuterJoin(r, sides(r), rdd.Hash[string](n)), text[rdd.Joined[rdd.Opt[string], rdd.Opt[string]]])
		},
		func(parts [][]rec, n int) [][]rec {
			return cogrouped(parts, n, func(_ string, l, r []string) []string { return products(orNone(l), orNone(r)) })
		},
	},
	{
		"subtractByKey",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			return rdd.SubtractByKey(r, sides(r), rdd.Hash[string](n))
		},
		func(parts [][]rec, n int) [][]rec {
			return cogrouped(parts, n, func(_ string, l, r []string) []string {
				if len(r) > 0 {
					return nil
				}
				return l
			})
		},
	},
	{
		"subtract and intersection",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			keys, others := rdd.Keys(r), rdd.Keys(sides(r))
			p := rdd.Hash[string](n)
			return rdd.UnionOf(
				rdd.Map(rdd.Subtract(keys, others, p), func(k string) rec { return rec{Key: k, Value: "-"} }),
				rdd.Map(rdd.Intersection(keys, others, p), func(k string) rec { return rec{Key: k, Value: "&"} }))
		},
		func(parts [][]rec, n int) [][]rec {
			minus := cogrouped(parts, n, func(_ string, l, r []string) []string {
				if len(r) > 0 {
					return nil
				}
				return slices.Repeat([]string{"-"}, len(l))
			})
			return append(minus, cogrouped(parts, n, func(_ string, l, r []string) []string {
				if len(l) == 0 || len(r) == 0 {
					return nil
				}
				return []string{"&"}
			})...)
		},
	},
	{
		"glom",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] {
			return rdd.Map(rdd.Glom(r), func(all []rec) rec { return rec{Key: "all", Value: fmt.Sprint(all)} })
		},
		func(parts [][]rec, _ int) [][]rec {
			out := make([][]rec, len(parts))
			for i, p := range parts {
				out[i] = []rec{{Key: "all", Value: fmt.Sprint(p)}}
			}
			return out
		},
	},
	{
		"cartesian",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			few := rdd.TopN(r, 2, byKey)
			return rdd.Map(rdd.Cartesian(r, few), func(j rdd.Joined[rec, rec]) rec {
				return rec{Key: j.Left.Key, Value: j.Right.Value}
			})
		},
		func(parts [][]rec, n int) [][]rec {
			few := topOf(concat(parts), 2)
			return mapAll(parts, func(r rec) (out []rec) {
				for _, f := range few {
					out = append(out, rec{Key: r.Key, Value: f.Value})
				}
				return out
			})
		},
	},
	{
		"persist",
		func(r rdd.RDD[rec], _ int) rdd.RDD[rec] {
			return rdd.Filter(r, func(rec) bool { return true }).Persist(base.MemoryOnly)
		},
		func(parts [][]rec, _ int) [][]rec { return parts },
	},
	{
		"alias",
		func(r rdd.RDD[rec], n int) rdd.RDD[rec] {
			return rdd.Alias(r, newScope(base.UID(fmt.Sprintf("alias-%s-%d", r.Node().ID, n))))
		},
		func(parts [][]rec, _ int) [][]rec { return parts },
	},
}

// TestChainsMatchSequentialOracle runs random chains of operators over random
// partitions, with typed and with encoded buckets.
func TestChainsMatchSequentialOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record := rapid.Custom(func(t *rapid.T) rec {
			return rec{
				Key:   rapid.SampledFrom([]string{"", "a", "b", "c", "\xff", "key"}).Draw(t, "key"),
				Value: rapid.SampledFrom([]string{"v", "w", "xy", "\x00z"}).Draw(t, "value"),
			}
		})
		parts := rapid.SliceOfN(rapid.SliceOfN(record, 0, 8), 0, 4).Draw(t, "partitions")
		for i := range parts {
			parts[i] = append([]rec{}, parts[i]...)
		}
		before := fmt.Sprintf("%#v", parts)
		scope := newScope("s")
		r, want := rdd.FromSlices(scope, "test", parts), parts
		var chain []string
		for range rapid.IntRange(1, 4).Draw(t, "length") {
			s := steps[rapid.IntRange(0, len(steps)-1).Draw(t, "step")]
			n := rapid.IntRange(1, 5).Draw(t, "n")
			r, want = s.apply(r, n), s.want(want, n)
			r, want = rdd.Map(r, short), mapAll(want, func(r rec) []rec { return []rec{short(r)} })
			chain = append(chain, fmt.Sprintf("%s(%d)", s.name, n))
		}
		for _, mode := range []string{"typed", "encoded", "checked"} {
			l := newLocal(mode != "typed")
			l.checked = mode == "checked"
			got, err := run(l, r)
			if err != nil {
				t.Fatalf("%s, %s: %v", strings.Join(chain, " "), mode, err)
			}
			same(t, strings.Join(chain, " ")+", "+mode, got, want)
			l.unchanged(t)
		}
		if after := fmt.Sprintf("%#v", parts); after != before {
			t.Errorf("%s changed its input: %s, was %s", strings.Join(chain, " "), after, before)
		}
	})
}

// TestEachOperatorMatchesOracle leaves no operator to chance.
func TestEachOperatorMatchesOracle(t *testing.T) {
	parts := [][]rec{
		{{Key: "a", Value: "v"}, {Key: "b", Value: "wx"}, {Key: "a", Value: "y"}, {Key: "", Value: "z"}},
		{},
		{{Key: "b", Value: "p"}, {Key: "c", Value: "q"}, {Key: "a", Value: "rs"}, {Key: "\xff", Value: "t"}, {Key: "b", Value: "u"}},
	}
	for _, s := range steps {
		for n := 1; n <= 8; n++ {
			r := s.apply(rdd.FromSlices(newScope("s"), "test", parts), n)
			same(t, fmt.Sprintf("%s(%d)", s.name, n), both(t, r), s.want(parts, n))
			none := s.apply(rdd.Empty[rec](newScope("s")), n)
			same(t, fmt.Sprintf("%s(%d) of nothing", s.name, n), both(t, none), s.want(nil, n))
		}
	}
}
