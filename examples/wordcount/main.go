// Wordcount counts the words of every batch of text lines from a TCP server.
// Without -addr it brings its own server, which speaks a few lines a second.
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
	"github.com/tidemill/tidemill/examples/internal/feed"
)

func main() {
	embedded, err := feed.Serve(20*time.Millisecond, feed.Verses())
	if err != nil {
		fmt.Fprintln(os.Stderr, "wordcount:", err)
		os.Exit(1)
	}
	tidemill.Main(app(embedded))
}

type count = tidemill.Pair[string, int]

// app is the job. It reads from the embedded server unless -addr is given.
func app(embedded string) tidemill.App {
	var (
		addr  string
		batch time.Duration
		out   string
	)
	return tidemill.App{
		Name: "wordcount",
		Flags: func(fs *flag.FlagSet) {
			fs.StringVar(&addr, "addr", "", "`host:port` of a TCP server that sends text lines (default: an embedded one)")
			fs.DurationVar(&batch, "batch", time.Second, "time between batches")
			fs.StringVar(&out, "out", "", "`directory` for the counts, as lines \"word count\" (default: print the most frequent)")
		},
		Configure: func(c *tidemill.Config) { c.BatchInterval = batch },
		Build: func(ssc *tidemill.StreamingContext) error {
			lines := tidemill.SocketText(ssc, "lines", cmp.Or(addr, embedded))
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

// byCount puts the most frequent word first, and among equals the first in the alphabet.
func byCount(a, b count) int {
	return cmp.Or(cmp.Compare(a.Value, b.Value), strings.Compare(b.Key, a.Key))
}
