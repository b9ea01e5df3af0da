//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fsys

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

// Lock implements Locker with flock: the lock ends with the process, whatever
// ends it, and a process it starts does not inherit it. Whoever removes the
// file breaks the lock.
func (LocalFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, pathError("lock", name, err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		f.Close()
		return nil, pathError("lock", name, err)
	}
	return localLock{sync.OnceValue(f.Close)}, nil
}

type localLock struct{ close func() error }

// Close gives the lock back. More calls do nothing.
func (l localLock) Close() error { return l.close() }
