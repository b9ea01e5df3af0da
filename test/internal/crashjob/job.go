package crashjob

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/tidemill/tidemill"
)

// The job's times, in batches.
const (
	window = 10
	slide  = 2
	recent = 3
)

// App is the job.
func App() tidemill.App {
	var addr, out string
	var interval time.Duration
	return tidemill.App{
		Name: "crash",
		Flags: func(fs *flag.FlagSet) {
			fs.StringVar(&addr, "addr", "127.0.0.1:0", "where lines are posted")
			fs.StringVar(&out, "out", "", "directory of the outputs")
			fs.DurationVar(&interval, "interval", 100*time.Millisecond, "time between batches")
		},
		Configure: func(c *tidemill.Config) {
			c.BatchInterval = interval
			c.BlockInterval = 20 * time.Millisecond
			c.Executors = 2
			c.TaskSlots = 1
			c.Parallelism = 2
			c.SnapshotBytes = 16 << 10 // many snapshots, so that kills meet them
		},
		Build: func(ssc *tidemill.StreamingContext) error {
			lines := tidemill.HTTPIngest(ssc, "in", addr)
			tidemill.SaveAsTextFiles(lines, "lines", out, nil, tidemill.KeepEmpty())
			tidemill.SaveAsTextFiles(tidemill.Window(lines, recent*interval, interval), "recent", out, nil, tidemill.KeepEmpty())
			words := tidemill.Map(lines, func(l string) tidemill.Pair[string, int64] { return tidemill.KV(word(l), int64(1)) })
			tidemill.SaveAsTextFiles(tidemill.ReduceByKeyAndWindow(words, "windowed", add, sub, window*interval, slide*interval), "window", out, format, tidemill.KeepEmpty())
			counts := tidemill.UpdateStateByKey(words, "counted", func(n []int64, s tidemill.Opt[int64]) tidemill.Opt[int64] {
				total := s.Or(0)
				for _, v := range n {
					total += v
				}
				return tidemill.Some(total)
			})
			tidemill.SaveAsTextFiles(counts, "counts", out, format, tidemill.KeepEmpty())
			return nil
		},
	}
}

func add(a, b int64) int64 { return a + b }
func sub(a, b int64) int64 { return a - b }

func format(p tidemill.Pair[string, int64]) string { return fmt.Sprintf("%s %d", p.Key, p.Value) }

// word is what is counted of a line, which is an id and a word.
func word(line string) string {
	_, w, _ := strings.Cut(line, " ")
	return w
}
