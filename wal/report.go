package wal

import "fmt"

// Report says what a scan found.
type Report struct {
	Segments []SegmentReport
	Last     uint64 // highest sequence found, 0 if none
	Records  int64  // handed over
	Bytes    int64  // of their payloads
	Torn     []Torn
	Damaged  []Damaged // passed over, with ScanOptions.SkipDamaged
}

// SegmentReport describes one segment.
type SegmentReport struct {
	Number      uint64
	First, Last uint64 // sequences; Last is First-1 if it holds no record
	Records     int64
	Bytes       int64 // of the payloads
	Length      int64 // of the file, as far as it counts; 0 if the header is torn
	Sealed      bool
	Torn        int64 // bytes after Length that count for nothing
}

// Torn is the end of a write that was cut short, or an empty file: nothing that
// was acknowledged.
type Torn struct {
	File   string
	Offset int64
	Bytes  int64
}

// String is a line for a log.
func (t Torn) String() string {
	return fmt.Sprintf("segment %q: %d torn bytes at %d", t.File, t.Bytes, t.Offset)
}

// Damaged says which acknowledged records are lost, and where. Last is 0 if it
// is not known how many.
type Damaged struct {
	File        string
	Offset      int64
	First, Last uint64
	Err         error
}

// Limits is what a successor accepted of an epoch, to be recorded by it: a
// frozen writer that wakes up may append more, which later scans ignore.
type Limits struct {
	Last     uint64
	Segments []SegmentLength
}

// SegmentLength is how much of a segment was accepted.
type SegmentLength struct {
	Number uint64
	Length int64
}

// Limits returns what the scan accepted.
func (r Report) Limits() Limits {
	l := Limits{Last: r.Last}
	for _, s := range r.Segments {
		if s.Length > 0 {
			l.Segments = append(l.Segments, SegmentLength{Number: s.Number, Length: s.Length})
		}
	}
	return l
}

// length is how much of a segment counts, 0 if none of it does.
func (l Limits) length(number uint64) int64 {
	for _, s := range l.Segments {
		if s.Number == number {
			return s.Length
		}
	}
	return 0
}
