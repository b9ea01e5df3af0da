// Package wal is a segmented log of byte records, and a store of such logs that
// are read by handle. It knows bytes and nothing of what is in them.
//
// A [Writer] appends to one log in the directory of one epoch. One goroutine
// writes all that is queued with one write and one flush or sync, as the [Level]
// asks, and wakes those who wait. [Claim] fences the epochs before and makes the
// next one's directory; [Scan] reads one. A [Store] keeps records that are
// released one by one, and deletes segments of which nothing is needed. [Dump]
// and [Verify] look at what is there.
//
// Invariants upheld:
//
//   - 5: a store deletes a segment when the last of its live records was
//     released and [StoreConfig].BeforeRemove has returned nil. Segments that
//     nobody names are swept only by Recover, at start, in epochs that it has
//     sealed.
//   - 7: segments are created exclusively and without parents. Whoever claims
//     an epoch renames the directories of lower ones first, so a writer of
//     these gets [ErrFenced] when it rolls; what it still appends to its open
//     file is beyond the [Limits] that its successor records.
//   - 8: a length is compared with the bytes left in the file before memory is
//     taken, and a payload is handed over after its CRC32C held. A torn tail is
//     reported and passed over. Other damage is an error that wraps
//     [base.ErrCorrupt], and costs no other segment.
//   - 12: every segment has magic, version and checksum. docs/formats.md has
//     the bytes, testdata/v1 the fixtures.
//   - 14: an append has no failed outcome. After a failed operation the writer
//     abandons the segment and writes the records that are not acknowledged
//     again, with the same sequences, into a new one, until it succeeds or
//     ends. A file whose sync failed is never synced again. Scan hands each
//     sequence over once and compares the ones that come again.
//   - 15: what Read returned is never used again; what Scan hands over is good
//     for one call. The caller's record is read until it is acknowledged, and
//     copied if that is at once.
//
// # A torn tail, or damage
//
// Both look alike: something that is not a record. In a sealed segment it is
// damage, since a seal is written after everything before it. In another it is
// the end of a write that was cut short, unless a later record or segment knows
// better: each record says which sequences had been acknowledged when it was
// written, and each header with which one its segment begins. After a loss of
// power a log of a level below [LevelSync] may show damage, because what was
// acknowledged is in truth gone. Records at [LevelMemory] say of others only
// what Sync has promised.
//
// # Crashes
//
// The tests crash the file system at every operation. What each leaves:
//
//   - after the creation of a segment, before its header: an empty file, no
//     record, a warning
//   - within a group's write: a prefix of the group, of which nothing was
//     acknowledged; whole records in it are found and count
//   - after the write, before the seal: all records
//   - within the seal: all records, and a torn tail
//   - within Claim: sealed epochs without a successor, or a directory without
//     CLAIM, which the next claim seals like any other
//   - within a deletion: segments that nobody names, which Recover sweeps
//
// What is assumed: bytes that were synced, and names whose directory was, do not
// change; a flushed byte survives the process; an unsynced part of a file may
// come back as zeros, not as other bytes; Rename and Create are exclusive.
//
// # Threading
//
// All methods may be called concurrently. A Writer has one goroutine, and at
// times a second one that syncs and closes the segment before; Close and Kill
// wait for both. A Store has one for deletions; Close waits for it. Scan has one
// for each segment it reads ahead, and none when it has returned. No lock is
// held during IO. Writer's lock comes before Store's; that of a store's open
// files is apart.
//
//	claimed, err := wal.Claim(ctx, disk, "log", wal.ClaimOptions{LockWait: time.Minute})
//	for _, e := range claimed.Sealed { report, err := wal.Scan(ctx, disk, e.Dir, wal.ScanOptions{}, replay) … }
//	w, err := wal.Create(wal.Config{FS: disk, Level: wal.LevelSync}, claimed.Dir, "driver", claimed.Epoch, next)
//	handle, err := w.Append(ctx, event) // nil: it is on disk
//	err = w.Close()
package wal
