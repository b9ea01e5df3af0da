package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"slices"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// lockPoll is how often Claim looks whether the lock was given back.
const lockPoll = 100 * time.Millisecond

// EpochDir is the directory of one epoch.
type EpochDir struct {
	Epoch  base.Epoch
	Dir    string
	Sealed bool
}

// Epochs lists the epoch directories under parent, ascending, and changes
// nothing. A parent that does not exist has none.
func Epochs(fs fsys.FS, parent string) ([]EpochDir, error) {
	infos, err := fs.List(parent)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wal: epochs of %q: %w", parent, err)
	}
	var epochs []EpochDir
	for _, in := range infos {
		if e, sealed, ok := parseEpochDir(in.Name); ok && in.Dir {
			epochs = append(epochs, EpochDir{Epoch: e, Dir: join(parent, in.Name), Sealed: sealed})
		}
	}
	slices.SortFunc(epochs, func(a, b EpochDir) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Dir, b.Dir))
	})
	return epochs, nil
}

// ClaimOptions says how to claim. Its zero value does not wait.
type ClaimOptions struct {
	// LockWait is how long to wait for the process that holds the parent.
	LockWait time.Duration
}

// Claimed is an epoch directory that belongs to the caller.
type Claimed struct {
	Epoch  base.Epoch
	Dir    string
	Sealed []EpochDir // the predecessors, ascending

	lock io.Closer
}

// Close gives the lock of the parent back. The epoch stays claimed.
func (c *Claimed) Close() error {
	if c.lock == nil {
		return nil
	}
	err := c.lock.Close()
	c.lock = nil
	return err
}

// Claim fences all epochs under parent and makes the directory of the next one
// (Invariant 7). On a file system that has locks it holds that of the parent
// until Close. It renames the directories of lower epochs, so that their writers
// can't make another segment, ends the writing of the files they have open where
// the file system needs that, and only then lists them. [ErrFenced] says that
// another claimed the same epoch first.
func Claim(ctx context.Context, fs fsys.FS, parent string, opts ClaimOptions) (_ *Claimed, err error) {
	if err := fsys.MakeDirs(fs, parent); err != nil {
		return nil, fmt.Errorf("wal: claim %q: %w", parent, err)
	}
	c := &Claimed{}
	if c.lock, err = lock(ctx, fs, parent, opts.LockWait); err != nil {
		return nil, err
	}
	if err = c.claim(ctx, fs, parent); err != nil {
		return nil, errors.Join(fmt.Errorf("wal: claim %q: %w", parent, err), c.Close())
	}
	return c, nil
}

func (c *Claimed) claim(ctx context.Context, fs fsys.FS, parent string) error {
	if err := sealEpochs(fs, parent, nil); err != nil {
		return err
	}
	if err := fs.SyncDir(parent); err != nil {
		return err
	}
	epochs, err := Epochs(fs, parent)
	if err != nil {
		return err
	}
	c.Epoch = 1
	for _, e := range epochs {
		if !e.Sealed {
			// It was made since: by another who claims.
			return fmt.Errorf("%w: %q appeared", ErrFenced, e.Dir)
		}
		c.Epoch = max(c.Epoch, e.Epoch+1)
	}
	if err := endWriting(ctx, fs, epochs); err != nil {
		return err
	}
	c.Sealed = epochs
	c.Dir = join(parent, epochDir(c.Epoch))
	// Who makes CLAIM has the epoch; a directory without it may be that of
	// another who is about to try.
	if err := fs.Mkdir(c.Dir); err != nil && !errors.Is(err, iofs.ErrExist) {
		return err
	}
	if err := exclusive(fs, join(c.Dir, claimFile)); err != nil {
		if errors.Is(err, iofs.ErrExist) || errors.Is(err, iofs.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrFenced, err)
		}
		return err
	}
	if err := c.stillHighest(fs, parent); err != nil {
		return err
	}
	if err := fs.SyncDir(c.Dir); errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	} else if err != nil {
		return err
	}
	return fs.SyncDir(parent)
}

// stillHighest looks again: while this claim was on its way, another may have
// had the same epoch and been sealed by a third, which frees the name.
func (c *Claimed) stillHighest(fs fsys.FS, parent string) error {
	epochs, err := Epochs(fs, parent)
	if err != nil {
		return err
	}
	last := epochs[len(epochs)-1]
	if last.Epoch == c.Epoch && !last.Sealed && (len(epochs) == 1 || epochs[len(epochs)-2].Epoch < c.Epoch) {
		return nil
	}
	// An empty directory beside a sealed one would stand in the way of all
	// who come later.
	return errors.Join(fmt.Errorf("%w: %q is there", ErrFenced, last.Dir), fs.Remove(join(c.Dir, claimFile)), fs.Remove(c.Dir))
}

func exclusive(fs fsys.FS, name string) error {
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// sealEpochs renames the directories of all epochs for which seal, if it is not
// nil, is true. It is no error if another does so at the same time.
func sealEpochs(fs fsys.FS, parent string, seal func(base.Epoch) bool) error {
	epochs, err := Epochs(fs, parent)
	if err != nil {
		return err
	}
	for _, e := range epochs {
		if e.Sealed || seal != nil && !seal(e.Epoch) {
			continue
		}
		err := fs.Rename(e.Dir, e.Dir+sealedSuffix)
		if errors.Is(err, iofs.ErrExist) {
			return fmt.Errorf("epoch %s has two directories, %q and %q: look at both with tidemill wal verify and move one away: %w", e.Epoch, e.Dir, e.Dir+sealedSuffix, err)
		}
		if err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// lock takes the lock of a directory, if the file system has locks.
func lock(ctx context.Context, fs fsys.FS, parent string, wait time.Duration) (io.Closer, error) {
	serves, err := fsys.For(fs, parent)
	if err != nil {
		return nil, fmt.Errorf("wal: lock %q: %w", parent, err)
	}
	locker, ok := serves.(fsys.Locker)
	if !ok {
		return nil, nil
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		held, err := locker.Lock(join(parent, lockFile))
		if err == nil {
			return held, nil
		}
		if !errors.Is(err, fsys.ErrLocked) {
			return nil, fmt.Errorf("wal: lock %q: %w", parent, err)
		}
		again := time.NewTimer(lockPoll)
		select {
		case <-again.C:
		case <-limit.C:
			again.Stop()
			return nil, fmt.Errorf("wal: directory %q is in use by another process, waited %v: %w", parent, wait, err)
		case <-ctx.Done():
			again.Stop()
			return nil, fmt.Errorf("wal: lock %q: %w", parent, ctx.Err())
		}
	}
}
