package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"runtime"
	"slices"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

const (
	mostParallel = 4
	// aheadBytes bounds what is read and not handed over yet.
	aheadBytes = 8 << 20
)

// ScanOptions says what to read. Its zero value reads everything.
type ScanOptions struct {
	// From is the first sequence that is wanted. Damage that costs only lower
	// ones is passed over.
	From uint64
	// Limits is what the successor of the epoch recorded. Everything beyond is
	// ignored; less is damage.
	Limits *Limits
	// MaxRecord refuses longer payloads, with an error that names both
	// numbers. If 0, what the file holds is read.
	MaxRecord int64
	// Parallel is the number of segments read at once; if 0, as many as there
	// are processors, at most 4.
	Parallel int
	// SkipDamaged goes on after damage. Report.Damaged says what is lost.
	SkipDamaged bool
}

// Scan reads the segments of one epoch directory in order and hands every record
// whose sequence is at least From to each, once, in the order of the sequences.
// Segments are read and checked in parallel. Each runs on the caller's goroutine;
// rec is good until it returns.
//
// A torn tail is reported and passed over. Damage is an error that wraps
// [base.ErrCorrupt] and names file and offset (Invariant 8); the records before
// it have been handed over. What was read is synced, if the file system can do
// that for a file being read, so that what a successor builds on does not go away.
func Scan(ctx context.Context, fs fsys.FS, dir string, o ScanOptions, each func(seq uint64, h base.Handle, rec []byte) error) (Report, error) {
	s := &scan{fs: fs, dir: dir, o: o, each: each, sync: true}
	return s.run(ctx)
}

type scan struct {
	fs   fsys.FS
	dir  string
	o    ScanOptions
	each func(uint64, base.Handle, []byte) error
	// gapsAllowed passes over missing segment numbers, which a Store leaves.
	gapsAllowed bool
	sync        bool // make what is read durable

	report  Report
	epoch   base.Epoch
	log     string
	started bool      // a header was seen
	next    uint64    // sequence due
	before  uint64    // number of the segment before
	open    []digests // of segments that were not sealed
	bad     *badEnd
}

// digests tell whether a record that comes again is the same.
type digests struct {
	first   uint64
	records []digest
}

type digest struct {
	sum    uint32
	length uint32
}

// badEnd is what is not a record at the end of a segment. What follows says
// whether anything that counts was lost.
type badEnd struct {
	file   string
	offset int64
	due    uint64
	sealed bool
	last   uint64 // of a sealed segment
	damage error
}

// piece is some records and what they weigh in tokens.
type piece struct {
	*buffer
	tokens int
}

// found is a segment being read.
type found struct {
	file   string
	number uint64
	limit  int64
	begun  chan struct{} // closed when check's header is there, or never will be
	pieces chan piece
	room   chan struct{} // holds a token for each chunkBytes in pieces
	check  check
	err    error // set before pieces is closed
}

