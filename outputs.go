package tidemill

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/rdd"
)

// output adds an output to the graph.
func output[T any](d DStream[T], kind, name string, task rdd.OutputTask, run driver.OutputRun) {
	if !d.ssc.open(fmt.Sprintf("%s %q", kind, name)) {
		return
	}
	o := &graph.Output{UID: d.ssc.g.Name(kind, name), Kind: kind, Input: d.op, Run: run}
	if task != nil {
		o.Task = task
	}
	d.ssc.g.Outputs = append(d.ssc.g.Outputs, o)
}

// Print writes the first n records of each batch to standard output, under a
// header with the batch time, and "..." if there are more.
func Print[T any](d DStream[T], name string, n int) {
	if n <= 0 {
		d.ssc.g.Errorf("print %q: n is %d: must be positive", name, n)
		n = 1
	}
	encodable[T](d.ssc, fmt.Sprintf("print %q", name))
	output(d, "print", name, nil, func(ctx context.Context, ob *driver.OutputBatch) error {
		b := &Batch[T]{b: ob, key: ob.Key()}
		records, err := b.Take(ctx, n+1)
		if err != nil {
			return err
		}
		const rule = "-------------------------------------------"
		var s strings.Builder
		fmt.Fprintf(&s, "%s\nTime: %s  %s\n%s\n", rule, ob.Time(), name, rule)
		for _, v := range records[:min(n, len(records))] {
			fmt.Fprintln(&s, v)
		}
		if len(records) > n {
			s.WriteString("...\n")
		}
		s.WriteByte('\n')
		_, err = ob.Stdout().Write([]byte(s.String()))
		return err
	})
}

// ForeachPartition calls f on executors for every partition of each batch. f
// may be called again for a partition whose attempt failed or was lost, and
// should write by t.Key, which is the same every time.
func ForeachPartition[T any](d DStream[T], name string, f func(t *Task, in iter.Seq[T]) error) {
	task := rdd.ForeachPartition(base.UID(name), fmt.Sprintf("foreachPartition %q", name), f)
	output(d, "foreachPartition", name, task, func(ctx context.Context, b *driver.OutputBatch) error {
		_, err := b.RunTasks(ctx)
		return err
	})
}

// ForeachBatch calls f on the driver for each batch. Work happens only if f
// asks for it. f may be called again for a batch whose run was cut short.
func ForeachBatch[T any](d DStream[T], name string, f func(ctx context.Context, b *Batch[T]) error) {
	encodable[T](d.ssc, fmt.Sprintf("foreachBatch %q", name))
	output(d, "foreachBatch", name, nil, func(ctx context.Context, ob *driver.OutputBatch) error {
		return f(ctx, &Batch[T]{b: ob, key: ob.Key()})
	})
}

// batchData is what a Batch can be made of: an output's batch or a slice's.
type batchData interface {
	Time() base.BatchTime
	Collect(ctx context.Context) ([][]byte, error)
	Take(ctx context.Context, n int, count func(frames [][]byte) int) ([][]byte, error)
	Count(ctx context.Context) (int64, error)
}

// Batch is one batch's data set on the driver. Its methods run jobs on the
// executors; the records they return are the caller's own.
type Batch[T any] struct {
	b   batchData
	key string
}

// Time is the batch time.
func (b *Batch[T]) Time() BatchTime { return b.b.Time() }

// Key is the same for all runs of this output at this batch: (job, run,
// operator, batch time). A sink that keeps it can drop what it already has.
func (b *Batch[T]) Key() string { return b.key }

// Collect returns all records in order. They must fit in memory.
func (b *Batch[T]) Collect(ctx context.Context) ([]T, error) {
	frames, err := b.b.Collect(ctx)
	if err != nil {
		return nil, err
	}
	return records[T](frames, -1)
}

// CollectPartitions returns all records, one slice per partition.
func (b *Batch[T]) CollectPartitions(ctx context.Context) ([][]T, error) {
	frames, err := b.b.Collect(ctx)
	if err != nil {
		return nil, err
	}
	out := make([][]T, len(frames))
	for i, f := range frames {
		if out[i], err = records[T]([][]byte{f}, -1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Take returns the first n records, computing as few partitions as it takes.
func (b *Batch[T]) Take(ctx context.Context, n int) ([]T, error) {
	if n <= 0 {
		return []T{}, nil
	}
	frames, err := b.b.Take(ctx, n, func(frames [][]byte) int {
		have := 0
		for _, f := range frames {
			if x, err := codec.TrustFrame(f); err == nil {
				have += x.Count
			}
		}
		return have
	})
	if err != nil {
		return nil, err
	}
	return records[T](frames, n)
}

// Count returns the number of records.
func (b *Batch[T]) Count(ctx context.Context) (int64, error) { return b.b.Count(ctx) }

// Reduce combines all records by f on the driver and returns false if there
// are none. The records travel to the driver: to combine them on executors,
// use the Reduce operation.
func (b *Batch[T]) Reduce(ctx context.Context, f func(a, b T) T) (T, bool, error) {
	var acc T
	all, err := b.Collect(ctx)
	for i, v := range all {
		if i == 0 {
			acc = v
		} else {
			acc = f(acc, v)
		}
	}
	return acc, len(all) > 0, err
}

// records decodes frames into records of the caller's own, at most limit if
// that is not negative.
func records[T any](frames [][]byte, limit int) ([]T, error) {
	c := codec.For[T]()
	out := []T{}
	for _, b := range frames {
		f, err := codec.OpenFrame(b)
		if err != nil {
			return nil, err
		}
		_, err = codec.EachInFrame(c, f, func(v T) bool {
			if limit >= 0 && len(out) == limit {
				return false
			}
			out = append(out, c.Clone(v))
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// SaveAsTextFiles writes each batch to a directory dir/name-T, T being the
// batch time in milliseconds: a file part-NNNNN per partition that has
// records, a line per record as format gives it (fmt.Sprint if nil), and a
// manifest _SUCCESS. The directory appears whole, by one rename, or not at all;
// one that has a manifest is never touched again. Empty batches leave no
// directory, unless KeepEmpty is given.
func SaveAsTextFiles[T any](d DStream[T], name, dir string, format func(T) string, opts ...Option) {
	if dir == "" {
		d.ssc.g.Errorf("saveAsTextFiles %q: the directory is empty: give a path", name)
	}
	line := func(dst []byte, v T) []byte { return fmt.Append(dst, v) }
	if format != nil {
		line = func(dst []byte, v T) []byte { return append(dst, format(v)...) }
	}
	task := rdd.WriteText(d.ssc.env.fs, base.UID(name), fmt.Sprintf("saveAsTextFiles %q", name), dir, line)
	output(d, "saveAsTextFiles", name, task, driver.CommitFiles(dir, options(opts).keepEmpty))
}
