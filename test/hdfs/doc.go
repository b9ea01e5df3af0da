// Package hdfs runs jobs and logs against a real HDFS of one namenode and three
// datanodes, kills them and the nodes, and accounts for everything that was
// acknowledged.
//
// Its tests run with TIDEMILL_HDFS=1 ("make e2e-hdfs"), need Java 17 and, the
// first time, Maven, and share one cluster. TIDEMILL_HDFS_ROUNDS says how often
// the job is killed.
package hdfs
