package fsystest

import (
	"errors"
	"io"
	"io/fs"
	"syscall"

	"github.com/tidemill/tidemill/internal/fsys"
)

// locks are the rules of file systems that are [fsys.Locker]s.
func locks() []rule {
	return []rule{
		{"LockIsHeldByOne", func(s scene) {
			name := s.at("LOCK")
			lock := s.locker()
			first, err := lock(name)
			s.must(err)
			if in, err := s.FS.Stat(name); in.Size != 0 || in.Dir || err != nil {
				s.Errorf("the lock's file is %+v, %v", in, err)
			}
			_, err = lock(name)
			s.wantPathError(err, "lock", name, fsys.ErrLocked)
			s.must(first.Close())
			second, err := lock(name)
			s.must(err)
			// Closing the first again does not free the second.
			s.must(first.Close())
			_, err = lock(name)
			s.wantPathError(err, "lock", name, fsys.ErrLocked)
			s.must(second.Close())
		}},

		{"LockNamesWhatItCannotOpen", func(s scene) {
			lock := s.locker()
			s.fill()
			for name, cause := range map[string]error{
				"none/x": fs.ErrNotExist, "file/x": syscall.ENOTDIR, "empty": syscall.EISDIR,
			} {
				_, err := lock(s.at(name))
				s.wantPathError(err, "lock", s.at(name), cause)
			}
		}},

		{"LockLeavesAFileAsItIs", func(s scene) {
			lock := s.locker()
			s.fill()
			l, err := lock(s.at("file"))
			s.must(err)
			s.must(l.Close())
			s.wantFile("file", "content")
		}},
	}
}

// locker skips the test if there are no locks.
func (s scene) locker() func(name string) (io.Closer, error) {
	s.Helper()
	l, ok := s.served().(fsys.Locker)
	if !ok {
		s.Skip("no locks here")
	}
	probe, err := l.Lock(s.at("probe"))
	if errors.Is(err, errors.ErrUnsupported) {
		s.Skipf("no locks here: %v", err)
	}
	s.must(err)
	s.must(probe.Close())
	s.must(s.FS.Remove(s.at("probe")))
	return l.Lock
}
