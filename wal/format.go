package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/tidemill/tidemill/internal/base"
)

// A segment is a header, records, and, if it was closed cleanly, a seal. All
// numbers are little endian; docs/formats.md shows every byte.
const (
	magic   = "TML"
	version = 1

	headerFixed  = 33 // the header without the log's name
	nameAt       = 29
	recordHeader = 20
	sealLength   = 32

	// sealMark stands where a record has its length, and is longer than any.
	sealMark = math.MaxUint32

	maxName = math.MaxUint8
	// mostRecord bounds Config.MaxRecord: a length below sealMark that fits an
	// int on every platform.
	mostRecord = math.MaxInt32 - recordHeader
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header says whose segment it is. First is the sequence of the first record
// the segment holds, or would have held.
type header struct {
	epoch  base.Epoch
	number uint64
	first  uint64
	log    string
}

func headerLength(log string) int64 { return headerFixed + int64(len(log)) }

func (h header) append(b []byte) []byte {
	start := len(b)
	b = append(b, magic...)
	b = append(b, version)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.epoch))
	b = binary.LittleEndian.AppendUint64(b, h.number)
	b = binary.LittleEndian.AppendUint64(b, h.first)
	b = append(b, byte(len(h.log)))
	b = append(b, h.log...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// versionError refuses a format that is not known yet (Invariant 12).
type versionError struct{ found byte }

func (e *versionError) Error() string {
	return fmt.Sprintf("format version %d, this program reads versions up to %d", e.found, version)
}

// parseHeader reads the header at the begin of b. It is false for anything but
// a whole header; a newer version is an error, since its header may be another.
func parseHeader(b []byte) (h header, ok bool, err error) {
	if len(b) > len(magic) && string(b[:len(magic)]) == magic && b[len(magic)] > version {
		return header{}, false, &versionError{found: b[len(magic)]}
	}
	if len(b) < headerFixed || string(b[:len(magic)]) != magic || b[len(magic)] != version {
		return header{}, false, nil
	}
	n := int(b[nameAt-1])
	if len(b) < headerFixed+n {
		return header{}, false, nil
	}
	end := nameAt + n
	if binary.LittleEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], castagnoli) {
		return header{}, false, nil
	}
	return header{
		epoch:  base.Epoch(binary.LittleEndian.Uint64(b[4:])),
		number: binary.LittleEndian.Uint64(b[12:]),
		first:  binary.LittleEndian.Uint64(b[20:]),
		log:    string(b[nameAt:end]),
	}, true, nil
}

// appendRecordHeader puts down what goes before a payload with the checksum
// sum. Acked is the lowest sequence that was not acknowledged yet.
func appendRecordHeader(b []byte, length int, sum uint32, seq, acked uint64) []byte {
	start := len(b)
	b = append(b, make([]byte, recordHeader)...)
	h := b[start:]
	binary.LittleEndian.PutUint32(h, uint32(length))
	binary.LittleEndian.PutUint64(h[8:], seq)
	distance := seq + 1 - acked
	if distance > math.MaxUint32 {
		distance = 0 // says nothing
	}
	binary.LittleEndian.PutUint32(h[16:], uint32(distance))
	binary.LittleEndian.PutUint32(h[4:], recordSum(sum, h))
	return b
}

// recordSum is the checksum of a record: of the payload first, so that the
// caller of Start pays for most of it and not the goroutine that writes.
func recordSum(payload uint32, h []byte) uint32 {
	sum := crc32.Update(payload, castagnoli, h[0:4])
	return crc32.Update(sum, castagnoli, h[8:recordHeader])
}

// fields are those of a record's header. Nothing in them may be believed before
// the checksum of header and payload holds.
type fields struct {
	length uint32
	sum    uint32
	seq    uint64
	acked  uint64 // lowest sequence that was not acknowledged when this was written; 0 if unknown
}

func parseFields(h []byte) fields {
	f := fields{
		length: binary.LittleEndian.Uint32(h),
		sum:    binary.LittleEndian.Uint32(h[4:]),
		seq:    binary.LittleEndian.Uint64(h[8:]),
	}
	if d := uint64(binary.LittleEndian.Uint32(h[16:])); d > 0 && d <= f.seq+1 {
		f.acked = f.seq + 1 - d
	}
	return f
}

// checkRecord looks at the record that begins b. It is true if the length fits
// into b and the checksum holds; payload is a capped part of b.
func checkRecord(b []byte) (f fields, payload []byte, sum uint32, ok bool) {
	if len(b) < recordHeader {
		return fields{}, nil, 0, false
	}
	f = parseFields(b)
	if int64(f.length) > int64(len(b)-recordHeader) {
		return f, nil, 0, false
	}
	end := recordHeader + int(f.length)
	payload = b[recordHeader:end:end]
	sum = crc32.Checksum(payload, castagnoli)
	return f, payload, sum, recordSum(sum, b) == f.sum
}

// seal ends a segment. It is a function of what is before it, so a reader knows
// every byte that must be there.
type seal struct {
	count  uint64
	last   uint64
	length int64 // of the segment before the seal
}

func (s seal) append(b []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, sealLength)...)
	h := b[start:]
	binary.LittleEndian.PutUint32(h, sealMark)
	binary.LittleEndian.PutUint64(h[8:], s.count)
	binary.LittleEndian.PutUint64(h[16:], s.last)
	binary.LittleEndian.PutUint64(h[24:], uint64(s.length))
	binary.LittleEndian.PutUint32(h[4:], sealSum(h))
	return b
}

func sealSum(h []byte) uint32 {
	sum := crc32.Checksum(h[0:4], castagnoli)
	return crc32.Update(sum, castagnoli, h[8:sealLength])
}

func parseSeal(h []byte) (seal, bool) {
	if len(h) < sealLength || binary.LittleEndian.Uint32(h) != sealMark || binary.LittleEndian.Uint32(h[4:]) != sealSum(h) {
		return seal{}, false
	}
	return seal{
		count:  binary.LittleEndian.Uint64(h[8:]),
		last:   binary.LittleEndian.Uint64(h[16:]),
		length: int64(binary.LittleEndian.Uint64(h[24:])),
	}, true
}
