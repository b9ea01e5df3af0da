package driver_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/script"
	"github.com/tidemill/tidemill/receiver"
)

// TestScripts plays the stories of testdata/KIND_*.txt. Times and durations are
// seconds; what follows a "#" is prose. One core serves a file. Commands of a
// generator:
//
//	start NOW [interval=D] [pending=N] [catchup=all] [rule=SLIDE/WINDOW ...]
//	next NOW      what Next says
//	go NOW        next and plan until there is nothing more to do
//	plan T        Planned
//	done
//	drain NOW     Drain, and plan what it says
//	behind NOW
//
// and of a tracker, whose blocks are STREAM/EPOCH/COUNTER:
//
//	streams NAME...
//	register STREAM EPOCH
//	begin BLOCK ; commit BLOCK [records=N] [bytes=N] [at=EXECUTOR] ; abort BLOCK
//	add BLOCK ...            begin and commit
//	peek STREAM [records=N] [bytes=N]
//	allocate STREAM BLOCK...
//	lost EXECUTOR ; drop BLOCK... ; waiting
//
// Those of the facts are in facts_test.go.
func TestScripts(t *testing.T) {
	script.Run(t, func(name string) script.Command {
		if strings.HasPrefix(name, "rate_") {
			return (&rateScript{}).do
		}
		play := (&trackerScript{}).do
		switch {
		case strings.HasPrefix(name, "generator_"):
			play = (&generatorScript{}).do
		case strings.HasPrefix(name, "facts_"):
			play = (&factsScript{f: &driver.Facts{}}).do
		}
		return func(words []string) ([]string, error) {
			if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "#") }); i >= 0 {
				words = words[:i]
			}
			out, err := play(words)
			return strings.Split(strings.TrimSuffix(out, "\n"), "\n"), err
		}
	})
}

// options splits key=value words from the others.
func options(words []string) (plain []string, opts map[string][]string) {
	opts = map[string][]string{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			opts[k] = append(opts[k], v)
		} else {
			plain = append(plain, w)
		}
	}
	return plain, opts
}

