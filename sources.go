package tidemill

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/rdd"
	"github.com/tidemill/tidemill/receiver"
)

// SocketText reads lines of text from a TCP server at addr (host:port), one
// receiver per stream. Lines end with LF or CRLF; bytes that are not UTF-8
// become U+FFFD. When the connection ends it is opened again, after a back-off.
func SocketText(ssc *StreamingContext, name, addr string, opts ...Option) DStream[string] {
	return ReceiverStream(ssc, name, receiver.SocketText(addr), opts...)
}

// SocketFrames reads frames of bytes from a TCP server at addr (host:port), one
// receiver per stream: a length of four bytes, big endian, and that many bytes,
// which are a record as they are. A length over 16 MiB is an error and ends the
// connection; a frame that the connection ends in the middle of is dropped and
// reported. When the connection ends it is opened again, after a back-off. Give
// ReceiverStream a [receiver.FrameSocket] to set the limit.
func SocketFrames(ssc *StreamingContext, name, addr string, opts ...Option) DStream[[]byte] {
	return ReceiverStream(ssc, name, receiver.SocketFrames(addr), opts...)
}

// HTTPIngest listens at addr (host:port, on the executor that hosts the
// receiver) and takes records from requests POST /: each line of a body of at
// most 8 MiB, or with ?mode=body the whole body. The answer 200 says that the
// records are stored and known to the driver; after 429 and 503 nothing is
// stored; after 500, or without an answer, it is not known, and sending again
// may give a record twice. With port 0 the system picks one, which the log and
// ReceiverStarted show. There is no encryption and no authentication. Give
// ReceiverStream a [receiver.HTTP] to set the limits.
func HTTPIngest(ssc *StreamingContext, name, addr string, opts ...Option) DStream[string] {
	return ReceiverStream(ssc, name, receiver.HTTPIngest(addr), opts...)
}

// TailDir follows the files of a directory that others append lines to, in the
// order of their names: every complete line is a record exactly once, also
// after the receiver was started again, here or on another executor, if that
// sees the same directory. It looks every 200 ms. Files may only grow; to rotate
// begin a file with a new name instead of renaming one. A file that has become
// shorter is reported and read again from its begin. Lines over 1 MiB are
// skipped and reported. Give ReceiverStream a [receiver.DirTail] to set the
// limits.
func TailDir(ssc *StreamingContext, name, dir string, opts ...Option) DStream[string] {
	if dir == "" {
		ssc.g.Errorf("tailDir %q: the directory is empty: give a path", name)
	}
	return ReceiverStream(ssc, name, receiver.TailDir(ssc.env.fs, dir), opts...)
}

// ReceiverStream brings records in through a receiver; open makes one for
// every start. Blocks are kept at the level given by Level, in memory and on
// disk by default.
func ReceiverStream[T any](ssc *StreamingContext, name string, open func() Receiver[T], opts ...Option) DStream[T] {
	o := options(opts)
	encodable[T](ssc, fmt.Sprintf("receiver %q", name))
	c := codec.For[T]()
	d := add(ssc, opSpec{kind: "receiver", name: name}, func(b *plan.Builder) (RDD[T], bool, error) {
		in, ok := b.Input()
		if !ok || in.Absent {
			return RDD[T]{}, false, nil
		}
		return rdd.FromBlocks(b.Scope, c, in.Blocks, in.Parts), true, nil
	})
	if !o.level.Valid() {
		ssc.g.Errorf("receiver %q: %v is no storage level: use MemoryOnly, MemoryAndDisk or DiskOnly", name, o.level)
	}
	ssc.source(&graph.Source{Op: d.op, Receiver: receiver.NewRunner(name, open, c, receiver.Options{Level: o.level, PreferredHost: o.host})})
	return d
}

// source adds a source unless the graph is closed.
func (ssc *StreamingContext) source(s *graph.Source) {
	if !ssc.g.Finished() {
		ssc.g.Sources = append(ssc.g.Sources, s)
	}
}

// Source is a source without receiver: the driver plans what each batch takes
// of it, and tasks read exactly that. Its methods use internal types, so it is
// for sources of this module.
type Source[T any] interface {
	graph.Planner
	// Data makes the data set of what Plan put into the batch's plan.
	Data(b *plan.Builder, in plan.Input) (RDD[T], error)
}

