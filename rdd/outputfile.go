package rdd

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"
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

// DecodeWrittenFile reads the result of a task that writes a file.
func DecodeWrittenFile(b []byte) (WrittenFile, error) {
	var w WrittenFile
	err := msgpack.Unmarshal(b, &w)
	return w, err
}

// StagingDir is where tasks of an epoch write the files of an output's batch.
// The driver moves the chosen ones to [FinalDir] at commit.
func StagingDir(dir string, name base.UID, t base.BatchTime, epoch base.Epoch) string {
	return fsys.Join(dir, fmt.Sprintf(".%s-%d.%d", name, int64(t), uint64(epoch)))
}

// FinalDir is where the committed files of an output's batch are.
func FinalDir(dir string, name base.UID, t base.BatchTime) string {
	return fsys.Join(dir, fmt.Sprintf("%s-%d", name, int64(t)))
}

// PartFile is the name of a partition's file, without what tells its format.
func PartFile(part int) string { return fmt.Sprintf("part-%05d", part) }

// fileOutput is an output whose tasks write a file each.
type fileOutput struct {
	fs      fsys.FS
	uid     base.UID
	display string
	dir     string
	suffix  string // of the files' names
	writes  atomic.Int64
}

// recordWriter puts the records of one partition into its file.
type recordWriter[T any] interface {
	// take turns a record into what put writes. It may run user code.
	take(v T) error
	put() error
	// finish writes the rest. It is called only if there was a record.
	finish() error
}

// writeFiles returns the task of o. A partition without records gets no file.
func writeFiles[T any](o *fileOutput, open func(t *Task, f io.Writer) recordWriter[T]) OutputTask {
	return func(t *Task, n *plan.Node, part int) ([]byte, error) {
		f := o.file(t, part)
		defer f.abandon() // also when user code panics
		w := open(t, f)
		out := &plan.Node{ID: plan.ID{Set: base.DataSet{UID: o.uid, Time: t.Batch()}}, Op: o.display}
		p := watch[T](t, out, part)
		var werr error
		err := Records[T](t, n, part)(func(v T) bool {
			p.enter(v)
			werr = w.take(v)
			p.busy = false
			if werr != nil {
				werr = p.fail(werr)
				return false
			}
			f.Records++
			werr = w.put()
			return werr == nil
		})
		if err == nil {
			err = werr
		}
		if err == nil && f.Records > 0 {
			err = w.finish()
		}
		if err == nil {
			err = f.close()
		}
		if err != nil {
			return nil, err
		}
		return msgpack.Marshal(&f.WrittenFile)
	}
}

// outputFile is the file of one attempt. It is made when the first bytes come.
type outputFile struct {
	WrittenFile
	fs fsys.FS
	f  fsys.File
}

// file returns the file of an attempt, under a name of its own: attempts never
// share one, not even those that are given up.
func (o *fileOutput) file(t *Task, part int) *outputFile {
	attempt := strconv.Itoa(t.Attempt()) + "-" + strings.ReplaceAll(t.Executor(), attemptEnd, "_") + "-" + strconv.FormatInt(o.writes.Add(1), 10)
	dir := StagingDir(o.dir, o.uid, t.Batch(), t.spec.Epoch)
	return &outputFile{fs: o.fs, WrittenFile: WrittenFile{Path: fsys.Join(dir, attempt+attemptEnd+PartFile(part)+o.suffix)}}
}

// attemptEnd is between the attempt and the name that the file will have.
const attemptEnd = "."

// Name is what the file is called in the finished output.
func (f WrittenFile) Name() string {
	_, name, _ := strings.Cut(fsys.Base(f.Path), attemptEnd)
	return name
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (f *outputFile) Write(b []byte) (int, error) {
	if f.f == nil {
		var err error
		if f.f, err = f.fs.Create(f.Path); err != nil {
			return 0, err
		}
	}
	n, err := f.f.Write(b)
	f.Bytes += int64(n)
	f.CRC = crc32.Update(f.CRC, castagnoli, b[:n])
	return n, err
}

// close makes the file durable.
func (f *outputFile) close() error {
	if f.f == nil {
		f.Path = ""
		return nil
	}
	err := errors.Join(f.f.Sync(), f.f.Close())
	f.f = nil
	return err
}

// abandon closes the file of an attempt that failed; its error adds nothing.
func (f *outputFile) abandon() {
	if f.f != nil {
		_ = f.f.Close()
	}
}
