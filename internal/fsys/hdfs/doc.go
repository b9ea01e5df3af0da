// Package hdfs is HDFS as a file system of Tidemill, through
// github.com/colinmarc/hdfs/v2, with a flush that can be trusted.
//
// The library's Flush sends packets and awaits nothing, and its Write and Flush
// say nil when datanodes have refused the data or died. Here Flush returns nil
// only when every packet was acknowledged with SUCCESS by Config.MinReplicas
// datanodes, and Sync only when they have it on disk: the connection to the
// first datanode of a pipeline is read along ([stream], [pipeline]). Where that
// is not possible, because the connection is encrypted or authenticated,
// Config.CloseToCommit makes Flush close the file and append to it later.
//
// What else the library leaves to its user:
//
//   - Every call has a deadline, Config.Timeout. Calls of the namenode are tried
//     again while it is away, in safe mode or standby, for Config.Patience.
//   - A file has a client of its own. The first error of its stream is the end of
//     the file: the client is closed without completing it, so that nobody takes
//     a length for true that no datanode has, and its lease is recovered in the
//     background.
//   - Rename refuses a target that exists, in one step on the namenode. Mkdir is
//     exclusive.
//   - A file that its writer left open looks empty. Recover ends the writing.
//
// The file docs/hdfs.md says what happens in each failure.
package hdfs
