package hdfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	lib "github.com/colinmarc/hdfs/v2"
)

// Errors that files and calls end with. What package fs has a name for, such as
// [fs.ErrNotExist], is that.
var (
	// ErrUnavailable says that no namenode answered, or that none of them was
	// active and out of safe mode, for as long as Config.Patience.
	ErrUnavailable = errors.New("namenode not available")
	// ErrNoDatanode says that no datanode took a new block: they are dead, full
	// or excluded.
	ErrNoDatanode = errors.New("no datanode takes a block")
	// ErrQuota says that a directory's quota of names or bytes is used up.
	ErrQuota = errors.New("quota exceeded")
	// ErrLease says that another ended the writing of the file.
	ErrLease = errors.New("the lease is lost: another has ended the writing of this file")
	// ErrReplicas says that fewer datanodes than Config.MinReplicas have
	// acknowledged.
	ErrReplicas = errors.New("too few replicas")
)

// remoteError is what a namenode answered.
type remoteError struct {
	kind    error // one of the above, of package fs or syscall; may be nil
	class   string
	message string
}

func (e *remoteError) Error() string {
	what := "namenode: "
	if e.kind != nil {
		what = e.kind.Error() + ": "
	}
	if e.message == "" {
		return what + e.class
	}
	return what + e.message
}

func (e *remoteError) Unwrap() error { return e.kind }

// classes are the Java exceptions that mean something to a caller.
var classes = map[string]error{
	"FileNotFoundException":               fs.ErrNotExist,
	"FileAlreadyExistsException":          fs.ErrExist,
	"AccessControlException":              fs.ErrPermission,
	"PathIsNotEmptyDirectoryException":    syscall.ENOTEMPTY,
	"ParentNotDirectoryException":         syscall.ENOTDIR,
	"NSQuotaExceededException":            ErrQuota,
	"DSQuotaExceededException":            ErrQuota,
	"QuotaByStorageTypeExceededException": ErrQuota,
	"LeaseExpiredException":               ErrLease,
	"SafeModeException":                   ErrUnavailable,
	"RetriableException":                  ErrUnavailable,
	"StandbyException":                    ErrUnavailable,
}

func shortClass(class string) string { return class[strings.LastIndexAny(class, ".$")+1:] }

// firstLine is what a message says before the stack trace.
func firstLine(message string) string {
	line, _, _ := strings.Cut(message, "\n")
	return strings.TrimSpace(line)
}

// interpret makes the error of a call one of this package: bare of the library's
// wrapping, and with the namenode's own words.
func interpret(err error) error {
	var pe *os.PathError
	for errors.As(err, &pe) && pe.Err != nil {
		err = pe.Err
	}
	var remote lib.Error
	if !errors.As(err, &remote) {
		return err
	}
	e := &remoteError{class: shortClass(remote.Exception()), message: firstLine(remote.Message())}
	e.kind = classes[e.class]
	switch {
	case strings.Contains(e.message, "could only be written to"), strings.Contains(e.message, "could only be replicated to"):
		e.kind = ErrNoDatanode
	case e.class == "AlreadyBeingCreatedException":
		e.kind = fs.ErrExist // as an exclusive create sees it
	case strings.Contains(e.message, "must both be directories"), strings.Contains(e.message, "must both be files"):
		e.kind = fs.ErrExist // of a rename whose target is of the other kind
	case e.class == "AccessControlException" && strings.Contains(e.message, "is not a directory"):
		e.kind = syscall.ENOTDIR // a file where a directory should be
	case e.class == "RemoteException" && strings.Contains(e.message, "SafeModeException"):
		e.kind = ErrUnavailable
	}
	if e.kind == fs.ErrPermission || e.kind == fs.ErrNotExist || e.kind == fs.ErrExist {
		// The path is named by who wraps this.
		if e.class != "AccessControlException" {
			return e.kind
		}
	}
	return e
}

// answered reports whether the namenode has executed or refused the call, as
// opposed to not having answered.
func answered(err error) bool {
	if err == nil {
		return true
	}
	var remote *remoteError
	if errors.As(err, &remote) {
		return true
	}
	for _, known := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid, syscall.ENOTEMPTY, syscall.ENOTDIR, syscall.EISDIR, ErrWriting, errDefinite} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// errDefinite marks errors that are found on this side.
var errDefinite = errors.New("hdfs")

// pathError names the operation and the path as the caller knows them.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// notActive reports whether an answer only says to ask again later.
func notActive(err error) bool { return errors.Is(err, ErrUnavailable) }

func unavailable(since string, err error) error {
	if errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w (waited %s)", err, since)
	}
	return fmt.Errorf("%w: %w (waited %s)", ErrUnavailable, err, since)
}
