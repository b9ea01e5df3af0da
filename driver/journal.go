package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// JournalConfig says where a driver's log is. FS and Dir must be set.
type JournalConfig struct {
	FS  fsys.FS
	Dir string // of the log's epochs
	// Level says what an event survives once it is appended.
	Level wal.Level
	// SnapshotBytes is the size of the log after a snapshot that makes the next
	// one due; 1 MiB if zero.
	SnapshotBytes int64
	// Keep is the number of snapshots that are kept, in case the newest is
	// damaged; 3 if zero.
	Keep int
	// Fresh forgets what the log holds.
	Fresh bool
	// LockWait is how long to wait for a process that has the directory.
	LockWait time.Duration
	// Alarm is told of every failure that the journal works around; optional.
	Alarm func(Alarm)
	Log   hclog.Logger // optional
}

// Journal is the durable [Log]: a write-ahead log of events with snapshots of
// what they add up to. It belongs to one driver epoch.
type Journal struct {
	cfg     JournalConfig
	claimed *wal.Claimed
	w       *wal.Writer
	found   Found

	mu    sync.Mutex // held while an event gets its place in the log and in the facts
	facts *Facts
	seq   uint64 // of the newest event
	since int64  // bytes of events after the newest snapshot

	due    chan struct{} // holds a token: a snapshot is due
	turn   chan struct{} // holds a token: nobody makes one
	cancel context.CancelFunc
	ctx    context.Context // of snapshots
	wg     sync.WaitGroup
	once   sync.Once
	err    error // of Close
}

// manyEpochs is the number of older epochs that makes a snapshot due, so that
// they can go.
const manyEpochs = 16

// Found says what a recovery met.
type Found struct {
	Snapshot *checkpoint.Info // the one that was used; nil if there was none
	Bad      []checkpoint.Bad // newer ones that were damaged
	Events   int64            // replayed after it
	Bytes    int64            // of those
	Torn     []wal.Torn       // tails that a crash left
	Accepted []Accepted
	Seq      uint64 // of the last event
}

// OpenJournal claims the log's directory for a new epoch (Invariant 7) and
// recovers its facts. Nothing is written before [Journal.Begin].
func OpenJournal(ctx context.Context, cfg JournalConfig) (*Journal, error) {
	setDefaults(&cfg)
	if err := fsys.MakeDirs(cfg.FS, cfg.Dir); err != nil {
		return nil, fmt.Errorf("driver: log directory: %w", err)
	}
	claimed, err := wal.Claim(ctx, cfg.FS, cfg.Dir, wal.ClaimOptions{LockWait: cfg.LockWait})
	if err != nil {
		return nil, fmt.Errorf("driver: claim the log: %w", err)
	}
	if cfg.Fresh {
		err = forget(cfg.FS, cfg.Dir, claimed)
	}
	facts, found := &Facts{}, Found{}
	if err == nil {
		facts, found, err = replay(ctx, cfg.FS, claimed.Sealed)
	}
	if err != nil {
		return nil, errors.Join(err, claimed.Close())
	}
	w, err := wal.Create(wal.Config{FS: cfg.FS, Level: cfg.Level, Alarm: func(err error) {
		cfg.Alarm(Alarm{Kind: "log", Subject: cfg.Dir, Message: fmt.Sprintf("the driver's log: %v", err)})
	}}, claimed.Dir, "driver", claimed.Epoch, found.Seq+1)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("driver: open the log: %w", err), claimed.Close())
	}
	j := &Journal{cfg: cfg, claimed: claimed, w: w, found: found, facts: facts, seq: found.Seq, due: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	j.turn <- struct{}{}
	// What every start would replay counts too, else a job that is killed again and
	// again never gets to a snapshot.
	if j.since = found.Bytes; len(claimed.Sealed) > manyEpochs {
		j.since = cfg.SnapshotBytes
	}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	j.wg.Go(j.snapshots)
	return j, nil
}

