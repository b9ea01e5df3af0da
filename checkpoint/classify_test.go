package checkpoint_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/script"
	"github.com/tidemill/tidemill/internal/state"
)

// TestScripts plays the stories of testdata. A job is declared, then another is
// made of it, and the two are compared. An underscore in a codec id stands for a space.
// Commands:
//
//	job NAME [interval=D] [remember=D] [binary=DIGEST] [args=WORD,...]
//	source UID KIND ; receiver UID KIND
//	op UID KIND from=UID,... [slide=D] [window=D] [named]
//	state UID KIND from=UID,... key=ID value=ID [version=N] [parts=N] [slide=D] [reads=ID@VERSION,...]
//	output UID KIND from=UID
//	new [name=NAME] [interval=D] ...    what follows is said of the new program
//	remove UID... ; a second declaration of a UID takes the place of the first
//	classify [drop=UID,...] [fresh] [rerun] [pending=SECONDS,...]
func TestScripts(t *testing.T) {
	script.Run(t, func(string) script.Command { return (&programs{}).do })
}

type programs struct {
	old, now checkpoint.Job
	renewed  bool
}

func (p *programs) job() *checkpoint.Job {
	if p.renewed {
		return &p.now
	}
	return &p.old
}

func (p *programs) do(words []string) ([]string, error) {
	a, j := argumentsOf(words[1:]), p.job()
	var err error
	switch words[0] {
	case "job":
		*j = checkpoint.Job{Name: a.plain[0], Interval: time.Second}
		return nil, a.setJob(j)
	case "new":
		p.renewed, p.now = true, p.old
		p.now.Ops, p.now.Outputs = slices.Clone(p.old.Ops), slices.Clone(p.old.Outputs)
		return nil, a.setJob(&p.now)
	case "source", "receiver":
		put(&j.Ops, checkpoint.Op{
			UID: a.uid(0), Kind: a.plain[1], Source: true, Receiver: words[0] == "receiver", Slide: j.Interval, Named: true,
		}, opUID)
	case "op", "state":
		op := checkpoint.Op{UID: a.uid(0), Kind: a.plain[1], Parents: a.uids("from"), Named: words[0] == "state" || slices.Contains(a.plain, "named")}
		if op.Slide, err = a.duration("slide", j.Interval); err != nil {
			return nil, err
		}
		if op.Window, err = a.duration("window", 0); err != nil {
			return nil, err
		}
		if words[0] == "state" {
			if op.State, err = a.state(); err != nil {
				return nil, err
			}
		}
		put(&j.Ops, op, opUID)
	case "output":
		put(&j.Outputs, checkpoint.Output{UID: a.uid(0), Kind: a.plain[1], Input: a.uids("from")[0]}, outputUID)
	case "remove":
		for i := range a.plain {
			j.Ops = slices.DeleteFunc(j.Ops, func(o checkpoint.Op) bool { return o.UID == a.uid(i) })
			j.Outputs = slices.DeleteFunc(j.Outputs, func(o checkpoint.Output) bool { return o.UID == a.uid(i) })
		}
	case "classify":
		o := checkpoint.Options{Drop: a.uids("drop"), Fresh: slices.Contains(a.plain, "fresh"), RerunPending: slices.Contains(a.plain, "rerun")}
		for _, s := range a.list("pending") {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return nil, err
			}
			o.Pending = append(o.Pending, base.BatchTime(n*1000))
		}
		v := checkpoint.Classify(p.old, p.now, o)
		out := strings.Split(strings.TrimSuffix(v.String(), "\n"), "\n")
		if len(v.Drop) > 0 {
			out = append(out, fmt.Sprint("drop: ", v.Drop))
		}
		return out, nil
	default:
		return nil, fmt.Errorf("no command %q", words[0])
	}
	return nil, nil
}

func opUID(o checkpoint.Op) base.UID         { return o.UID }
func outputUID(o checkpoint.Output) base.UID { return o.UID }

// put adds v, or puts it in the place of what has its UID.
func put[T any](to *[]T, v T, uid func(T) base.UID) {
	if i := slices.IndexFunc(*to, func(x T) bool { return uid(x) == uid(v) }); i >= 0 {
		(*to)[i] = v
		return
	}
	*to = append(*to, v)
}

