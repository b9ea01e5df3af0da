package receiver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
)

// DirTail follows the files of a directory that others append lines to, each
// line a record without its end, exactly once: how far each file was read
// travels with the blocks, and a later start, here or on another executor that
// sees the same files, goes on there.
//
//   - Files are read in the order of their names, each to its end before the
//     next; lines of one file stay in order. The directory is looked at every
//     Poll. Directories in it, and names that begin with "." or "_" or end in
//     ".tmp" or "._COPYING_", are left alone.
//   - Files may only grow. To rotate, begin a file with a new name, later in the
//     order. A file that is renamed is a new one and is read from its begin.
//   - A file that is gone is forgotten, and read from its begin if it comes back.
//   - A file that is shorter than it was read is reported and read from its
//     begin. One that was cut and has grown again meanwhile can't be told from
//     one that has only grown.
//   - A last line without an end waits until it has one.
//   - Line ends, lines longer than MaxLine and bytes that are not UTF-8 are as
//     [TextSocket] has them; the first line of each file that is not UTF-8 is
//     reported.
type DirTail struct {
	FS      fsys.FS
	Dir     string
	Poll    time.Duration // 0 means 200ms
	MaxLine int           // bytes of a line without its end; 0 means 1 MiB
}

// TailDir returns the opener of a [DirTail] with default limits.
func TailDir(f fsys.FS, dir string) func() Receiver[string] {
	return func() Receiver[string] { return &DirTail{FS: f, Dir: dir} }
}

// Receive stores the lines of the directory until ctx ends or it can't be read.
func (d *DirTail) Receive(ctx context.Context, s *Sink[string]) error {
	position, err := parseTailPosition(s.From())
	if err != nil {
		return fmt.Errorf("tail of %s: %w", d.Dir, err)
	}
	t := tail{cfg: *d, ctx: ctx, sink: s, position: position, files: map[string]*tailFile{}}
	orDefault(&t.cfg.Poll, 200*time.Millisecond)
	orDefault(&t.cfg.MaxLine, 1<<20)
	again := time.NewTicker(t.cfg.Poll)
	defer again.Stop()
	for {
		if err := t.look(); err != nil {
			if ctx.Err() != nil {
				return ErrStopped
			}
			return fmt.Errorf("tail of %s: %w", d.Dir, err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return ErrStopped
		}
	}
}

// tail is one start of a DirTail.
type tail struct {
	cfg      DirTail // with defaults
	ctx      context.Context
	sink     *Sink[string]
	position tailPosition
	files    map[string]*tailFile
	encoded  []byte // of position
	buf      []byte
}

// look takes in what has been appended since the last time.
func (t *tail) look() error {
	entries, err := t.cfg.FS.List(t.cfg.Dir)
	if err != nil {
		return err
	}
	t.sink.Ready()
	there := make(map[string]bool, len(entries))
	for _, e := range entries {
		if there[e.Name] = !e.Dir && !passedOver(e.Name); !there[e.Name] {
			delete(there, e.Name)
		}
	}
	for name := range t.position {
		if !there[name] {
			delete(t.position, name)
		}
	}
	for name := range t.files {
		if !there[name] {
			delete(t.files, name)
		}
	}
	for _, e := range entries {
		if !there[e.Name] {
			continue
		}
		if err := t.follow(e); err != nil {
			return err
		}
	}
	return nil
}

func passedOver(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, "._COPYING_")
}

// follow reads a file on from where it was left.
func (t *tail) follow(e fsys.Info) error {
	f := t.files[e.Name]
	if f == nil {
		f = &tailFile{tail: t, name: e.Name}
		t.files[e.Name] = f
	}
	if at := t.position[e.Name]; e.Size < at || e.Size < f.seen {
		f.report(fmt.Errorf("it has %d bytes and had %d: it was cut off and is read from its begin", e.Size, max(at, f.seen)))
		t.position[e.Name], f.seen, f.skipping = 0, 0, 0
	}
	if e.Size == f.seen || e.Size == t.position[e.Name] {
		return nil
	}
	r, err := t.cfg.FS.Open(fsys.Join(t.cfg.Dir, e.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gone since it was listed
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return f.read(r, e.Size)
}
