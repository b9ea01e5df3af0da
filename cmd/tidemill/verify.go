package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

func newVerify(f fsys.FS) *cobra.Command {
	return &cobra.Command{
		Use: "verify DIR", Short: "Check every segment of a log", Args: wants(1, 1, "DIR"),
		Long: `Verify reads every segment of the logs in DIR, which is the directory of a job,
of a log or of one epoch, and checks lengths, checksums and sequence numbers.

A torn tail is what a crash left of a write: nothing in it was acknowledged, and
the next start leaves it out. Damage is the loss of records that were
acknowledged. The exit code is 1 if there is any.`,
		Example: "  tidemill wal verify data/wordcount",
		RunE: func(cmd *cobra.Command, args []string) error {
			v := verifier{fs: f, stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr()}
			return v.run(cmd.Context(), args[0])
		},
	}
}

// verifier checks logs.
type verifier struct {
	fs             fsys.FS
	stdout, stderr io.Writer

	segments int
	torn     []wal.Torn
	damaged  []wal.Damaged
}

func (v *verifier) run(ctx context.Context, dir string) error {
	logs, err := findLogs(v.fs, dir)
	if err != nil {
		return err
	}
	total, err := bytesOf(v.fs, logs)
	if err != nil {
		return err
	}
	read := &countingFS{FS: v.fs}
	stop := progress(v.stderr, func() string {
		return fmt.Sprintf("verify: %s of %s read", size(read.n.Load()), size(total))
	})
	rows, err := v.check(ctx, read, logs)
	stop()
	if err != nil {
		return err
	}
	return v.print(rows)
}

// check verifies the logs and returns a row for each epoch.
func (v *verifier) check(ctx context.Context, f fsys.FS, logs []foundLog) (rows [][]string, err error) {
	for _, l := range logs {
		for _, e := range l.epochs {
			r, err := verifyEpoch(ctx, f, e.Dir)
			if err != nil {
				return nil, err
			}
			v.segments += len(r.Segments)
			v.torn = append(v.torn, r.Torn...)
			v.damaged = append(v.damaged, r.Damaged...)
			damage := "none"
			if n := len(r.Damaged); n > 0 {
				damage = count(int64(n), "place", "places")
			}
			rows = append(rows, []string{
				l.name, e.Epoch.String(), fmt.Sprint(len(r.Segments)), fmt.Sprint(r.Records), fmt.Sprint(r.Bytes), fmt.Sprint(len(r.Torn)), damage,
			})
		}
	}
	return rows, nil
}

// verifyEpoch checks the segments of an epoch directory. The report has what is
// damaged; the error is what kept it from being complete.
func verifyEpoch(ctx context.Context, f fsys.FS, dir string) (wal.Report, error) {
	r, err := wal.Verify(ctx, f, dir)
	if err == nil {
		return r, nil
	}
	known := make(map[error]bool, len(r.Damaged))
	for _, d := range r.Damaged {
		known[d.Err] = true
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // one level, as Join made it
		all = joined.Unwrap()
	}
	for _, e := range all {
		switch {
		case known[e]:
		case errors.Is(e, base.ErrCorrupt):
			r.Damaged = append(r.Damaged, wal.Damaged{File: dir, Err: e})
		default:
			return r, fmt.Errorf("%w (if the job is starting just now, try again)", e)
		}
	}
	return r, nil
}

func (v *verifier) print(rows [][]string) error {
	t := newTable(v.stdout, "LOG", "EPOCH", "SEGMENTS", "RECORDS", "BYTES", "TORN TAILS", "DAMAGE")
	for _, r := range rows {
		t.row(r...)
	}
	if err := t.end(); err != nil {
		return err
	}
	for _, t := range v.torn {
		fmt.Fprintf(v.stdout, "torn: %s at %d: %s that count for nothing\n", t.File, t.Offset, count(t.Bytes, "byte", "bytes"))
	}
	for _, d := range v.damaged {
		fmt.Fprintf(v.stdout, "damage: %s\n", damageText(d))
	}
	if n := len(v.damaged); n > 0 {
		return fmt.Errorf("%s in %s: restore the files, or start the job with -drop-state or -fresh; tidemill wal dump prints what can be read",
			count(int64(n), "damaged place", "damaged places"), count(int64(v.segments), "segment", "segments"))
	}
	return nil
}

// damageText names file and offset and says what is lost.
func damageText(d wal.Damaged) string {
	why, _, _ := strings.Cut(d.Err.Error(), "; to see more:")
	lost := fmt.Sprintf("records %d to %d", d.First, d.Last)
	switch {
	case d.First == 0 && d.Last == 0:
		lost = "nobody knows which records"
	case d.First == d.Last:
		lost = fmt.Sprintf("record %d", d.First)
	case d.Last == 0:
		lost = fmt.Sprintf("records from %d on", d.First)
	}
	return fmt.Sprintf("%s at %d: lost: %s (%s)", d.File, d.Offset, lost, oneLine(why))
}

// bytesOf adds up the files of logs.
func bytesOf(f fsys.FS, logs []foundLog) (n int64, err error) {
	for _, l := range logs {
		for _, e := range l.epochs {
			entries, err := f.List(e.Dir)
			if err != nil {
				return 0, err
			}
			for _, in := range entries {
				if path.Ext(in.Name) == ".wal" {
					n += in.Size
				}
			}
		}
	}
	return n, nil
}

// progress prints a line now and then, the first after a second. stop ends that.
func progress(w io.Writer, line func() string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		wait := time.Second
		for {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
				fmt.Fprintln(w, line())
			case <-done:
				t.Stop()
				return
			}
			wait = min(2*wait, time.Minute)
		}
	}()
	return func() { close(done); <-ended }
}

// countingFS counts the bytes that are read.
type countingFS struct {
	fsys.FS
	n atomic.Int64
}

func (c *countingFS) Open(name string) (fsys.Reader, error) {
	r, err := c.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return countingReader{r, &c.n}, nil
}

// countingReader hides all else that the reader can do: what is only looked at
// needs no sync.
type countingReader struct {
	fsys.Reader
	n *atomic.Int64
}

func (r countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n.Add(int64(n))
	return n, err
}

func (r countingReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.Reader.ReadAt(p, off)
	r.n.Add(int64(n))
	return n, err
}
