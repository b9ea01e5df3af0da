package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"golang.org/x/sync/errgroup"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/rdd"
)

// Manifest is the content of a committed directory's _SUCCESS file.
type Manifest struct {
	Version int            `json:"version"`
	Job     string         `json:"job"`
	Run     string         `json:"run"`
	Output  base.UID       `json:"output"`
	TimeMS  int64          `json:"time_ms"`
	Records int64          `json:"records"`
	Parts   []ManifestPart `json:"parts"`
}

// ManifestPart describes a file of a committed directory.
type ManifestPart struct {
	Name    string `json:"name"`
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"`
	CRC32C  string `json:"crc32c"`
}

const manifestVersion = 1

// CommitFiles returns the driver's side of a file output: tasks write into a
// staging directory, the chosen attempts are gathered with a manifest, and one
// rename makes them visible. A final directory with a manifest means that the
// batch is done; it is never touched.
func CommitFiles(dir string, keepEmpty bool) OutputRun {
	swept := false
	return func(ctx context.Context, b *OutputBatch) error {
		fsy, name := b.FS(), b.out.UID
		final := rdd.FinalDir(dir, name, b.t)
		// First, since it says best what is wrong with dir.
		makeDir := fsy.MkdirAll
		if !swept {
			makeDir = func(name string) error { return fsys.MakeDirs(fsy, name) }
		}
		if err := makeDir(dir); err != nil {
			return fmt.Errorf("output directory can't be made: %w", err)
		}
		if done, err := committed(fsy, final); done || err != nil {
			return err
		}
		if !swept {
			if err := sweepStaging(fsy, dir, name); err != nil {
				return err
			}
			swept = true
		}
		staging := rdd.StagingDir(dir, name, b.t, b.d.cfg.Epoch)
		if err := fsy.RemoveAll(staging); err != nil {
			return err
		}
		if err := fsy.Mkdir(staging); err != nil {
			return err
		}
		defer func() {
			// What is left is swept at the next start. Tasks of a lost executor may
			// still be writing there, so this may fail, and does no harm then.
			if err := fsy.RemoveAll(staging); err != nil {
				b.d.cfg.Log.Warn("staging directory is not removed", "output", name, "directory", staging, "error", err)
			}
		}()
		files, err := b.writtenFiles(ctx)
		if err != nil {
			return err
		}
		m := Manifest{Version: manifestVersion, Job: b.d.cfg.Job, Run: b.d.cfg.Run, Output: name, TimeMS: int64(b.t), Parts: []ManifestPart{}}
		for _, f := range files {
			m.Records += f.Records
		}
		if m.Records == 0 && !keepEmpty {
			return nil
		}
		out := fsys.Join(staging, "out")
		if err := gather(fsy, out, files, &m); err != nil {
			return err
		}
		if err := fsy.Rename(out, final); err != nil {
			// A rename whose target exists is read back, not retried.
			if done, cerr := committed(fsy, final); cerr != nil || !done {
				return errors.Join(err, cerr)
			}
		}
		return fsy.SyncDir(dir)
	}
}

// committed reports whether dir is a finished output. A directory without a
// manifest at its place is somebody else's.
func committed(fsy fsys.FS, dir string) (bool, error) {
	_, err := fsy.Stat(fsys.Join(dir, "_SUCCESS"))
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if _, err := fsy.Stat(dir); err == nil {
		return false, fmt.Errorf("output directory %q exists without _SUCCESS: it was not made by this job; move it away", dir)
	}
	return false, nil
}

func (b *OutputBatch) writtenFiles(ctx context.Context) ([]rdd.WrittenFile, error) {
	raw, err := b.RunTasks(ctx)
	if err != nil {
		return nil, err
	}
	files := make([]rdd.WrittenFile, len(raw))
	for i, r := range raw {
		if files[i], err = rdd.DecodeWrittenFile(r); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// gather moves the chosen attempts into out and writes the manifest.
func gather(fsy fsys.FS, out string, files []rdd.WrittenFile, m *Manifest) error {
	if err := fsy.Mkdir(out); err != nil {
		return err
	}
	var moves errgroup.Group
	moves.SetLimit(movesAtOnce(fsy, out))
	for _, f := range files {
		if f.Path == "" {
			continue
		}
		name := f.Name()
		moves.Go(func() error { return fsy.Rename(f.Path, fsys.Join(out, name)) })
		m.Parts = append(m.Parts, ManifestPart{Name: name, Records: f.Records, Bytes: f.Bytes, CRC32C: fmt.Sprintf("%08x", f.CRC)})
	}
	if err := moves.Wait(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := fsys.WriteFile(fsy, fsys.Join(out, "_SUCCESS"), append(text, '\n')); err != nil {
		return err
	}
	return fsy.SyncDir(out)
}

// movesAtOnce is how many files are renamed at a time: several where each waits for
// the answer of a service.
func movesAtOnce(fsy fsys.FS, dir string) int {
	if serves, err := fsys.For(fsy, dir); err == nil {
		if _, ok := serves.(fsys.Remote); ok {
			return 16
		}
	}
	return 1
}

// sweepStaging removes what an earlier epoch left behind.
func sweepStaging(fsy fsys.FS, dir string, name base.UID) error {
	infos, err := fsy.List(dir)
	if err != nil {
		return err
	}
	stale := regexp.MustCompile(`^\.` + regexp.QuoteMeta(string(name)) + `-\d+\.\d+$`)
	for _, i := range infos {
		if i.Dir && stale.MatchString(i.Name) {
			if err := fsy.RemoveAll(fsys.Join(dir, i.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}
