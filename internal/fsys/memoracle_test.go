package fsys_test

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemill/tidemill/internal/fsys"
	"pgregory.net/rapid"
)

// onode is a file or directory of the oracle, which knows for each name what
// may be found there after a power loss. It knows nothing of order.
type onode struct {
	dir bool

	now map[string]*onode
	may map[string][]*onode // since the last sync; nil: nothing there

	all    []byte
	least  int // bytes that a kill leaves
	synced int // bytes that a power loss leaves
	failed bool
}

func (d *onode) set(name string, n *onode) {
	if _, ok := d.may[name]; !ok {
		d.may[name] = []*onode{d.now[name]}
	}
	d.may[name] = append(d.may[name], n)
	d.now[name] = n
	if n == nil {
		delete(d.now, name)
	}
}

func odir() *onode {
	return &onode{dir: true, now: map[string]*onode{}, may: map[string][]*onode{}}
}

// slot returns the parent of a name, nil if there is none.
func (d *onode) slot(name string) (*onode, string) {
	elems := strings.Split(name, "/")
	for _, e := range elems[:len(elems)-1] {
		if d = d.now[e]; d == nil || !d.dir {
			return nil, ""
		}
	}
	return d, elems[len(elems)-1]
}

func (d *onode) get(name string) *onode {
	parent, last := d.slot(name)
	if parent == nil {
		return nil
	}
	return parent.now[last]
}

func (d *onode) add(name string, n *onode) bool {
	parent, last := d.slot(name)
	if parent == nil || parent.now[last] != nil {
		return false
	}
	parent.set(last, n)
	return true
}

func (d *onode) rename(oldName, newName string) bool {
	from, oldLast := d.slot(oldName)
	to, newLast := d.slot(newName)
	if from == nil || to == nil || from.now[oldLast] == nil || to.now[newLast] != nil || strings.HasPrefix(newName, oldName+"/") {
		return false
	}
	n := from.now[oldLast]
	from.set(oldLast, nil)
	to.set(newLast, n)
	return true
}

func (d *onode) remove(name string) bool {
	parent, last := d.slot(name)
	if parent == nil || parent.now[last] == nil || len(parent.now[last].now) > 0 {
		return false
	}
	parent.set(last, nil)
	return true
}

// removeAll fails only if a file is in the way.
func (d *onode) removeAll(name string) bool {
	n := d.get(name)
	if n == nil {
		return !d.behindFile(name)
	}
	for _, e := range slices.Collect(maps.Keys(n.now)) {
		d.removeAll(name + "/" + e)
	}
	return d.remove(name)
}

func (d *onode) mkdirAll(name string) bool {
	for _, e := range strings.Split(name, "/") {
		if d.now[e] == nil {
			d.set(e, odir())
		}
		if d = d.now[e]; !d.dir {
			return false
		}
	}
	return true
}

// behindFile reports whether a parent of the name is a file.
func (d *onode) behindFile(name string) bool {
	for _, e := range strings.Split(path.Dir(name), "/") {
		if d = d.now[e]; d == nil {
			return false
		}
		if !d.dir {
			return true
		}
	}
	return false
}

// A checker compares what is found with the oracle, after a power loss or a kill.
type checker struct {
	m    *fsys.Mem
	lost bool
}

