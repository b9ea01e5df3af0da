package tidemill

import (
	"fmt"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/rdd"
)

// SaveAsParquet writes each batch to a directory dir/name-T, T being the batch
// time in milliseconds: a file part-NNNNN.parquet per partition that has
// records, and a manifest _SUCCESS, all of which is committed as
// [SaveAsTextFiles] says.
//
//	type visit struct {
//		User string        `parquet:"user,dict"`
//		At   time.Time     `parquet:"at,timestamp(microsecond)"`
//		Took time.Duration `parquet:"took_ns"`
//		Tags []string      `parquet:"tags,list"`
//	}
//	tidemill.SaveAsParquet(visits, "visits", "/data/visits")
//	tidemill.SaveAsParquet(tidemill.CountByValue(users), "counts", "/data/counts") // columns key and value
//
// The fields of a struct are the columns, those of an embedded struct too. A
// [Pair] has the columns key and value, a [Joined] or [CoGrouped] left and
// right; any other record is the one column value. Structs inside are groups;
// pointers and [Opt] are optional columns, null if nil or empty; maps are MAPs,
// sorted by key; a slice is a repeated column, or a LIST if it is tagged list
// or is an element, a map's value or optional, or has elements that are lists
// or optional. A nil slice or map is an empty one unless it is optional.
//
// Tags are those of github.com/parquet-go/parquet-go, less the geographic ones,
// variant and interval: `parquet:"name,option,..."`, with parquet-element,
// parquet-key and parquet-value for the parts of lists and maps. The option
// optional writes zero values as null; the tag "-" leaves a field out; json
// writes a value of any type as encoding/json does. Without options a
// [time.Time] counts nanoseconds, which reach from 1678 to 2262 and which Spark
// does not read (it does read timestamp(microsecond)), and a [time.Duration] is
// an integer. A value that its column can't hold fails the task. Columns are
// compressed by Snappy unless tagged otherwise.
//
// Build fails for a type that can't be written without loss: one that holds a
// function, channel, complex number, interface or itself, or has a field that
// is not exported.
func SaveAsParquet[T any](d DStream[T], name, dir string, opts ...Option) {
	display := fmt.Sprintf("saveAsParquet %q", name)
	if dir == "" {
		d.ssc.g.Errorf("%s: the directory is empty: give a path", display)
	}
	columns, err := rdd.ColumnsOf[T]()
	if err != nil {
		d.ssc.g.Errorf("%s: %w", display, err)
		return
	}
	task := rdd.WriteParquet(d.ssc.env.fs, base.UID(name), display, dir, columns)
	output(d, "saveAsParquet", name, task, driver.CommitFiles(dir, options(opts).keepEmpty))
}
