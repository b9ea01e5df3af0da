// Wordcount counts the words of every batch of text lines from a TCP server.
// Without -addr it brings its own server, which speaks a few lines a second.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tidemill/tidemill"
)

type count = tidemill.Pair[string, int]

func main() {
	feed, err := newFeed()
	if err != nil {
		fmt.Fprintln(os.Stderr, "wordcount: embedded feed:", err)
		os.Exit(1)
	}
	tidemill.Main(app(feed.Addr().String()))
}

// app is the job; addr is where it reads unless -addr says otherwise.
func app(addr string) tidemill.App {
	var (
		batch time.Duration
		out   string
	)
	return tidemill.App{
		Name: "wordcount",
		Flags: func(fs *flag.FlagSet) {
			fs.StringVar(&addr, "addr", addr, "`host:port` of a TCP server that sends text lines (default: an embedded one)")
			fs.DurationVar(&batch, "batch", time.Second, "time between batches")
			fs.StringVar(&out, "out", "", "directory for the counts, as lines \"word count\" (default: print the most frequent)")
		},
		Configure: func(c *tidemill.Config) { c.BatchInterval = batch },
		Build: func(ssc *tidemill.StreamingContext) error {
			lines := tidemill.SocketText(ssc, "lines", addr)
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

// newFeed starts a server on a free port of this machine that sends text to
// whoever connects.
func newFeed() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			go speak(c)
		}
	}()
	return l, nil
}

var verses = []string{
	"the tide comes in the mill wheel stands",
	"the gate falls shut behind the tide",
	"the tide goes out the water waits",
	"the gate lifts and the wheel goes round",
	"the mill grinds what the tide brought in",
}

func speak(c net.Conn) {
	defer c.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		<-tick.C
		if _, err := fmt.Fprintln(c, verses[i%len(verses)]); err != nil {
			return
		}
	}
}
