// Httpingest counts the words of lines that are sent to it by HTTP, batch by
// batch. It prints how to send some.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tidemill/tidemill"
)

func main() { tidemill.Main(app()) }

type count = tidemill.Pair[string, int]

func app() tidemill.App {
	var (
		addr  string
		batch time.Duration
		out   string
	)
	return tidemill.App{
		Name: "httpingest",
		Flags: func(fs *flag.FlagSet) {
			fs.StringVar(&addr, "addr", "127.0.0.1:8097", "`host:port` to listen on; with port 0 the log says which port it is")
			fs.DurationVar(&batch, "batch", time.Second, "time between batches")
			fs.StringVar(&out, "out", "", "`directory` for the counts, as lines \"word count\" (default: print the most frequent)")
		},
		// Configure runs once, after the flags are known, while Build runs more
		// often and must not say or change anything outside.
		Configure: func(c *tidemill.Config) {
			c.BatchInterval = batch
			usage(addr)
		},
		Build: func(ssc *tidemill.StreamingContext) error {
			lines := tidemill.HTTPIngest(ssc, "lines", addr)
			words := tidemill.FlatMap(lines, strings.FieldsSeq)
			ones := tidemill.Map(words, func(w string) count { return tidemill.KV(w, 1) })
			counts := tidemill.ReduceByKey(ones, func(a, b int) int { return a + b })
			if out != "" {
				tidemill.SaveAsTextFiles(counts, "counts", out, func(c count) string { return c.Key + " " + strconv.Itoa(c.Value) })
				return nil
			}
			tidemill.Print(tidemill.TopN(counts, 10, byCount), "print", 10)
			return nil
		},
	}
}

// usage says how to send lines. An answer with status 200 means that they are
// safe; see tidemill.HTTPIngest for the others.
func usage(addr string) {
	if strings.HasSuffix(addr, ":0") {
		addr = "HOST:PORT"
	}
	fmt.Fprintf(os.Stdout, `Send lines, and see their words counted:

  curl --data-binary 'the tide comes in' http://%[1]s/
  curl --data-binary @README.md http://%[1]s/

`, addr)
}

// byCount puts the most frequent word first, and among equals the first in the alphabet.
func byCount(a, b count) int {
	return cmp.Or(cmp.Compare(a.Value, b.Value), strings.Compare(b.Key, a.Key))
}
