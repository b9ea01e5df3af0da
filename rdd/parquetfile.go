package rdd

import (
	"io"
	"reflect"

	"github.com/parquet-go/parquet-go"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// ParquetSuffix ends the names of Parquet files.
const ParquetSuffix = ".parquet"

// WriteParquet returns the task of a Parquet output. A partition without
// records gets no file.
//
// A file is written row group by row group. One is held in memory, compressed,
// until it has about 64 MiB before compression, or less if aggregations may
// not hold so much.
func WriteParquet[T any](fsy fsys.FS, uid base.UID, display, dir string, c *Columns[T]) OutputTask {
	o := &fileOutput{fs: fsy, uid: uid, display: display, dir: dir, suffix: ParquetSuffix}
	return writeFiles(o, func(t *Task, f io.Writer) recordWriter[T] {
		w := &parquetWriter[T]{c: c, f: f, most: max(leastRowGroup, min(mostRowGroup, t.env.CombineLimit()))}
		w.v = reflect.ValueOf(&w.record).Elem()
		return w
	})
}

// Limits of a row group, in bytes before compression, and in records, which
// bounds what the values of a repetitive column cost that hardly takes space.
const (
	leastRowGroup   = 1 << 20
	mostRowGroup    = 64 << 20
	rowGroupRecords = 1 << 20
)

// parquetWriter writes record by record, since a record is the caller's again
// after put: the library copies values into pages.
type parquetWriter[T any] struct {
	c       *Columns[T]
	f       io.Writer
	record  T
	v       reflect.Value // of record
	row     shredded
	w       *parquet.GenericWriter[any] // from the first record on
	columns []*parquet.ColumnWriter
	most    int64 // bytes of a row group
	size    int64 // of this one
	records int
}

func (w *parquetWriter[T]) take(v T) error {
	if w.row.columns == nil {
		w.row.columns = make([][]parquet.Value, len(w.c.schema.Columns()))
	}
	w.record = v
	w.row.reset()
	w.c.write(&w.row, w.v, levels{})
	return w.row.err
}

func (w *parquetWriter[T]) put() error {
	if w.w == nil {
		w.w = w.c.writer(w.f)
		w.columns = w.w.ColumnWriters()
	}
	for i, c := range w.columns {
		if _, err := c.WriteRowValues(w.row.columns[i]); err != nil {
			return err
		}
	}
	w.size += w.row.size
	w.records++
	if w.size < w.most && w.records < rowGroupRecords {
		return nil
	}
	w.size, w.records = 0, 0
	return w.w.Flush()
}

func (w *parquetWriter[T]) finish() error { return w.w.Close() }

// writer returns the library's. It compresses by Snappy, as Spark does; a
// column's tag may say otherwise.
func (c *Columns[T]) writer(f io.Writer) *parquet.GenericWriter[any] {
	return parquet.NewGenericWriter[any](f, c.schema,
		parquet.Compression(&parquet.Snappy),
		parquet.WriteBufferSize(64<<10),
		parquet.DictionaryMaxBytes(1<<20),
	)
}

// probe finds out whether the library takes the schema.
func (c *Columns[T]) probe() (err error) {
	defer contain(&err)
	c.writer(io.Discard)
	return nil
}
