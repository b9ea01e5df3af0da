package tidemill

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/executor"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/wal"
)

// Restart says how a job goes on with a directory that holds the state of an
// earlier run. The zero value goes on where that was, if the program fits.
type Restart struct {
	// Fresh forgets everything and starts a new run.
	Fresh bool
	// DropState names stateful operators whose state is forgotten, and sources
	// whose unread data is.
	DropState []string
	// RerunPending lets another program than the one that planned them run
	// batches that have not ended.
	RerunPending bool
}

// WithRestart says how to go on with what the directory holds.
func WithRestart(r Restart) ContextOption { return func(e *environment) { e.restart = r } }

// WithArgs sets what the checkpoint says the program was started with.
func WithArgs(args ...string) ContextOption { return func(e *environment) { e.args = args } }

// withBinary sets the digest of the program's executable.
func withBinary(digest string) ContextOption { return func(e *environment) { e.binary = digest } }

// lockWait is how long a start waits for a process that has the directory: one
// that was killed may take a moment to be gone.
const lockWait = 10 * time.Second

// directory is an open job directory: what outlives the process.
type directory struct {
	journal *driver.Journal
	blocks  *wal.Store
	states  *wal.Store
	logs    executor.BlockLogs
	state   *executor.StateLog
	drop    func() // removes scratch files that are outside; nil if there are none
	promise string // what an acknowledged record survives, if the file system says so

	// syncs is the context of the log's syncs before deletions: what is not
	// deleted at the end is an orphan that the next start removes.
	syncs  context.Context
	cancel context.CancelFunc
}

// closeTimeout bounds how long the end of a job waits for deletions.
const closeTimeout = 5 * time.Second

// openDir claims the job's directory, recovers what an earlier run left there,
// and checks that this program can go on with it.
func (ssc *StreamingContext) openDir(ctx context.Context) (x driver.Durable, err error) {
	env, dir := ssc.env, &directory{}
	dir.syncs, dir.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.close(false))
		}
	}()
	log := env.log.Named("log")
	fresh, err := ssc.checkDir()
	if err != nil {
		return x, err
	}
	level := ssc.cfg.level()
	if dir.promise, err = promise(env.fs, env.dir, level); err != nil {
		return x, fmt.Errorf("-dir %s: %w", env.dir, err)
	}
	dir.journal, err = driver.OpenJournal(ctx, driver.JournalConfig{
		FS: env.fs, Dir: fsys.Join(env.dir, "log"), Level: level, Fresh: env.restart.Fresh,
		SnapshotBytes: ssc.cfg.SnapshotBytes, Keep: ssc.cfg.SnapshotsKept,
		LockWait: lockWait, Alarm: ssc.driver.Raise, Log: log,
	})
	if err != nil {
		return x, err
	}
	found := dir.journal.Found()
	instead := "the log has everything"
	if s := found.Snapshot; s != nil {
		instead = fmt.Sprintf("the older one of event %d is used", s.Seq)
	}
	for _, b := range found.Bad {
		ssc.driver.Raise(driver.Alarm{Kind: "snapshot", Subject: b.Path, Message: fmt.Sprintf("snapshot %s can't be used, %s: %v", b.Path, instead, b.Err)})
	}
	for _, t := range found.Torn {
		log.Warn("a torn tail was left out", "file", t.File, "offset", t.Offset, "bytes", t.Bytes)
	}
	facts, err := dir.journal.Facts()
	if err != nil {
		return x, err
	}
	if facts.Epoch == 0 && !fresh && !env.restart.Fresh {
		return x, fmt.Errorf("-dir %s held the state of a job, and its log is gone or empty: -fresh forgets the rest and starts anew", env.dir)
	}
	drop, err := ssc.classify(facts)
	if err != nil {
		return x, err
	}
	x.Drop = drop
	if err := dir.openStores(ctx, ssc, level, facts, &x); err != nil {
		return x, err
	}
	run := facts.Run
	if run == "" {
		run = newRun()
	}
	x.Run, x.Epoch, x.Accepted, x.Facts = run, dir.journal.Epoch(), found.Accepted, facts
	x.Program = ssc.program()
	x.Events, x.States, x.Blocks = dir.journal, dir.state, dir.logs
	x.Close = func() error { return errors.Join(dir.close(true), ssc.env.close()) }
	ssc.mu.Lock()
	ssc.dir, ssc.recovery = dir, recoveryOf(facts, found, x.Epoch)
	ssc.mu.Unlock()
	return x, nil
}

