package checkpoint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// Info describes a snapshot's file.
type Info struct {
	Path    string
	Epoch   base.Epoch // as the directory's name says; 0 if it says none
	Seq     uint64     // as its own name says
	Size    int64      // bytes of the file
	ModTime time.Time
}

// Bad is a file that was passed over.
type Bad struct {
	Path string
	Err  error
}

func baseName(name string) string { return fsys.Base(name) }

// Write puts a snapshot into the epoch directory dir, which must exist. After
// nil it is whole, durable and seen under its name; after an error it may be
// there or not, and Write may be called again with the same.
func Write(f fsys.FS, dir string, s Snapshot) (Info, error) {
	target := fsys.Join(dir, nameOf(s.Seq))
	in, err := write(f, dir, target, s)
	switch {
	case err == nil:
		return in, nil
	case errors.Is(err, fs.ErrNotExist):
		return Info{}, fmt.Errorf("checkpoint: write snapshot %s: the directory is gone, as it is when a newer driver has taken over: %w", target, err)
	}
	return Info{}, fmt.Errorf("checkpoint: write snapshot %s: %w", target, err)
}

func write(f fsys.FS, dir, target string, s Snapshot) (Info, error) {
	if err := fits(int64(len(s.Body))); err != nil {
		return Info{}, err
	}
	if e := epochOf(dir); e != 0 && e != s.Epoch {
		return Info{}, fmt.Errorf("it is of epoch %s, the directory of epoch %s", s.Epoch, e)
	}
	_, err := f.Stat(target)
	switch {
	case err == nil: // of a call whose outcome nobody knew
		err = same(f, target, s)
	case errors.Is(err, fs.ErrNotExist):
		err = writeNew(f, target, s)
	}
	if err == nil {
		err = f.SyncDir(dir)
	}
	if err != nil {
		return Info{}, err
	}
	// A rename that said it succeeded may not have.
	in, err := f.Stat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, errors.New("its rename was reported as done, but it is not there")
	}
	if err != nil {
		return Info{}, err
	}
	if want := fileHead + int64(len(s.Body)); in.Size != want {
		return Info{}, fmt.Errorf("it has %d bytes, %d were written", in.Size, want)
	}
	return Info{Path: target, Epoch: s.Epoch, Seq: s.Seq, Size: in.Size, ModTime: in.ModTime}, nil
}

