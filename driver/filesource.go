package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sync/errgroup"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
)

// FileSource plans the new files of a directory. A file belongs to the first
// batch T with ignore < mtime <= T, where ignore is the start of the job or T
// less the remember duration, whichever is later (Spark 4.2); batches that were
// missed before T, while the job was behind or stopped, count as T. It is known
// by name, size and time, so a rewritten file is taken again.
type FileSource struct {
	FS fsys.FS
	// Dir is a directory, or a pattern that names several.
	Dir string
	// Existing also takes files that are older than the start, within Remember.
	Existing bool
	// Interval is the batch interval, Remember the time that files are known
	// for: at least one interval.
	Interval time.Duration
	Remember time.Duration
	// RecordBytes is the least size of a record. It makes the limit of records
	// in a batch one of bytes, since nobody counts the records of a file before
	// it is read; 0 stands for 1.
	RecordBytes int

	start   base.BatchTime    // of the job
	last    base.BatchTime    // the newest batch that was planned
	back    base.BatchTime    // how far back to look at first, after a new start
	known   map[rdd.File]bool // found and within reach: waiting or taken
	waiting []rdd.File        // found, in no batch yet
}

// Window is Remember rounded up to whole intervals.
func (s *FileSource) Window() time.Duration {
	return (s.Remember + s.Interval - 1) / s.Interval * s.Interval
}

// Open implements [graph.Planner]. A directory that is not there may appear
// later; one that can't be read is an error.
func (s *FileSource) Open(_ context.Context, start base.BatchTime) error {
	s.start, s.last = start, 0
	s.known = map[rdd.File]bool{}
	dirs, err := fsys.Glob(s.FS, s.Dir)
	for _, d := range dirs {
		if err == nil {
			_, err = s.FS.List(d)
		}
		if s.noDir(d, err) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("file source: directory %q can't be read: %w", s.Dir, err)
	}
	return nil
}

// Resume implements [graph.Resumer].
func (s *FileSource) Resume(past []graph.PastInput) error {
	for _, p := range past {
		var in fileInput
		if err := msgpack.Unmarshal(p.Input.Data, &in); err != nil {
			return fmt.Errorf("the files of batch %s: %w", p.Time, err)
		}
		for _, f := range in.Files {
			s.known[f] = true
		}
		s.last, s.back = p.Time, in.Waiting
	}
	return nil
}

// Plan implements [graph.Planner].
func (s *FileSource) Plan(_ context.Context, t base.BatchTime, limit graph.Limit) (plan.Input, error) {
	if err := s.find(t); err != nil {
		return plan.Input{}, err
	}
	files := s.waiting
	// A file is looked for until it is too old for the batch after this one.
	in := plan.Input{Records: -1, Recall: s.Window() + 2*s.Interval}
	size := int64(max(1, s.RecordBytes))
	for i, f := range files {
		over := limit.Bytes > 0 && in.Bytes+f.Size > limit.Bytes || limit.Records > 0 && (in.Bytes+f.Size)/size > limit.Records
		if i > 0 && over {
			files = files[:i]
			break
		}
		in.Bytes += f.Size
	}
	in.Parts = len(files)
	p := fileInput{Files: files}
	for _, f := range s.waiting[len(files):] {
		if m := base.BatchTime(f.ModTime); p.Waiting == 0 || m < p.Waiting {
			p.Waiting = m
			in.Recall = max(in.Recall, t.Sub(m)+2*s.Interval)
		}
	}
	var err error
	in.Data, err = msgpack.Marshal(&p)
	return in, err
}

// fileInput is what the source plans.
type fileInput struct {
	Files []rdd.File
	// Waiting is the oldest modification time of files that were found and had no
	// room, 0 if there are none.
	Waiting base.BatchTime
}

// Planned implements [graph.Planner].
func (s *FileSource) Planned(t base.BatchTime, in plan.Input) {
	s.last, s.back = t, 0
	s.waiting = slices.Delete(s.waiting, 0, in.Parts)
}

// asking bounds how many files are asked for at the same time.
const asking = 8

