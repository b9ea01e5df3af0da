// Package tidetest runs jobs in tests: in a bubble of fake time, on scripted
// input, in memory, in checked mode, with outputs captured per batch.
//
//	func TestDoubles(t *testing.T) {
//		tidetest.Run(t, func(t *testing.T) {
//			out := tidetest.NewCapture[int]()
//			job := tidetest.Start(t, tidetest.Job{Build: func(ssc *tidemill.StreamingContext) error {
//				in := tidetest.Script(ssc, "in", [][]int{{1, 2}, nil, {3}})
//				out.Of(tidemill.Map(in, func(v int) int { return 2 * v }), "out")
//				return nil
//			}})
//			job.Advance(3)
//			// out.Records(): {2, 4} in batch 1, nothing in batch 2, {6} in batch 3
//		})
//	}
//
// A job with [tidemill.WithDir] keeps its state in [Job].FS. A test that passes
// its own crashes it, and starts the job again on what AfterKill or
// AfterPowerLoss leaves of it.
//
// A bubble has no real sockets and no other goroutines than its own: receivers
// under test must use in-memory sources. A Job belongs to the goroutine of its
// test; a Capture may be read by any.
package tidetest
