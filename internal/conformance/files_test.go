package conformance

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

// watchedDir is the directory of the script's "in/".
const watchedDir = "/in"

// filesTaken is what a source took in a batch, by names below the directory.
type filesTaken struct {
	TimeMS int64    `json:"time_ms"`
	Files  []string `json:"files"`
}

func (o outcome) files(taken []filesTaken) {
	for _, f := range taken {
		o.add("selected", "%d %s", f.TimeMS, text(f.Files))
	}
}

func (c *golden) script() (steps [][]string) {
	c.get("script", &steps)
	return steps
}

func sparkFiles(c *golden) outcome {
	o := outcome{}
	o.outputs("output", c, c.Output)
	var taken []filesTaken
	c.get("selected", &taken)
	o.files(taken)
	if f := c.failed(); f != nil {
		o.add("error", "%d", f.TimeMS)
	}
	var remember int64
	c.get("remember_ms", &remember)
	o.add("remember", "%d", remember)
	return o
}

func runFiles(t *testing.T, c *golden) outcome {
	o := outcome{}
	interval, created := millis(c.BatchMS), c.num("clock_at_creation_ms", 0)
	atLeast := time.Duration(c.num("min_remember_s", 0)) * time.Second
	tidetest.Run(t, func(t *testing.T) {
		fs := fsys.NewMem()
		for _, dir := range []string{"/staging", watchedDir} {
			if err := fs.MkdirAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(millis(created))
		script := c.script()
		play(t, fs, script[0])
		out, log, l := tidetest.NewCapture[string](), &driver.MemLog{}, &listener{}
		var opts []tidemill.Option
		if c.Params["new_files_only"] == false {
			opts = append(opts, tidemill.ExistingFiles())
		}
		run := tidetest.Start(t, tidetest.Job{
			FS:     fs,
			Config: tidemill.Config{BatchInterval: interval, MaxTaskFailures: 1, FileRemember: atLeast},
			Build: func(ssc *tidemill.StreamingContext) error {
				out.Of(tidemill.TextFileStream(ssc, "files", watchedDir+"/"+c.str("glob"), opts...), "output")
				return nil
			},
			Listeners: []any{l},
			Options:   []tidemill.ContextOption{tidemill.WithEventLog(log)},
		})
		for i := 1; i <= c.Batches; i++ {
			time.Sleep(time.Until(run.Time(i).Time()) - time.Millisecond)
			if i < len(script) {
				play(t, fs, script[i])
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		o.outputs("output", c, entries(out, true))
		o.files(planned(t, log))
		if run.Err() != nil {
			o.add("error", "%d", l.failedAt[0])
		}
	})
	o.add("remember", "%d", (&driver.FileSource{Interval: interval, Remember: atLeast}).Window().Milliseconds())
	return o
}

// planned reads from the log which files each batch took.
func planned(t *testing.T, log *driver.MemLog) []filesTaken {
	t.Helper()
	events, total := log.Recent()
	if int(total) != len(events) {
		t.Fatalf("the log has forgotten %d events", int(total)-len(events))
	}
	var taken []filesTaken
	for _, e := range events {
		p, ok := e.(driver.BatchPlanned)
		if !ok {
			continue
		}
		files, err := driver.Files(p.Batch.Inputs[0])
		if err != nil {
			t.Fatal(err)
		}
		b := filesTaken{TimeMS: caseTime(p.Batch.Time), Files: []string{}}
		for _, f := range files {
			b.Files = append(b.Files, strings.TrimPrefix(f.Path, watchedDir+"/"))
		}
		slices.Sort(b.Files)
		taken = append(taken, b)
	}
	return taken
}

// play runs steps of a script: write PATH MTIME TEXT, mv FROM TO, delete PATH,
// touch PATH MTIME.
func play(t *testing.T, fs *fsys.Mem, steps []string) {
	t.Helper()
	for _, step := range steps {
		words := strings.SplitN(step, " ", 4)
		name := "/" + words[1]
		var err error
		switch words[0] {
		case "write":
			body := ""
			if len(words) > 3 {
				body = words[3] + "\n"
			}
			if err = fs.MkdirAll(path.Dir(name)); err == nil {
				_ = fs.Remove(name) // a write replaces what is there
				err = fsys.WriteFile(fs, name, []byte(body))
			}
			if err == nil {
				err = fs.SetModTime(name, epoch.Add(millis(atoi(words[2]))).Time())
			}
		case "mv":
			err = fs.Rename(name, "/"+words[2])
		case "delete":
			err = fs.Remove(name)
		case "touch":
			err = fs.SetModTime(name, epoch.Add(millis(atoi(words[2]))).Time())
		default:
			err = fmt.Errorf("no such step")
		}
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
	}
}

func atoi(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// filesBy is a model of a file source. With asSpark it is Spark's: a file is
// known by its name, and only names that start with "." are left alone.
// Otherwise it is ours: a file is known by name, size and time, and names that
// start with "_" or end in .tmp or ._COPYING_ are left alone too.
func filesBy(c *golden, asSpark bool) outcome {
	o := outcome{}
	type file struct {
		mtime int64
		text  string
	}
	disk, known := map[string]file{}, map[string]int64{} // known until this time
	created, remember := c.num("clock_at_creation_ms", 0), c.num("min_remember_s", 0)*1000
	remember = (remember + c.BatchMS - 1) / c.BatchMS * c.BatchMS
	dir := path.Join("in", c.str("glob"))
	step := func(s string) {
		w := strings.SplitN(s, " ", 4)
		switch w[0] {
		case "write":
			disk[w[1]] = file{atoi(w[2]), strings.Join(w[3:], "")}
		case "touch":
			disk[w[1]] = file{atoi(w[2]), disk[w[1]].text}
		case "delete":
			delete(disk, w[1])
		case "mv":
			for name, f := range disk {
				if rest, ok := strings.CutPrefix(name, w[1]); ok && (rest == "" || rest[0] == '/') {
					delete(disk, name)
					disk[w[2]+rest] = f
				}
			}
		}
	}
	at := created / c.BatchMS * c.BatchMS
	var outs []entry
	var taken []filesTaken
	script := c.script()
	for i := range c.Batches + 1 {
		if i < len(script) {
			for _, s := range script[i] {
				step(s)
			}
		}
		if i == 0 {
			continue
		}
		at += c.BatchMS
		ignore := at - remember
		if c.Params["new_files_only"] == true {
			ignore = max(ignore, created)
		}
		e, b := entry{TimeMS: at, Records: []any{}}, filesTaken{at, []string{}}
		for name, f := range disk {
			key := name
			if !asSpark {
				key = fmt.Sprint(name, len(f.text), f.mtime)
			}
			inDir, _ := path.Match(dir, path.Dir(name))
			if !inDir || leftAlone(path.Base(name), asSpark) || f.mtime <= ignore || f.mtime > at || known[key] >= at {
				continue
			}
			// Spark forgets a name once the batch that took it is older than
			// files may be; what we know cannot come again.
			known[key] = math.MaxInt64
			if asSpark {
				known[key] = at + remember + c.BatchMS
			}
			b.Files = append(b.Files, strings.TrimPrefix(name, "in/"))
			if f.text != "" {
				e.Records = append(e.Records, f.text)
			}
		}
		slices.Sort(b.Files)
		taken, outs = append(taken, b), append(outs, e)
	}
	o.outputs("output", c, outs)
	o.files(taken)
	o.add("remember", "%d", remember)
	return o
}

func leftAlone(name string, asSpark bool) bool {
	return strings.HasPrefix(name, ".") || !asSpark && (strings.HasPrefix(name, "_") ||
		strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, "._COPYING_"))
}
