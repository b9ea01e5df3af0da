package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/tidemill/tidemill/internal/base"
)

// msgpackCodec encodes T by its own msgpack methods or by reflection. Each
// record has a length prefix, so that a decoder never reads past its record.
func msgpackCodec[T any]() *Codec[T] {
	t := reflect.TypeFor[T]()
	m := traits{
		maps:  reaches(t, isMap) && !reaches(t, foreignEncoding),
		times: reaches(t, func(t reflect.Type) bool { return t == timeType }),
		exts:  reaches(t, func(t reflect.Type) bool { return t == timeType || foreignEncoding(t) }),
	}
	plain := !reaches(t, holdsReference)
	c := &Codec[T]{
		ID:        "msgpack:" + t.String(),
		Append:    func(dst []byte, v T) ([]byte, error) { return appendMsgpack(dst, &v, m) },
		Read:      func(src []byte) (T, int, error) { return readMsgpack[T](src, m) },
		Plain:     plain,
		Immutable: !reaches(t, func(t reflect.Type) bool { return t.Kind() != reflect.String && holdsReference(t) }),
	}
	c.Clone = func(v T) T {
		if plain {
			return v
		}
		b, err := appendMsgpack(nil, &v, m)
		if err == nil {
			var out T
			if out, _, err = readMsgpack[T](b, m); err == nil {
				return out
			}
		}
		// Check has accepted the type, so a value that can't make the trip is
		// the user's own marshaller failing: the task fails with its words.
		panic(fmt.Sprintf("codec: copy a %s: %v", t, err))
	}
	return c
}

// traits are what encoding a type by msgpack takes beside the library.
type traits struct {
	// maps says that map entries must be sorted. Not within foreign encodings:
	// a method may write several values for one, which can't be told apart.
	maps  bool
	times bool // times are read in UTC
	// exts says that extensions are expected. Before a map the library skips
	// the header of one, so it may read other lengths than valueHead.
	exts bool
}

// appendMsgpack takes a pointer, because the library calls methods with a
// pointer receiver only on what it can address.
func appendMsgpack[T any](dst []byte, v *T, m traits) ([]byte, error) {
	var buf bytes.Buffer
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(&buf)
	enc.UseCompactInts(true)
	enc.SetSortMapKeys(true)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("codec: encode a %T: %w", *v, err)
	}
	rec := buf.Bytes()
	if m.maps { // the bytes must be a function of the value (Invariant 13)
		var err error
		if rec, _, err = sortMaps(nil, rec, maxDepth); err != nil {
			return nil, fmt.Errorf("codec: encode a %T: %w", *v, err)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(rec)))
	return append(dst, rec...), nil
}

func readMsgpack[T any](src []byte, m traits) (v T, n int, err error) {
	size, head, err := readLen(src)
	if err != nil {
		return v, 0, err
	}
	rec := src[head : head+size]
	// The library allocates what a length says; it gets only lengths that hold.
	for at := 0; at < size || size == 0; { // a foreign encoding may be several values
		used, err := valueLen(rec[at:], m.exts, maxDepth)
		if err != nil {
			return v, 0, fmt.Errorf("%w: decode a %T: %w", base.ErrCorrupt, v, err)
		}
		at += used
	}
	// The library can panic on bytes it does not expect; bytes here passed
	// their checksum, so a panic is a bug of a marshaller, and stays an error.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: decode a %T: %v", base.ErrCorrupt, v, r)
		}
	}()
	if err := msgpack.Unmarshal(rec, &v); err != nil {
		return v, 0, fmt.Errorf("%w: decode a %T: %w", base.ErrCorrupt, v, err)
	}
	if m.times {
		toUTC(reflect.ValueOf(&v).Elem())
	}
	return v, head + size, nil
}

// maxDepth bounds how deep values nest, since decoding recurses.
const maxDepth = 10_000

var (
	errEnds = errors.New("msgpack value ends early")
	errExt  = errors.New("msgpack extension where the type has none")
	errDeep = fmt.Errorf("msgpack value nests deeper than %d", maxDepth)
)

