// Package codec turns typed records into bytes and back. A [Codec] is chosen
// once per operator by [For]; records are packed into frames, which carry
// codec id, count, length and CRC32C in their header.
//
// Bytes are decoded only after their length bound and checksum hold
// (Invariant 8), every format carries magic and version (Invariant 12), and
// strings and byte slices are read as views of the frame, which is therefore
// never reused (Invariant 15). [Codec.Clone] gives a copy that pins nothing.
//
// Codecs have no state and may be used by many goroutines at once; a
// [FrameWriter] belongs to one.
//
//	w := codec.NewFrameWriter(codec.For[string]())
//	_ = w.Append("hello")
//	frame := w.Finish()
//	view, err := codec.OpenFrame(frame)
package codec
