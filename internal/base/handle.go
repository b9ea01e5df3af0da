package base

import "fmt"

// Handle says where a record lies in a write-ahead log: exactly these bytes of
// this segment, which has one content for ever.
type Handle struct {
	Log     string // the log's name: a stream's for received blocks
	Epoch   Epoch  // of the writer
	Segment uint64
	Offset  int64 // of the record in the segment, in bytes
	Length  int64 // of the record's payload, in bytes
}

// IsZero reports whether h names nothing.
func (h Handle) IsZero() bool { return h == Handle{} }

func (h Handle) String() string {
	return fmt.Sprintf("%s/e-%d/%d@%d+%d", h.Log, h.Epoch, h.Segment, h.Offset, h.Length)
}