// arguments are the words of a command.
type arguments struct {
	plain []string
	named map[string]string
}

func argumentsOf(words []string) arguments {
	a := arguments{named: map[string]string{}}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			a.named[k] = strings.ReplaceAll(v, "_", " ")
		} else {
			a.plain = append(a.plain, w)
		}
	}
	return a
}

func (a arguments) uid(i int) base.UID { return base.UID(a.plain[i]) }

func (a arguments) list(name string) []string {
	if a.named[name] == "" {
		return nil
	}
	return strings.Split(a.named[name], ",")
}

func (a arguments) uids(name string) (out []base.UID) {
	for _, s := range a.list(name) {
		out = append(out, base.UID(s))
	}
	return out
}

func (a arguments) duration(name string, or time.Duration) (time.Duration, error) {
	if a.named[name] == "" {
		return or, nil
	}
	return time.ParseDuration(a.named[name])
}

func (a arguments) number(name string, or int) (int, error) {
	if a.named[name] == "" {
		return or, nil
	}
	return strconv.Atoi(a.named[name])
}

func (a arguments) setJob(j *checkpoint.Job) (err error) {
	if name, ok := a.named["name"]; ok {
		j.Name = name
	}
	if b, ok := a.named["binary"]; ok {
		j.Binary = b
	}
	if _, ok := a.named["args"]; ok {
		j.Args = a.list("args")
	}
	if j.Interval, err = a.duration("interval", j.Interval); err != nil {
		return err
	}
	j.Remember, err = a.duration("remember", j.Remember)
	return err
}

func (a arguments) state() (*checkpoint.OpState, error) {
	s := &checkpoint.OpState{Schema: state.Schema{Key: a.named["key"], Value: a.named["value"]}}
	var err error
	if s.Schema.Version, err = a.number("version", 0); err != nil {
		return nil, err
	}
	if s.Parts, err = a.number("parts", 4); err != nil {
		return nil, err
	}
	for _, r := range a.list("reads") {
		id, version, _ := strings.Cut(r, "@")
		n, err := strconv.Atoi(version)
		if err != nil {
			return nil, err
		}
		s.From = append(s.From, state.Schema{Key: s.Schema.Key, Value: id, Version: n})
	}
	return s, nil
}

// TestB21ChangesAreToldOneByOne: the verdict's parts are data too.
func TestB21ChangesAreToldOneByOne(t *testing.T) {
	_, old := described()
	now := old
	now.Interval, now.Binary = 5*time.Second, "bbbb"
	now.Ops = slices.Clone(old.Ops)
	now.Ops[0].UID = "more"
	o := checkpoint.Options{Pending: []base.BatchTime{5000}, Drop: []base.UID{"counts"}}
	v := checkpoint.Classify(old, now, o)
	type change struct {
		UID  base.UID
		Mark string
		OK   bool
		Help int
	}
	var got []change
	for _, c := range v.Changes {
		got = append(got, change{c.UID, c.Mark, c.OK, len(c.Help)})
	}
	want := []change{{"", "~", false, 1}, {"", "~", false, 2}, {"lines", "-", false, 1}, {"counts", "~", true, 0}, {"more", "+", true, 0}}
	if !slices.Equal(got, want) || v.Kind != checkpoint.Incompatible || v.Job != "wc" || !slices.Equal(v.Drop, o.Drop) {
		t.Errorf("%s, job %q, drop %v, changes\n%+v, want\n%+v", v.Kind, v.Job, v.Drop, got, want)
	}
	if c := v.Changes[0]; !strings.Contains(c.What, "1s") || !strings.Contains(c.What, "5s") { // (a)
		t.Errorf("the interval's change is %q", c.What)
	}
	o.Fresh = true
	if v := checkpoint.Classify(old, now, o); v.Kind != checkpoint.Compatible || !slices.Equal(v.Drop, []base.UID{"lines", "files", "counts"}) {
		t.Errorf("fresh: %s, drop %v", v.Kind, v.Drop)
	}
}
