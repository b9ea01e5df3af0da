package rdd

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"strconv"
	"sync/atomic"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/plan"
)

// WrittenFile is what a task that writes a file tells the driver.
type WrittenFile struct {
	Path    string // in the staging directory; empty if there was no record
	Records int64
	Bytes   int64
	CRC     uint32 // CRC32C of the content
}

// StagingDir is where tasks of an epoch write the files of an output's batch.
// The driver moves the chosen ones to [FinalDir] at commit.
func StagingDir(dir string, name base.UID, t base.BatchTime, epoch base.Epoch) string {
	return path.Join(dir, fmt.Sprintf(".%s-%d.%d", name, int64(t), uint64(epoch)))
}

// FinalDir is where the committed files of an output's batch are.
func FinalDir(dir string, name base.UID, t base.BatchTime) string {
	return path.Join(dir, fmt.Sprintf("%s-%d", name, int64(t)))
}

// PartFile is the name of a partition's file.
func PartFile(part int) string { return fmt.Sprintf("part-%05d", part) }

// WriteText returns the task of a text output: every record becomes a line by
// way of format, which appends to its first argument. A partition without
// records gets no file. epoch is asked when a task runs.
func WriteText[T any](fsy fsys.FS, uid base.UID, display, dir string, epoch base.Epoch, format func([]byte, T) []byte) OutputTask {
	var writes atomic.Int64
	return func(t *Task, n *plan.Node, part int) (result []byte, err error) {
		w := textWriter{fs: fsy}
		// Attempts never share a file, not even those that are given up.
		attempt := strconv.Itoa(t.Attempt()) + "-" + t.Executor() + "-" + strconv.FormatInt(writes.Add(1), 10)
		w.dir = path.Join(StagingDir(dir, uid, t.Batch(), epoch), attempt)
		w.file.Path = path.Join(w.dir, PartFile(part))
		out := &plan.Node{ID: plan.ID{Set: base.DataSet{UID: uid, Time: t.Batch()}}, Op: display}
		p := watch[T](t, out, part)
		var line []byte
		var werr error
		err = Records[T](t, n, part)(func(v T) bool {
			p.enter(v)
			line = append(format(line[:0], v), '\n')
			p.busy = false
			werr = w.write(line)
			return werr == nil
		})
		if cerr := w.close(); werr == nil {
			werr = cerr
		}
		if err == nil {
			err = werr
		}
		if err != nil {
			return nil, err
		}
		return msgpack.Marshal(&w.file)
	}
}

// textWriter makes its file when the first line comes.
type textWriter struct {
	fs   fsys.FS
	dir  string
	f    fsys.File
	buf  *bufio.Writer
	file WrittenFile
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (w *textWriter) write(line []byte) error {
	if w.f == nil {
		if err := w.fs.Mkdir(w.dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		f, err := w.fs.Create(w.file.Path)
		if err != nil {
			return err
		}
		w.f, w.buf = f, bufio.NewWriterSize(f, 64<<10)
	}
	w.file.Records++
	w.file.Bytes += int64(len(line))
	w.file.CRC = crc32.Update(w.file.CRC, castagnoli, line)
	_, err := w.buf.Write(line)
	return err
}

func (w *textWriter) close() error {
	if w.f == nil {
		w.file.Path = ""
		return nil
	}
	err := w.buf.Flush()
	if err == nil {
		err = w.f.Sync()
	}
	return errors.Join(err, w.f.Close())
}

// DecodeWrittenFile reads the result of a task of [WriteText].
func DecodeWrittenFile(b []byte) (WrittenFile, error) {
	var w WrittenFile
	err := msgpack.Unmarshal(b, &w)
	return w, err
}
