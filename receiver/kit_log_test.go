package receiver_test

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
)

var errClosed = errors.New("log is closed")

// diary is a scripted write-ahead log.
type diary struct {
	// fail decides about append n, counted from 1; nil means that all succeed.
	fail func(n int) error
	// hold, if set, makes appends wait until it is closed. Close ends their wait:
	// they are written then, as a log writes what is queued.
	hold chan struct{}

	epoch   base.Epoch
	closing chan struct{}
	mu      sync.Mutex
	begun   int
	records map[base.Handle][]byte
	order   []base.Handle
	freed   []base.Handle
	closed  bool
}

// withDiary gives w a log.
func withDiary(w *world) *diary {
	w.diary = &diary{epoch: 7, closing: make(chan struct{}), records: map[base.Handle][]byte{}}
	return w.diary
}

func (d *diary) Append(ctx context.Context, rec []byte) (base.Handle, error) {
	d.mu.Lock()
	d.begun++
	n := d.begun
	d.mu.Unlock()
	if d.hold != nil {
		select {
		case <-d.hold:
		case <-d.closing:
		case <-ctx.Done():
			return base.Handle{}, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return base.Handle{}, errClosed
	}
	if d.fail != nil {
		if err := d.fail(n); err != nil {
			return base.Handle{}, err
		}
	}
	h := base.Handle{Log: "lines", Epoch: d.epoch, Segment: 1, Offset: int64(n), Length: int64(len(rec))}
	d.records[h] = rec
	d.order = append(d.order, h)
	return h, nil
}

func (d *diary) Release(hs ...base.Handle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.freed = append(d.freed, hs...)
}

func (d *diary) Close() error {
	close(d.closing)
	d.until(func() bool { return len(d.order) == d.begun || d.fail != nil })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return nil
}

func (d *diary) until(cond func() bool) {
	for {
		d.mu.Lock()
		ok := cond()
		d.mu.Unlock()
		if ok {
			return
		}
		synctestYield()
	}
}

func (d *diary) read(h base.Handle) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.records[h]
}

// handles returns those of all records, and those given back.
func (d *diary) handles() (all, freed []base.Handle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.order), slices.Clone(d.freed)
}

func (d *diary) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}