// forget removes the epochs before the claimed one. Each goes under another
// name first, so that no start finds half of one.
func forget(f fsys.FS, dir string, claimed *wal.Claimed) error {
	for _, e := range claimed.Sealed {
		old := fsys.Join(dir, "forgotten-"+fsys.Base(e.Dir))
		if err := f.Rename(e.Dir, old); err != nil {
			return fmt.Errorf("driver: forget the log: %w", err)
		}
		if err := f.RemoveAll(old); err != nil {
			return fmt.Errorf("driver: forget the log: %w", err)
		}
	}
	claimed.Sealed = nil
	return f.SyncDir(dir)
}

func setDefaults(cfg *JournalConfig) {
	if cfg.SnapshotBytes == 0 {
		cfg.SnapshotBytes = 1 << 20
	}
	if cfg.Keep == 0 {
		cfg.Keep = 3
	}
	if cfg.Alarm == nil {
		cfg.Alarm = func(Alarm) {}
	}
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
}

// Epoch returns the epoch of the driver that opened the journal.
func (j *Journal) Epoch() base.Epoch { return j.claimed.Epoch }

// Found says what the recovery met.
func (j *Journal) Found() Found { return j.found }

// Facts returns a copy of the facts so far.
func (j *Journal) Facts() (*Facts, error) {
	j.mu.Lock()
	body, err := j.facts.Encode()
	j.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return DecodeFacts(body)
}

// Begin opens the epoch in the log.
func (j *Journal) Begin(ctx context.Context, run string, at base.BatchTime, job checkpoint.Job) error {
	return j.Append(ctx, DriverStarted{Epoch: j.claimed.Epoch, Run: run, At: at, Job: job, Accepted: j.found.Accepted})
}

// Append implements [Log].
func (j *Journal) Append(ctx context.Context, e Event) error {
	t, err := j.start(e)
	if err != nil {
		return err
	}
	_, err = t.Wait(ctx)
	return err
}

// Post implements [Log].
func (j *Journal) Post(e Event) error {
	_, err := j.start(e)
	return err
}

// start gives an event its place. The facts run ahead of the log; a snapshot of
// them waits until the log has caught up.
func (j *Journal) start(e Event) (*wal.Ticket, error) {
	rec, err := EncodeEvent(e)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.facts.Apply(e); err != nil {
		return nil, fmt.Errorf("driver: event %T contradicts the log: %w", e, err)
	}
	t := j.w.Start(rec)
	j.seq = t.Seq()
	if _, own := e.(SnapshotDone); !own {
		j.since += int64(len(rec))
	}
	if j.since >= j.cfg.SnapshotBytes {
		j.since = 0
		select {
		case j.due <- struct{}{}:
		default:
		}
	}
	return t, nil
}

// Sync returns when every event so far is on disk, whatever the level, or a
// snapshot of what they add up to. It comes before the deletion of what only
// older events name (Invariant 5).
func (j *Journal) Sync(ctx context.Context) error {
	err := j.w.Sync(ctx)
	if err != nil && !j.over(ctx, err) {
		// The disk may have lost events for good that it had taken.
		return j.Snapshot(ctx)
	}
	return err
}

// Fenced reports whether a successor has taken the directory over (Invariant 7).
// That it can't tell, because the file system is away, is no.
func (j *Journal) Fenced() bool {
	dir := j.claimed.Dir
	serves, err := fsys.For(j.cfg.FS, dir)
	if err != nil {
		return false
	}
	if r, ok := serves.(fsys.Remote); ok && r.Away(dir) {
		return false
	}
	_, err = serves.Stat(dir)
	return errors.Is(err, fs.ErrNotExist)
}

// over says whether an error comes of an end and not of the disk.
func (j *Journal) over(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, wal.ErrClosed) || errors.Is(err, wal.ErrFenced)
}

