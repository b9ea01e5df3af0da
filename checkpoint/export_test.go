package checkpoint

import "encoding/binary"

// Fits is what the length of a body must pass.
var Fits = fits

// Seal makes length and checksum of a damaged file right.
func Seal(b []byte) {
	if len(b) >= fileHead {
		binary.LittleEndian.PutUint64(b[20:], uint64(len(b)-fileHead))
		binary.LittleEndian.PutUint32(b[28:], checksum(b[:fileHead], b[fileHead:]))
	}
}
