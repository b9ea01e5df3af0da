package rdd

import (
	"cmp"
	"slices"
	"strconv"
)

// Sort puts all records into one partition in the order of compare, which
// follows slices.SortFunc. Equal records keep their order.
func Sort[T any](r RDD[T], compare func(a, b T) int) RDD[T] {
	return toOne(r, "sort", "",
		func(_ *probeOf[T], src Iter[T]) ([]T, error) { return gather(src) },
		func(p *probeOf[T], src Iter[T], yield func(T) bool) error {
			all, err := gather(src)
			if err != nil {
				return err
			}
			p.busy = true
			slices.SortStableFunc(all, compare)
			p.busy = false
			for _, v := range all {
				if !yield(v) {
					break
				}
			}
			return nil
		})
}

// SortByKey puts all pairs into one partition in ascending order of their keys.
func SortByKey[K cmp.Ordered, V any](r RDD[Pair[K, V]]) RDD[Pair[K, V]] {
	return Sort(r, func(a, b Pair[K, V]) int { return cmp.Compare(a.Key, b.Key) })
}

// TopN has the n greatest records in the order of compare, the greatest first,
// in one partition. Of equal records the first win.
func TopN[T any](r RDD[T], n int, compare func(a, b T) int) RDD[T] {
	mustParts("topN", n)
	return toOne(r, "topN", strconv.Itoa(n),
		func(p *probeOf[T], src Iter[T]) ([]T, error) { return top(p, src, n, compare) },
		func(p *probeOf[T], src Iter[T], yield func(T) bool) error {
			all, err := top(p, src, n, compare)
			if err != nil {
				return err
			}
			for _, v := range all {
				if !yield(v) {
					break
				}
			}
			return nil
		})
}

// top keeps a sorted slice of at most n: for the few that tops are made of,
// and since most records only meet the last one, this beats a heap.
func top[T any](p *probeOf[T], src Iter[T], n int, compare func(a, b T) int) ([]T, error) {
	best := make([]T, 0, min(n, 1024))
	err := src(func(v T) bool {
		p.enter(v)
		if len(best) == n && compare(best[n-1], v) >= 0 {
			p.busy = false
			return true
		}
		at, _ := slices.BinarySearchFunc(best, v, func(a, b T) int {
			if compare(a, b) >= 0 {
				return -1
			}
			return 1
		})
		p.busy = false
		if len(best) == n {
			best = best[:n-1]
		}
		best = slices.Insert(best, at, v)
		return true
	})
	return best, err
}
