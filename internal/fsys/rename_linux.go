package fsys

import (
	"errors"

	"golang.org/x/sys/unix"
)

func renameNoReplace(oldName, newName string) error {
	for {
		err := unix.Renameat2(unix.AT_FDCWD, oldName, unix.AT_FDCWD, newName, unix.RENAME_NOREPLACE)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
			// The kernel or the file system does not know the flag.
			// EINVAL also means a directory moved below itself; the
			// checked way finds that out again.
			return renameChecked(oldName, newName)
		}
		return err
	}
}
