package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// readFacts adds up the driver's log of a job directory.
func readFacts(ctx context.Context, f fsys.FS, dir string) (*driver.Facts, driver.Found, error) {
	log, err := driverLog(f, dir)
	if err != nil {
		return nil, driver.Found{}, err
	}
	facts, found, err := driver.ReadFacts(ctx, f, log)
	if err != nil {
		return nil, found, err
	}
	if facts.Epoch == 0 {
		return nil, found, fmt.Errorf("%s holds no checkpoint yet: its log is empty", dir)
	}
	return facts, found, nil
}

// snapshotFile is a snapshot that is kept.
type snapshotFile struct {
	Path   string     `json:"path"`
	Epoch  base.Epoch `json:"epoch"`
	Seq    uint64     `json:"seq"`
	Bytes  int64      `json:"bytes"`
	Made   string     `json:"made"`
	Damage string     `json:"damage,omitempty"` // empty: it is good
}

// snapshotsOf lists the snapshots in a log, newest first, and reads each.
func snapshotsOf(f fsys.FS, log string) ([]snapshotFile, error) {
	epochs, err := wal.Epochs(f, log)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range epochs {
		dirs = append(dirs, e.Dir)
	}
	infos, err := checkpoint.List(f, dirs)
	if err != nil {
		return nil, err
	}
	files := []snapshotFile{}
	for _, in := range infos {
		s := snapshotFile{Path: in.Path, Epoch: in.Epoch, Seq: in.Seq, Bytes: in.Size, Made: base.TimeOf(in.ModTime).String()}
		if _, err := checkpoint.Read(f, in.Path); err != nil {
			s.Damage = oneLine(reason(err).Error())
		}
		files = append(files, s)
	}
	return files, nil
}

// reason is an error without the words that say what was read.
func reason(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