// writeNew writes a temporary file and renames it.
func writeNew(f fsys.FS, target string, s Snapshot) error {
	temp, w, err := createTemp(f, target)
	if err != nil {
		return err
	}
	if err = fill(w, s); err == nil {
		if err = f.Rename(temp, target); err == nil {
			return nil
		}
		// An error does not say that nothing happened.
		if same(f, target, s) == nil {
			err = nil
		}
	}
	if rerr := f.Remove(temp); err != nil && rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// fill writes, syncs and closes a file.
func fill(w fsys.File, s Snapshot) error {
	_, err := w.Write(s.header())
	if err == nil && len(s.Body) > 0 {
		_, err = w.Write(s.Body)
	}
	if err == nil {
		err = w.Sync()
	}
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	return err
}

// maxTemps is how many temporary files of one snapshot may be left behind.
const maxTemps = 1000

// createTemp makes a file with a name that none has: one that a crash has left may
// be anything.
func createTemp(f fsys.FS, target string) (string, fsys.File, error) {
	for i := range maxTemps {
		temp := fmt.Sprintf("%s.%d%s", target, i, tempSuffix)
		w, err := f.Create(temp)
		if !errors.Is(err, fs.ErrExist) {
			return temp, w, err
		}
	}
	return "", nil, fmt.Errorf("%d temporary files of it are there: something else writes it too", maxTemps)
}

// same returns an error unless a file holds s.
func same(f fsys.FS, name string, s Snapshot) error {
	have, err := read(f, name)
	switch {
	case err != nil:
		return fmt.Errorf("there is a file of that name: %w", err)
	case have.Epoch != s.Epoch || !bytes.Equal(have.Body, s.Body):
		return fmt.Errorf("there is another snapshot of that name, of epoch %s with %d bytes of facts, and this is of epoch %s with %d",
			have.Epoch, len(have.Body), s.Epoch, len(s.Body))
	}
	return nil
}

// List returns the snapshots of some epoch directories, the newest first, good or
// not. A directory that does not exist holds none.
func List(f fsys.FS, dirs []string) ([]Info, error) {
	all, _, err := list(f, dirs)
	return all, err
}

// list also returns temporary files.
func list(f fsys.FS, dirs []string) (all []Info, temps []string, err error) {
	for _, dir := range dirs {
		entries, err := f.List(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("checkpoint: list snapshots: %w", err)
		}
		for _, e := range entries {
			name := fsys.Join(dir, e.Name)
			if seq, ok := seqOf(e.Name); ok && !e.Dir {
				all = append(all, Info{Path: name, Epoch: epochOf(dir), Seq: seq, Size: e.Size, ModTime: e.ModTime})
			} else if isTemp(e.Name) && !e.Dir {
				temps = append(temps, name)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Info) int {
		return cmp.Or(cmp.Compare(b.Seq, a.Seq), cmp.Compare(b.Epoch, a.Epoch))
	})
	return all, temps, nil
}

// Newest returns the newest good snapshot, and what was passed over to find it. It
// returns none if there never was one, with the files of those that were begun
// and not finished as bad. If there are snapshots and none is good, that is
// an error, since a fresh start would lose what they hold.
func Newest(f fsys.FS, dirs []string) (s *Snapshot, bad []Bad, err error) {
	all, temps, err := list(f, dirs)
	if err != nil {
		return nil, nil, err
	}
	for _, in := range all {
		got, err := Read(f, in.Path)
		if err == nil {
			return &got, bad, nil
		}
		bad = append(bad, Bad{in.Path, err})
	}
	if len(all) > 0 {
		return nil, bad, noneGoodError(bad)
	}
	for _, name := range temps {
		bad = append(bad, Bad{name, errors.New("checkpoint: the write of this snapshot was not finished")})
	}
	return nil, bad, nil
}

// noneGoodError says that a checkpoint can't be used, and what helps.
type noneGoodError []Bad

func (e noneGoodError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "checkpoint: none of %d snapshots can be used; `tidemill checkpoint show %s` tells more:", len(e), fsys.Dir(e[0].Path))
	for _, bad := range e {
		fmt.Fprintf(&b, "\n\t%v", bad.Err)
	}
	return b.String()
}

// Unwrap gives what is wrong with each.
func (e noneGoodError) Unwrap() []error {
	var errs []error
	for _, bad := range e {
		errs = append(errs, bad.Err)
	}
	return errs
}

// Prune removes all snapshots but the newest keep good ones, which it returns,
// newest first, and what unfinished writes have left. A file that can't be read
// but may be good, because of an error of the disk or a newer format, stays,
// and while there is no good one nothing is removed.
func Prune(f fsys.FS, dirs []string, keep int) (kept []Info, err error) {
	if keep < 1 {
		return nil, fmt.Errorf("checkpoint: %d snapshots are to be kept: must be at least 1", keep)
	}
	all, remove, err := list(f, dirs) // temporary files, first of all
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, in := range all {
		if len(kept) == keep {
			remove = append(remove, in.Path)
			continue
		}
		_, err := Read(f, in.Path)
		switch {
		case err == nil:
			kept = append(kept, in)
		case errors.Is(err, base.ErrCorrupt):
			remove = append(remove, in.Path)
		default:
			errs = append(errs, err)
		}
	}
	if len(kept) > 0 && len(remove) > 0 {
		errs = append(errs, removeAll(f, dirs, kept, remove))
	}
	return kept, errors.Join(errs...)
}

// removeAll removes files after what takes their place is sure to stay: a
// driver that was killed may have renamed it and not synced its directory.
func removeAll(f fsys.FS, dirs []string, kept []Info, remove []string) error {
	in := map[string]bool{}
	for _, k := range kept {
		in[fsys.Dir(k.Path)] = true
	}
	if err := syncDirs(f, dirs, in); err != nil {
		return err
	}
	var errs []error
	changed := map[string]bool{}
	for _, name := range remove {
		if err := f.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("checkpoint: remove what is not needed: %w", err))
			continue
		}
		changed[fsys.Dir(name)] = true
	}
	return errors.Join(append(errs, syncDirs(f, dirs, changed))...)
}

// syncDirs syncs those of dirs that are in a set.
func syncDirs(f fsys.FS, dirs []string, set map[string]bool) error {
	for _, dir := range dirs {
		if !set[fsys.Clean(dir)] {
			continue
		}
		if err := f.SyncDir(dir); err != nil {
			return fmt.Errorf("checkpoint: remove what is not needed: %w", err)
		}
	}
	return nil
}
