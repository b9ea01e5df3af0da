// Sessions follows visitors of a shop: it keeps, per visitor, what happened
// since they came, and tells the length of a visit once nothing was heard of
// them for a while.
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/tidemill/tidemill"
)

func main() {
	tidemill.Main(app(evening()))
}

type (
	event = tidemill.Pair[string, string] // visitor, page
	// visit is the state of a visitor. State must be encodable, so its fields
	// are exported.
	visit struct {
		Pages int
		First tidemill.BatchTime
		Last  tidemill.BatchTime
	}
)

// app is the job. Each entry of the queue is the input of one batch.
func app(events *tidemill.Queue[event]) tidemill.App {
	var idle time.Duration
	return tidemill.App{
		Name: "sessions",
		Flags: func(fs *flag.FlagSet) {
			fs.DurationVar(&idle, "idle", 3*time.Second, "a visit ends after this time without a page")
		},
		Build: func(ssc *tidemill.StreamingContext) error {
			pages := tidemill.QueueStream(ssc, "pages", events)
			// The function runs once per page, with the visitor's state at hand;
			// visitors without a page cost nothing.
			visits := tidemill.MapWithState(pages, "visits", tidemill.StateSpec[string, visit]{Timeout: tidemill.Some(idle)}, follow)
			tidemill.Print(visits.DStream, "ended", 20)
			// All visits that go on, after each batch.
			tidemill.Print(tidemill.Count(tidemill.StateSnapshots(visits, "going-on")), "visitors", 1)
			return nil
		},
	}
}

// follow takes one page into a visit. It returns true when there is something
// to tell: here, that the visit has ended.
func follow(t tidemill.BatchTime, visitor string, page tidemill.Opt[string], s *tidemill.State[visit]) (string, bool) {
	if s.IsTimingOut() { // the last call for this visitor: there is no page, and the state goes away
		v := s.Get()
		return fmt.Sprintf("%s saw %d pages in %v", visitor, v.Pages, v.Last.Sub(v.First)), true
	}
	v := s.GetOption().Or(visit{First: t})
	v.Pages++
	v.Last = t
	s.Update(v)
	return "", false
}

// evening fills the queue with a batch a second: two visitors who stay a
// while, and one who comes back later.
func evening() *tidemill.Queue[event] {
	var q tidemill.Queue[event]
	for i := range 600 {
		var batch []event
		if i%12 < 5 {
			batch = append(batch, tidemill.KV("ada", "/bread"), tidemill.KV("ada", "/rolls"))
		}
		if i%12 < 2 {
			batch = append(batch, tidemill.KV("ben", "/cake"))
		}
		q.Push(batch...)
	}
	return &q
}
