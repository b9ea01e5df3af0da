package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
)

const (
	filePermission = 0o644
	dirPermission  = 0o755
)

// FS is an HDFS. Names are absolute paths, or hdfs://authority/path whatever the
// authority. Its methods may be called concurrently.
type FS struct {
	cfg    Config
	log    notices
	away   atomic.Bool
	first  atomic.Int64 // which address is tried first
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup // recoveries in the background

	mu         sync.Mutex
	closed     bool
	shared     *client          // for everything but writing
	spare      []*writer        // of files that ended well
	open       map[string]*File // by path, being written
	recovering map[string]chan struct{}
	stats      Stats
	creates    hourly
	told       time.Time // when the number of files was told last
	defaults   *defaults
}

// defaults are what the cluster does if it is not told otherwise.
type defaults struct {
	blockSize   int64
	replication int
	encrypted   bool
}

// Stats counts what an FS has done.
type Stats struct {
	Creates   int64 // files made on the namenode
	LastHour  int64 // of those, in the last hour
	Abandoned int64 // files whose stream failed
	Recovered int64 // leases of files that were left open
}

// New returns the file system. It connects at the first call.
func New(cfg Config) (*FS, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &FS{cfg: cfg, log: notices{log: cfg.Log}, open: map[string]*File{}, recovering: map[string]chan struct{}{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

var (
	_ fsys.FS         = (*FS)(nil)
	_ fsys.Recoverer  = (*FS)(nil)
	_ fsys.Placed     = (*FS)(nil)
	_ fsys.Unfinished = (*FS)(nil)
	_ fsys.Remote     = (*FS)(nil)
	_ fsys.Promiser   = (*FS)(nil)
)

// pathOf strips what names the cluster. An empty name stays one: there is nothing
// of that name.
func pathOf(name string) string {
	if name == "" {
		return ""
	}
	if rest, ok := strings.CutPrefix(name, "hdfs://"); ok {
		_, rest, _ = strings.Cut(rest, "/")
		name = rest
	}
	return path.Clean("/" + name)
}

// Stats returns the counts so far.
func (f *FS) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.LastHour = f.creates.sum(time.Now())
	return s
}

// Away reports whether the namenode did not answer when it was last asked. While
// files are open it is asked every second.
func (f *FS) Away(string) bool { return f.away.Load() }

// Close ends the calls that wait for the namenode, gives up the files that are
// open for writing, and waits.
func (f *FS) Close() error {
	f.mu.Lock()
	if !f.closed && f.stats.Creates > 0 {
		f.cfg.Log.Info("files made on HDFS", "last hour", f.creates.sum(time.Now()), "in all", f.stats.Creates)
	}
	f.closed = true
	shared, spare := f.shared, f.spare
	f.shared, f.spare = nil, nil
	var open []*File
	for _, w := range f.open {
		open = append(open, w)
	}
	f.mu.Unlock()
	f.cancel()
	if shared != nil {
		shared.close()
	}
	for _, w := range spare {
		w.close()
	}
	for _, w := range open {
		w.cut(fs.ErrClosed)
	}
	f.tasks.Wait()
	return nil
}

// client returns the one that is shared.
func (f *FS) client() (*client, error) {
	f.mu.Lock()
	c, closed := f.shared, f.closed
	f.mu.Unlock()
	if closed {
		return nil, fs.ErrClosed
	}
	if c != nil {
		return c, nil
	}
	c, err := f.connect(nil)
	if err != nil {
		return nil, err
	}
	// The library caches these without a lock.
	if _, err := c.ServerDefaults(); err != nil {
		c.close()
		f.first.Add(1)
		return nil, err
	}
	f.mu.Lock()
	other, closed := f.shared, f.closed
	if other == nil && !closed {
		f.shared = c
	}
	f.mu.Unlock()
	if closed {
		c.close()
		return nil, fs.ErrClosed
	}
	if other != nil {
		c.close()
		return other, nil
	}
	return c, nil
}

// connect makes a client. The namenode that answered last is asked first.
func (f *FS) connect(s *stream) (*client, error) {
	return newClient(f.cfg, int(f.first.Load())%len(f.cfg.Addresses), &f.away, s)
}

// drop ends a client whose namenode did not answer. The next is made with the
// next address in front.
func (f *FS) drop(c *client) {
	f.mu.Lock()
	if f.shared == c {
		f.shared = nil
	}
	f.mu.Unlock()
	f.first.Add(1)
	c.close()
}

// do calls the namenode, again and again while it is away, in safe mode or
// standby. Again says that an earlier attempt may have been executed, though its
// answer never came.
func (f *FS) do(what, name string, call func(c *client, again bool) error) (err error) {
	if name == "" {
		return fs.ErrNotExist
	}
	began, delay, again := time.Now(), 20*time.Millisecond, false
	done := f.log.begin(what + " " + name)
	defer func() { done(err) }()
	for {
		c, err := f.client()
		if err == nil {
			if err = interpret(call(c, again)); err == nil || answered(err) && !notActive(err) {
				return err
			}
			if !answered(err) {
				again = true
				f.drop(c)
			}
		} else if err = interpret(err); errors.Is(err, fs.ErrPermission) {
			return err
		}
		if f.ctx.Err() != nil {
			return fs.ErrClosed
		}
		if waited := time.Since(began); waited >= f.cfg.Patience {
			return unavailable(waited.Round(time.Second).String(), err)
		}
		f.log.waiting(what+" "+name, err)
		if !f.pause(delay) {
			return fs.ErrClosed
		}
		delay = min(2*delay, time.Second)
	}
}

// pause is false if the file system was closed meanwhile.
func (f *FS) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// clusterDefaults asks the cluster once.
func (f *FS) clusterDefaults() (defaults, error) {
	f.mu.Lock()
	d := f.defaults
	f.mu.Unlock()
	if d != nil {
		return *d, nil
	}
	d = &defaults{}
	err := f.do("defaults of", "the cluster", func(c *client, _ bool) error {
		s, err := c.ServerDefaults()
		*d = defaults{blockSize: s.BlockSize, replication: s.Replication, encrypted: s.EncryptDataTransfer}
		return err
	})
	if err != nil {
		return defaults{}, err
	}
	f.mu.Lock()
	f.defaults = d
	f.mu.Unlock()
	return *d, nil
}

// layout says how new files are written.
type layout struct {
	replication, least int
	blockSize          int64
	closing            bool
}

func (f *FS) layout() (layout, error) {
	d, err := f.clusterDefaults()
	if err != nil {
		return layout{}, err
	}
	l := layout{replication: f.cfg.Replication, least: f.cfg.MinReplicas, blockSize: f.cfg.BlockSize}
	if l.replication == 0 {
		l.replication = d.replication
	}
	if l.least == 0 {
		l.least = min(2, l.replication)
	}
	if l.least > l.replication {
		return layout{}, fmt.Errorf("%w: at least %d datanodes must acknowledge, and the cluster's replication is %d", ErrReplicas, l.least, l.replication)
	}
	if l.blockSize == 0 {
		l.blockSize = d.blockSize
	}
	l.closing = f.cfg.CloseToCommit || d.encrypted || f.cfg.options.DataTransferProtection != ""
	return l, nil
}

// Promise implements fsys.Promiser.
func (f *FS) Promise(sync bool) (string, error) {
	l, err := f.layout()
	switch {
	case err != nil:
		return "", fmt.Errorf("hdfs://%s: %w", strings.Join(f.cfg.Addresses, ","), err)
	case l.closing && sync:
		return "", errors.New("files on HDFS are committed by closing them here, which brings nothing to disk: durability=sync is not possible, flush is")
	case l.closing:
		return fmt.Sprintf("what is acknowledged is in a file that was closed, with replication %d", l.replication), nil
	case sync:
		return fmt.Sprintf("what is acknowledged is on the disks of at least %d datanodes (of %d)", l.least, l.replication), nil
	}
	return fmt.Sprintf("what is acknowledged is with at least %d datanodes (of %d), not necessarily on their disks", l.least, l.replication), nil
}
