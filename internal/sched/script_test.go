package sched_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/sched"
	"github.com/tidemill/tidemill/internal/script"
)

// TestScripts plays the stories of testdata. An event without effects gives "-".
// One State serves a file. Commands:
//
//	config [failures=N] [rounds=N]                      a new State
//	exec ID SLOTS [HOST]
//	lose ID [REASON]
//	submit JOB STAGE...     a stage is ID[n] or ID[p,p,...], then >SHUFFLE if
//	                        it writes one, <SHUFFLE for each it reads, and
//	                        @PART=PLACE,PLACE... for what one of its tasks prefers
//	done REF EXECUTOR       a ref is JOB/STAGE/PART#ATTEMPT
//	fail REF EXECUTOR KIND [MESSAGE]
//	fetch REF EXECUTOR SHUFFLE MAPPART FROM [MESSAGE]   FROM "-" is unset
//	cancel JOB [REASON]
//	forget SHUFFLE
//	locations SHUFFLE
//	size
func TestScripts(t *testing.T) {
	script.Run(t, func(string) script.Command {
		s := sched.New(sched.Config{})
		return func(f []string) ([]string, error) { return command(&s, f) }
	})
}

func command(s **sched.State, f []string) ([]string, error) {
	a := args{words: f[1:]}
	var effects []sched.Effect
	switch f[0] {
	case "config":
		var c sched.Config
		for _, w := range a.words {
			name, value, _ := strings.Cut(w, "=")
			n, err := strconv.Atoi(value)
			switch {
			case err != nil:
				return nil, err
			case name == "failures":
				c.MaxTaskFailures = n
			case name == "rounds":
				c.MaxStageAttempts = n
			default:
				return nil, fmt.Errorf("unknown setting %q", name)
			}
		}
		*s = sched.New(c)
		return nil, nil
	case "exec":
		id, slots := base.ExecutorID(a.word()), a.num()
		effects = (*s).AddExecutor(id, a.rest(), slots)
	case "lose":
		id := base.ExecutorID(a.word())
		effects = (*s).LoseExecutor(id, a.rest())
	case "submit":
		job := sched.Job{ID: base.JobID(a.num())}
		spread := strings.NewReplacer(">", " >", "<", " <", "@", " @").Replace(a.rest())
		for a.words = strings.Fields(spread); len(a.words) > 0; {
			a.stageWord(&job)
		}
		effects = (*s).Submit(job)
	case "done":
		ref, from := a.ref(), base.ExecutorID(a.word())
		effects = (*s).TaskDone(ref, from)
	case "fail":
		ref, from := a.ref(), base.ExecutorID(a.word())
		fail := sched.Failure{Kind: a.kind()}
		fail.Message = a.rest()
		effects = (*s).TaskFailed(ref, from, fail)
	case "fetch":
		ref, from := a.ref(), base.ExecutorID(a.word())
		fail := sched.Failure{Kind: sched.FetchFailed, Shuffle: a.word(), MapPart: a.num()}
		if w := a.word(); w != "-" {
			fail.From = base.ExecutorID(w)
		}
		fail.Message = a.rest()
		effects = (*s).TaskFailed(ref, from, fail)
	case "cancel":
		job := base.JobID(a.num())
		effects = (*s).Cancel(job, a.rest())
	case "forget":
		effects = (*s).Forget(a.word())
	case "locations":
		return []string{fmt.Sprintf("%q", (*s).Locations(a.word()))}, a.err
	case "size":
		return []string{strconv.Itoa((*s).Size())}, nil
	default:
		return nil, errors.New("unknown command")
	}
	if a.err == nil && len(a.words) > 0 {
		a.err = fmt.Errorf("left over: %q", a.words)
	}
	var out []string
	for _, e := range effects {
		out = append(out, e.String())
	}
	if len(out) == 0 {
		out = []string{"-"}
	}
	return out, a.err
}

// args takes the words of a command one by one and keeps the first error.
type args struct {
	words []string
	err   error
}

func (a *args) word() string {
	if len(a.words) == 0 {
		a.err = errors.Join(a.err, errors.New("a word is missing"))
		return ""
	}
	w := a.words[0]
	a.words = a.words[1:]
	return w
}

func (a *args) rest() string {
	w := strings.Join(a.words, " ")
	a.words = nil
	return w
}

func (a *args) atoi(w string) int {
	n, err := strconv.Atoi(w)
	a.err = errors.Join(a.err, err)
	return n
}

func (a *args) num() int { return a.atoi(a.word()) }

func (a *args) ref() sched.TaskRef {
	var r sched.TaskRef
	_, err := fmt.Sscanf(a.word(), "%d/%d/%d#%d", &r.Job, &r.Stage, &r.Part, &r.Attempt)
	a.err = errors.Join(a.err, err)
	return r
}

func (a *args) kind() sched.FailKind {
	w := a.word()
	for k := sched.UserError; k <= sched.ExecutorLost; k++ {
		if k.String() == w {
			return k
		}
	}
	a.err = errors.Join(a.err, fmt.Errorf("unknown kind %q", w))
	return 0
}

func (a *args) stageWord(job *sched.Job) {
	w := a.word()
	if strings.ContainsAny(w[:min(1, len(w))], "<>@") {
		if len(job.Stages) == 0 {
			a.err = errors.Join(a.err, fmt.Errorf("%q before a stage", w))
			return
		}
		st := &job.Stages[len(job.Stages)-1]
		switch w[0] {
		case '>':
			st.Shuffle = w[1:]
		case '<':
			st.Reads = append(st.Reads, w[1:])
		case '@':
			a.prefer(st, w[1:])
		}
		return
	}
	id, parts, ok := strings.Cut(strings.TrimSuffix(w, "]"), "[")
	if !ok {
		a.err = errors.Join(a.err, fmt.Errorf("%q is no stage", w))
		return
	}
	st := sched.Stage{ID: base.StageID(a.atoi(id))}
	if list := strings.Split(parts, ","); len(list) > 1 {
		for _, p := range list {
			if p != "" { // "3," is the list of 3 alone
				st.Parts = append(st.Parts, a.atoi(p))
			}
		}
	} else {
		for p := range a.atoi(parts) {
			st.Parts = append(st.Parts, p)
		}
	}
	job.Stages = append(job.Stages, st)
}

// prefer sets what one task of a stage prefers.
func (a *args) prefer(st *sched.Stage, w string) {
	part, places, ok := strings.Cut(w, "=")
	i := slices.Index(st.Parts, a.atoi(part))
	if !ok || i < 0 {
		a.err = errors.Join(a.err, fmt.Errorf("%q is no PART=PLACE,PLACE of the stage", w))
		return
	}
	if st.Prefers == nil {
		st.Prefers = make([][]string, len(st.Parts))
	}
	st.Prefers[i] = strings.Split(places, ",")
}
