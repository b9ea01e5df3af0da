package plan

import (
	"cmp"
	"net"
	"slices"
	"strings"
)

// Place is an executor or a host that has bytes of what a task reads.
type Place struct {
	Name  string
	Bytes int64
}

// AddPlace adds a place to those of a partition.
func AddPlace(at []Place, p Place) []Place {
	i := slices.IndexFunc(at, func(x Place) bool { return x.Name == p.Name })
	if i < 0 {
		return append(at, p)
	}
	at[i].Bytes += p.Bytes
	return at
}

// Places names where a task finds what it computes a partition of n from, the
// place with most of it first. at says where a partition is that needs no
// computing, or false: then what it is computed from counts. What comes over a
// shuffle is everywhere.
func Places(n *Node, part int, at func(n *Node, part int) ([]Place, bool)) []string {
	w := placeWalk{at: at}
	w.visit(n, part)
	if len(w.found) == 0 {
		return nil
	}
	slices.SortStableFunc(w.found, func(a, b Place) int { return cmp.Compare(b.Bytes, a.Bytes) })
	names := make([]string, len(w.found))
	for i, p := range w.found {
		names[i] = p.Name
	}
	return names
}

type placeWalk struct {
	at    func(*Node, int) ([]Place, bool)
	seen  map[CacheKey]bool // once ways may meet
	found []Place
}

func (w *placeWalk) visit(n *Node, part int) {
	for !w.take(n, part) {
		if n.From == nil && len(n.Narrow) == 1 {
			n = n.Narrow[0]
			continue
		}
		if len(n.Narrow) == 0 || !w.first(n, part) {
			return
		}
		if n.From != nil {
			n.From(part, w.visit)
			return
		}
		for _, p := range n.Narrow {
			w.visit(p, part)
		}
		return
	}
}

// take reports whether the partition needs no computing, and counts it.
func (w *placeWalk) take(n *Node, part int) bool {
	at, ok := w.at(n, part)
	if !ok || w.seen != nil && !w.first(n, part) {
		return ok
	}
	for _, p := range at {
		w.found = AddPlace(w.found, p)
	}
	return true
}

// first reports whether a partition is met for the first time.
func (w *placeWalk) first(n *Node, part int) bool {
	if w.seen == nil {
		w.seen = map[CacheKey]bool{}
	}
	key := CacheKey{Node: n.ID, Part: part}
	seen := w.seen[key]
	w.seen[key] = true
	return !seen
}

// HostName is what hosts are compared by: some call a machine by its full name and
// some by the first part of it. An address is itself.
func HostName(host string) string {
	if net.ParseIP(host) == nil {
		host, _, _ = strings.Cut(strings.ToLower(host), ".")
	}
	return host
}
