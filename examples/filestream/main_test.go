package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/examples/internal/proc"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

func TestMain(m *testing.M) { proc.Main(m, main) }

func TestRunsAsItStands(t *testing.T) {
	t.Parallel()
	p := proc.Start(t)
	p.UntilSaid("\n(note,1)\n")
	p.Signal(os.Interrupt)
	if end := p.Wait(); end.Code != 0 || !strings.Contains(end.Stderr, "nothing left") {
		t.Error(end)
	}
}

// Files that are moved in while batches come and go count once each.
func TestEveryFileCountsOnce(t *testing.T) {
	t.Parallel()
	for _, executors := range []string{"1", "3"} {
		in, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
		p := proc.Start(t, "-in", in, "-out", out, "-executors", executors, "-set", "batch-interval=50ms", "-log-level", "error")
		p.UntilSaid("running: ")
		clock(p, time.Now())
		want := map[string]int{}
		saved := func(word string) func() bool {
			return func() bool {
				got := map[string]int{}
				if err := proc.Add(out, "counts", got); err != nil {
					t.Fatal(err)
				}
				return got[word] > 0
			}
		}
		put := func(name, text string) {
			for _, w := range strings.Fields(text) {
				want[w]++
			}
			if err := moveIn(in, name, text); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 200 {
			put(fmt.Sprintf("file-%d", i), fmt.Sprintf("both w%d\r\n\nx%d both", i%7, i)) // no end of line
			if i%20 == 19 {
				// The rest comes in later batches.
				p.Until("part of the files read", saved(fmt.Sprintf("x%d", i)))
			}
		}
		for _, name := range []string{".hidden", "_private", "unfinished.tmp", "copy._COPYING_", "empty"} {
			text := "passed over"
			if name == "empty" {
				text = ""
			}
			if err := moveIn(in, name, text); err != nil {
				t.Fatal(err)
			}
		}
		// Whatever is read twice would be read by the time that another batch has
		// come, and one after that.
		for _, last := range []string{"last", "very-last"} {
			put(last, last)
			p.Until("the last files read", saved(last))
		}
		p.Signal(syscall.SIGTERM)
		if end := p.Wait(); end.Code != 0 || !strings.Contains(end.Stderr, "nothing left") {
			t.Error(end)
		}
		if diff := cmp.Diff(want, proc.Saved(t, out, "counts")); diff != "" {
			t.Errorf("%s executors: -want +got\n%s", executors, diff)
		}
	}
}

// clock waits until new files have times after the given one: those of files
// may lag behind by a few milliseconds, and a file as old as the job is not new.
func clock(p *proc.Process, after time.Time) {
	p.Until("the clock of files going on", func() bool {
		probe, err := os.CreateTemp(p.Scratch(), "probe-")
		if err != nil {
			return false
		}
		defer os.Remove(probe.Name())
		defer probe.Close()
		info, err := probe.Stat()
		return err == nil && info.ModTime().UnixMilli() > after.UnixMilli()
	})
}

func TestWrongUseIsOneLineThatSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		in   string
		want []string
	}{
		{file, []string{`directory "` + file + `" can't be read`, "not a directory"}},
		{"[", []string{"syntax error in pattern"}},
	} {
		end := proc.Start(t, "-in", test.in).Wait()
		lines := end.Complaints()
		if end.Code != 1 || len(lines) != 1 {
			t.Fatalf("complaints %q; %s", lines, end)
		}
		for _, w := range append(test.want, "filestream: ") {
			if !strings.Contains(lines[0], w) {
				t.Errorf("%q does not hold %q", lines[0], w)
			}
		}
	}
}

// build is the job as a command line makes it.
func build(t *testing.T, args ...string) func(*tidemill.StreamingContext) error {
	t.Helper()
	a := app()
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	a.Flags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return a.Build
}

// In fake time and with files in memory it is known which batch reads what.
func TestAFileBelongsToTheBatchOfItsTime(t *testing.T) {
	tidetest.Run(t, func(t *testing.T) {
		files := fsys.NewMem()
		if err := files.MkdirAll("/in"); err != nil {
			t.Fatal(err)
		}
		if err := fsys.WriteFile(files, "/in/old", []byte("before the start")); err != nil {
			t.Fatal(err)
		}
		job := tidetest.Start(t, tidetest.Job{Build: build(t, "-in", "/in", "-out", "/out"), FS: files})
		job.Advance(1)
		if err := fsys.WriteFile(files, "/in/new", []byte("one two\none")); err != nil {
			t.Fatal(err)
		}
		job.Advance(3)
		want := fmt.Sprintf("counts-%d", job.Time(2))
		batches, err := files.List("/out")
		if err != nil || len(batches) != 1 || batches[0].Name != want {
			t.Fatalf("saved %+v, %v; want %s", batches, err, want)
		}
		var all string
		parts, err := fsys.Glob(files, "/out/"+want+"/part-*")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			text, err := fsys.ReadFile(files, p)
			if err != nil {
				t.Fatal(err)
			}
			all += string(text)
		}
		if all != "one 2\ntwo 1\n" && all != "two 1\none 2\n" {
			t.Errorf("saved %q", all)
		}
	})
}

// Wherever in a batch the disk is full, the job ends, says so, and leaves
// nothing that looks finished.
func TestFullDiskEndsTheJobWithItsReason(t *testing.T) {
	for _, where := range []struct{ op, name string }{
		{"mkdir", "/out"},
		{"mkdir", "/out/"},
		{"create", ".part-"},
		{"write", ".part-"},
		{"sync", ".part-"},
		{"close", ".part-"},
		{"mkdir", "/out/.counts"},
		{"rename", "/out/"},
		{"create", "_SUCCESS"},
		{"write", "_SUCCESS"},
		{"sync", "_SUCCESS"},
		{"syncdir", ".1/out"},
	} {
		t.Run(where.op+" "+where.name, func(t *testing.T) {
			tidetest.Run(t, func(t *testing.T) {
				files := fsys.NewMem()
				if err := files.MkdirAll("/in"); err != nil {
					t.Fatal(err)
				}
				job := tidetest.Start(t, tidetest.Job{Build: build(t, "-in", "/in", "-out", "/out"), FS: files})
				hit := false
				files.FailWith(func(op, name string) error {
					if op != where.op || !strings.Contains(name, where.name) {
						return nil
					}
					hit = true
					return syscall.ENOSPC
				})
				job.Advance(1)
				if err := fsys.WriteFile(files, "/in/new", []byte("one two one")); err != nil {
					t.Fatal(err)
				}
				job.Advance(60) // for whatever tries again
				err := job.Err()
				if !hit || err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) || !strings.Contains(err.Error(), `output "counts"`) || !strings.Contains(err.Error(), "/out") {
					t.Errorf("hit %v, the job ended with %v", hit, err)
				}
				var lost *tidemill.TaskError
				if errors.As(err, &lost) {
					t.Errorf("a full disk is no fault of the user's functions: %v", err)
				}
				if done, err := fsys.Glob(files, "/out/counts-*"); err != nil || len(done) > 0 {
					t.Errorf("looks finished: %v, %v", done, err)
				}
			})
		})
	}
}
