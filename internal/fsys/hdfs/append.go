package hdfs

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// suspend commits where acknowledgements can't be read: closing the file is the
// one thing the library waits for. The next write appends.
func (f *File) suspend(w *writer) error {
	if _, err := w.finish(f.length, f.layout.blockSize); err != nil {
		return err
	}
	f.mu.Lock()
	f.w = nil
	f.mu.Unlock()
	w.reuse()
	return nil
}

// resume opens a suspended file for appending, and writes the first byte. That may
// fail for a moment: datanodes other than the first have not ended the block yet that
// was closed. Nobody has anything then, and the lease is recovered before the next
// attempt.
func (f *File) resume(b []byte) error {
	began, delay := time.Now(), 5*time.Millisecond
	for {
		w := &writer{fs: f.fs, path: f.path}
		err := w.connect(f.layout)
		if err == nil {
			err = w.append()
		}
		opened := err == nil
		if opened {
			err = w.put(b)
		}
		if err = interpret(err); err == nil {
			f.mu.Lock()
			f.w = w
			f.mu.Unlock()
			return nil
		}
		w.giveUp(err)
		var remote *remoteError
		busy := errors.Is(err, fs.ErrExist) || errors.As(err, &remote) && remote.kind == nil
		if answered(err) && !notActive(err) && !busy {
			return err
		}
		if opened {
			if err := f.fs.recover(f.fs.ctx, f.path.get()); err != nil {
				return err
			}
		}
		if waited := time.Since(began); waited >= f.fs.cfg.Patience {
			return fmt.Errorf("append: %w (waited %v)", err, waited.Round(time.Second))
		}
		if !f.fs.pause(delay) {
			return fs.ErrClosed
		}
		delay = min(2*delay, time.Second)
	}
}

func (w *writer) append() (err error) {
	defer w.within("append")()
	w.out, err = w.client.Append(w.path.get())
	return err
}
