// Package crashjob is a job that tests kill, with all that is needed to account
// for every line it was given.
//
// The job ([App], in a process of its own) takes lines by HTTP and writes them, a
// window over them, a running count of words, and a reducing window, to
// directories. A [Client] posts lines, none of them twice, and keeps what was
// answered 200. After the last kill the job is started once more and stopped
// gracefully. Then [Client.Check] and [Outputs.Check] say whether
//
//   - every acknowledged line is in exactly one batch, and no line in two;
//   - every batch time has one committed directory of each output that has a
//     data set then (Invariant 4);
//   - windows and state equal what a plain loop makes of the committed lines
//     (Invariants 3, 6).
//
// A test binary is the job's program too:
//
//	func TestMain(m *testing.M) {
//		crashjob.MainIfJob()
//		goleak.VerifyTestMain(m)
//	}
package crashjob
