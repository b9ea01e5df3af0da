// Filestream counts the words of every new file in a directory. Without -in it
// makes a directory of its own and moves a small file in every second.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tidemill/tidemill"
)

func main() { tidemill.Main(app()) }

type count = tidemill.Pair[string, int]

func app() tidemill.App {
	var in, out string
	return tidemill.App{
		Name: "filestream",
		Flags: func(fs *flag.FlagSet) {
			fs.StringVar(&in, "in", "", "`directory` whose new files are read; write files elsewhere and move them in (default: an own one)")
			fs.StringVar(&out, "out", "", "`directory` for the counts, as lines \"word count\" (default: print the most frequent)")
		},
		// Configure runs once, after the flags are known, while Build runs more
		// often and must not change anything outside.
		Configure: func(*tidemill.Config) {
			if in == "" {
				in = demo()
			}
		},
		Build: func(ssc *tidemill.StreamingContext) error {
			lines := tidemill.TextFileStream(ssc, "files", in)
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

// demo makes a directory and fills it in the background.
func demo() string {
	dir, err := os.MkdirTemp("", "filestream-")
	if err != nil {
		fail(err)
	}
	fmt.Fprintf(os.Stderr, "filestream: a file every second appears in %s\n", dir)
	go func() {
		for i := 1; ; i++ {
			time.Sleep(time.Second)
			if err := moveIn(dir, fmt.Sprintf("note-%d.txt", i), fmt.Sprintf("this is note %d\nand these are its words\n", i)); err != nil {
				fail(err)
			}
		}
	}()
	return dir
}

// moveIn makes a file appear whole. Its name while it is written is one that
// file streams pass over; one outside of the directory would do too, on the
// same disk.
func moveIn(dir, name, text string) error {
	unfinished := filepath.Join(dir, "."+name)
	if err := os.WriteFile(unfinished, []byte(text), 0o666); err != nil {
		return err
	}
	return os.Rename(unfinished, filepath.Join(dir, name))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "filestream:", err)
	os.Exit(1)
}