// snapshots is the goroutine that makes them.
func (j *Journal) snapshots() {
	for {
		select {
		case <-j.due:
		case <-j.ctx.Done():
			return
		}
		if err := j.Snapshot(j.ctx); err != nil && j.ctx.Err() == nil {
			// The log has everything, and nothing of it is removed before the next
			// snapshot succeeds.
			j.cfg.Alarm(Alarm{Kind: "snapshot", Subject: j.cfg.Dir, Message: fmt.Sprintf("no snapshot of the driver's log: %v", err)})
		}
	}
}

// Snapshot writes the facts so far, and removes what only snapshots older than
// those kept would need.
func (j *Journal) Snapshot(ctx context.Context) error {
	select {
	case <-j.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { j.turn <- struct{}{} }()
	j.mu.Lock()
	seq := j.seq
	body, err := j.facts.Encode()
	j.mu.Unlock()
	if err != nil {
		return err
	}
	// Invariant 14: a snapshot never says what the log may not have. The log is on
	// disk before it, if the disk can do that, so that a fall-back finds no gap.
	if err := j.w.Roll(ctx); err != nil {
		return err
	}
	if err := j.w.Sync(ctx); err != nil {
		if j.over(ctx, err) {
			return err
		}
		j.cfg.Alarm(Alarm{Kind: "log", Subject: j.cfg.Dir, Message: fmt.Sprintf("the disk did not keep a part of the driver's log, a snapshot takes its place: %v", err)})
	}
	if _, err := checkpoint.Write(j.cfg.FS, j.claimed.Dir, checkpoint.Snapshot{Epoch: j.claimed.Epoch, Seq: seq, Body: body}); err != nil {
		return err
	}
	j.w.Covered(seq)
	if err := j.Append(ctx, SnapshotDone{Seq: seq}); err != nil {
		return err
	}
	return j.trim()
}

// trim removes snapshots beyond those kept, and the log before the oldest of
// them (Invariant 5). Until there are as many as are to be kept, the log from
// its beginning stands in for those that lack.
func (j *Journal) trim() error {
	epochs := append(j.claimed.Sealed[:len(j.claimed.Sealed):len(j.claimed.Sealed)], wal.EpochDir{Epoch: j.claimed.Epoch, Dir: j.claimed.Dir})
	kept, err := checkpoint.Prune(j.cfg.FS, dirsOf(epochs), j.cfg.Keep)
	if err != nil || len(kept) < j.cfg.Keep {
		return err
	}
	oldest := kept[len(kept)-1]
	for _, e := range epochs {
		if e.Epoch > oldest.Epoch {
			break
		}
		if e.Epoch == oldest.Epoch {
			_, err = wal.Trim(j.cfg.FS, e.Dir, oldest.Seq+1)
		} else {
			err = j.cfg.FS.RemoveAll(e.Dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func dirsOf(epochs []wal.EpochDir) []string {
	out := make([]string, len(epochs))
	for i, e := range epochs {
		out[i] = e.Dir
	}
	return out
}

// Close writes what was appended and gives the directory up. With a last
// snapshot the next start need not replay.
func (j *Journal) Close(snapshot bool) error {
	j.once.Do(func() {
		j.cancel()
		j.wg.Wait()
		if snapshot {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			j.err = j.Snapshot(ctx)
		}
		j.err = errors.Join(j.err, j.w.Close(), j.claimed.Close())
	})
	return j.err
}

// closeTimeout bounds the last snapshot: the log has everything without it.
const closeTimeout = 5 * time.Second

// replay adds up the facts of a log whose epochs nobody writes any more.
func replay(ctx context.Context, f fsys.FS, epochs []wal.EpochDir) (facts *Facts, found Found, err error) {
	facts = &Facts{}
	snap, bad, err := checkpoint.Newest(f, dirsOf(epochs))
	found.Bad = bad
	damaged := err
	if err != nil && !allCorrupt(bad) {
		return nil, found, err
	}
	var since base.Epoch
	if snap != nil {
		if facts, err = DecodeFacts(snap.Body); err != nil {
			return nil, found, fmt.Errorf("snapshot %d: %w", snap.Seq, err)
		}
		found.Snapshot = &checkpoint.Info{Epoch: snap.Epoch, Seq: snap.Seq, Size: int64(len(snap.Body))}
		found.Seq, since = snap.Seq, snap.Epoch
	}
	accepted, err := acceptedOf(ctx, f, epochs, since, facts.Accepted)
	if err != nil {
		return nil, found, err
	}
	defer func() {
		// Without a good snapshot the log must go back to its first event.
		if damaged != nil && (err != nil || found.Events == 0) {
			facts, err = nil, damaged
		}
	}()
	for _, e := range epochs {
		if e.Epoch < since {
			continue // the snapshot holds all of it
		}
		opts := wal.ScanOptions{From: found.Seq + 1}
		if l, ok := accepted[e.Epoch]; ok {
			opts.Limits = &l
		}
		report, err := wal.Scan(ctx, f, e.Dir, opts, func(seq uint64, _ base.Handle, rec []byte) error {
			if seq != found.Seq+1 {
				return fmt.Errorf("driver: log %s: event %d comes after event %d: those between are gone: %w", e.Dir, seq, found.Seq, base.ErrCorrupt)
			}
			ev, err := DecodeEvent(rec)
			if err == nil {
				err = facts.Apply(ev)
			}
			if err != nil {
				return fmt.Errorf("driver: log %s: event %d: %w", e.Dir, seq, err)
			}
			found.Seq = seq
			found.Events++
			found.Bytes += int64(len(rec))
			return nil
		})
		if err != nil {
			return nil, found, err
		}
		found.Torn = append(found.Torn, report.Torn...)
		if _, known := accepted[e.Epoch]; !known {
			accepted[e.Epoch] = report.Limits()
		}
	}
	for _, e := range epochs {
		if l, ok := accepted[e.Epoch]; ok {
			found.Accepted = append(found.Accepted, Accepted{e.Epoch, l})
		}
	}
	return facts, found, nil
}

// allCorrupt says that snapshots are damaged, and none of them just can't be read now.
func allCorrupt(bad []checkpoint.Bad) bool {
	for _, b := range bad {
		if !errors.Is(b.Err, base.ErrCorrupt) {
			return false
		}
	}
	return len(bad) > 0
}

// acceptedOf collects what the drivers after an epoch took of its log.
func acceptedOf(ctx context.Context, f fsys.FS, epochs []wal.EpochDir, since base.Epoch, known []Accepted) (map[base.Epoch]wal.Limits, error) {
	out := map[base.Epoch]wal.Limits{}
	for _, a := range known {
		if a.Epoch >= since {
			return nil, fmt.Errorf("driver: the snapshot of epoch %d says what counts of epoch %d: %w", since, a.Epoch, base.ErrCorrupt)
		}
		out[a.Epoch] = a.Limits
	}
	seen := errors.New("seen")
	for _, e := range epochs {
		if e.Epoch <= since {
			continue
		}
		_, err := wal.Scan(ctx, f, e.Dir, wal.ScanOptions{Parallel: 1}, func(_ uint64, _ base.Handle, rec []byte) error {
			ev, err := DecodeEvent(rec)
			if err != nil {
				return fmt.Errorf("driver: log %s: its first event: %w", e.Dir, err)
			}
			if s, ok := ev.(DriverStarted); ok {
				for _, a := range s.Accepted {
					if a.Epoch >= e.Epoch {
						return fmt.Errorf("driver: log %s: its first event says what counts of epoch %d: %w", e.Dir, a.Epoch, base.ErrCorrupt)
					}
					out[a.Epoch] = a.Limits
				}
			}
			return seen
		})
		if err != nil && !errors.Is(err, seen) {
			return nil, err
		}
	}
	return out, nil
}

// ReadFacts adds up the facts of a log directory without claiming it, for
// inspection. The driver that writes there may be ahead of them.
func ReadFacts(ctx context.Context, f fsys.FS, dir string) (*Facts, Found, error) {
	epochs, err := wal.Epochs(f, dir)
	if err != nil {
		return nil, Found{}, err
	}
	return replay(ctx, f, epochs)
}
