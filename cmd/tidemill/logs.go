package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// foundLog is a log that lies in a directory.
type foundLog struct {
	name   string // as it is shown
	epochs []wal.EpochDir
}

// epochName is what the directory of an epoch is called.
var epochName = regexp.MustCompile(`^e-(\d{6,19})(\.sealed)?$`)

// findLogs returns the logs in a job directory, in one of its directories of
// logs, or in a log; or the part of a log that an epoch directory holds.
func findLogs(f fsys.FS, dir string) ([]foundLog, error) {
	if err := checkDir(f, dir); err != nil {
		return nil, err
	}
	if e, ok := epochOf(dir); ok {
		return []foundLog{{name: fsys.Base(dir), epochs: []wal.EpochDir{e}}}, nil
	}
	epochs, err := wal.Epochs(f, dir)
	if err != nil {
		return nil, err
	}
	if len(epochs) > 0 {
		return []foundLog{{name: fsys.Base(dir), epochs: epochs}}, nil
	}
	var logs []foundLog
	if epochs, err = wal.Epochs(f, fsys.Join(dir, logDir)); err != nil {
		return nil, err
	}
	if len(epochs) > 0 {
		logs = append(logs, foundLog{name: logDir, epochs: epochs})
	}
	for _, sub := range []string{"blocks", "state", ""} {
		in, err := logsIn(f, fsys.Join(dir, sub))
		if err != nil {
			return nil, err
		}
		for _, l := range in {
			if sub != "" || l.name != logDir {
				logs = append(logs, foundLog{fsys.Join(sub, l.name), l.epochs})
			}
		}
	}
	if len(logs) == 0 {
		return nil, fmt.Errorf("%s holds no log: give the directory of a job, of a log or of an epoch (e-000001)", dir)
	}
	return logs, nil
}

// logsIn returns the logs whose directories are in dir, which need not exist.
func logsIn(f fsys.FS, dir string) ([]foundLog, error) {
	entries, err := f.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var logs []foundLog
	for _, e := range entries {
		if !e.Dir {
			continue
		}
		epochs, err := wal.Epochs(f, fsys.Join(dir, e.Name))
		if err != nil {
			return nil, err
		}
		if len(epochs) > 0 {
			logs = append(logs, foundLog{e.Name, epochs})
		}
	}
	return logs, nil
}

// epochOf reads the name of an epoch directory.
func epochOf(dir string) (wal.EpochDir, bool) {
	m := epochName.FindStringSubmatch(fsys.Base(dir))
	if m == nil {
		return wal.EpochDir{}, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		return wal.EpochDir{}, false
	}
	return wal.EpochDir{Epoch: base.Epoch(n), Dir: dir, Sealed: m[2] != ""}, true
}

func checkDir(f fsys.FS, dir string) error {
	switch in, err := f.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("directory %s does not exist: give the one that the job was started with (-dir)", dir)
	case err != nil:
		return err
	case !in.Dir:
		return fmt.Errorf("%s is a file: give the directory that it is in", dir)
	}
	return nil
}

// logDir is where the driver's log is in the directory of a job.
const logDir = "log"

// driverLog returns the directory of the driver's log, given that of the job or
// the log's own.
func driverLog(f fsys.FS, dir string) (string, error) {
	if err := checkDir(f, dir); err != nil {
		return "", err
	}
	for _, d := range []string{fsys.Join(dir, logDir), dir} {
		epochs, err := wal.Epochs(f, d)
		if err != nil {
			return "", err
		}
		if len(epochs) > 0 {
			return d, nil
		}
	}
	return "", fmt.Errorf("%s holds no checkpoint: give the directory that a job was started with (-dir)", dir)
}
