package rdd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/plan"
)

// FromSlices returns a data set with one partition per slice. The slices must
// be the same in every process, and are not copied.
func FromSlices[T any](scope *plan.Scope, kind string, parts [][]T) RDD[T] {
	return node(scope, plan.NodeSpec{Kind: kind, Parts: len(parts)}, func(t *Task, part int) Iter[T] {
		return sliceIter(t, parts[part])
	})
}

func sliceIter[T any](t *Task, vs []T) Iter[T] {
	return func(yield func(T) bool) error {
		vs := vs // of this run: user code may range over a partition twice
		for len(vs) > 0 {
			if err := t.ctx.Err(); err != nil {
				return err
			}
			n := min(pollEvery, len(vs))
			for _, v := range vs[:n] {
				if !yield(v) {
					return nil
				}
			}
			vs = vs[n:]
		}
		return nil
	}
}

// Empty returns a data set without partitions.
func Empty[T any](scope *plan.Scope) RDD[T] { return FromSlices[T](scope, "empty", nil) }

// EmptyLike returns an empty data set in the scope of r, for use in Transform.
func EmptyLike[T, U any](r RDD[U]) RDD[T] { return Empty[T](r.scope) }

// FromFrames returns a data set with one partition per encoded frame. The
// frames' checksums are verified when they are read (Invariant 8).
func FromFrames[T any](scope *plan.Scope, kind string, c *codec.Codec[T], frames [][]byte) RDD[T] {
	var extra []byte
	for _, f := range frames {
		header := f[:min(len(f), codec.MaxHeader)] // holds the checksum of the whole
		extra = binary.LittleEndian.AppendUint64(extra, xxhash.Sum64(header))
	}
	return framed(scope, plan.NodeSpec{Kind: kind, Parts: len(frames), Extra: string(extra)}, c, func(_ *Task, part int) (codec.Frame, error) {
		return codec.OpenFrame(frames[part])
	})
}

// framed makes a node whose partitions are frames as they are. A frame without
// a header stands for no records.
func framed[T any](scope *plan.Scope, spec plan.NodeSpec, c *codec.Codec[T], frame func(t *Task, part int) (codec.Frame, error)) RDD[T] {
	return manyFramed(scope, spec, c, func(t *Task, part int, each func(codec.Frame) (bool, error)) error {
		f, err := frame(t, part)
		if err == nil {
			_, err = each(f)
		}
		return err
	})
}

// manyFramed returns a data set whose partitions are frames, one after another.
func manyFramed[T any](scope *plan.Scope, spec plan.NodeSpec, c *codec.Codec[T], frames framesOf) RDD[T] {
	r := node(scope, spec, func(t *Task, part int) Iter[T] {
		return func(yield func(T) bool) error {
			return frames(t, part, func(f codec.Frame) (bool, error) {
				stopped, err := codec.EachInFrame(c, f, yield)
				return !stopped, err
			})
		}
	})
	r.n.Ops = ops[T]{frames: frames} // counted without being read
	return r
}

// framesOf hands over the frames of a partition until each returns false or an error.
type framesOf func(t *Task, part int, each func(codec.Frame) (bool, error)) error

// FromBlocks returns a data set of received blocks in parts partitions, each of
// blocks that follow each other.
func FromBlocks[T any](scope *plan.Scope, c *codec.Codec[T], blocks []plan.Block, parts int) RDD[T] {
	var extra strings.Builder
	for _, b := range blocks {
		fmt.Fprintf(&extra, "%s %t\n", b.ID, b.Lost)
	}
	batch, ends := scope.Set.Time, plan.SpreadBlocks(blocks, parts)
	spec := plan.NodeSpec{Kind: "blocks", Parts: parts, Extra: extra.String()}
	return manyFramed(scope, spec, c, func(t *Task, part int, each func(codec.Frame) (bool, error)) error {
		first := 0
		if part > 0 {
			first = ends[part-1]
		}
		for _, b := range blocks[first:ends[part]] {
			if b.Lost {
				continue // OnLostBlocks: skip; counted and logged by the driver
			}
			data, err := t.env.Block(t.ctx, batch, b)
			if err != nil {
				return err
			}
			if data == nil {
				continue // lost after it was planned, and the policy skips it
			}
			f, err := codec.TrustFrame(data)
			if err != nil {
				return fmt.Errorf("block %s: %w", b.ID, err)
			}
			if more, err := each(f); !more || err != nil {
				return err
			}
		}
		return nil
	})
}

