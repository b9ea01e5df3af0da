// Upgrade counts words in two versions of one program, and the second goes on
// with the counts of the first:
//
//	go run ./examples/upgrade -version 1 -dir counted    # stop it with Ctrl-C
//	go run ./examples/upgrade -version 2 -dir counted
//
// Version 1 keeps a number per word. Version 2 also keeps when the word was
// first and last there: another type, so it says by MigrateState how to read a
// number. A program that does not say it is told so, exits with 1 and leaves the
// counts as they were:
//
//	$ go run ./examples/upgrade -version 2 -migrate=false -dir counted
//	incompatible: this program can't go on from the checkpoint of job "upgrade", 1 of 2 changes are refused
//	~ arguments: ["-version" "1" "-dir" "counted"], now ["-version" "2" "-migrate=false" "-dir" "counted"]: the new ones are used
//	~ updateStateByKey "counts": values int64 in version 0, now values msgpack:main.seen in version 1: refused: no migration reads the old values
//	what helps:
//	  MigrateState(0, ...): a function from the old values, int64
//	  --drop-state=counts: its state is forgotten
//	  --fresh: a new start, which gives up all that the checkpoint keeps
//
//	upgrade: the job in counted can't go on with this program: see above
//
// With -drop-state counts it begins the counts anew, where the text was left off.
package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/examples/internal/feed"
)

func main() { tidemill.Main(app()) }

type word = tidemill.Pair[string, int64] // and a count

func app() tidemill.App {
	var (
		version, rate int
		migrate       bool
	)
	return tidemill.App{
		Name: "upgrade",
		Flags: func(fs *flag.FlagSet) {
			fs.IntVar(&version, "version", 1, "which version of the program to be: 1 or 2")
			fs.IntVar(&rate, "rate", 100, "words per second")
			fs.BoolVar(&migrate, "migrate", true, "whether version 2 can read the counts of version 1")
		},
		Build: func(ssc *tidemill.StreamingContext) error {
			words := tidemill.ReceiverStream(ssc, "words", func() tidemill.Receiver[string] { return reader{rate} })
			ones := tidemill.Map(words, func(w string) word { return tidemill.KV(w, int64(1)) })
			switch version {
			case 1:
				version1(ones)
			case 2:
				version2(ones, migrate)
			default:
				return fmt.Errorf("-version %d: must be 1 or 2", version)
			}
			return nil
		},
	}
}

// shown is how many words are printed: all of the text.
const shown = 40

// version1 counts.
func version1(ones tidemill.DStream[word]) {
	counts := tidemill.UpdateStateByKey(ones, "counts", func(more []int64, old tidemill.Opt[int64]) tidemill.Opt[int64] {
		return tidemill.Some(old.Value + int64(len(more)))
	})
	tidemill.Print(tidemill.TopN(counts, shown, func(a, b word) int {
		return cmp.Or(cmp.Compare(a.Value, b.Value), strings.Compare(b.Key, a.Key))
	}), "print", shown)
}

// seen is the state of version 2. First is zero for a word that version 1
// counted: it did not keep that.
type seen struct {
	Count       int64
	First, Last tidemill.BatchTime
}

func (s seen) String() string {
	first, last := "before version 2", "before version 2"
	if s.First > 0 {
		first = s.First.String()
	}
	if s.Last > 0 {
		last = s.Last.String()
	}
	return fmt.Sprintf("%d, first %s, last %s", s.Count, first, last)
}

// version2 counts, and keeps the times. The operator has its old name, since
// that is what its state is found by.
func version2(ones tidemill.DStream[word], migrate bool) {
	options := []tidemill.Option{tidemill.StateVersion(1)}
	if migrate {
		options = append(options, tidemill.MigrateState(0, func(count int64) (seen, error) { return seen{Count: count}, nil }))
	}
	counts := tidemill.UpdateStateByKeyWithTime(ones, "counts", func(t tidemill.BatchTime, _ string, more []int64, old tidemill.Opt[seen]) tidemill.Opt[seen] {
		s := old.Or(seen{First: t})
		if len(more) > 0 {
			s.Count += int64(len(more))
			s.Last = t
		}
		return tidemill.Some(s)
	}, options...)
	tidemill.Print(tidemill.TopN(counts, shown, func(a, b tidemill.Pair[string, seen]) int {
		return cmp.Or(cmp.Compare(a.Value.Count, b.Value.Count), strings.Compare(b.Key, a.Key))
	}), "print", shown)
}

// text is what is read, over and over.
func text() []string { return strings.Fields(strings.Join(feed.Verses(), " ")) }

// reader reads the text a word at a time. What it stores carries the number of
// words so far, so that the next start, of whichever version, goes on behind
// what was received for good.
type reader struct{ rate int }

func (r reader) Receive(ctx context.Context, s *tidemill.Sink[string]) error {
	words := text()
	n := uint64(0)
	if from := s.From(); from != nil {
		n = binary.BigEndian.Uint64(from)
	}
	s.Ready()
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for owed := 0.0; ; owed += float64(r.rate) * tick.Seconds() {
		for ; owed >= 1; owed-- {
			w := words[n%uint64(len(words))]
			n++
			if err := s.StoreAt(ctx, w, binary.BigEndian.AppendUint64(nil, n)); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
