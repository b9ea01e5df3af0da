// Package conformance compares the engine with what real Spark Streaming did.
//
// The cases are JSON files recorded from runs of Apache Spark 4.2.0, one file
// per family, in testdata/golden; README.md there says what the fields mean.
// GOLDEN_DIR points the test at another folder with the same schema. Every
// case is a subtest, TestGolden/<family>/<case>, and ends in one of these ways:
//
//   - It passes: the engine gave what Spark gave.
//   - It differs on purpose: it is in the table of differences, the engine gave
//     what the table says instead, and that is not what Spark gave. An entry
//     whose case does not differ is stale and fails.
//   - It does not apply: the thing it asks about does not exist here; what can
//     be shown of that is shown.
//   - It is later: it needs a part that is not built yet (later_test.go).
//   - It fails.
//
// At the end one line per family counts them; only the first kind counts as
// passed.
//
// A family is a file with a function that runs a case and returns an outcome:
// named lists of lines. What Spark gave is brought into the same form from the
// case, so one comparison serves all. Records of an output whose order is
// defined are compared in partition order; others as multisets, the groups in
// them too. What we do where we differ comes from a model of a few lines per
// operation, which must also agree with Spark wherever Spark got that far.
//
// Cases about recovery are played twice, once with a crash of the file system
// between two phases and once with a stop, which must come to the same. Of the
// write-ahead log the cases are played on package wal: names and lengths of
// files are a matter of the format and not compared, damage happens to the same
// byte of the same record.
//
// Jobs run in bubbles of fake time on package tidetest, in checked mode. The
// clock of a case starts at 0, that of a bubble at epoch, which is a multiple
// of all slides used.
//
// The package has tests only, which run one after the other.
package conformance