func (s *scan) run(ctx context.Context) (Report, error) {
	segments, err := listSegments(s.fs, s.dir)
	if err != nil {
		return s.report, fmt.Errorf("wal: scan %q: %w", s.dir, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	parallel := cmp.Or(max(s.o.Parallel, 0), min(mostParallel, runtime.GOMAXPROCS(0)))
	ahead := make(chan *found, parallel-1)
	var pool buffers
	wg.Go(func() {
		defer close(ahead)
		for _, in := range segments {
			f := &found{file: join(s.dir, in.Name), begun: make(chan struct{}), limit: -1}
			f.number, _ = parseSegmentFile(in.Name)
			if s.o.Limits != nil {
				if f.limit = s.o.Limits.length(f.number); f.limit == 0 {
					continue
				}
			}
			room := max(1, aheadBytes/chunkBytes/parallel)
			f.pieces, f.room = make(chan piece, room), make(chan struct{}, room)
			select {
			case ahead <- f:
			case <-ctx.Done():
				return
			}
			wg.Go(func() { f.read(ctx, s.fs, &pool, s.sync) })
		}
	})
	for f := range ahead {
		if err := s.segment(f, &pool); err != nil {
			return s.report, err
		}
	}
	if err := ctx.Err(); err != nil {
		return s.report, fmt.Errorf("wal: scan %q: %w", s.dir, err)
	}
	return s.report, s.finish()
}

// listSegments returns the segment files of an epoch directory in order.
func listSegments(fs fsys.FS, dir string) ([]fsys.Info, error) {
	infos, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	infos = slices.DeleteFunc(infos, func(in fsys.Info) bool {
		_, ok := parseSegmentFile(in.Name)
		return !ok || in.Dir
	})
	slices.SortFunc(infos, func(a, b fsys.Info) int {
		x, _ := parseSegmentFile(a.Name)
		y, _ := parseSegmentFile(b.Name)
		return cmp.Compare(x, y)
	})
	return infos, nil
}

// read checks a segment on a goroutine of its own.
func (f *found) read(ctx context.Context, fs fsys.FS, pool *buffers, sync bool) {
	defer close(f.pieces)
	begun := false
	begin := func() {
		if !begun {
			begun = true
			close(f.begun)
		}
	}
	defer begin()
	f.err = func() error {
		r, err := fs.Open(f.file)
		if err != nil {
			return err
		}
		defer r.Close()
		f.check = check{r: r, number: f.number, size: r.Size(), pool: pool}
		if f.limit >= 0 {
			if f.limit > r.Size() {
				f.check.damage = fmt.Errorf("%d bytes are left of %d that were accepted", r.Size(), f.limit)
				return nil
			}
			f.check.size = f.limit
		}
		err = f.check.run(begin, func(b *buffer) error { return f.emit(ctx, b) })
		if err == nil && sync { // below level sync also a sealed segment may not be on disk
			err = syncReader(r)
		}
		return err
	}()
}

func (f *found) emit(ctx context.Context, b *buffer) error {
	size := int64(cap(b.bytes))
	p := piece{buffer: b, tokens: int(min(1+size/chunkBytes, int64(cap(f.room))))}
	for range p.tokens {
		select {
		case f.room <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.pieces <- p // there is space: every piece has a token
	return nil
}

// syncReader makes durable what was read, where a file that is open for reading
// can do that.
func syncReader(r fsys.Reader) error {
	file, ok := r.(interface{ Sync() error })
	if !ok {
		return nil
	}
	if err := file.Sync(); !errors.Is(err, iofs.ErrPermission) {
		return err
	}
	return nil
}

// segment takes one segment in.
func (s *scan) segment(f *found, pool *buffers) error {
	<-f.begun
	c := &f.check
	if c.named {
		if err := s.join(f); err != nil {
			return err
		}
	}
	s.before = f.number
	keep := digests{first: c.header.first}
	for p := range f.pieces {
		for _, r := range p.records {
			if err := s.record(f, r); err != nil {
				return err
			}
			if !c.sealed {
				keep.records = append(keep.records, digest{sum: r.sum, length: uint32(len(r.payload))})
			}
		}
		pool.put(p.buffer)
		for range p.tokens {
			<-f.room
		}
	}
	if f.err != nil {
		return fmt.Errorf("wal: read segment %q: %w", f.file, f.err)
	}
	if len(keep.records) > 0 {
		s.open = append(s.open, keep)
	}
	report := SegmentReport{Number: f.number, Records: c.records, Bytes: c.bytes, Length: c.offset, Sealed: c.sealed && c.damage == nil}
	if c.named {
		report.First, report.Last = c.header.first, c.next-1
	}
	if c.torn() > 0 || c.size == 0 || c.damage != nil {
		report.Torn = c.torn()
		s.report.Torn = append(s.report.Torn, Torn{File: f.file, Offset: c.offset, Bytes: c.torn()})
		if s.bad == nil || s.bad.damage == nil && c.damage != nil {
			s.bad = &badEnd{file: f.file, offset: c.offset, due: s.next, sealed: c.sealed, last: c.seal.last, damage: c.damage}
		}
	}
	s.report.Segments = append(s.report.Segments, report)
	return nil
}

// join looks at a segment's header: whose it is, and whether anything is missing
// before it.
func (s *scan) join(f *found) error {
	h := f.check.header
	if s.started && (h.epoch != s.epoch || h.log != s.log) {
		return corrupt(s.dir, f.file, 0, fmt.Errorf("a segment of %q at epoch %s among those of %q at epoch %s", h.log, h.epoch, s.log, s.epoch))
	}
	removed := s.gapsAllowed && f.number > s.before+1
	missing := s.started && h.first > s.next && !removed
	if damaged := s.bad != nil && s.bad.damage != nil; (missing || damaged) && h.first > s.o.From {
		if err := s.lost(f.file, max(s.next, s.o.From), h.first-1); err != nil {
			return err
		}
	}
	s.bad = nil
	if !s.started {
		s.started, s.epoch, s.log, s.next = true, h.epoch, h.log, h.first
	}
	if h.first > s.next {
		s.next = h.first
	}
	s.open = slices.DeleteFunc(s.open, func(d digests) bool { return d.first+uint64(len(d.records)) <= h.first })
	return nil
}

// lost deals with missing records: an error, unless damage is passed over.
func (s *scan) lost(file string, first, last uint64) error {
	var offset int64
	why := fmt.Errorf("records %d to %d are missing before it", first, last)
	if s.bad != nil {
		file, offset = s.bad.file, s.bad.offset
		why = fmt.Errorf("records %d to %d were acknowledged and can't be read", first, last)
		if s.bad.damage != nil {
			why = s.bad.damage
		}
	}
	err := corrupt(s.dir, file, offset, why)
	if !s.o.SkipDamaged {
		return err
	}
	s.report.Damaged = append(s.report.Damaged, Damaged{File: file, Offset: offset, First: first, Last: last, Err: err})
	return nil
}

// record hands one over, once (Invariant 14).
func (s *scan) record(f *found, r record) error {
	if s.o.Limits != nil && r.seq > s.o.Limits.Last {
		return nil
	}
	if r.seq < s.next {
		return s.again(f, r)
	}
	s.next = r.seq + 1
	s.report.Last = r.seq
	if r.seq < s.o.From {
		return nil
	}
	if s.o.MaxRecord > 0 && int64(len(r.payload)) > s.o.MaxRecord {
		return fmt.Errorf("wal: segment %q at %d: record of %d bytes, the limit is %d", f.file, r.offset, len(r.payload), s.o.MaxRecord)
	}
	s.report.Records++
	s.report.Bytes += int64(len(r.payload))
	h := f.check.header
	return s.each(r.seq, base.Handle{Log: h.log, Epoch: h.epoch, Segment: h.number, Offset: r.offset, Length: int64(len(r.payload))}, r.payload)
}

// again checks a record whose sequence was met before.
func (s *scan) again(f *found, r record) error {
	for _, d := range s.open {
		if r.seq < d.first || r.seq-d.first >= uint64(len(d.records)) {
			continue
		}
		if d.records[r.seq-d.first] != (digest{sum: r.sum, length: uint32(len(r.payload))}) {
			return corrupt(s.dir, f.file, r.offset, fmt.Errorf("sequence %d again with other bytes", r.seq))
		}
		return nil
	}
	return corrupt(s.dir, f.file, r.offset, fmt.Errorf("sequence %d again, after a sealed segment that holds it", r.seq))
}

// finish judges the end of the log.
func (s *scan) finish() error {
	if b := s.bad; b != nil && b.damage != nil && !(b.sealed && b.last < s.o.From) {
		last := uint64(0)
		if b.sealed {
			last = b.last
		}
		if err := s.lost(b.file, b.due, last); err != nil {
			return err
		}
		return nil
	}
	if l := s.o.Limits; l != nil && s.report.Last < l.Last && l.Last >= s.o.From {
		err := fmt.Errorf("wal: %q: %w: the last record is %d, %d was accepted; to see more: tidemill wal verify %s", s.dir, base.ErrCorrupt, s.report.Last, l.Last, s.dir)
		if !s.o.SkipDamaged {
			return err
		}
		s.report.Damaged = append(s.report.Damaged, Damaged{File: s.dir, First: s.report.Last + 1, Last: l.Last, Err: err})
	}
	return nil
}
