// Package realcluster starts real services on loopback for tests, by the
// launchers in this folder (README.md), which are part of the test binary.
//
//	h := realcluster.StartHDFS(t, realcluster.HDFSOptions{Datanodes: 3})
//	dir := h.URL("/state") // hdfs://127.0.0.1:PORT/state
//	err := h.Kill(realcluster.Datanode(2)) // SIGKILL
//	err = h.Restart(realcluster.Datanode(2))
//
// A test is skipped where the service can't be installed by the launcher because
// Java or Maven is missing, with one line that says so. With CI=true in the
// environment it fails.
//
// A service stops with the test, and by itself when the test's process has gone
// without that. The methods may be called concurrently, but not for one node.
// The package starts no goroutine.
package realcluster
