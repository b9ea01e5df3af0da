package fsys

import (
	"context"
	"errors"
	"io"
	"time"
)

// FS is a file system. The package doc says what its errors look like.
type FS interface {
	// Create makes a new file for writing. It fails with fs.ErrExist if
	// the name exists and with fs.ErrNotExist if the parent does not.
	Create(name string) (File, error)

	// Open opens a file, not a directory, for reading.
	Open(name string) (Reader, error)

	// Mkdir makes one directory. It fails with fs.ErrExist if the name
	// exists, and with fs.ErrNotExist if the parent does not.
	Mkdir(name string) error

	// MkdirAll makes a directory and the parents it lacks. A directory
	// that exists is fine.
	MkdirAll(name string) error

	// Rename moves a file or directory. It never replaces: it fails with
	// fs.ErrExist if newName exists, be it an empty directory or oldName
	// itself.
	Rename(oldName, newName string) error

	// Remove removes a file or an empty directory.
	Remove(name string) error

	// RemoveAll removes a name and what is below it. A name that does not
	// exist is fine.
	RemoveAll(name string) error

	// List returns the entries of a directory, sorted by name. Entries
	// that vanish during the call are left out.
	List(dir string) ([]Info, error)

	// Stat describes a file or directory.
	Stat(name string) (Info, error)

	// SyncDir makes the names in a directory durable: those created,
	// renamed and removed before the call.
	SyncDir(name string) error
}

// File is a file being written, always at its end. Bytes survive the death of
// the writing process once Flush has returned nil, and that of the machine once
// Sync has. Everything after Close fails with fs.ErrClosed.
type File interface {
	io.Writer
	Flush() error
	Sync() error
	Close() error
}

// Reader is a file being read.
type Reader interface {
	io.Reader
	io.ReaderAt
	io.Closer

	// Size is the length in bytes when the file was opened. A file that
	// is being written may give more.
	Size() int64
}

// Info describes a file or directory.
type Info struct {
	Name    string // base name
	Size    int64  // bytes; 0 for a directory
	ModTime time.Time
	Dir     bool
}

// The interfaces below are abilities that a file system may have or not. Callers
// look for them on what [For] returns.

// Locker is a file system that can keep other processes out.
type Locker interface {
	// Lock takes the lock of a file, which it makes if need be, and holds it until
	// the returned value is closed or the process has died. If another holds it,
	// Lock fails at once with [ErrLocked].
	Lock(name string) (io.Closer, error)
}

// ErrLocked says that another process, or another user of this one, holds a lock.
var ErrLocked = errors.New("locked by another process")

// Recoverer is a file system on which a file whose writer has died stays open,
// its length unknown and its last bytes perhaps not to be read, until somebody
// ends the writing.
type Recoverer interface {
	// Recover ends the writing of the named files. After nil nobody writes them any
	// more and their sizes are final, with every byte that Flush or Sync covered. It
	// goes for files that are complete or do not exist too. That may take a while:
	// progress, unless it is nil, is told from time to time how many files are left
	// and the name of one.
	Recover(ctx context.Context, names []string, progress func(left int, name string)) error
}

// Placed is a file system that knows which hosts hold the bytes of a file.
type Placed interface {
	// Hosts returns the hosts that hold a range of a file, those with most of it
	// first. A range beyond the end has none.
	Hosts(name string, offset, length int64) ([]string, error)
}

// Unfinished is a file system that tells whether a file is still being written,
// or was when its writer died.
type Unfinished interface {
	Writing(name string) (bool, error)
}

// Promiser is a file system whose Flush and Sync mean something else than on a
// local disk.
type Promiser interface {
	// Promise says in words what Flush or Sync promises. An error says that it
	// can't be kept.
	Promise(sync bool) (string, error)
}

// Remote is a file system whose names are kept by a service that may be away for a
// while, during which files that are open can be written and no other can be made.
type Remote interface {
	// Away reports whether the service of a name did not answer when it was last
	// asked.
	Away(name string) bool
}