// promise asks the file system of a directory what it promises at a level.
func promise(f fsys.FS, name string, level wal.Level) (string, error) {
	serves, err := fsys.For(f, name)
	if err != nil {
		return "", err
	}
	p, ok := serves.(fsys.Promiser)
	if !ok || level == wal.LevelMemory {
		return "", nil
	}
	return p.Promise(level == wal.LevelSync)
}

// openStores opens the logs of blocks and of state, with what of them is
// needed. Orphans go: what no event names is nobody's (Invariant 5).
func (dir *directory) openStores(ctx context.Context, ssc *StreamingContext, level wal.Level, facts *driver.Facts, x *driver.Durable) (err error) {
	env := ssc.env
	open := func(name string) (*wal.Store, error) {
		sub := fsys.Join(env.dir, name)
		if err := fsys.MakeDirs(env.fs, sub); err != nil {
			return nil, err
		}
		return wal.OpenStore(wal.StoreConfig{
			Dir: sub, BeforeRemove: func(context.Context) error { return dir.journal.Sync(dir.syncs) },
			Config: wal.Config{FS: env.fs, Level: level, SegmentBytes: ssc.cfg.SegmentBytes, SegmentAge: ssc.cfg.SegmentAge, Alarm: func(err error) {
				ssc.driver.Raise(driver.Alarm{Kind: "log", Subject: sub, Message: err.Error()})
			}},
		})
	}
	if dir.blocks, err = open("blocks"); err != nil {
		return err
	}
	if dir.states, err = open("state"); err != nil {
		return err
	}
	blocks, states := facts.Handles()
	// Side by side: where leases have to be recovered each waits for heartbeats.
	var rb, rs wal.Recovered
	both, recovering := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		if rb, err = dir.blocks.Recover(recovering, blocks); err != nil {
			return fmt.Errorf("recover received blocks: %w", err)
		}
		return nil
	})
	both.Go(func() (err error) {
		if rs, err = dir.states.Recover(recovering, states); err != nil {
			return fmt.Errorf("recover the state log: %w", err)
		}
		return nil
	})
	if err := both.Wait(); err != nil {
		return err
	}
	x.Missing = rb.Missing
	if missing := stillNeeded(rs.Missing, facts, x.Drop); len(missing) > 0 {
		return fmt.Errorf("%d state files are gone, the first is %s in %s: restore the directory, or give -drop-state or -fresh", len(missing), missing[0], fsys.Join(env.dir, "state"))
	}
	dir.logs = executor.BlockLogs{Store: dir.blocks}
	if dir.state, err = executor.OpenStateLog(ctx, dir.states, dir.journal.Epoch()); err != nil {
		return err
	}
	if !env.clearScratch {
		return nil
	}
	if env.dropScratch {
		dir.drop = env.holdScratch()
	}
	if err := env.scratchFS.RemoveAll(env.scratch); err != nil {
		return err
	}
	return env.scratchFS.MkdirAll(env.scratch)
}

// stillNeeded returns the state files that are not of operators whose state the
// user gives up. Those count as live until the log says that they are dropped.
func stillNeeded(files []base.Handle, f *driver.Facts, drop []base.UID) []base.Handle {
	dropped := map[base.Handle]bool{}
	for _, s := range f.States {
		for _, h := range s.Files {
			dropped[h] = slices.Contains(drop, s.Op)
		}
	}
	for _, e := range f.Emissions {
		dropped[e.File] = slices.Contains(drop, e.Key.Node.Set.UID)
	}
	return slices.DeleteFunc(files, func(h base.Handle) bool { return dropped[h] })
}

