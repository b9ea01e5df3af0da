// Package checkpoint keeps snapshots of the driver's facts, and says whether a
// program may go on from them.
//
// A snapshot holds what the driver's log says up to a sequence number, so that
// a start reads the newest good one and the log after it. It is written once, in
// the directory of the driver's epoch, which it never makes: that of a fenced
// driver was renamed, so its next snapshot fails (Invariant 7). The file gets its
// name only when it is whole and synced, and counts only once it was seen under
// that name, so nothing is cleaned on the strength of one that may not be there
// (Invariant 5). A damaged one is told and passed over for the one before; if all
// are damaged that is an error, never a fresh start (Invariant 8).
//
// A [Job] is what a checkpoint knows of the program that wrote it. [Classify]
// compares two and does no IO.
//
// Threading: functions keep nothing between calls. Write and Prune of one epoch
// directory are not for two goroutines at a time: Prune takes the temporary file of
// a running Write for one that a crash has left.
//
//	info, err := checkpoint.Write(disk, "log/e-000006", checkpoint.Snapshot{Epoch: 6, Seq: 4711, Body: facts})
//	last, bad, err := checkpoint.Newest(disk, []string{"log/e-000005.sealed", "log/e-000006"})
//	v := checkpoint.Classify(old, checkpoint.JobOf(g, "wordcount", digest, args), checkpoint.Options{})
package checkpoint