// FromSource makes a stream of a source. kind says what it is, in displays.
func FromSource[T any](ssc *StreamingContext, name, kind string, src Source[T]) DStream[T] {
	d := add(ssc, opSpec{kind: kind, name: name}, func(b *plan.Builder) (RDD[T], bool, error) {
		in, ok := b.Input()
		if !ok || in.Absent {
			return RDD[T]{}, false, nil
		}
		r, err := src.Data(b, in)
		return r, err == nil, err
	})
	ssc.source(&graph.Source{Op: d.op, Planner: src})
	return d
}

// Queue feeds a QueueStream: every Push is the input of one batch. It is made
// outside of Build and may be pushed to at any time by any goroutine of the
// driver's process.
type Queue[T any] struct {
	mu      sync.Mutex
	batches [][]T
	feeds   string // the stream that takes from it while its job runs
}

// Push queues the records of one batch.
func (q *Queue[T]) Push(records ...T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.batches = append(q.batches, slices.Clone(records))
}

// Len returns the number of queued batches.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.batches)
}

// QueueStream takes one entry of q into each batch, or all with AllQueued; an
// empty queue gives an empty batch. The records travel in the batch's plan, so
// a batch can be run again. It is meant for tests and small inputs.
func QueueStream[T any](ssc *StreamingContext, name string, q *Queue[T], opts ...Option) DStream[T] {
	o := options(opts)
	encodable[T](ssc, fmt.Sprintf("queue %q", name))
	parts := inputParts(ssc, "queue", name, o)
	return FromSource(ssc, name, "queue", &queueSource[T]{name: name, q: q, all: o.allQueued, parts: parts, c: codec.For[T]()})
}

func inputParts(ssc *StreamingContext, kind, name string, o opOptions) int {
	switch {
	case o.inputParts < 0:
		ssc.g.Errorf("%s %q: the partition count is %d: must be positive", kind, name, o.inputParts)
		return 1
	case o.inputParts == 0:
		return ssc.cfg.Parallelism
	}
	return o.inputParts
}

type queueSource[T any] struct {
	name  string
	q     *Queue[T]
	all   bool
	parts int
	c     *codec.Codec[T]
	open  bool
	taken int // entries in the plan that was made last
}

func (s *queueSource[T]) Open(context.Context, BatchTime) error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.q.feeds != "" {
		return fmt.Errorf("queue %q: its Queue already feeds stream %q: give each stream a Queue of its own", s.name, s.q.feeds)
	}
	s.q.feeds, s.open = s.name, true
	return nil
}

func (s *queueSource[T]) Close() error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.open {
		s.q.feeds, s.open = "", false
	}
	return nil
}

func (s *queueSource[T]) Plan(_ context.Context, _ BatchTime, limit graph.Limit) (plan.Input, error) {
	s.q.mu.Lock()
	entries := s.q.batches
	s.q.mu.Unlock()
	var records []T
	var bytes int64
	s.taken = 0
	for _, e := range entries {
		if s.taken > 0 && !s.all {
			break
		}
		size, err := s.size(e)
		if err != nil {
			return plan.Input{}, err
		}
		bytes += size
		if s.taken > 0 && (limit.Records > 0 && int64(len(records)+len(e)) > limit.Records || limit.Bytes > 0 && bytes > limit.Bytes) {
			break
		}
		records = append(records, e...)
		s.taken++
	}
	return PlannedRecords(s.c, records, s.parts)
}

// size is the number of encoded bytes of the records.
func (s *queueSource[T]) size(records []T) (n int64, err error) {
	var buf []byte
	for _, v := range records {
		if buf, err = s.c.Append(buf[:0], v); err != nil {
			return 0, err
		}
		n += int64(len(buf))
	}
	return n, nil
}

func (s *queueSource[T]) Planned(BatchTime, plan.Input) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.q.batches = slices.Delete(s.q.batches, 0, s.taken)
	s.taken = 0
}

func (s *queueSource[T]) Data(b *plan.Builder, in plan.Input) (RDD[T], error) {
	return RecordsOf(b, s.c, in)
}

// PlannedRecords puts records into a plan, cut into parts of nearly equal size.
func PlannedRecords[T any](c *codec.Codec[T], records []T, parts int) (plan.Input, error) {
	frames := make([][]byte, parts)
	var bytes int64
	for i := range frames {
		w := codec.NewFrameWriter(c)
		for _, v := range records[i*len(records)/parts : (i+1)*len(records)/parts] {
			if err := w.Append(v); err != nil {
				return plan.Input{}, err
			}
		}
		frames[i] = w.Finish()
		bytes += int64(len(frames[i]))
	}
	data, err := msgpack.Marshal(frames)
	return plan.Input{Records: int64(len(records)), Bytes: bytes, Parts: parts, Data: data}, err
}