// File is a file of a batch as its plan names it: readers take the file only
// if it still has this size and time, since T must mean the same records.
type File struct {
	Path    string
	Size    int64
	ModTime int64 // milliseconds since the epoch
}

func filesExtra(files []File) string {
	s := ""
	for _, f := range files {
		s += fmt.Sprintf("%s %d %d\n", f.Path, f.Size, f.ModTime)
	}
	return s
}

// openFile opens a file that must still be what the plan says.
func openFile(fsy fsys.FS, f File) (fsys.Reader, error) {
	info, err := fsy.Stat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("file %q of the batch's plan is gone: %w", f.Path, err)
	}
	if err != nil {
		return nil, err
	}
	if info.Size != f.Size || info.ModTime.UnixMilli() != f.ModTime {
		return nil, fmt.Errorf("file %q changed after it was planned: it had %d bytes and time %s, now %d and %s; move complete files into the directory",
			f.Path, f.Size, time.UnixMilli(f.ModTime).UTC(), info.Size, info.ModTime.UTC())
	}
	return fsy.Open(f.Path)
}

// TextFiles returns the lines of the files, one partition per file. Lines end
// with LF or CRLF; bytes that are not UTF-8 become U+FFFD.
func TextFiles(scope *plan.Scope, fsy fsys.FS, files []File) RDD[string] {
	return node(scope, plan.NodeSpec{Kind: "textFiles", Parts: len(files), Extra: filesExtra(files)}, func(t *Task, part int) Iter[string] {
		return func(yield func(string) bool) error {
			return eachChunk(t, fsy, files[part], func(chunk []byte, last bool) (used int, more bool) {
				for {
					i := bytes.IndexByte(chunk[used:], '\n')
					if i < 0 {
						break
					}
					if !yield(textLine(chunk[used : used+i])) {
						return used, false
					}
					used += i + 1
				}
				if last && used < len(chunk) {
					return len(chunk), yield(textLine(chunk[used:]))
				}
				return used, true
			})
		}
	})
}

func textLine(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	if len(b) == 0 {
		return ""
	}
	s := unsafe.String(&b[0], len(b)) // chunks are never reused (Invariant 15)
	if !utf8.ValidString(s) {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return s
}

// RecordFiles returns the records of fixed length of the files, one partition
// per file. A file whose size is no multiple of the length is an error.
func RecordFiles(scope *plan.Scope, fsy fsys.FS, files []File, length int) RDD[[]byte] {
	if length <= 0 {
		panic(fmt.Sprintf("recordFiles: the record length is %d bytes: must be positive", length))
	}
	spec := plan.NodeSpec{Kind: "recordFiles", Parts: len(files), Extra: fmt.Sprint(length, "\n", filesExtra(files))}
	return node(scope, spec, func(t *Task, part int) Iter[[]byte] {
		return func(yield func([]byte) bool) error {
			f := files[part]
			if f.Size%int64(length) != 0 {
				return fmt.Errorf("file %q has %d bytes: not a multiple of the record length %d", f.Path, f.Size, length)
			}
			return eachChunk(t, fsy, f, func(chunk []byte, _ bool) (used int, more bool) {
				for ; used+length <= len(chunk); used += length {
					if !yield(chunk[used : used+length : used+length]) {
						return used, false
					}
				}
				return used, true
			})
		}
	})
}

// fileChunk is how much of a file is read at once; a longer line makes it grow.
const fileChunk = 1 << 20

// eachChunk reads a file of the plan in buffers of its own. take says how many
// bytes it used; the rest comes again in front of the next chunk.
func eachChunk(t *Task, fsy fsys.FS, file File, take func(chunk []byte, last bool) (used int, more bool)) (err error) {
	if file.Size == 0 {
		return nil
	}
	r, err := openFile(fsy, file)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := r.Close(); err == nil {
			err = cerr
		}
	}()
	var rest []byte
	for left := file.Size; left > 0; {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		n := int(min(left, int64(max(fileChunk, len(rest)))))
		buf := make([]byte, len(rest)+n)
		copy(buf, rest)
		if _, err := io.ReadFull(r, buf[len(rest):]); err != nil {
			return fmt.Errorf("read file %q: it ended %d bytes before its planned size %d: %w", file.Path, left, file.Size, err)
		}
		left -= int64(n)
		used, more := take(buf, left == 0)
		if !more {
			return nil
		}
		rest = buf[used:]
	}
	return nil
}