// Places implements [graph.Placer].
func (s *FileSource) Places(ctx context.Context, in plan.Input) ([][]plan.Place, error) {
	files, err := Files(in)
	if err != nil {
		return nil, err
	}
	placed := fsys.PlacedOf(s.FS, s.Dir)
	if placed == nil {
		return nil, nil
	}
	at := make([][]plan.Place, len(files)) // a partition is a file
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(asking)
	for i, f := range files {
		g.Go(func() error {
			if f.Size == 0 || ctx.Err() != nil { // a service that fails is not asked for every file
				return nil
			}
			hosts, err := placed.Hosts(f.Path, 0, f.Size)
			for _, h := range hosts {
				at[i] = append(at[i], plan.Place{Name: plan.HostName(h), Bytes: f.Size})
			}
			return err
		})
	}
	return at, g.Wait()
}

// Close implements [graph.Planner].
func (s *FileSource) Close() error { return nil }

// Files decodes the files of an input.
func Files(in plan.Input) ([]rdd.File, error) {
	var p fileInput
	err := msgpack.Unmarshal(in.Data, &p)
	return p.Files, err
}

// find looks for files that belong to t and forgets those out of reach.
func (s *FileSource) find(t base.BatchTime) error {
	// After a pause, look back as far as the first batch that was missed would have.
	ignore := t.Add(-s.Window())
	if s.last > 0 {
		ignore = min(t, s.last.Add(s.Interval)).Add(-s.Window())
	}
	if s.back > 0 { // what waited when the driver was started anew must be found again
		ignore = min(ignore, s.back-1)
	}
	if !s.Existing {
		ignore = max(ignore, s.start)
	}
	dirs, err := fsys.Glob(s.FS, s.Dir)
	if err != nil {
		return err
	}
	var found []rdd.File
	for _, dir := range dirs {
		infos, err := s.FS.List(dir)
		if errors.Is(err, fs.ErrNotExist) || s.noDir(dir, err) {
			continue // it went away in between, or a file matches the pattern
		}
		if err != nil {
			return err
		}
		for _, i := range infos {
			mtime := base.TimeOf(i.ModTime)
			if i.Dir || mtime <= ignore || mtime > t || skippedName(i.Name) {
				continue
			}
			f := rdd.File{Path: fsys.Join(dir, i.Name), Size: i.Size, ModTime: int64(mtime)}
			if !s.known[f] {
				found = append(found, f)
			}
		}
	}
	if found, err = s.finished(found); err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b rdd.File) int {
		return cmp.Or(cmp.Compare(a.ModTime, b.ModTime), strings.Compare(a.Path, b.Path))
	})
	for f := range s.known {
		if base.BatchTime(f.ModTime) <= ignore {
			delete(s.known, f)
		}
	}
	for _, f := range found {
		s.known[f] = true
	}
	s.waiting = append(s.waiting, found...)
	return nil
}

// finished leaves out files that somebody is still writing, on a file system that
// tells: their sizes are not final. When they are closed they are new.
func (s *FileSource) finished(found []rdd.File) ([]rdd.File, error) {
	serves, err := fsys.For(s.FS, s.Dir)
	if err != nil {
		return nil, err
	}
	u, ok := serves.(fsys.Unfinished)
	if !ok {
		return found, nil
	}
	writing := make([]bool, len(found))
	var g errgroup.Group
	g.SetLimit(asking)
	for i, f := range found {
		g.Go(func() error {
			open, err := u.Writing(f.Path)
			writing[i] = open || errors.Is(err, fs.ErrNotExist) // it went away in between
			if writing[i] {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := found[:0]
	for i, f := range found {
		if !writing[i] {
			out = append(out, f)
		}
	}
	return out, nil
}

// noDir reports whether err says that a match of the pattern is no directory.
// A pattern such as "in/*" may match files too, which are passed over.
func (s *FileSource) noDir(dir string, err error) bool {
	return dir != s.Dir && errors.Is(err, syscall.ENOTDIR)
}

// skippedName says whether a name is hidden, private or still being written.
func skippedName(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") ||
		strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, "._COPYING_")
}
