// Topwords prints, every few seconds, the most frequent words of the last half
// minute of text lines from a TCP server. Without -addr it brings its own.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/examples/internal/feed"
)

func main() {
	embedded, err := feed.Serve(20*time.Millisecond, feed.Verses())
	if err != nil {
		fmt.Fprintln(os.Stderr, "topwords:", err)
		os.Exit(1)
	}
	tidemill.Main(app(embedded))
}

type count = tidemill.Pair[string, int]

// app is the job. It reads from the embedded server unless -addr is given.
func app(embedded string) tidemill.App {
	var (
		addr          string
		window, slide time.Duration
	)
	return tidemill.App{
		Name: "topwords",
		Flags: func(fs *flag.FlagSet) {
			fs.StringVar(&addr, "addr", "", "`host:port` of a TCP server that sends text lines (default: an embedded one)")
			fs.DurationVar(&window, "window", 30*time.Second, "how far back words count; a multiple of the batch interval")
			fs.DurationVar(&slide, "slide", 2*time.Second, "time between results; a multiple of the batch interval")
		},
		Build: func(ssc *tidemill.StreamingContext) error {
			lines := tidemill.SocketText(ssc, "lines", cmp.Or(addr, embedded))
			words := tidemill.FlatMap(lines, strings.FieldsSeq)
			ones := tidemill.Map(words, func(w string) count { return tidemill.KV(w, 1) })
			// Each batch is counted once and its counts are kept; a window adds up
			// counts and never looks at lines again. No inverse function is
			// given, so every window is added up anew.
			counts := tidemill.ReduceByKeyAndWindow(ones, "counts", func(a, b int) int { return a + b }, nil, window, slide)
			tidemill.Print(tidemill.TopN(counts, 10, byCount), "top", 10)
			return nil
		},
	}
}

// byCount puts the most frequent word first, and among equals the first in the alphabet.
func byCount(a, b count) int {
	return cmp.Or(cmp.Compare(a.Value, b.Value), strings.Compare(b.Key, a.Key))
}
