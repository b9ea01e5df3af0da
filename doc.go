// Package tidemill is a micro-batch stream engine: a job's sources are cut
// into batches, each batch is planned and then computed by tasks on executors,
// with a typed API after Spark Streaming's DStreams.
//
// A job is an [App] whose Build function declares streams on a
// [StreamingContext]: sources such as [SocketText], operations such as [Map],
// [ReduceByKey] and [Window], and outputs such as [Print], [ForeachBatch] and
// [SaveAsTextFiles]. [Main] runs it as a program:
//
//	func main() {
//		tidemill.Main(tidemill.App{
//			Name: "wordcount",
//			Build: func(ssc *tidemill.StreamingContext) error {
//				lines := tidemill.SocketText(ssc, "lines", "127.0.0.1:9999")
//				words := tidemill.FlatMap(lines, strings.FieldsSeq)
//				pairs := tidemill.Map(words, func(w string) tidemill.Pair[string, int] { return tidemill.KV(w, 1) })
//				counts := tidemill.ReduceByKey(pairs, func(a, b int) int { return a + b })
//				tidemill.Print(counts, "print", 10)
//				return nil
//			},
//		})
//	}
//
// A job with a directory, which -dir of a program or [WithDir] gives, goes on
// where an earlier process left off, also after a crash: sources, stateful
// operators and outputs are found by their names, and what can't go on is
// refused with [IncompatibleError]. [Restart] says what to give up. The setting
// durability says what the directory's logs survive.
//
// Build runs once in the driver and once in every executor, and must give the
// same graph each time: no clock, random numbers, network, environment or
// global registration (Invariant 11). The functions it passes to operations
// must be deterministic. Records that are strings or byte slices may be views
// of a block: read them, keep them as long as you like, never change them.
//
// Build's operations come from one goroutine. What they return are handles
// that may be copied.
package tidemill
