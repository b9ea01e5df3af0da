// Package state keeps keyed state: one [Part] per stateful operator and
// partition, in memory, at the version of the last finished batch, with one
// level of undo for the running one.
//
// A batch begins with Begin, changes entries, and gives a delta: every key
// whose value or last-update time changed, and removals. Commit makes it the
// new version, Rollback restores the one before, so applying a batch twice
// equals once (Invariant 6). Undo of values that hold references is their
// encoding, taken before user code first sees them; what is kept is cloned, so
// nothing pins an input buffer (Invariant 15).
//
// Entries have a sequence number in the order in which keys first came. It is
// part of deltas and snapshots, so the order in which entries are visited is a
// function of the batches alone, also after a restore (Invariant 13).
//
// A Part belongs to one goroutine at a time. Nothing here does IO but through
// [Storage].
package state
