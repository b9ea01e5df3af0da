package wal

import (
	"fmt"
	"io"

	"github.com/tidemill/tidemill/internal/fsys"
)

// Trim removes the segments of an epoch directory whose records all come before
// the sequence keep, oldest first, so that a crash in between leaves no gap. The
// newest segment always stays. The caller knows that nobody needs them any more
// (Invariant 5).
func Trim(fs fsys.FS, dir string, keep uint64) (removed int, err error) {
	infos, err := listSegments(fs, dir)
	if err != nil {
		return 0, fmt.Errorf("wal: trim %q: %w", dir, err)
	}
	for i := 0; i+1 < len(infos); i++ {
		first, ok, err := firstOf(fs, join(dir, infos[i+1].Name))
		if err != nil {
			return removed, fmt.Errorf("wal: trim %q: %w", dir, err)
		}
		if !ok || first > keep {
			break
		}
		if err := fs.Remove(join(dir, infos[i].Name)); err != nil {
			return removed, fmt.Errorf("wal: trim %q: %w", dir, err)
		}
		removed++
	}
	if removed == 0 {
		return 0, nil
	}
	return removed, fs.SyncDir(dir)
}

// firstOf reads the sequence of a segment's first record; ok is false for a
// torn header.
func firstOf(fs fsys.FS, name string) (first uint64, ok bool, err error) {
	r, err := fs.Open(name)
	if err != nil {
		return 0, false, err
	}
	defer r.Close()
	b := make([]byte, headerFixed+maxName)
	n, err := r.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return 0, false, err
	}
	h, ok, err := parseHeader(b[:n])
	return h.first, ok, err
}