func number(opts map[string][]string, key string, def int64) int64 {
	if len(opts[key]) == 0 {
		return def
	}
	n, err := strconv.ParseInt(opts[key][0], 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func seconds(word string) time.Duration {
	f, err := strconv.ParseFloat(word, 64)
	if err != nil {
		panic(err)
	}
	return time.Duration(f * float64(time.Second))
}

func at(word string) base.BatchTime { return base.BatchTime(seconds(word).Milliseconds()) }

func show(t base.BatchTime) string {
	return strconv.FormatFloat(float64(t)/1000, 'f', -1, 64)
}

type generatorScript struct{ g *driver.Generator }

func (s *generatorScript) do(words []string) (string, error) {
	plain, opts := options(words[1:])
	switch words[0] {
	case "start":
		interval := time.Second
		if len(opts["interval"]) > 0 {
			interval = seconds(opts["interval"][0])
		}
		var rules []driver.SlideRule
		for _, r := range opts["rule"] {
			slide, window, _ := strings.Cut(r, "/")
			rules = append(rules, driver.SlideRule{Slide: seconds(slide), Window: seconds(window)})
		}
		catchUp := driver.CatchUpMerged
		if len(opts["catchup"]) > 0 {
			catchUp = driver.CatchUp(opts["catchup"][0])
		}
		s.g = driver.NewGenerator(interval, int(number(opts, "pending", 100)), catchUp, rules, at(plain[0]))
		return "-", nil
	case "next":
		return s.describe(s.g.Next(at(plain[0]))), nil
	case "go":
		var out []string
		for {
			step := s.g.Next(at(plain[0]))
			out = append(out, s.describe(step))
			if !step.Ready {
				return strings.Join(out, "\n"), nil
			}
			s.g.Planned(step.Plan)
		}
	case "plan":
		s.g.Planned(at(plain[0]))
	case "done":
		s.g.Done()
	case "drain":
		t, missed := s.g.Drain(at(plain[0]))
		s.g.Planned(t)
		if missed {
			return "plan " + show(t) + ", missed", nil
		}
		return "plan " + show(t), nil
	case "behind":
		return fmt.Sprint(s.g.Behind(at(plain[0]))), nil
	default:
		return "", errors.New("unknown command")
	}
	return fmt.Sprintf("last %s, %d pending, %d skipped", show(s.g.Last()), s.g.Pending(), s.g.SkippedTicks()), nil
}

func (s *generatorScript) describe(step driver.Step) string {
	switch {
	case step.Ready && step.Skipped > 0:
		return fmt.Sprintf("plan %s, skipping %d", show(step.Plan), step.Skipped)
	case step.Ready:
		return "plan " + show(step.Plan)
	case step.Full:
		return "full"
	}
	return "wait until " + show(step.Wait)
}

type trackerScript struct{ tr *driver.Tracker }

func (s *trackerScript) do(words []string) (string, error) {
	plain, opts := options(words[1:])
	switch words[0] {
	case "streams":
		var uids []base.UID
		for _, w := range plain {
			uids = append(uids, base.UID(w))
		}
		s.tr = driver.NewTracker(uids)
	case "register":
		s.tr.Register(base.UID(plain[0]), blockID("x/"+plain[1]+"/0").Epoch)
		return fmt.Sprintf("epoch %d, the next start gets %d", s.tr.Epoch(base.UID(plain[0])), s.tr.NextEpoch(base.UID(plain[0]))), nil
	case "begin", "add":
		b := trackedBlock(plain[0], opts)
		already, err := s.tr.Begin(b)
		switch {
		case errors.Is(err, receiver.ErrFenced):
			return "fenced: " + err.Error(), nil
		case err != nil:
			return "refused: " + err.Error(), nil
		case already:
			return "already", nil
		case words[0] == "begin":
			return "begun", nil
		}
		s.tr.Commit(b)
		return "added", nil
	case "commit":
		s.tr.Commit(trackedBlock(plain[0], opts))
	case "abort":
		s.tr.Abort(trackedBlock(plain[0], opts))
	case "peek":
		limit := graph.Limit{Records: number(opts, "records", 0), Bytes: number(opts, "bytes", 0)}
		return list(s.tr.Peek(base.UID(plain[0]), limit)), nil
	case "allocate":
		var blocks []plan.Block
		for _, w := range plain[1:] {
			blocks = append(blocks, plan.Block{ID: blockID(w)})
		}
		gone := s.tr.Allocate(base.UID(plain[0]), blocks)
		if len(gone) > 0 {
			return fmt.Sprint("gone since: ", gone), nil
		}
	case "lost":
		return list(s.tr.LostOf(base.ExecutorID(plain[0]))), nil
	case "drop":
		var ids []base.BlockID
		for _, w := range plain {
			ids = append(ids, blockID(w))
		}
		s.tr.Drop(ids)
	case "waiting":
		blocks, records := s.tr.Waiting()
		return fmt.Sprintf("%d blocks, %d records", blocks, records), nil
	default:
		return "", errors.New("unknown command")
	}
	return "-", nil
}

func blockID(word string) base.BlockID {
	var id base.BlockID
	parts := strings.Split(word, "/")
	id.Stream = base.UID(parts[0])
	epoch, err1 := strconv.ParseUint(parts[1], 10, 64)
	counter, err2 := strconv.ParseUint(parts[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		panic(err)
	}
	id.Epoch, id.Counter = base.Epoch(epoch), counter
	return id
}

func trackedBlock(word string, opts map[string][]string) plan.Block {
	b := plan.Block{ID: blockID(word), Records: int(number(opts, "records", 1)), Bytes: number(opts, "bytes", 10)}
	if len(opts["at"]) > 0 {
		b.Executor = base.ExecutorID(opts["at"][0])
	}
	return b
}

func list(blocks []plan.Block) string {
	if len(blocks) == 0 {
		return "none"
	}
	var s []string
	for _, b := range blocks {
		s = append(s, b.ID.String())
	}
	return strings.Join(s, " ")
}
