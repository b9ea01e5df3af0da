package tidemill_test

import (
	"fmt"

	"github.com/tidemill/tidemill"
)

// Sessions were counted; now their last page is kept too. The state that the program
// before has written, an int per user, is read as a session of that count.
func ExampleMigrateState() {
	type session struct {
		Views int
		Last  string
	}
	app := tidemill.App{Name: "sessions", Build: func(ssc *tidemill.StreamingContext) error {
		views := tidemill.ConstantStream(ssc, "views", []tidemill.Pair[string, string]{tidemill.KV("ada", "/home")})
		sessions := tidemill.UpdateStateByKey(views, "sessions", func(pages []string, old tidemill.Opt[session]) tidemill.Opt[session] {
			s := old.Value
			for _, p := range pages {
				s.Views, s.Last = s.Views+1, p
			}
			return tidemill.Some(s)
		}, tidemill.StateVersion(1), tidemill.MigrateState(0, func(views int) (session, error) {
			return session{Views: views}, nil
		}))
		tidemill.Print(sessions, "print", 10)
		return nil
	}}
	ssc, err := tidemill.New(app, tidemill.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(ssc.Describe())
	// Output:
	// interval 1s remember 0s
	// source views kind=constant slide=1s
	// op sessions kind=updateStateByKey slide=1s stateful="keys string, values msgpack:tidemill_test.session, version 1" from=views
	// output print kind=print from=sessions
}
