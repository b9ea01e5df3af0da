//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package fsys

import (
	"errors"
	"io"
)

// Lock implements Locker with an error, errors.ErrUnsupported: there is no
// flock here.
func (LocalFS) Lock(name string) (io.Closer, error) {
	return nil, pathError("lock", name, errors.ErrUnsupported)
}
