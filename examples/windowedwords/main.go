// Windowedwords prints, every second, the most frequent words of the last
// minute of text lines from a TCP server, at a cost that does not depend on
// the length of the window. Without -addr it brings its own server.
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
		fmt.Fprintln(os.Stderr, "windowedwords:", err)
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
		Name: "windowedwords",
		Flags: func(fs *flag.FlagSet) {
			fs.StringVar(&addr, "addr", "", "`host:port` of a TCP server that sends text lines (default: an embedded one)")
			fs.DurationVar(&window, "window", time.Minute, "how far back words count; a multiple of the batch interval")
			fs.DurationVar(&slide, "slide", time.Second, "time between results; a multiple of the batch interval")
		},
		Build: func(ssc *tidemill.StreamingContext) error {
			lines := tidemill.SocketText(ssc, "lines", cmp.Or(addr, embedded))
			words := tidemill.FlatMap(lines, strings.FieldsSeq)
			ones := tidemill.Map(words, func(w string) count { return tidemill.KV(w, 1) })
			// With an inverse function a window is made of the one before: what
			// came is added, what left is taken out. The filter drops words that
			// are no longer in the window; without it they would stay, with 0.
			counts := tidemill.ReduceByKeyAndWindow(ones, "counts", add, subtract, window, slide,
				tidemill.WithFilter(func(_ string, n int) bool { return n > 0 }))
			tidemill.Print(tidemill.TopN(counts, 10, byCount), "top", 10)
			return nil
		},
	}
}

func add(a, b int) int { return a + b }

func subtract(a, b int) int { return a - b }

// byCount puts the most frequent word first, and among equals the first in the alphabet.
func byCount(a, b count) int {
	return cmp.Or(cmp.Compare(a.Value, b.Value), strings.Compare(b.Key, a.Key))
}
