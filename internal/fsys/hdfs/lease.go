package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// atOnce is how many leases are recovered side by side: each mostly waits for
	// a heartbeat of a datanode.
	atOnce = 32
	// askAgain is when recoverLease is called again: the namenode may have given
	// the task to a datanode that is gone.
	askAgain = 5 * time.Second
)

// Recover implements fsys.Recoverer: it ends the writing of files, which fences
// writers that still live (Invariant 7), and returns once their length is final.
// A file that is gone is fine.
func (f *FS) Recover(ctx context.Context, names []string, progress func(left int, name string)) error {
	var mu sync.Mutex
	left := len(names)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, name := range names {
		g.Go(func() error {
			if err := f.recover(ctx, pathOf(name)); err != nil {
				return pathError("recover", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			left--
			if progress != nil {
				progress(left, name)
			}
			return nil
		})
	}
	return g.Wait()
}

func (f *FS) recover(ctx context.Context, p string) (err error) {
	closed, err := f.isClosed(p)
	if errors.Is(err, fs.ErrNotExist) || err == nil && closed {
		return nil
	}
	if err != nil {
		return err
	}
	began, asked, delay := time.Now(), time.Time{}, 50*time.Millisecond
	done := f.log.begin("lease of " + p)
	defer func() { done(err) }()
	for {
		if time.Since(asked) >= askAgain {
			asked = time.Now()
			closed, err = f.recoverLease(p)
		} else {
			closed, err = f.isClosed(p)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && closed:
			f.mu.Lock()
			f.stats.Recovered++
			f.mu.Unlock()
			return nil
		case err != nil && (!answered(err) || errors.Is(err, fs.ErrPermission)):
			return err
		}
		if waited := time.Since(began); waited >= f.cfg.Patience {
			return fmt.Errorf("its lease was not recovered within %v: the datanodes that hold its last block may all be down; hdfs fsck %s -files -blocks -locations names them: %w", waited.Round(time.Second), p, err)
		}
		f.log.waiting("lease of "+p, err)
		t := time.NewTimer(delay)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-f.ctx.Done():
			t.Stop()
			return fs.ErrClosed
		}
		delay = min(2*delay, 500*time.Millisecond)
	}
}

func (f *FS) recoverLease(p string) (closed bool, err error) {
	err = f.do("recover the lease of", p, func(c *client, _ bool) error {
		resp, err := c.call("recoverLease", arg{"src", p}, arg{"clientName", c.Name()})
		closed = err == nil && get(resp, "result").Bool()
		return err
	})
	return closed, err
}

// recoverLater recovers a lease in the background. Open waits for it.
func (f *FS) recoverLater(p string) {
	done := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.recovering[p] != nil {
		return
	}
	f.recovering[p] = done
	f.tasks.Go(func() {
		err := f.recover(f.ctx, p)
		f.mu.Lock()
		delete(f.recovering, p)
		f.mu.Unlock()
		close(done)
		if err != nil && f.ctx.Err() == nil {
			f.cfg.Log.Error("the lease of a file was not recovered: it can't be read until it is", "file", p, "error", err)
		}
	})
}

// settled waits until the lease of a file is not being recovered any more.
func (f *FS) settled(p string) {
	f.mu.Lock()
	done := f.recovering[p]
	f.mu.Unlock()
	if done != nil {
		<-done
	}
}
