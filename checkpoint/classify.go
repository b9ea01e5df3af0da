package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/state"
)

// Options are what the user allows at a start.
type Options struct {
	Drop         []base.UID       // --drop-state: what these operators keep is forgotten
	Fresh        bool             // --fresh: everything is
	RerunPending bool             // --rerun-pending
	Pending      []base.BatchTime // batches that are planned and not done, ascending
}

// Kind says whether a program may go on from a checkpoint.
type Kind uint8

// Kinds of verdicts.
const (
	Identical    Kind = iota // the same program
	Compatible               // another program that may go on
	Incompatible             // one that must not
)

// String gives the kind as the diff says it.
func (k Kind) String() string {
	if names := [...]string{"identical", "compatible", "incompatible"}; int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Change is one difference between the program that wrote a checkpoint and
// the one that is to go on from it.
type Change struct {
	UID    base.UID // of the operator or output; empty for the job as a whole
	Mark   string   // "+" added, "-" removed, "~" changed
	What   string   // what is other
	Effect string   // what that does to what is stored
	OK     bool     // else it is refused
	Help   []string // what would make it OK: flags and commands, each with what it does
}

// Verdict is the outcome of [Classify].
type Verdict struct {
	Kind    Kind
	Job     string // name of the job that wrote the checkpoint
	Changes []Change
	Drop    []base.UID // what the user gives up: state, and sources with their data and positions
}

// Classify says whether the program new may go on from the checkpoint of old.
func Classify(old, new Job, o Options) Verdict {
	c := classifier{old: &old, new: &new, o: o, drop: map[base.UID]bool{}}
	for _, uid := range o.Drop {
		c.drop[uid] = true
	}
	if c.name(); o.Fresh {
		c.fresh()
	} else {
		c.job()
		for i := range old.Ops {
			c.was(&old.Ops[i])
		}
		for i := range new.Ops {
			if op := &new.Ops[i]; old.op(op.UID) == nil {
				c.added(op)
			}
		}
		c.outputs()
		c.dropped()
	}
	v := Verdict{Job: old.Name, Changes: c.changes, Kind: Identical}
	for _, ch := range c.changes {
		v.Kind = max(v.Kind, Compatible)
		if !ch.OK {
			v.Kind = Incompatible
		}
	}
	for _, uid := range old.kept() {
		if o.Fresh || c.drop[uid] {
			v.Drop = append(v.Drop, uid)
		}
	}
	return v
}

type classifier struct {
	old, new *Job
	o        Options
	drop     map[base.UID]bool
	changes  []Change
}

func (c *classifier) allow(uid base.UID, mark, what, effect string) {
	c.changes = append(c.changes, Change{UID: uid, Mark: mark, What: what, Effect: effect, OK: true})
}

func (c *classifier) refuse(uid base.UID, mark, what, effect string, help ...string) {
	c.changes = append(c.changes, Change{UID: uid, Mark: mark, What: what, Effect: effect, Help: help})
}

// orDrop refuses a change to what an operator keeps unless the user gives it up.
func (c *classifier) orDrop(op *Op, mark, what, refused string, help ...string) {
	if c.drop[op.UID] {
		c.allow(op.UID, mark, what, c.forgotten(op))
		return
	}
	c.refuse(op.UID, mark, what, refused, append(help, fmt.Sprintf("--drop-state=%s: %s", op.UID, c.forgotten(op)))...)
}

// forgotten says what dropping an operator does.
func (c *classifier) forgotten(op *Op) string {
	if op.State != nil {
		return "its state is forgotten"
	}
	return "this leaves unread " + c.unread(op)
}

// unread is what a checkpoint holds of a source.
func (c *classifier) unread(op *Op) string {
	what := "what lies behind its position"
	if op.Receiver {
		what = "what it has received and no batch has taken"
	}
	if n := len(c.o.Pending); n > 0 {
		what += ", and its part of " + batches(n)
	}
	return what
}

// batches counts planned batches.
func batches(n int) string {
	if n == 1 {
		return "1 planned batch"
	}
	return fmt.Sprintf("%d planned batches", n)
}

func (c *classifier) name() {
	if c.old.Name != c.new.Name {
		c.refuse("", "~", fmt.Sprintf("job: %q, now %q", c.old.Name, c.new.Name), "the directory is another job's", otherDir)
	}
}

// otherDir is what helps against another job's checkpoint. A fresh start must not:
// it would take that job's.
const otherDir = "--dir: another directory for this job"

func (c *classifier) fresh() {
	effect := "it is given up, as --fresh asks"
	if kept := c.old.kept(); len(kept) > 0 {
		effect += ", with all that is kept of " + join(kept)
	}
	if n := len(c.o.Pending); n > 0 {
		effect += ", and " + batches(n)
	}
	c.allow("", "-", "checkpoint", effect)
}

func join(uids []base.UID) string {
	words := make([]string, len(uids))
	for i, uid := range uids {
		words[i] = string(uid)
	}
	return strings.Join(words, ", ")
}

// job compares what is not of one operator.
func (c *classifier) job() {
	old, now := c.old, c.new
	if old.Interval != now.Interval {
		c.refuse("", "~", fmt.Sprintf("batch interval: %v, now %v", old.Interval, now.Interval),
			fmt.Sprintf("the batches of the checkpoint, planned ones and those that windows hold, are of %v, and nothing cuts them anew", old.Interval),
			fmt.Sprintf("batch-interval=%v: the interval of the checkpoint", old.Interval))
	}
	if old.Remember != now.Remember {
		c.allow("", "~", fmt.Sprintf("remember: %v, now %v", old.Remember, now.Remember), "what is gone already does not come back")
	}
	if !slices.Equal(old.Args, now.Args) {
		c.allow("", "~", fmt.Sprintf("arguments: %q, now %q", old.Args, now.Args), "the new ones are used")
	}
	if old.Binary == now.Binary {
		return
	}
	what := fmt.Sprintf("program: %s, now %s", digest(old.Binary), digest(now.Binary))
	n := len(c.o.Pending)
	switch {
	case n == 0:
		c.allow("", "~", what, "no batch is planned and not done")
	case c.o.RerunPending:
		c.allow("", "~", what, "the new one runs "+c.pending())
	default:
		c.refuse("", "~", what, c.pending()+": what the old program has begun, the new one may end otherwise",
			"the old program: it works them off, and a graceful stop leaves none",
			"--rerun-pending: the new program runs them")
	}
}

// pending says how many batches are pending, and which are first.
func (c *classifier) pending() string {
	const most = 3
	p := c.o.Pending
	words := make([]string, 0, most)
	for _, t := range p[:min(most, len(p))] {
		words = append(words, t.String())
	}
	more := ""
	if n := len(p) - most; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s (%s%s)", batches(len(p)), strings.Join(words, ", "), more)
}

// digest is as much of a digest as people compare.
func digest(s string) string {
	if s == "" {
		return "unknown"
	}
	return s[:min(12, len(s))]
}

// was compares an operator of the checkpoint with the one of its UID now.
func (c *classifier) was(old *Op) {
	now := c.new.op(old.UID)
	switch {
	case old.Source:
		c.source(old, now)
	case old.State != nil:
		c.state(old, now)
	case now == nil:
		c.allow(old.UID, "-", title(old), "it keeps nothing")
	case now.Source || now.State != nil:
		c.allow(old.UID, "-", title(old), "it keeps nothing")
		c.added(now)
	default:
		c.stateless(old, now)
	}
}

func title(op *Op) string { return fmt.Sprintf("%s %q", kind(op), op.UID) }

func kind(op *Op) string {
	switch {
	case op.Receiver:
		return "receiver " + op.Kind
	case op.Source:
		return "source " + op.Kind
	}
	return op.Kind
}

func (c *classifier) added(op *Op) {
	switch {
	case op.Source:
		c.allow(op.UID, "+", title(op), "it begins with the next batch")
	case op.State != nil:
		c.allow(op.UID, "+", title(op), "its state starts empty")
	default:
		c.allow(op.UID, "+", title(op), "it keeps nothing")
	}
}

func (c *classifier) source(old, now *Op) {
	switch {
	case now == nil || !now.Source:
		c.orDrop(old, "-", title(old), "that would leave unread "+c.unread(old))
		if now != nil {
			c.added(now)
		}
	case old.Kind != now.Kind || old.Receiver != now.Receiver:
		c.orDrop(old, "~", fmt.Sprintf("%s: now %s", title(old), kind(now)), "the one can't go on where the other was, which would leave unread "+c.unread(old))
	case c.drop[old.UID]:
		c.allow(old.UID, "~", title(old), c.forgotten(old)+", as --drop-state asks")
	}
}

func (c *classifier) state(old, now *Op) {
	switch {
	case now == nil || now.State == nil:
		c.orDrop(old, "-", title(old), "its state would be lost")
		if now != nil {
			c.added(now)
		}
		return
	case old.Kind != now.Kind:
		c.orDrop(old, "~", fmt.Sprintf("%s: now %s", title(old), now.Kind), "the one can't go on with the state of the other")
		return
	}
	if !c.schema(old, now) && c.drop[old.UID] {
		c.allow(old.UID, "~", title(old), "its state is forgotten, as --drop-state asks")
	}
	if old.State.Parts != now.State.Parts && !c.drop[old.UID] {
		c.allow(old.UID, "~", fmt.Sprintf("%s: %d partitions, now %d", title(old), old.State.Parts, now.State.Parts), "each key moves with its key group")
	}
	c.place(old, now, "its state does not depend on that")
}

// schema compares what is in state files, and reports whether it is other.
func (c *classifier) schema(old, now *Op) bool {
	was, is := old.State.Schema, now.State.Schema
	if was == is {
		return false
	}
	oldValues, oldLengths, oldTotals := windowOf(was)
	values, lengths, totals := windowOf(is)
	all := fmt.Sprintf("%s: %s, now %s", title(old), valuesOf(was, is), valuesOf(is, was))
	switch {
	case was.Key != is.Key:
		c.orDrop(old, "~", fmt.Sprintf("%s: keys %s, now %s", title(old), was.Key, is.Key), "keys can't be migrated: they decide the partition")
	case slices.Contains(now.State.From, was):
		c.allow(old.UID, "~", all, "a migration reads the old values")
	case lengths != "" && oldValues == values && oldLengths != lengths:
		c.orDrop(old, "~", fmt.Sprintf("%s: a window of %s, now of %s", title(old), oldLengths, lengths), "its panes are cut for the old window")
	case lengths != "" && oldValues == values:
		c.orDrop(old, "~", fmt.Sprintf("%s: %s an inverse function, now %s", title(old), with(oldTotals), with(totals)), "the old window does not keep what the new one needs")
	case lengths != "":
		c.orDrop(old, "~", all, "a reducing window's values can't be migrated")
	default:
		c.orDrop(old, "~", all, "no migration reads the old values", fmt.Sprintf("MigrateState(%d, ...): a function from the old values, %s", was.Version, was.Value))
	}
	return true
}

// valuesOf is what a schema says of values, without a version that says nothing.
func valuesOf(s, other state.Schema) string {
	if s.Version == 0 && other.Version == 0 {
		return "values " + s.Value
	}
	return fmt.Sprintf("values %s in version %d", s.Value, s.Version)
}

func with(totals bool) string {
	if totals {
		return "with"
	}
	return "without"
}

// windowOf takes apart the schema of a reducing window; lengths are empty if it
// is none.
func windowOf(s state.Schema) (values, lengths string, totals bool) {
	values, totals = strings.CutPrefix(s.Value, state.TotalsPrefix)
	i := strings.LastIndex(values, state.LengthsInfix)
	if i < 0 {
		return s.Value, "", false
	}
	return values[:i], values[i+len(state.LengthsInfix):], totals
}

// place compares where an operator stands in the graph.
func (c *classifier) place(old, now *Op, effect string) {
	if !slices.Equal(old.Parents, now.Parents) {
		c.allow(old.UID, "~", fmt.Sprintf("%s: reads %s, now %s", title(old), join(old.Parents), join(now.Parents)), effect)
	}
	told := old.Slide == c.old.Interval && now.Slide == c.new.Interval // of the interval
	if old.State != nil {
		if _, lengths, _ := windowOf(old.State.Schema); lengths != "" {
			told = true // of the window
		}
	}
	if old.Slide != now.Slide && !told {
		c.allow(old.UID, "~", fmt.Sprintf("%s: slide %v, now %v", title(old), old.Slide, now.Slide), effect)
	}
}

func (c *classifier) stateless(old, now *Op) {
	if old.Kind != now.Kind {
		c.allow(old.UID, "~", fmt.Sprintf("%s: now %s", title(old), now.Kind), "it keeps nothing")
	}
	if old.Window != now.Window {
		c.allow(old.UID, "~", fmt.Sprintf("%s: a window of %v, now of %v", title(old), old.Window, now.Window), "the first windows have what the checkpoint still holds")
	}
	c.place(old, now, "it keeps nothing")
}

func (c *classifier) outputs() {
	for _, old := range c.old.Outputs {
		now := c.new.output(old.UID)
		what := fmt.Sprintf("output %s %q", old.Kind, old.UID)
		switch {
		case now == nil:
			effect := "nothing is written to it any more"
			if n := len(c.o.Pending); n > 0 {
				effect += ", also not of " + batches(n)
			}
			c.allow(old.UID, "-", what, effect)
		case old.Kind != now.Kind:
			c.allow(old.UID, "~", fmt.Sprintf("output %q: %s, now %s", old.UID, old.Kind, now.Kind), "batches that are done are not written again")
		case old.Input != now.Input:
			c.allow(old.UID, "~", fmt.Sprintf("%s: of %s, now of %s", what, old.Input, now.Input), "batches that are done are not written again")
		}
	}
	for _, now := range c.new.Outputs {
		if c.old.output(now.UID) == nil {
			c.allow(now.UID, "+", fmt.Sprintf("output %s %q", now.Kind, now.UID), "it begins with the next batch that runs")
		}
	}
}

// dropped refuses to drop what is not known: it may be a slip of the pen.
func (c *classifier) dropped() {
	kept := c.old.kept()
	for _, uid := range c.o.Drop {
		if slices.Contains(kept, uid) {
			continue
		}
		effect := "the checkpoint keeps nothing of that name"
		if len(kept) > 0 {
			effect += ", but of " + join(kept)
		}
		c.refuse(uid, "~", "--drop-state="+string(uid), effect)
	}
}
