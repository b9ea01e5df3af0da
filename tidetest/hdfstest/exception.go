package hdfstest

import "fmt"

// An exception is how a node refuses a call.
type exception struct{ class, text string }

func (e *exception) Error() string { return e.class + ": " + e.text }

// Classes of the exceptions that a client can meet here.
const (
	accessControl       = "org.apache.hadoop.security.AccessControlException"
	alreadyBeingCreated = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException"
	assertionError      = "java.lang.AssertionError"
	componentTooLong    = "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException"
	fileAlreadyExists   = "org.apache.hadoop.fs.FileAlreadyExistsException"
	fileNotFound        = "java.io.FileNotFoundException"
	invalidPath         = "org.apache.hadoop.fs.InvalidPathException"
	ioException         = "java.io.IOException"
	leaseExpired        = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"
	noSuchMethod        = "org.apache.hadoop.ipc.RpcNoSuchMethodException"
	noSuchProtocol      = "org.apache.hadoop.ipc.RpcNoSuchProtocolException"
	notReplicatedYet    = "org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException"
	parentNotDirectory  = "org.apache.hadoop.fs.ParentNotDirectoryException"
	pathIsNotEmpty      = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"
	quotaOfNames        = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException"
	quotaOfSpace        = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException"
	recoveryInProgress  = "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException"
	replicaNotFound     = "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException"
	retriable           = "org.apache.hadoop.ipc.RetriableException"
	safeMode            = "org.apache.hadoop.hdfs.server.namenode.SafeModeException"
	standby             = "org.apache.hadoop.ipc.StandbyException"
	versionMismatch     = "org.apache.hadoop.ipc.RPC$VersionMismatch"
)

func refuse(class, format string, args ...any) error {
	return &exception{class, fmt.Sprintf(format, args...)}
}

// detail is the code of an exception: most are the application's, some of the
// server before it.
func (e *exception) detail() int64 {
	const application, method, protocol, version = 1, 2, 3, 6
	switch e.class {
	case noSuchMethod:
		return method
	case noSuchProtocol:
		return protocol
	case versionMismatch:
		return version
	}
	return application
}
