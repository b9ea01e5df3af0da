package state

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
)

// A window file is a header and parts:
//
//	offset  bytes  what
//	0       4      magic "TMW" and the format version, 1
//	4       1      kind: 1 snapshot, 2 delta
//	5       8      batch time, milliseconds, little endian
//	13      8      end of the last emitted window, 0 if there was none
//	21      8      its begin: panes that end at or before it are gone
//	29      4      CRC32C of everything but itself, little endian
//	33      ...    schema, as in a state file;
//	               number of contributions (uvarint); of each: pane end
//	               (varint), record count (uvarint), length (uvarint), pairs;
//	               then a flag byte (1: totals follow), and the totals' state file
const (
	windowMagic   = "TMW"
	windowVersion = 1
	windowHead    = 33
)

// What the value of a window's schema says beside the codec's id.
const (
	TotalsPrefix = "totals of "
	LengthsInfix = " over "
)

// files is the schema of the window's files: a window of other lengths has other
// panes, so its state is of no use.
func (s WindowSpec[K, V]) files(kc *codec.Codec[K], vc *codec.Codec[V]) Schema {
	return Schema{Key: kc.ID, Value: fmt.Sprintf("%s%s%v every %v", vc.ID, LengthsInfix, s.Window, s.Slide)}
}

// Schema says what the window keeps: what its files say, and whether there are
// totals, which they show by having them.
func (s WindowSpec[K, V]) Schema(kc *codec.Codec[K], vc *codec.Codec[V]) Schema {
	all := s.files(kc, vc)
	if s.Inverse != nil {
		all.Value = TotalsPrefix + all.Value
	}
	return all
}

// contribution is what one batch, or in a snapshot of a [Window] one pane,
// adds: encoded pairs.
type contribution struct {
	end   base.BatchTime // of the pane
	count int
	data  []byte
}

// held passes over what only panes before the last emitted window are made of.
func held(parts []contribution, last emission) []contribution {
	for len(parts) > 0 && last.at != 0 && parts[0].end <= last.cut {
		parts = parts[1:]
	}
	return parts
}

func windowFile(kind fileKind, s Schema, t base.BatchTime, last emission, parts []contribution, totals []byte) []byte {
	b := make([]byte, windowHead, 256)
	copy(b, windowMagic)
	b[3] = windowVersion
	b[4] = byte(kind)
	binary.LittleEndian.PutUint64(b[5:], uint64(t))
	binary.LittleEndian.PutUint64(b[13:], uint64(last.at))
	binary.LittleEndian.PutUint64(b[21:], uint64(last.cut))
	b = s.appendTo(b)
	b = binary.AppendUvarint(b, uint64(len(parts)))
	for _, c := range parts {
		b = binary.AppendVarint(b, int64(c.end))
		b = binary.AppendUvarint(b, uint64(c.count))
		b = binary.AppendUvarint(b, uint64(len(c.data)))
		b = append(b, c.data...)
	}
	if totals == nil {
		b = append(b, 0)
	} else {
		b = append(append(b, 1), totals...)
	}
	binary.LittleEndian.PutUint32(b[29:], windowCRC(b))
	return b
}

func windowCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:29], castagnoli), castagnoli, b[windowHead:])
}

// windowParts is an opened window file; its bytes are views.
type windowParts struct {
	schema Schema
	t      base.BatchTime
	last   emission
	parts  []contribution
	totals []byte
}

// openWindowFile checks a file (Invariants 8 and 12), but not that of its totals.
func openWindowFile(b []byte) (windowParts, error) {
	var p windowParts
	if len(b) < windowHead || string(b[:3]) != windowMagic {
		return p, fmt.Errorf("window file: %w: no header", base.ErrCorrupt)
	}
	if b[3] != windowVersion {
		return p, fmt.Errorf("window file has format version %d, this program reads %d", b[3], windowVersion)
	}
	if got, want := windowCRC(b), binary.LittleEndian.Uint32(b[29:]); got != want {
		return p, fmt.Errorf("window file: %w: checksum is %08x, its header says %08x", base.ErrCorrupt, got, want)
	}
	if kind := fileKind(b[4]); kind != snapshot && kind != delta {
		return p, fmt.Errorf("window file: %w: it is of %s", base.ErrCorrupt, kind)
	}
	p.t = base.BatchTime(binary.LittleEndian.Uint64(b[5:]))
	p.last = emission{base.BatchTime(binary.LittleEndian.Uint64(b[13:])), base.BatchTime(binary.LittleEndian.Uint64(b[21:]))}
	r := reader{b: b[windowHead:]}
	p.schema = r.schema()
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		c := contribution{end: base.BatchTime(r.varint())}
		count := r.uvarint()
		c.data = r.bytes()
		if count > uint64(len(c.data)) { // no pair takes less than a byte
			r.bad = true
		}
		c.count = int(count)
		p.parts = append(p.parts, c)
	}
	flag := r.byte()
	if flag == 1 {
		p.totals = r.b
	}
	if r.bad || flag > 1 || flag == 0 && len(r.b) > 0 {
		return p, fmt.Errorf("window file: %w: its parts don't fit its length", base.ErrCorrupt)
	}
	return p, nil
}

// MergeWindows makes one snapshot of a snapshot, or none, and the deltas after it.
func MergeWindows(files [][]byte) ([]byte, error) {
	var o order
	var all windowParts
	var totals [][]byte
	for i, f := range files {
		p, err := openWindowFile(f)
		if err != nil {
			return nil, err
		}
		if i > 0 && p.schema != all.schema {
			return nil, &SchemaError{File: all.schema, Program: p.schema}
		}
		all.schema = p.schema
		if err := o.next(f); err != nil {
			return nil, err
		}
		all.parts = append(all.parts, p.parts...)
		all.last, all.t = all.last.later(p.last), p.t
		if p.totals != nil {
			totals = append(totals, p.totals)
		}
	}
	if len(totals) > 0 {
		var err error
		if all.totals, err = Merge(totals); err != nil {
			return nil, err
		}
	}
	return windowFile(snapshot, all.schema, all.t, all.last, held(all.parts, all.last), all.totals), nil
}
