package plan_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/script"
)

// TestScripts plays the stories of testdata. Operators are declared before
// anything else. Times are in seconds. Commands:
//
//	op UID KIND SLIDE [PARENT...] [window=S] [remember=S] [level=LEVEL] [parts=N]
//	       kinds: source, map, union, window (all its parent has in (t-window, t]),
//	       shuffle (to parts), twice (the union of the parent with itself),
//	       error, panic
//	batch TIME [SOURCE=PARTS]...    a source that is not named is absent
//	show UID TIME                   what the data set is computed from
//	stages UID TIME [kept=NODE]... [parts=P,...]
//	fail UID TIME
//	failed
//	release TIME
//	held UID
//	batches
func TestScripts(t *testing.T) {
	script.Run(t, func(string) script.Command { return (&stage{}).command })
}

// stage is what a script acts on.
type stage struct {
	ops []*plan.Op
	l   *plan.Lineage
}

func at(seconds string) (base.BatchTime, error) {
	n, err := strconv.ParseInt(seconds, 10, 64)
	return base.BatchTime(n * 1000), err
}

func (s *stage) lineage() *plan.Lineage {
	if s.l == nil {
		s.l = plan.NewLineage(s.ops)
	}
	return s.l
}

func (s *stage) op(uid string) (*plan.Op, error) {
	for _, op := range s.ops {
		if string(op.UID) == uid {
			return op, nil
		}
	}
	return nil, fmt.Errorf("no operator %q", uid)
}

// dataSet takes the words UID TIME.
func (s *stage) dataSet(words []string) (*plan.Node, error) {
	op, err := s.op(words[0])
	if err != nil {
		return nil, err
	}
	t, err := at(words[1])
	if err != nil {
		return nil, err
	}
	return s.lineage().DataSet(op, t)
}

func (s *stage) command(f []string) ([]string, error) {
	switch f[0] {
	case "op":
		return nil, s.declare(f[1:])
	case "batch":
		t, err := at(f[1])
		if err != nil {
			return nil, err
		}
		b := &plan.Batch{Time: t}
		for _, w := range f[2:] {
			uid, parts, _ := strings.Cut(w, "=")
			n, err := strconv.Atoi(parts)
			if err != nil {
				return nil, err
			}
			b.Inputs = append(b.Inputs, plan.Input{UID: base.UID(uid), Parts: n})
		}
		if err := s.lineage().Add(b); err != nil {
			return []string{err.Error()}, nil
		}
		return nil, nil
	case "show":
		n, err := s.dataSet(f[1:])
		switch {
		case err != nil:
			return []string{err.Error()}, nil
		case n == nil:
			return []string{"none"}, nil
		}
		return show(n, "", map[plan.ID]bool{}), nil
	case "stages":
		n, err := s.dataSet(f[1:])
		if err != nil || n == nil {
			return nil, fmt.Errorf("data set %v: %w", n, err)
		}
		return stages(n, f[3:])
	case "fail":
		t, err := at(f[2])
		if err != nil {
			return nil, err
		}
		s.lineage().Fail(base.DataSet{UID: base.UID(f[1]), Time: t})
		return nil, nil
	case "failed":
		return []string{"failed" + sets(s.lineage().Failed())}, nil
	case "release":
		t, err := at(f[1])
		if err != nil {
			return nil, err
		}
		rel := s.lineage().Release(t)
		return []string{"sets" + sets(rel.Sets), "batches" + times(rel.Batches)}, nil
	case "held":
		op, err := s.op(f[1])
		if err != nil {
			return nil, err
		}
		return []string{fmt.Sprintf("held%s, forgotten %s", times(s.lineage().Held(op)), seconds(s.lineage().Forgotten(op)))}, nil
	case "batches":
		var ts []base.BatchTime
		for _, b := range s.lineage().Batches() {
			if s.lineage().Batch(b.Time) != b {
				return nil, fmt.Errorf("batch %s is another one", b.Time)
			}
			ts = append(ts, b.Time)
		}
		return []string{"batches" + times(ts)}, nil
	}
	return nil, fmt.Errorf("unknown command %q", f[0])
}

func (s *stage) declare(f []string) error {
	slide, err := strconv.Atoi(f[2])
	if err != nil {
		return err
	}
	op := &plan.Op{UID: base.UID(f[0]), Kind: f[1], Display: f[1] + " " + f[0], Slide: time.Duration(slide) * time.Second}
	op.Remember = op.Slide
	parts := 2
	for _, w := range f[3:] {
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			p, err := s.op(w)
			if err != nil {
				return err
			}
			op.Parents = append(op.Parents, p)
			continue
		}
		n, err := strconv.Atoi(value)
		if name == "level" {
			n, err = slices.Index([]string{"none", "memory", "memory-and-disk", "disk"}, value), nil
		}
		if err != nil || n < 0 {
			return fmt.Errorf("bad value of %s: %w", name, err)
		}
		switch name {
		case "window":
			op.Window = time.Duration(n) * time.Second
		case "remember":
			op.Remember = time.Duration(n) * time.Second
		case "level":
			op.Level = base.StorageLevel(n)
		case "parts":
			parts = n
		default:
			return fmt.Errorf("unknown setting %q", name)
		}
	}
	op.Build = builder(f[1], op, parts)
	s.ops = append(s.ops, op)
	return nil
}