func (dir *directory) close(snapshot bool) error {
	defer time.AfterFunc(closeTimeout, dir.cancel).Stop()
	var errs []error
	for _, s := range []*wal.Store{dir.blocks, dir.states} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if dir.journal != nil {
		errs = append(errs, dir.journal.Close(snapshot))
	}
	if dir.drop != nil {
		dir.drop()
	}
	return errors.Join(errs...)
}

// marker is the file that says that a directory is a job's.
const marker = "TIDEMILL"

// checkDir makes the directory if need be, and looks whose it is. fresh says
// that no job ever got as far as to store anything in it.
func (ssc *StreamingContext) checkDir() (fresh bool, err error) {
	f, dir := ssc.env.fs, ssc.env.dir
	if err := fsys.MakeDirs(f, dir); err != nil {
		return false, fmt.Errorf("-dir %s: %w", dir, err)
	}
	entries, err := f.List(dir)
	if err != nil {
		return false, fmt.Errorf("-dir %s: %w", dir, err)
	}
	for _, e := range entries {
		switch e.Name {
		case marker, "blocks", "state", "log", "scratch":
		default:
			if _, err := f.Stat(fsys.Join(dir, marker)); errors.Is(err, fs.ErrNotExist) {
				return false, fmt.Errorf("-dir %s is not empty (%s, ...) and no job's: give a new or empty one, or one that a job has used", dir, e.Name)
			}
		}
	}
	for _, sub := range []string{"blocks", "state"} {
		if found, err := fsys.Glob(f, fsys.Join(dir, sub, "*", "*", "*.wal")); err != nil || len(found) > 0 {
			return false, err
		}
	}
	w, err := f.Create(fsys.Join(dir, marker))
	switch {
	case errors.Is(err, fs.ErrExist):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("-dir %s: %w", dir, err)
	}
	_, err = io.WriteString(w, "This directory holds the logs, checkpoints and scratch files of a Tidemill job.\n")
	return true, errors.Join(err, w.Close(), f.SyncDir(dir))
}

// program describes this program, for its checkpoints.
func (ssc *StreamingContext) program() checkpoint.Job {
	return checkpoint.JobOf(ssc.g, ssc.job.Name, ssc.env.binary, ssc.env.args)
}

// classify says whether this program can go on with the facts, and whose state
// and data it forgets.
func (ssc *StreamingContext) classify(f *driver.Facts) (drop []base.UID, err error) {
	if f.Epoch == 0 {
		return nil, nil
	}
	r := ssc.env.restart
	o := checkpoint.Options{RerunPending: r.RerunPending}
	for _, name := range r.DropState {
		o.Drop = append(o.Drop, base.UID(name))
	}
	for _, p := range f.Pending {
		o.Pending = append(o.Pending, p.Batch.Time)
	}
	v := checkpoint.Classify(f.Job, ssc.program(), o)
	for _, old := range olderJobs(f) { // whose state files are not all written anew
		if w := checkpoint.Classify(old, ssc.program(), o); v.Kind != checkpoint.Incompatible {
			v = w
		}
	}
	if v.Kind == checkpoint.Incompatible {
		return nil, &IncompatibleError{Dir: ssc.env.dir, Diff: v.String()}
	}
	if diff := otherPartitions(f, ssc.program(), v.Drop); diff != "" {
		return nil, &IncompatibleError{Dir: ssc.env.dir, Diff: diff}
	}
	if v.Kind == checkpoint.Compatible {
		ssc.env.log.Info("the program has changed since the checkpoint", "changes", "\n"+strings.TrimSuffix(v.String(), "\n"))
	}
	return v.Drop, nil
}

