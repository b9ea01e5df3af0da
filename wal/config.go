package wal

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
)

// ErrFenced says that a successor took the directory over: it is gone, renamed
// or claimed by another (Invariant 7). The writer must end.
var ErrFenced = errors.New("fenced by a successor")

// ErrClosed says that a writer or store was closed or killed. A record that was
// waited for may or may not be in the log.
var ErrClosed = errors.New("log closed")

// Config says how a log is written. Only FS is required.
type Config struct {
	FS    fsys.FS
	Level Level

	// SegmentBytes is the size after which a segment is sealed; 64 MiB if 0.
	// A segment is longer only if its one record is.
	SegmentBytes int64
	// SegmentAge seals a segment that has been open for so long; never if 0.
	SegmentAge time.Duration
	// MaxRecord is the longest payload accepted; 256 MiB if 0.
	MaxRecord int64

	// RetryDelay is the pause after a failed write, 10 ms if 0. It doubles
	// with each failure in a row up to RetryDelayMax, 1 s if 0.
	RetryDelay, RetryDelayMax time.Duration

	// Alarm is told of every failed operation on files, on a goroutine that
	// Alarm is told of every failed operation on files, on a goroutine that
	// writes or deletes: it must not block, and may be called concurrently if
	// several logs share it. Nil is fine.
	Alarm func(error)
}

const (
	defaultSegmentBytes  = 64 << 20
	defaultMaxRecord     = 256 << 20
	defaultRetryDelay    = 10 * time.Millisecond
	defaultRetryDelayMax = time.Second
)

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.FS == nil:
		return c, errors.New("wal: Config.FS is nil: a file system is required")
	case !c.Level.valid():
		return c, fmt.Errorf("wal: Config.Level is %s: must be memory, flush or sync", c.Level)
	case c.SegmentBytes < 0:
		return c, fmt.Errorf("wal: Config.SegmentBytes is %d: must not be negative", c.SegmentBytes)
	case c.SegmentAge < 0:
		return c, fmt.Errorf("wal: Config.SegmentAge is %v: must not be negative", c.SegmentAge)
	case c.MaxRecord < 0 || c.MaxRecord > mostRecord:
		return c, fmt.Errorf("wal: Config.MaxRecord is %d: must be 0 to %d", c.MaxRecord, int64(mostRecord))
	case c.RetryDelay < 0 || c.RetryDelayMax < 0:
		return c, fmt.Errorf("wal: Config.RetryDelay is %v, RetryDelayMax %v: must not be negative", c.RetryDelay, c.RetryDelayMax)
	}
	c.SegmentBytes = cmp.Or(c.SegmentBytes, defaultSegmentBytes)
	c.MaxRecord = cmp.Or(c.MaxRecord, defaultMaxRecord)
	c.RetryDelay = cmp.Or(c.RetryDelay, defaultRetryDelay)
	c.RetryDelayMax = max(cmp.Or(c.RetryDelayMax, defaultRetryDelayMax), c.RetryDelay)
	if c.Alarm == nil {
		c.Alarm = func(error) {}
	}
	return c, nil
}