// valueHead returns the length of the first value of b without the values
// that it contains, and their number, which may be more than there are.
func valueHead(b []byte) (size, kids int, isMap bool, err error) {
	if len(b) == 0 {
		return 0, 0, false, errEnds
	}
	payload := func(width, extra int) { // a length of width bytes, and then extra bytes and as many
		if len(b) < 1+width {
			err = errEnds
			return
		}
		size = 1 + width + extra + int(number(b[1:1+width]))
	}
	count := func(width, each int) {
		if len(b) < 1+width {
			err = errEnds
			return
		}
		size, kids = 1+width, each*int(number(b[1:1+width]))
	}
	switch c := b[0]; {
	case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3: // small integer, nil, bool
		size = 1
	case c <= 0x8f:
		size, kids, isMap = 1, 2*int(c&0x0f), true
	case c <= 0x9f:
		size, kids = 1, int(c&0x0f)
	case c <= 0xbf:
		size = 1 + int(c&0x1f)
	case c >= 0xc4 && c <= 0xc6: // bytes
		payload(1<<(c-0xc4), 0)
	case c >= 0xc7 && c <= 0xc9: // extension
		payload(1<<(c-0xc7), 1)
	case c == 0xca || c == 0xcb: // float
		size = 1 + 4<<(c-0xca)
	case c >= 0xcc && c <= 0xcf: // unsigned
		size = 1 + 1<<(c-0xcc)
	case c >= 0xd0 && c <= 0xd3: // signed
		size = 1 + 1<<(c-0xd0)
	case c >= 0xd4 && c <= 0xd8: // extension of fixed length
		size = 2 + 1<<(c-0xd4)
	case c >= 0xd9 && c <= 0xdb: // string
		payload(1<<(c-0xd9), 0)
	case c == 0xdc || c == 0xdd:
		count(2<<(c-0xdc), 1)
	case c == 0xde || c == 0xdf:
		isMap = true
		count(2<<(c-0xde), 2)
	default:
		err = fmt.Errorf("no msgpack value begins with byte %#x", c)
	}
	if err == nil && size > len(b) {
		err = errEnds
	}
	return size, kids, isMap, err
}

// number reads a big-endian number of up to four bytes.
func number(b []byte) (n uint32) {
	for _, c := range b {
		n = n<<8 | uint32(c)
	}
	return n
}

// valueLen returns the length of the first value of b.
func valueLen(b []byte, exts bool, depth int) (int, error) {
	if depth == 0 {
		return 0, errDeep
	}
	n, kids, _, err := valueHead(b)
	if err == nil && !exts && (b[0] >= 0xc7 && b[0] <= 0xc9 || b[0] >= 0xd4 && b[0] <= 0xd8) {
		return 0, errExt
	}
	for ; kids > 0 && err == nil; kids-- {
		var m int
		m, err = valueLen(b[n:], exts, depth-1)
		n += m
	}
	return n, err
}

// sortMaps appends the first value of b to dst with the entries of all maps in
// the order of their bytes, and returns its length. The library sorts only
// some types of maps.
func sortMaps(dst, b []byte, depth int) ([]byte, int, error) {
	if depth == 0 {
		return nil, 0, errDeep
	}
	n, kids, isMap, err := valueHead(b)
	if err != nil {
		return nil, 0, err
	}
	dst = append(dst, b[:n]...)
	start := len(dst)
	ends := make([]int, 0, kids)
	for range kids {
		var m int
		if dst, m, err = sortMaps(dst, b[n:], depth-1); err != nil {
			return nil, 0, err
		}
		n += m
		ends = append(ends, len(dst))
	}
	if isMap && kids > 2 {
		all := slices.Clone(dst[start:])
		entries := make([][]byte, 0, kids/2)
		from := start
		for i := 1; i < kids; i += 2 {
			entries = append(entries, all[from-start:ends[i]-start])
			from = ends[i]
		}
		slices.SortFunc(entries, bytes.Compare)
		dst = dst[:start]
		for _, e := range entries {
			dst = append(dst, e...)
		}
	}
	return dst, n, nil
}
