// Package crash kills a real job at random moments, again and again, and
// checks what its outputs hold in the end against what was acknowledged.
//
// The job (job.go, run in a process of its own) takes lines by HTTP and writes
// them, a window over them, a running count of words, and a reducing window, to
// directories. The client keeps every line that was answered 200. After the last
// kill the job is started once more and stopped gracefully. Then:
//
//   - every acknowledged line is in exactly one batch, and no line in two;
//   - every batch time has one committed directory of each output that has a
//     data set then (Invariant 4);
//   - windows and state equal what a plain loop makes of the committed lines
//     (Invariants 3, 6).
package crash
