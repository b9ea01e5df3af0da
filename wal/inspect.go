package wal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// Verify checks all records under dir, which holds epoch directories or is one,
// and changes nothing. The report has the torn tails and everything that is
// damaged; if anything is, the error says so.
func Verify(ctx context.Context, fs fsys.FS, dir string) (Report, error) {
	dirs, err := epochsOrSelf(fs, dir)
	if err != nil {
		return Report{}, fmt.Errorf("wal: verify %q: %w", dir, err)
	}
	var all Report
	var errs []error
	for _, d := range dirs {
		s := &scan{
			fs: fs, dir: d, o: ScanOptions{SkipDamaged: true}, gapsAllowed: true,
			each: func(uint64, base.Handle, []byte) error { return nil },
		}
		r, err := s.run(ctx)
		all.add(r)
		for _, lost := range r.Damaged {
			errs = append(errs, lost.Err)
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

func (r *Report) add(more Report) {
	r.Segments = append(r.Segments, more.Segments...)
	r.Torn = append(r.Torn, more.Torn...)
	r.Damaged = append(r.Damaged, more.Damaged...)
	r.Last = max(r.Last, more.Last)
	r.Records += more.Records
	r.Bytes += more.Bytes
}

func epochsOrSelf(fs fsys.FS, dir string) ([]string, error) {
	if _, err := fs.List(dir); err != nil {
		return nil, err
	}
	epochs, err := Epochs(fs, dir)
	if err != nil {
		return nil, err
	}
	if len(epochs) == 0 {
		return []string{dir}, nil
	}
	var dirs []string
	for _, e := range epochs {
		dirs = append(dirs, e.Dir)
	}
	return dirs, nil
}

// Dump prints a line for each segment and each record under dir, which holds
// epoch directories or is one: number, offset, length, sequence, and what decode
// says of the payload, or a preview if it is nil. It goes on after damage.
func Dump(ctx context.Context, fs fsys.FS, dir string, w io.Writer, decode func([]byte) string) error {
	if decode == nil {
		decode = preview
	}
	dirs, err := epochsOrSelf(fs, dir)
	if err != nil {
		return fmt.Errorf("wal: dump %q: %w", dir, err)
	}
	for _, d := range dirs {
		segments, err := listSegments(fs, d)
		if err != nil {
			return fmt.Errorf("wal: dump %q: %w", dir, err)
		}
		for _, in := range segments {
			if err := dumpSegment(ctx, fs, join(d, in.Name), w, decode); err != nil {
				return fmt.Errorf("wal: dump segment %q: %w", join(d, in.Name), err)
			}
		}
	}
	return nil
}

func dumpSegment(ctx context.Context, fs fsys.FS, file string, w io.Writer, decode func([]byte) string) (err error) {
	r, err := fs.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	number, _ := parseSegmentFile(file[len(file)-len(segmentFile(0)):])
	pool := &buffers{}
	c := &check{r: r, number: number, size: r.Size(), pool: pool}
	out := &printer{w: w}
	err = c.run(func() {
		h := c.header
		out.line("%s: log %q, epoch %s, segment %d, %d bytes, first sequence %d", file, h.log, h.epoch, h.number, c.size, h.first)
	}, func(b *buffer) error {
		defer pool.put(b)
		for _, r := range b.records {
			out.line("  %d: %d bytes, sequence %d, crc ok: %s", r.offset, len(r.payload), r.seq, decode(r.payload))
		}
		return errors.Join(out.err, ctx.Err())
	})
	var newer *versionError
	switch {
	case errors.As(err, &newer):
		out.line("%s: %d bytes: %v", file, c.size, err)
	case err != nil:
		return err
	default:
		if !c.named {
			out.line("%s: %d bytes, no whole header", file, c.size)
		}
		out.end(c)
	}
	return out.err
}

// printer keeps the first error of writing.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// end says how a segment ends.
func (p *printer) end(c *check) {
	switch {
	case c.damage != nil:
		p.line("  %d: damaged, %d bytes can't be read: %v", c.offset, c.torn(), c.damage)
	case c.torn() > 0 || c.size == 0:
		p.line("  %d: torn, %d bytes count for nothing", c.offset, c.torn())
	case c.sealed:
		p.line("  %d: sealed, %d records", c.offset-sealLength, c.records)
	default:
		p.line("  %d: open, %d records", c.offset, c.records)
	}
}

// preview shows the begin of a payload, as text if it is that.
func preview(b []byte) string {
	const most = 32
	more := ""
	if len(b) > most {
		b, more = b[:most], "..."
	}
	if utf8.Valid(b) && !containsControl(string(b)) {
		return fmt.Sprintf("%q%s", b, more)
	}
	return fmt.Sprintf("% x%s", b, more)
}

func containsControl(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return true
		}
	}
	return false
}
