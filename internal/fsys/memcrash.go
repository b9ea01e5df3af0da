package fsys

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
)

// ErrCrashed is what every operation on a [Mem] returns after it has crashed.
var ErrCrashed = errors.New("file system has crashed")

// sector is how many bytes a disk writes at once.
const sector = 512

// Ops returns how many operations have begun so far, those that failed
// included, but none after a crash.
func (m *Mem) Ops() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.ops
}

// CrashAt lets the n-th operation from now on, 1 being the next, and all later
// ones fail with [ErrCrashed]; 0 takes that back. AfterKill and AfterPowerLoss
// decide by their rng how much of the n-th has happened: any prefix of a write,
// some steps of a MkdirAll or RemoveAll, all or nothing of another. Operations
// of other goroutines that had begun and were held up by a hook have not happened.
func (m *Mem) CrashAt(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crashAt = 0
	if n > 0 {
		m.crashAt = m.ops + n
	}
}

// Crash crashes the file system at once, between operations.
func (m *Mem) Crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crashed = true
}

// Crashed reports whether the file system has crashed.
func (m *Mem) Crashed() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.crashed
}

// AfterKill returns a new file system as it is found after the death (kill -9)
// of the process that used this one, which crashes if it has not yet. All that
// was done is there; what was not synced can still be lost by a power loss.
//
// The new file system has no locks, hooks or crash to come, counts operations
// from 0, and shares nothing with the old one. The same rng state gives the same result.
func (m *Mem) AfterKill(rng *rand.Rand) *Mem { return &Mem{tree: m.after(rng)} }

// after crashes the file system, copies it, and does in the copy as much of
// the operation that was hit as the rng says.
func (m *Mem) after(rng *rand.Rand) *memTree {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crashed = true
	t := m.tree.clone()
	if o := m.hit; o != nil && flip(rng) {
		p := o.p
		if flip(rng) {
			p = p[:rng.IntN(len(p)+1)]
			t.stop = func() bool { return rng.IntN(4) == 0 }
		}
		_ = o.do(t, p) // if it would have failed, nothing is what has happened
	}
	t.copies, t.stop = nil, nil
	clear(t.locks)
	return t
}

func flip(rng *rand.Rand) bool { return rng.IntN(2) == 0 }

// AfterPowerLoss is [Mem.AfterKill] for the death of the machine: the new file
// system has all that is durable and a random legal part of the rest.
//
// Of a file's bytes after the last Sync any number is gone, and 512-byte sectors
// of what is left may be zero. Of a directory's changes since the last SyncDir
// each may be lost, and then so are later ones of the same names. A rename
// within a directory is one change; one across directories is two, of which
// either can be lost: the file is then found twice or nowhere. So are
// directories, as copies. Only the last few hundred changes of a directory are
// in doubt, the older ones count as synced. What is found is durable.
func (m *Mem) AfterPowerLoss(rng *rand.Rand) *Mem {
	t := m.after(rng)
	l := loss{rng: rng, files: map[*memNode]*memNode{}, entries: map[*memNode]map[string]*memNode{}}
	t.root = l.dir(t.root, nil)
	return &Mem{tree: t}
}

// loss decides what is left of each file and directory, once for each.
type loss struct {
	rng     *rand.Rand
	files   map[*memNode]*memNode
	entries map[*memNode]map[string]*memNode
}

// dir builds what is found of a directory; above are those that it is in. A
// directory that was moved can lead to one of these, and is then not found there.
func (l *loss) dir(d *memNode, above []*memNode) *memNode {
	above = append(above, d)
	found := &memNode{entries: map[string]*memNode{}, mod: d.mod}
	entries := l.survivors(d)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		switch n := entries[name]; {
		case !n.dir():
			found.entries[name] = l.file(n)
		case !slices.Contains(above, n):
			found.entries[name] = l.dir(n, above)
		}
	}
	return found
}

// survivors returns the entries of a directory that reached the disk.
func (l *loss) survivors(d *memNode) map[string]*memNode {
	if entries, ok := l.entries[d]; ok {
		return entries
	}
	entries := d.durable()
	l.entries[d] = entries
	survives := l.chance()
	lost := map[string]bool{}
	for _, e := range d.edits {
		if lost[e.drop] || lost[e.put] || !survives() {
			// Later edits of these names build on this one.
			for _, name := range []string{e.drop, e.put} {
				if name != "" {
					lost[name] = true
				}
			}
			continue
		}
		if e.drop != "" {
			delete(entries, e.drop)
		}
		if e.put != "" {
			entries[e.put] = e.node
		}
	}
	return entries
}

// chance is a coin, or one that always falls on the same side: that nothing or
// everything has reached the disk is likelier than many coins would have it.
func (l *loss) chance() func() bool {
	switch l.rng.IntN(4) {
	case 0:
		return func() bool { return false }
	case 1:
		return func() bool { return true }
	}
	return func() bool { return flip(l.rng) }
}

// file cuts what was not synced and leaves holes in what is left of it.
func (l *loss) file(n *memNode) *memNode {
	if f, ok := l.files[n]; ok {
		return f
	}
	end := len(n.data)
	switch l.rng.IntN(4) {
	case 0:
		end = n.synced
	case 1, 2:
		end = n.synced + l.rng.IntN(end-n.synced+1)
	}
	data := slices.Clone(n.data[:end])
	if flip(l.rng) {
		written := l.chance()
		for at := n.synced; at < end; {
			next := min(at/sector*sector+sector, end)
			if !written() {
				clear(data[at:next])
			}
			at = next
		}
	}
	f := &memNode{data: data, mod: n.mod, synced: end}
	l.files[n] = f
	return f
}
