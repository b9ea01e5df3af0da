package rdd

import (
	"bufio"
	"io"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// WriteText returns the task of a text output: every record becomes a line by
// way of format, which appends to its first argument. A partition without
// records gets no file.
func WriteText[T any](fsy fsys.FS, uid base.UID, display, dir string, format func([]byte, T) []byte) OutputTask {
	o := &fileOutput{fs: fsy, uid: uid, display: display, dir: dir}
	return writeFiles(o, func(_ *Task, f io.Writer) recordWriter[T] {
		return &textWriter[T]{format: format, buf: bufio.NewWriterSize(f, 64<<10)}
	})
}

type textWriter[T any] struct {
	format func([]byte, T) []byte
	buf    *bufio.Writer
	line   []byte
}

func (w *textWriter[T]) take(v T) error {
	w.line = append(w.format(w.line[:0], v), '\n')
	return nil
}

func (w *textWriter[T]) put() error {
	_, err := w.buf.Write(w.line)
	return err
}

func (w *textWriter[T]) finish() error { return w.buf.Flush() }
