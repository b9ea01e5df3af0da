// Package hdfstest is an HDFS in the process of a test: namenodes and datanodes
// that speak Hadoop's protocols, so that github.com/colinmarc/hdfs/v2 and what
// is built on it run against it unchanged, and that fail when they are told to.
//
//	c := hdfstest.Start(hdfstest.Options{})
//	defer c.Close()
//	client, err := hdfs.NewClient(hdfs.ClientOptions{
//		Addresses: c.Namenodes(), User: "tester", NamenodeDialFunc: c.Dial, DatanodeDialFunc: c.Dial,
//	})
//
// Connections are in memory, so a cluster works in a bubble of testing/synctest
// and its own ports are nobody else's. [Cluster.Listen] serves the same nodes on
// loopback too: for other processes, and for the names that a job takes, such as
// "hdfs://" + c.Namenodes()[0] + "/job".
//
// # What it does
//
// Answers are those of Hadoop 3.5.0, which the package's own tests were compared
// with: exceptions by class, leases with soft and hard limit, recovery at a
// heartbeat, quotas, safe mode, standby, retry cache; pipelines with mirrors,
// checksums, acknowledgements with a status of each datanode, the bad link when
// one cannot be set up. Among what surprises users there as here:
//
//   - An open file has length 0, unless fsync or an append told the namenode more.
//     How much of its last block is acknowledged a datanode tells who asks
//     (getReplicaVisibleLength); a restarted one that was writing it does not know.
//   - A datanode that dies behind the first is told of in an acknowledgement only;
//     the others go on storing, so that bytes that nobody acknowledged may be
//     there after a recovery, or not.
//   - A recovery that cannot reach any datanode of the pipeline waits for one.
//   - New blocks get fewer datanodes than asked for, without a word.
//   - A block that was begun and got no packet, as by an empty Write before Close,
//     is never complete.
//
// It does not repair pipelines (neither does the client library), replicate
// again what lost replicas, truncate, or know of snapshots, encryption,
// permissions beyond [Cluster.Deny], Kerberos, erasure coding or racks. Bytes
// are kept in memory. The choice of datanodes goes round instead of being
// random. A hard limit is noticed at the next call.
//
// # Fake time
//
// The client library has two traps in a bubble. Each of its clients renews
// leases every second under the mutex that its calls hold, and a goroutine that
// waits for a mutex stops fake time: a call that needs time to be answered
// (Options.Latency, [Delay], [Hang], [Cluster.PauseNamenode]) hangs the test for
// good when a renewal falls into it. Use those with a client of your own, or in
// real time. And a FileWriter that failed leaves a goroutine behind, on which
// the bubble panics: see [Options].SilentWrites.
//
// # Threads
//
// One mutex guards all state; nobody who holds it waits for a connection. Every
// connection has its goroutines, which end with it; [Cluster.Close] ends all and
// waits.
package hdfstest