// RecordsOf makes the data set of what PlannedRecords put into a plan.
func RecordsOf[T any](b *plan.Builder, c *codec.Codec[T], in plan.Input) (RDD[T], error) {
	var frames [][]byte
	if err := msgpack.Unmarshal(in.Data, &frames); err != nil {
		return RDD[T]{}, fmt.Errorf("plan of %s: %w", b.Scope.Set, err)
	}
	return rdd.FromFrames(b.Scope, "records", c, frames), nil
}

// ConstantStream has the same records in every batch.
func ConstantStream[T any](ssc *StreamingContext, name string, records []T, opts ...Option) DStream[T] {
	o := options(opts)
	n := inputParts(ssc, "constant", name, o)
	s := constantSource[T]{}
	for i := range n {
		s.parts = append(s.parts, records[i*len(records)/n:(i+1)*len(records)/n])
	}
	s.records = int64(len(records))
	return FromSource(ssc, name, "constant", Source[T](s))
}

type constantSource[T any] struct {
	parts   [][]T
	records int64
}

func (constantSource[T]) Open(context.Context, BatchTime) error { return nil }
func (constantSource[T]) Close() error                          { return nil }
func (constantSource[T]) Planned(BatchTime, plan.Input)         {}

func (s constantSource[T]) Plan(context.Context, BatchTime, graph.Limit) (plan.Input, error) {
	return plan.Input{Records: s.records, Bytes: -1, Parts: len(s.parts)}, nil
}

func (s constantSource[T]) Data(b *plan.Builder, _ plan.Input) (RDD[T], error) {
	return rdd.FromSlices(b.Scope, "constant", s.parts), nil
}

// TextFileStream reads the lines of new files of a directory, which may be a
// pattern for several. Files must be complete when they appear: write them
// elsewhere and move them in. Names that start with "." or "_" or end in
// ".tmp" or "._COPYING_" are left alone. A file belongs to the batch in which
// its modification time falls and is known by name, size and that time; files
// older than the file-remember setting are not seen.
func TextFileStream(ssc *StreamingContext, name, dir string, opts ...Option) DStream[string] {
	fsy := ssc.env.fs
	return fileStream(ssc, name, "textFiles", dir, 1, opts, func(b *plan.Builder, files []rdd.File) RDD[string] {
		return rdd.TextFiles(b.Scope, fsy, files)
	})
}

// BinaryRecordsStream reads records of a fixed length in bytes from new files
// of a directory, as TextFileStream does lines. A file whose size is no
// multiple of the length fails its batch.
func BinaryRecordsStream(ssc *StreamingContext, name, dir string, length int, opts ...Option) DStream[[]byte] {
	fsy := ssc.env.fs
	if length <= 0 {
		ssc.g.Errorf("recordFiles %q: the record length is %d bytes: must be positive", name, length)
		length = 1
	}
	return fileStream(ssc, name, "recordFiles", dir, length, opts, func(b *plan.Builder, files []rdd.File) RDD[[]byte] {
		return rdd.RecordFiles(b.Scope, fsy, files, length)
	})
}

func fileStream[T any](ssc *StreamingContext, name, kind, dir string, recordBytes int, opts []Option, read func(*plan.Builder, []rdd.File) RDD[T]) DStream[T] {
	if dir == "" {
		ssc.g.Errorf("%s %q: the directory is empty: give a path", kind, name)
	}
	src := &fileSource[T]{read: read, FileSource: driver.FileSource{
		FS: ssc.env.fs, Dir: dir, Existing: options(opts).existing,
		Interval: ssc.cfg.BatchInterval, Remember: ssc.cfg.FileRemember, RecordBytes: recordBytes,
	}}
	return FromSource(ssc, name, kind, Source[T](src))
}

type fileSource[T any] struct {
	driver.FileSource
	read func(*plan.Builder, []rdd.File) RDD[T]
}

func (s *fileSource[T]) Data(b *plan.Builder, in plan.Input) (RDD[T], error) {
	files, err := driver.Files(in)
	if err != nil {
		return RDD[T]{}, err
	}
	return s.read(b, files), nil
}
