// Package block is the block store of one executor: received blocks, cached
// partitions and spilled shuffle output, each an opaque slice of encoded
// frames under a key, in memory or in a file on scratch disk, within one
// memory budget that other users of memory share through Reserve and Release.
//
// Invariants upheld:
//
//   - 1, its first half: Put returns nil only once the block is where its
//     storage level asks for it. Files are scratch, gone with the process, and
//     are not synced.
//   - 8: a block read from a file has the length and CRC32C it was written
//     with, which are kept in memory, out of the disk's reach.
//   - 9: the budget is never exceeded, and a block that was accepted stays
//     until it is dropped. A MemoryOnly Put waits for room, first come first
//     served; a MemoryAndDisk block goes to disk instead.
//   - 15: a slice that was stored or returned is never copied, reused or
//     changed. The caller of Put gives its slice away, and the reader of a
//     block that is dropped or spilled keeps a valid one. What readers hold
//     beyond that is not in the budget, nor are blocks read from disk.
//
// Blocks leave memory in the order in which they were put. Nothing comes back
// from disk into memory.
//
// Threading: all methods may be called concurrently. The package starts no
// goroutine: files are written and removed on the goroutine whose call needs
// it. There is one lock, never held across file operations. A block on its way
// to disk is marked and readers get it from memory until its file is complete.
//
//	s, err := block.Open(block.Config{FS: fsys.Local(), Dir: scratch, MemoryLimit: 512 << 20})
//	if err != nil { … }
//	defer s.Close()
//	err = s.Put(ctx, "clicks/3/17", frames, base.MemoryAndDisk)
//	frames, err := s.Get("clicks/3/17")
//	s.DropPrefix("clicks/3/")
package block