func builder(kind string, op *plan.Op, parts int) func(*plan.Builder) (*plan.Node, error) {
	union := func(b *plan.Builder, parents []*plan.Node) *plan.Node {
		spec := plan.NodeSpec{Kind: kind, Narrow: parents}
		for _, p := range parents {
			spec.Parts += p.Parts
		}
		return b.Scope.NewNode(spec)
	}
	return func(b *plan.Builder) (*plan.Node, error) {
		switch kind {
		case "source":
			in, ok := b.Input()
			if !ok {
				return nil, nil
			}
			return b.Scope.NewNode(plan.NodeSpec{Kind: kind, Parts: in.Parts}), nil
		case "window":
			ps, err := b.ParentIn(0, b.Time.Add(-op.Window))
			if err != nil {
				return nil, err
			}
			return union(b, ps), nil
		case "error":
			return nil, fmt.Errorf("%s fails", op.UID)
		case "panic":
			panic(string(op.UID) + " panics")
		}
		var ps []*plan.Node
		for i := range op.Parents {
			p, err := b.Parent(i)
			if err != nil {
				return nil, err
			}
			if p != nil {
				ps = append(ps, p)
			}
		}
		if kind == "union" {
			return union(b, ps), nil
		}
		if len(ps) == 0 {
			return nil, nil
		}
		switch kind {
		case "twice":
			return b.Scope.NewNode(plan.NodeSpec{Kind: kind, Parts: ps[0].Parts, Narrow: []*plan.Node{ps[0], ps[0]}}), nil
		case "shuffle":
			spec := plan.NodeSpec{Kind: kind, Parts: parts}
			for _, p := range ps {
				spec.Shuffles = append(spec.Shuffles, &plan.Shuffle{Parent: p, Parts: parts})
			}
			return b.Scope.NewNode(spec), nil
		}
		return b.Scope.NewNode(plan.NodeSpec{Kind: kind, Parts: ps[0].Parts, Narrow: ps}), nil
	}
}

func seconds(t base.BatchTime) string { return fmt.Sprint(int64(t) / 1000) }

func name(id plan.ID) string {
	return fmt.Sprintf("%s@%s#%d", id.Set.UID, seconds(id.Set.Time), id.Index)
}

func shuffleName(s *plan.Shuffle) string {
	return fmt.Sprintf("%s@%s%s", s.Set.UID, seconds(s.Set.Time), s.ID[strings.LastIndex(s.ID, "#"):])
}

// shuffleID is shuffleName for an id alone.
func shuffleID(id string, all map[string]*plan.Shuffle) string { return shuffleName(all[id]) }

func show(n *plan.Node, indent string, seen map[plan.ID]bool) []string {
	line := fmt.Sprintf("%s%s %s[%d]", indent, name(n.ID), n.Kind, n.Parts)
	if n.Level != base.StorageNone {
		line += " kept in " + n.Level.String()
	}
	if seen[n.ID] {
		return []string{line + " as above"}
	}
	seen[n.ID] = true
	out := []string{line}
	for _, p := range n.Narrow {
		out = append(out, show(p, indent+"  ", seen)...)
	}
	for _, s := range n.Shuffles {
		out = append(out, fmt.Sprintf("%s  shuffle %s to %d", indent, shuffleName(s), s.Parts))
		out = append(out, show(s.Parent, indent+"    ", seen)...)
	}
	return out
}

func stages(n *plan.Node, words []string) ([]string, error) {
	kept := map[string]bool{}
	parts := plan.All(n.Parts)
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "kept":
			kept[value] = true
		case "parts":
			parts = nil
			for _, p := range strings.Split(value, ",") {
				i, err := strconv.Atoi(p)
				if err != nil {
					return nil, err
				}
				parts = append(parts, i)
			}
		default:
			return nil, fmt.Errorf("unknown setting %q", w)
		}
	}
	_, all := plan.Index([]*plan.Node{n})
	var out []string
	for _, st := range plan.Stages(n, parts, func(n *plan.Node) bool { return kept[name(n.ID)] }) {
		line := fmt.Sprintf("stage %d: %s %v", st.ID, name(st.Root.ID), st.Parts)
		if st.Shuffle != nil {
			line += " writes " + shuffleName(st.Shuffle)
		}
		for i, r := range st.Reads {
			sep := ", "
			if i == 0 {
				sep = " reads "
			}
			line += sep + shuffleID(r, all)
		}
		out = append(out, line)
	}
	return out, nil
}

func sets(ds []base.DataSet) (s string) {
	for _, d := range ds {
		s += fmt.Sprintf(" %s@%s", d.UID, seconds(d.Time))
	}
	return s
}

func times(ts []base.BatchTime) (s string) {
	for _, t := range ts {
		s += " " + seconds(t)
	}
	return s
}
