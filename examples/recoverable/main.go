// Recoverable counts, and goes on counting after it was killed:
//
//	go run ./examples/recoverable -dir /tmp/recoverable
//
// Kill it in any way, as often as you like, and start it again. Its source
// numbers its records from 1 and can begin at any number, so the running count
// must always equal the newest number: none is lost, none counts twice.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"time"

	"github.com/tidemill/tidemill"
)

func main() { tidemill.Main(app()) }

func app() tidemill.App {
	var rate int
	return tidemill.App{
		Name: "recoverable",
		Flags: func(fs *flag.FlagSet) {
			fs.IntVar(&rate, "rate", 1000, "numbers per second")
		},
		Build: func(ssc *tidemill.StreamingContext) error {
			numbers := tidemill.ReceiverStream(ssc, "numbers", func() tidemill.Receiver[int64] { return counter{rate} })
			all := tidemill.Map(numbers, func(n int64) tidemill.Pair[string, seen] { return tidemill.KV("all", seen{Count: 1, Newest: n}) })
			totals := tidemill.UpdateStateByKey(all, "totals", func(more []seen, old tidemill.Opt[seen]) tidemill.Opt[seen] {
				s := old.Value
				for _, m := range more {
					s.Count += m.Count
					s.Newest = max(s.Newest, m.Newest)
				}
				return tidemill.Some(s)
			})
			tidemill.Print(totals, "print", 1)
			return nil
		},
	}
}

// seen is the state: how many numbers there were, and the newest.
type seen struct{ Count, Newest int64 }

// counter is a source that can begin at any number, as a queue or a log can.
// What it stores carries its position, the last number, so that the next start
// goes on behind exactly what was received for good.
type counter struct{ rate int }

func (c counter) Receive(ctx context.Context, s *tidemill.Sink[int64]) error {
	last := int64(0)
	if from := s.From(); from != nil {
		last = int64(binary.BigEndian.Uint64(from))
	}
	s.Ready()
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for owed := 0.0; ; owed += float64(c.rate) * tick.Seconds() {
		for ; owed >= 1; owed-- {
			last++
			if err := s.StoreAt(ctx, last, binary.BigEndian.AppendUint64(nil, uint64(last))); err != nil {
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
