package checkpoint

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// A snapshot file is a header and a body:
//
//	offset  bytes  what
//	0       4      magic "TMC" and the format version, 1
//	4       8      epoch of the driver, little endian
//	12      8      sequence number of the last log record it holds, little endian
//	20      8      length of the body in bytes, little endian
//	28      4      CRC32C of everything but itself, little endian
//	32      ...    body
const (
	fileMagic   = "TMC"
	fileVersion = 1
	fileHead    = 32
	maxBody     = 1 << 30
)

// Names of snapshots and of files that are to become one.
const (
	namePrefix = "snap-"
	nameSuffix = ".tms"
	tempSuffix = ".tmp"
)

// Snapshot is what the driver's log says up to and including Seq, in one file.
type Snapshot struct {
	Epoch base.Epoch
	Seq   uint64
	Body  []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header returns the bytes before the body.
func (s Snapshot) header() []byte {
	b := make([]byte, fileHead)
	copy(b, fileMagic)
	b[3] = fileVersion
	binary.LittleEndian.PutUint64(b[4:], uint64(s.Epoch))
	binary.LittleEndian.PutUint64(b[12:], s.Seq)
	binary.LittleEndian.PutUint64(b[20:], uint64(len(s.Body)))
	binary.LittleEndian.PutUint32(b[28:], checksum(b, s.Body))
	return b
}

func checksum(header, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(header[:28], castagnoli), castagnoli, body)
}

// fits refuses to write what could not be read.
func fits(size int64) error {
	if size > maxBody {
		return fmt.Errorf("the facts take %d bytes, a snapshot holds %d", size, maxBody)
	}
	return nil
}

// Read returns the snapshot of a file. One that is damaged gives
// base.ErrCorrupt, one of a newer format an error with both versions; both name the file.
func Read(f fsys.FS, path string) (Snapshot, error) {
	s, err := read(f, path)
	if err != nil {
		return Snapshot{}, fmt.Errorf("checkpoint: read snapshot %s: %w", path, err)
	}
	return s, nil
}

func read(f fsys.FS, path string) (s Snapshot, err error) {
	r, err := f.Open(path)
	if err != nil {
		return s, err
	}
	defer func() { _ = r.Close() }() // it was only read
	head := make([]byte, fileHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return s, early(err)
	}
	if string(head[:3]) != fileMagic {
		return s, fmt.Errorf("%w: no snapshot begins with %q", base.ErrCorrupt, head[:3])
	}
	if head[3] != fileVersion { // Invariant 12
		return s, fmt.Errorf("it has format version %d, this program reads %d", head[3], fileVersion)
	}
	s.Epoch, s.Seq = base.Epoch(binary.LittleEndian.Uint64(head[4:])), binary.LittleEndian.Uint64(head[12:])
	// The length is believed only if the file has it, so it costs no more memory
	// than there are bytes (Invariant 8).
	size := binary.LittleEndian.Uint64(head[20:])
	if size > maxBody || int64(size) != r.Size()-fileHead {
		return s, fmt.Errorf("%w: it says %d bytes of facts, there are %d", base.ErrCorrupt, size, r.Size()-fileHead)
	}
	s.Body = make([]byte, size)
	if _, err := io.ReadFull(r, s.Body); err != nil {
		return s, early(err)
	}
	if got, want := checksum(head, s.Body), binary.LittleEndian.Uint32(head[28:]); got != want {
		return s, fmt.Errorf("%w: checksum is %08x, its header says %08x", base.ErrCorrupt, got, want)
	}
	if seq, ok := seqOf(baseName(path)); ok && seq != s.Seq {
		return s, fmt.Errorf("%w: it holds the facts up to %d, its name says %d", base.ErrCorrupt, s.Seq, seq)
	}
	return s, nil
}

// early says what the end of a file in the middle of something is.
func early(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // ReadFull returns them bare
		return fmt.Errorf("%w: it ends early", base.ErrCorrupt)
	}
	return err
}

// nameOf returns the name of the snapshot at seq.
func nameOf(seq uint64) string { return fmt.Sprintf("%s%016d%s", namePrefix, seq, nameSuffix) }

// seqOf returns the sequence number that the name of a snapshot says.
func seqOf(name string) (uint64, bool) {
	digits := strings.TrimSuffix(strings.TrimPrefix(name, namePrefix), nameSuffix)
	seq, err := strconv.ParseUint(digits, 10, 64)
	return seq, err == nil && name == nameOf(seq)
}

// isTemp reports whether a name is that of a file that was to become a snapshot.
func isTemp(name string) bool {
	return strings.HasPrefix(name, namePrefix) && strings.HasSuffix(name, tempSuffix)
}

// epochOf returns the epoch that a directory's name says, 0 if it says none.
func epochOf(dir string) base.Epoch {
	digits, ok := strings.CutPrefix(strings.TrimSuffix(baseName(dir), ".sealed"), "e-")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || n == math.MaxUint64 {
		return 0
	}
	return base.Epoch(n)
}
