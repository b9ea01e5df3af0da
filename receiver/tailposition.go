package receiver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tailVersion is the version of an encoded tailPosition (Invariant 12).
const tailVersion = 1

// tailPosition says how far each file of a directory has been read, by name.
type tailPosition map[string]int64

// append encodes p behind dst:
//
//	1 byte            version
//	and for each file, sorted by name:
//	uvarint           bytes of the name that are those of the name before
//	uvarint, bytes    length of the rest of the name, and the rest
//	uvarint           offset
//
// Names of log files begin alike, and the position travels with every block.
func (p tailPosition) append(dst []byte) []byte {
	dst = append(dst, tailVersion)
	before := ""
	for _, name := range slices.Sorted(maps.Keys(p)) {
		same := 0
		for same < min(len(name), len(before)) && name[same] == before[same] {
			same++
		}
		dst = binary.AppendUvarint(dst, uint64(same))
		dst = binary.AppendUvarint(dst, uint64(len(name)-same))
		dst = append(dst, name[same:]...)
		dst = binary.AppendUvarint(dst, uint64(p[name]))
		before = name
	}
	return dst
}

// parseTailPosition decodes what append made. Nothing is the begin.
func parseTailPosition(b []byte) (tailPosition, error) {
	p := tailPosition{}
	if len(b) == 0 {
		return p, nil
	}
	if b[0] != tailVersion {
		return nil, fmt.Errorf("its position has version %d, this program reads %d", b[0], tailVersion)
	}
	r := positionReader{b: b[1:]}
	before := ""
	for len(r.b) > 0 {
		same, rest := r.uvarint(), r.uvarint()
		if r.bad || same > uint64(len(before)) || rest > uint64(len(r.b)) {
			return nil, errPosition
		}
		name := before[:same] + string(r.b[:rest])
		r.b = r.b[rest:]
		offset := int64(r.uvarint())
		if r.bad || offset < 0 || len(p) > 0 && strings.Compare(before, name) >= 0 {
			return nil, errPosition
		}
		p[name], before = offset, name
	}
	return p, nil
}

var errPosition = errors.New("its position is no position of a directory")

type positionReader struct {
	b   []byte
	bad bool
}

func (r *positionReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}
