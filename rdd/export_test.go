package rdd

// Place gives tests the placement of keys.
func (p Partitioner[K]) Place(k K) int { return p.place(k) }

// FileChunk gives tests the size of a read.
const FileChunk = fileChunk
