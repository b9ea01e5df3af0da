package tidemill

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
)

// scratchLock is what is added to the name of a scratch directory to get that of
// its lock.
const scratchLock = ".lock"

// scratchName is the name of a scratch directory of this process for a job whose
// own directory is on another file system, and what all such names begin with.
func scratchName(dir string) (name, prefix string) {
	sum := sha256.Sum256([]byte(dir))
	prefix = "tidemill-" + hex.EncodeToString(sum[:6]) + "-"
	return fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), time.Now().UnixNano()), prefix
}

// holdScratch locks the scratch directory of this process, and removes those that
// killed processes of the same job have left on this machine. The result is called
// at the end.
func (e *environment) holdScratch() (release func()) {
	remove := func(dir string) {
		err := errors.Join(e.scratchFS.RemoveAll(dir), ignoreMissing(e.scratchFS.Remove(dir+scratchLock)))
		if err != nil { // a task that was left behind may still be writing there
			e.log.Warn("a scratch directory is not removed", "directory", dir, "error", err)
		}
	}
	locks, ok := e.scratchFS.(fsys.Locker)
	if !ok {
		return func() { remove(e.scratch) }
	}
	held, err := locks.Lock(e.scratch + scratchLock)
	if err != nil { // this system has no locks, so nobody can tell whose the others are
		return func() { remove(e.scratch) }
	}
	parent := fsys.Dir(e.scratch)
	_, prefix := scratchName(e.dir)
	infos, err := e.scratchFS.List(parent)
	if err != nil {
		infos = nil // nothing is found, nothing is removed
	}
	for _, in := range infos {
		dir, isLock := strings.CutSuffix(in.Name, scratchLock)
		if !isLock || !strings.HasPrefix(dir, prefix) || fsys.Join(parent, dir) == e.scratch {
			continue
		}
		if left, err := locks.Lock(fsys.Join(parent, in.Name)); err == nil {
			remove(fsys.Join(parent, dir))
			_ = left.Close() // its file is gone
		}
	}
	return func() {
		remove(e.scratch)
		_ = held.Close() // its file is gone
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
