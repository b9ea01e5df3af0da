package wal

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// StoreConfig says where a store is and how it writes.
type StoreConfig struct {
	Config
	// Dir holds a directory for each log.
	Dir string
	// BeforeRemove is called before segments are deleted, for example to sync
	// the log that says that nobody needs them (Invariant 5). An error
	// postpones the deletion. Nil is fine.
	BeforeRemove func(context.Context) error
}

// Store keeps records that are read by handle and released by reference:
// received blocks, state files. Its methods may be called concurrently.
type Store struct {
	cfg   StoreConfig
	files *fileCache

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wake   chan struct{} // something may be deleted; buffers one
	swept  chan struct{} // closed by the goroutine at its end

	mu        sync.Mutex
	closed    bool
	recovered bool
	logs      map[string]bool
	epochs    map[epochKey]*epochState
	segments  map[segmentKey]*segmentState
	queued    map[base.Handle][]byte      // acknowledged, not written: LevelMemory
	moved     map[base.Handle]base.Handle // where a queued record went after a failed write
	writers   map[*StoreWriter]struct{}
}

type epochKey struct {
	log   string
	epoch base.Epoch
}

type epochState struct {
	segments int  // known to be there
	closed   bool // nobody writes into it through this store
}

type segmentKey struct {
	epochKey
	number uint64
}

func keyOf(h base.Handle) segmentKey {
	return segmentKey{epochKey: epochKey{log: h.Log, epoch: h.Epoch}, number: h.Segment}
}

type segmentState struct {
	live      map[int64]int64 // offset to payload length of the records that are needed
	liveBytes int64
	bytes     int64
	closed    bool
}

func (s *segmentState) add(offset, length int64) {
	if _, ok := s.live[offset]; !ok {
		s.live[offset] = length
		s.liveBytes += length
	}
}

// remove takes a record away once: a second release must not take another's.
func (s *segmentState) remove(offset int64) {
	s.liveBytes -= s.live[offset]
	delete(s.live, offset)
}