// olderJobs returns the program of the checkpoint once for every older schema
// that state files still have, with that.
func olderJobs(f *driver.Facts) (out []checkpoint.Job) {
	for _, m := range f.Migrating {
		job := f.Job
		job.Ops = slices.Clone(job.Ops)
		for i, op := range job.Ops {
			if op.UID == m.Op && op.State != nil {
				old := *op.State
				old.Schema = m.Schema
				job.Ops[i].State = &old
			}
		}
		out = append(out, job)
	}
	return out
}

// otherPartitions says of which operators the number of partitions has changed
// while a window holds what they emitted in the old one. State itself is cut anew.
func otherPartitions(f *driver.Facts, now checkpoint.Job, drop []base.UID) string {
	var b strings.Builder
	for _, is := range now.Ops {
		i := slices.IndexFunc(f.Job.Ops, func(op checkpoint.Op) bool { return op.UID == is.UID })
		if i < 0 || is.State == nil || f.Job.Ops[i].State == nil || slices.Contains(drop, is.UID) {
			continue
		}
		emits := func(uid base.UID) bool {
			return uid == is.UID || slices.ContainsFunc(f.Job.Ops, func(op checkpoint.Op) bool { return op.UID == uid && slices.Contains(op.Parents, is.UID) })
		}
		held := slices.ContainsFunc(f.Emissions, func(e rpc.EmissionAt) bool { return emits(e.Key.Node.Set.UID) })
		if was, n := f.Job.Ops[i].State.Parts, is.State.Parts; was != n && held {
			fmt.Fprintf(&b, "~ %s %q: %d partitions, now %d: refused: a window holds what it emitted in %[3]d\n", is.Kind, is.UID, was, n)
			fmt.Fprintf(&b, "  what helps: parallelism=%d or Partitions(%[1]d), or --drop-state=%s: its state is forgotten\n", was, is.UID)
		}
	}
	return b.String()
}

// IncompatibleError says that a program can't go on with the state that an
// earlier one left, of which nothing was changed.
type IncompatibleError struct {
	Dir  string
	Diff string // one change a line, and what helps
}

// Error holds the diff.
func (e *IncompatibleError) Error() string {
	return fmt.Sprintf("the job in %s can't go on with this program:\n%s", e.Dir, strings.TrimSuffix(e.Diff, "\n"))
}

func newRun() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// digestOf returns the SHA-256 of the running program.
func digestOf() (string, error) {
	name, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Recovery says what a job went on with.
type Recovery struct {
	// Recovered is false for a job that started from nothing.
	Recovered bool
	Run       string
	Epoch     uint64
	Last      BatchTime   // the newest batch that was planned
	Pending   []BatchTime // planned and not ended
	Blocks    int         // received, in no batch
	Records   int64       // in those blocks
	States    int         // state partitions
	Events    int64       // of the log, after the newest good snapshot
}

// String sums the recovery up in one line.
func (r Recovery) String() string {
	if !r.Recovered {
		return "a new run"
	}
	return fmt.Sprintf("going on with run %s as epoch %d: last batch %s, %d pending, %d received records in %d blocks, %d state partitions (%d events replayed)",
		r.Run, r.Epoch, r.Last, len(r.Pending), r.Records, r.Blocks, r.States, r.Events)
}

// Recovered says what the job went on with, once it is started.
func (ssc *StreamingContext) Recovered() Recovery {
	ssc.mu.Lock()
	defer ssc.mu.Unlock()
	return ssc.recovery
}

func recoveryOf(f *driver.Facts, found driver.Found, epoch base.Epoch) Recovery {
	r := Recovery{Recovered: f.Epoch > 0, Run: f.Run, Epoch: uint64(epoch), Last: f.Last, States: len(f.States), Events: found.Events}
	for _, p := range f.Pending {
		r.Pending = append(r.Pending, p.Batch.Time)
	}
	for _, s := range f.Streams {
		r.Blocks += len(s.Waiting)
		for _, b := range s.Waiting {
			r.Records += int64(b.Records)
		}
	}
	return r
}