func (c checker) dir(name string, d *onode, above []*onode) error {
	infos, err := c.m.List(name)
	if err != nil {
		return err
	}
	above = append(above, d)
	found := map[string]bool{}
	for _, in := range infos {
		found[in.Name] = true
	}
	all := maps.Clone(found)
	for n := range d.now {
		all[n] = true
	}
	for n := range d.may {
		all[n] = true
	}
	for n := range all {
		candidates := d.may[n]
		if !c.lost || candidates == nil {
			candidates = []*onode{d.now[n]}
		}
		err := fmt.Errorf("%s: found: %v; no state allows it", path.Join(name, n), found[n])
		for _, want := range candidates {
			// A directory is not found below itself.
			there := want != nil && !slices.Contains(above, want)
			if there == found[n] {
				err = nil
				if there {
					err = c.node(path.Join(name, n), want, above)
				}
			}
			if err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c checker) node(name string, n *onode, above []*onode) error {
	in, err := c.m.Stat(name)
	switch {
	case err != nil:
		return err
	case in.Dir != n.dir:
		return fmt.Errorf("%s: directory %v, want %v", name, in.Dir, n.dir)
	case n.dir:
		return c.dir(name, n, above)
	}
	b, err := fsys.ReadFile(c.m, name)
	if err != nil {
		return err
	}
	least := n.least
	if c.lost {
		least = n.synced
	}
	if len(b) < least || len(b) > len(n.all) || !bytes.Equal(b[:least], n.all[:least]) {
		return fmt.Errorf("%s: %d bytes, want %d to %d", name, len(b), least, len(n.all))
	}
	for at := least; at < len(b); {
		next := min(at/512*512+512, len(b))
		hole := c.lost && bytes.Count(b[at:next], []byte{0}) == next-at
		if !hole && !bytes.Equal(b[at:next], n.all[at:next]) {
			return fmt.Errorf("%s: bytes from %d were never written", name, at)
		}
		at = next
	}
	return nil
}

// player draws operations and does them twice: on the file system and on the oracle.
type player struct {
	t     *rapid.T
	m     *fsys.Mem
	root  *onode
	files []openFile
	next  byte // what the next write writes
}

type openFile struct {
	w fsys.File
	n *onode
}

// move is one operation. Expect does it on the oracle and returns whether it
// succeeds; hit says that a crash did not let it finish.
type move struct {
	do     func() error
	expect func(hit bool) bool
	steps  bool // a crash may leave a part of it
}

func (p *player) name() string {
	return rapid.SampledFrom([]string{
		"f", "g", "a", "b", "a/f", "a/g", "a/c", "b/f", "b/a", "b/c", "a/c/f", "b/c/f", "b/c/a",
	}).Draw(p.t, "name")
}

func (p *player) draw() move {
	always := func(apply func() bool) func(bool) bool { return func(bool) bool { return apply() } }
	switch kind := rapid.SampledFrom([]string{
		"create", "create", "write", "write", "sync", "failing sync", "mkdir", "mkdirall",
		"rename", "rename", "rename", "remove", "removeall", "syncdir", "syncdir",
	}).Draw(p.t, "operation"); kind {
	case "create":
		name, n := p.name(), &onode{}
		return move{
			do: func() error {
				w, err := p.m.Create(name)
				if err == nil {
					p.files = append(p.files, openFile{w, n})
				}
				return err
			},
			expect: always(func() bool { return p.root.add(name, n) }),
		}
	case "mkdir":
		name := p.name()
		return move{
			do:     func() error { return p.m.Mkdir(name) },
			expect: always(func() bool { return p.root.add(name, odir()) }),
		}
	case "mkdirall":
		name := p.name()
		return move{
			do:     func() error { return p.m.MkdirAll(name) },
			expect: always(func() bool { return p.root.mkdirAll(name) }),
			steps:  true,
		}
	case "rename":
		from, to := p.name(), p.name()
		return move{
			do:     func() error { return p.m.Rename(from, to) },
			expect: always(func() bool { return p.root.rename(from, to) }),
		}
	case "remove":
		name := p.name()
		return move{
			do:     func() error { return p.m.Remove(name) },
			expect: always(func() bool { return p.root.remove(name) }),
		}
	case "removeall":
		name := p.name()
		return move{
			do:     func() error { return p.m.RemoveAll(name) },
			expect: always(func() bool { return p.root.removeAll(name) }),
			steps:  true,
		}
	case "write", "sync", "failing sync":
		if len(p.files) > 0 {
			return p.drawFile(kind, rapid.SampledFrom(p.files).Draw(p.t, "file"))
		}
		return p.draw()
	default:
		name := rapid.SampledFrom([]string{"/", "a", "b", "a/c", "b/c"}).Draw(p.t, "directory")
		return move{
			do: func() error { return p.m.SyncDir(name) },
			expect: func(hit bool) bool {
				d := p.root
				if name != "/" {
					d = p.root.get(name)
				}
				if d == nil || !d.dir {
					return false
				}
				if !hit {
					clear(d.may)
				}
				return true
			},
		}
	}
}

func (p *player) drawFile(kind string, f openFile) move {
	switch kind {
	case "write":
		p.next = p.next%255 + 1 // never zero, as in a hole
		data := bytes.Repeat([]byte{p.next}, rapid.IntRange(0, 1500).Draw(p.t, "bytes"))
		return move{
			do: func() error { _, err := f.w.Write(data); return err },
			expect: func(hit bool) bool {
				f.n.all = append(f.n.all, data...)
				if !hit {
					f.n.least = len(f.n.all)
				}
				return true
			},
		}
	case "sync":
		return move{
			do: f.w.Sync,
			expect: func(hit bool) bool {
				if !hit && !f.n.failed {
					f.n.synced = len(f.n.all)
				}
				return true
			},
		}
	}
	return move{
		do: func() error {
			failing(p.m, "sync", syscall.EIO)
			defer p.m.FailWith(nil)
			return f.w.Sync()
		},
		expect: func(bool) bool { f.n.failed = true; return false },
	}
}

// TestMemKeepsWhatIsDurableAndInventsNothing lets random operations run, into a
// crash or not, and compares what is found after a kill, a power loss, and one
// after the other.
func TestMemKeepsWhatIsDurableAndInventsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &player{t: t, m: fsys.NewMem(), root: odir()}
		if rapid.Bool().Draw(t, "crash") {
			p.m.CrashAt(rapid.Int64Range(1, 60).Draw(t, "crash at"))
		}
		rng := seeded(rapid.Uint64().Draw(t, "seed"))
		var hit *move
		for range rapid.IntRange(0, 60).Draw(t, "operations") {
			o := p.draw()
			err := o.do()
			if p.m.Crashed() {
				hit = &o
				break
			}
			if ok := o.expect(false); ok != (err == nil) {
				t.Fatalf("%v, want success: %v", err, ok)
			}
		}

		killed := p.m.AfterKill(rng)
		after := checker{m: killed}
		err := after.dir("/", p.root, nil)
		if hit != nil {
			hit.expect(true)
			if err != nil {
				err = after.dir("/", p.root, nil)
			}
			if hit.steps {
				err = nil
			}
		}
		if err != nil {
			t.Fatalf("after a kill: %v\n%s", err, killed)
		}
		for _, from := range []*fsys.Mem{p.m, killed} {
			found := from.AfterPowerLoss(rng)
			if err := (checker{m: found, lost: true}).dir("/", p.root, nil); err != nil {
				t.Fatalf("after a power loss: %v\n%s", err, found)
			}
			want := contents(t, found, "")
			if got := contents(t, found.AfterPowerLoss(rng), ""); got != want {
				t.Fatalf("a second power loss left %s of %s", got, want)
			}
		}
	})
}
