package wal

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"slices"

	"github.com/tidemill/tidemill/internal/fsys"
)

// recoveredFile marks a sealed epoch directory in which no file is open any more.
const recoveredFile = "RECOVERED"

// endWriting ends what writers of sealed epochs have open, on a file system where
// a file whose writer has died stays open and a writer that lives goes on with the
// file it has: after that they are fenced for good (Invariant 7), and the files
// can be read. All are waited for side by side, since each may take a while.
// Elsewhere there is nothing to do.
func endWriting(ctx context.Context, fs fsys.FS, epochs []EpochDir) error {
	if len(epochs) == 0 {
		return nil
	}
	serves, err := fsys.For(fs, epochs[0].Dir)
	if err != nil {
		return err
	}
	r, ok := serves.(fsys.Recoverer)
	if !ok {
		return nil
	}
	var files []string
	var ended []EpochDir
	for _, e := range epochs {
		infos, err := fs.List(e.Dir)
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(infos, func(in fsys.Info) bool { return in.Name == recoveredFile }) {
			continue
		}
		for _, in := range infos {
			if !in.Dir {
				files = append(files, join(e.Dir, in.Name))
			}
		}
		ended = append(ended, e)
	}
	if err := r.Recover(ctx, files, nil); err != nil {
		return fmt.Errorf("end the writing of %d files of earlier epochs: %w", len(files), err)
	}
	for _, e := range ended {
		err := exclusive(fs, join(e.Dir, recoveredFile))
		if err != nil && !gone(err) && !errors.Is(err, iofs.ErrExist) {
			return err
		}
	}
	return nil
}