// OpenStore opens the store in cfg.Dir, which is made if need be. [Store.Recover]
// comes next if there may be records of earlier processes.
func OpenStore(cfg StoreConfig) (*Store, error) {
	var err error
	if cfg.Config, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	if err := fsys.MakeDirs(cfg.FS, cfg.Dir); err != nil {
		return nil, fmt.Errorf("wal: open store %q: %w", cfg.Dir, err)
	}
	s := &Store{
		cfg: cfg, files: newFileCache(cfg.FS, cfg.Dir),
		wake: make(chan struct{}, 1), swept: make(chan struct{}),
		logs: map[string]bool{}, epochs: map[epochKey]*epochState{}, segments: map[segmentKey]*segmentState{},
		queued: map[base.Handle][]byte{}, moved: map[base.Handle]base.Handle{}, writers: map[*StoreWriter]struct{}{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.removing()
	return s, nil
}

// Recovered says what Recover found.
type Recovered struct {
	Missing  []base.Handle // live records whose segment is gone
	Segments int           // kept
	Live     int64         // bytes of live records in them
	Removed  int           // segments without any, removed or about to be
}

// Recover is called once, at start, with all handles that durable events name.
// It seals all epochs it finds, counts the live records of each segment, and
// removes segments that hold none. Only sealed epochs are swept (Invariant 5).
func (s *Store) Recover(ctx context.Context, live []base.Handle) (Recovered, error) {
	s.mu.Lock()
	late := s.recovered || len(s.logs) > 0
	s.mu.Unlock()
	if late {
		return Recovered{}, fmt.Errorf("wal: recover store %q: it has been recovered or written to", s.cfg.Dir)
	}
	found := map[segmentKey]*segmentState{}
	epochs := map[epochKey]*epochState{}
	infos, err := s.cfg.FS.List(s.cfg.Dir)
	if err != nil {
		return Recovered{}, fmt.Errorf("wal: recover store %q: %w", s.cfg.Dir, err)
	}
	dirs := map[string][]EpochDir{} // by log
	var all []EpochDir
	for _, in := range infos {
		log, ok := unescape(in.Name)
		if !ok || !in.Dir {
			continue
		}
		if err := ctx.Err(); err != nil {
			return Recovered{}, fmt.Errorf("wal: recover store %q: %w", s.cfg.Dir, err)
		}
		if dirs[log], err = sealAll(s.cfg.FS, join(s.cfg.Dir, in.Name)); err != nil {
			return Recovered{}, fmt.Errorf("wal: recover log %q: %w", log, err)
		}
		all = append(all, dirs[log]...)
	}
	if err := endWriting(ctx, s.cfg.FS, all); err != nil {
		return Recovered{}, fmt.Errorf("wal: recover store %q: %w", s.cfg.Dir, err)
	}
	for log := range dirs {
		if err := findSegments(s.cfg.FS, dirs[log], log, epochs, found); err != nil {
			return Recovered{}, fmt.Errorf("wal: recover log %q: %w", log, err)
		}
	}
	var r Recovered
	for _, h := range live {
		if seg := found[keyOf(h)]; seg != nil {
			seg.add(h.Offset, h.Length)
		} else {
			r.Missing = append(r.Missing, h)
		}
	}
	s.mu.Lock()
	s.recovered = true
	for k, e := range epochs {
		s.logs[k.log] = true
		s.epochs[k] = e
	}
	for k, seg := range found {
		s.segments[k] = seg
		if len(seg.live) == 0 {
			r.Removed++
			continue
		}
		r.Segments++
		r.Live += seg.liveBytes
	}
	s.mu.Unlock()
	if err := s.removeDead(ctx); err != nil {
		s.cfg.Alarm(err)
		s.poke() // the goroutine tries again
	}
	return r, nil
}

// sealAll seals the epochs of one log and lists them.
func sealAll(fs fsys.FS, parent string) ([]EpochDir, error) {
	if err := sealEpochs(fs, parent, nil); err != nil {
		return nil, err
	}
	return Epochs(fs, parent)
}

// findSegments lists what is in the sealed epochs of one log.
func findSegments(fs fsys.FS, dirs []EpochDir, log string, epochs map[epochKey]*epochState, found map[segmentKey]*segmentState) error {
	for _, d := range dirs {
		segments, err := listSegments(fs, d.Dir)
		if err != nil {
			return err
		}
		key := epochKey{log: log, epoch: d.Epoch}
		epochs[key] = &epochState{segments: len(segments), closed: true}
		for _, in := range segments {
			number, _ := parseSegmentFile(in.Name)
			found[segmentKey{epochKey: key, number: number}] = &segmentState{live: map[int64]int64{}, bytes: in.Size, closed: true}
		}
	}
	return nil
}

// Release says that records are not needed any more, and returns at once.
// Segments that are closed and hold no live record are deleted in the
// background. To release a handle twice is harmless.
func (s *Store) Release(hs ...base.Handle) {
	s.mu.Lock()
	dead := false
	for _, h := range hs {
		dead = s.release(h) || dead
	}
	s.mu.Unlock()
	if dead {
		s.poke()
	}
}

// release is true if a segment may have died of it. Mu is held.
func (s *Store) release(h base.Handle) bool {
	if _, ok := s.queued[h]; ok {
		delete(s.queued, h) // committed will not count it
		return false
	}
	if to, ok := s.moved[h]; ok {
		delete(s.moved, h)
		h = to
	}
	seg := s.segments[keyOf(h)]
	if seg == nil {
		return false
	}
	seg.remove(h.Offset)
	return seg.closed && len(seg.live) == 0
}

// Sparse reports whether the segment of h is closed and less than a quarter of
// its bytes are live, so that what is live may be worth moving.
func (s *Store) Sparse(h base.Handle) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to, ok := s.moved[h]; ok {
		h = to
	}
	seg := s.segments[keyOf(h)]
	return seg != nil && seg.closed && seg.liveBytes*4 < seg.bytes
}

// Usage is the size of a store.
type Usage struct {
	Logs     int
	Segments int
	Bytes    int64 // of closed segments and, in open ones, of what is live
	Live     int64 // bytes of live records
}

// Usage returns the sizes of what this store wrote or recovered.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Usage{Logs: len(s.logs), Segments: len(s.segments)}
	for _, seg := range s.segments {
		u.Bytes += max(seg.bytes, seg.liveBytes)
		u.Live += seg.liveBytes
	}
	return u
}

// Close closes the writers that are open and waits for deletions.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	var open []*StoreWriter
	for w := range s.writers {
		open = append(open, w)
	}
	s.mu.Unlock()
	var errs []error
	for _, w := range open {
		errs = append(errs, w.Close())
	}
	s.poke()
	<-s.swept
	s.cancel()
	s.files.close()
	return errors.Join(errs...)
}

func (s *Store) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Read returns the record of a handle: exactly its bytes, or an error that wraps
// [base.ErrCorrupt] or [fs.ErrNotExist].
func (s *Store) Read(ctx context.Context, h base.Handle) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("wal: read %s: %w", h, err)
	}
	s.mu.Lock()
	rec, ok := s.queued[h]
	at := h
	if to, is := s.moved[h]; is {
		at = to
	}
	s.mu.Unlock()
	if ok {
		return rec, nil
	}
	rec, err := s.files.read(at)
	if err != nil {
		return nil, fmt.Errorf("wal: read %s: %w", h, err)
	}
	return rec, nil
}

// gone reports whether an error says that there is nothing of that name.
func gone(err error) bool { return errors.Is(err, iofs.ErrNotExist) }
