package hdfs

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
)

// File is a file being written. It is for one goroutine at a time.
type File struct {
	fs      *FS
	name    string
	path    *location
	layout  layout
	length  int64 // bytes written
	flushed atomic.Int64

	mu     sync.Mutex // of what others look at
	w      *writer    // nil while the file is closed between two commits
	begun  bool       // a datanode may have some of it
	ended  bool       // closed by its user
	broken error
	told   bool // who writes knows that it is broken

	fewer int // replicas left out, since no datanode took as many

	// block is full while the file goes on to its next block, and while the
	// namenode is told how long the last one is: it does not ask which. Both need
	// the namenode, so nobody waits who could do without.
	block chan struct{}
	last  int64 // index of the last block
}

// location is the path of a file that is being written, which a rename of its
// directory changes.
type location struct{ path atomic.Pointer[string] }

func (l *location) get() string  { return *l.path.Load() }
func (l *location) set(p string) { l.path.Store(&p) }

// Create implements fsys.FS.
func (f *FS) Create(name string) (fsys.File, error) {
	file, err := f.create(pathOf(name))
	if err != nil {
		return nil, pathError("create", name, err)
	}
	file.name = name
	f.mu.Lock()
	f.open[file.path.get()] = file
	f.mu.Unlock()
	return file, nil
}

func (f *FS) create(p string) (*File, error) {
	if p == "" {
		return nil, fs.ErrNotExist
	}
	l, err := f.layout()
	if err != nil {
		return nil, err
	}
	at := &location{}
	at.set(p)
	w, err := f.writer(at, l)
	if err != nil {
		return nil, err
	}
	return &File{fs: f, path: at, layout: l, w: w, block: make(chan struct{}, 1)}, nil
}

// state is the error that stands in the way of an operation.
func (f *File) state(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ended:
		return pathError(op, f.name, fs.ErrClosed)
	case f.broken != nil:
		f.told = true
		return pathError(op, f.name, f.broken)
	}
	return nil
}

// fail marks the file as one that can't go on, and ends its attempt. The caller
// says so to who writes.
func (f *File) fail(err error) { f.end(err, true) }

// cut is fail while nobody listens.
func (f *File) cut(err error) { f.end(err, false) }

func (f *File) end(err error, told bool) {
	f.mu.Lock()
	w := f.w
	if f.broken == nil {
		f.broken = err
	}
	f.told = f.told || told
	f.mu.Unlock()
	if w != nil {
		w.stream.fail(err)
	}
}

func (f *File) writer() *writer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.w
}

// Write implements fsys.File.
func (f *File) Write(b []byte) (int, error) {
	if err := f.state("write"); err != nil {
		return 0, err
	}
	f.length += int64(len(b))
	if err := f.put(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// put sends bytes, which may go on to other blocks.
func (f *File) put(b []byte) error {
	if last := (f.length - 1) / f.layout.blockSize; last > f.last {
		f.block <- struct{}{}
		defer func() { <-f.block }()
		f.last = last
	}
	return f.send(b)
}

// send sends bytes. Until the first datanode has something the file can be begun
// anew; after that the first error is the end of it.
func (f *File) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	// The first byte has the library connect, and goes no further than its buffer.
	connect := f.begin
	if f.writer() == nil {
		connect = f.resume
	}
	if !f.begun || f.writer() == nil {
		if err := connect(b[:1]); err != nil {
			f.fail(err)
			return pathError("write", f.name, err)
		}
		b = b[1:]
	}
	if err := f.writer().put(b); err != nil {
		f.fail(err)
		return pathError("write", f.name, err)
	}
	return nil
}

// atFull is how many times a file is begun with all its replicas, before one is
// left out.
const atFull = 2

// begin writes the first byte, for which the library asks the namenode for a
// block and connects to its datanodes. If that fails, because one of them is dead
// and the namenode does not know yet, nobody has anything: the file is made anew,
// for as long as Config.Patience. The library can't name datanodes to exclude, so
// where there are no more of them than replicas the dead one would be among those
// of every attempt: fewer replicas are asked for, as many as must acknowledge, and
// the rest when the file is closed.
func (f *File) begin(b []byte) (err error) {
	began, delay := time.Now(), 20*time.Millisecond
	done := f.fs.log.begin("first block of " + f.path.get())
	defer func() { done(err) }()
	for attempt := 1; ; attempt++ {
		w := f.writer()
		err := w.put(b)
		if err == nil {
			f.begun = true
			return nil
		}
		if !f.again(err, w) {
			return err
		}
		w.giveUp(err)
		if waited := time.Since(began); waited >= f.fs.cfg.Patience {
			return fmt.Errorf("%w: %w (waited %v)", ErrNoDatanode, err, waited.Round(time.Second))
		}
		f.fs.log.waiting("first block of "+f.path.get(), err)
		if !f.fs.pause(delay) {
			return fs.ErrClosed
		}
		delay = min(2*delay, time.Second)
		f.fewer = min(attempt/atFull, f.layout.replication-f.layout.least)
		if err := f.anew(); err != nil {
			return err
		}
	}
}

// again reports whether an error of the first block may pass.
func (f *File) again(err error, w *writer) bool {
	return w.stream.nothingSent() && (!answered(err) || errors.Is(err, ErrNoDatanode) || notActive(err))
}

// anew replaces the file by one that no datanode has failed.
func (f *File) anew() error {
	if err := f.fs.delete(f.path.get(), false); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l := f.layout
	l.replication -= f.fewer
	w, err := f.fs.writer(f.path, l)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.w = w
	f.mu.Unlock()
	return nil
}

// Flush implements fsys.File.
func (f *File) Flush() error { return f.commit("flush", false) }

// Sync implements fsys.File.
func (f *File) Sync() error { return f.commit("sync", true) }

func (f *File) commit(op string, sync bool) error {
	if err := f.state(op); err != nil {
		return err
	}
	if f.length == 0 {
		return nil // the namenode has the name, and there is nothing else
	}
	w := f.writer()
	if w == nil {
		return nil // it is closed, with all there is
	}
	if err := f.commitTo(w, sync); err != nil {
		f.fail(err)
		return pathError(op, f.name, err)
	}
	f.flushed.Store(f.length)
	return nil
}

func (f *File) commitTo(w *writer, sync bool) error {
	if !f.layout.closing {
		return w.flush(sync)
	}
	return f.suspend(w)
}

// Close implements fsys.File. If the file can't be closed, what was flushed is
// safe: its lease is recovered in the background, and Open waits for that.
func (f *File) Close() error {
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		return pathError("close", f.name, fs.ErrClosed)
	}
	err, told := f.broken, f.told
	f.mu.Unlock()
	whole := false
	w := f.writer()
	if err == nil && w != nil {
		whole, err = w.finish(f.length, f.layout.blockSize)
	}
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	if err == nil {
		f.flushed.Store(f.length)
		f.fs.forget(f)
		f.replicate()
		if w != nil {
			w.reuse()
		}
		return nil
	}
	f.fs.abandon(f, w, whole, err)
	if told {
		return nil
	}
	return pathError("close", f.name, interpret(err))
}

// replicate asks for the replicas that were left out.
func (f *File) replicate() {
	if f.fewer == 0 {
		return
	}
	err := f.fs.do("replicate", f.path.get(), func(c *client, _ bool) error {
		_, err := c.call("setReplication", arg{"src", f.path.get()}, arg{"replication", uint32(f.layout.replication)})
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.fs.cfg.Log.Warn("a file keeps fewer replicas than asked for", "file", f.name, "replicas", f.layout.replication-f.fewer, "asked", f.layout.replication, "error", err)
	}
}

// forget ends what is known of an open file.
func (f *FS) forget(file *File) {
	f.mu.Lock()
	if f.open[file.path.get()] == file {
		delete(f.open, file.path.get())
	}
	f.mu.Unlock()
}

// abandon ends a file that is not closed on the namenode. Another client ends the
// writing: this one must not tell the namenode a length.
func (f *FS) abandon(file *File, w *writer, whole bool, err error) {
	if w != nil {
		w.giveUp(err)
	}
	f.mu.Lock()
	f.stats.Abandoned++
	f.mu.Unlock()
	if !errors.Is(err, fs.ErrClosed) {
		f.cfg.Log.Warn("a file is given up; what was acknowledged is safe, and its lease is being recovered", "file", file.name, "acknowledged", file.flushed.Load(), "written", file.length, "all", whole, "error", err)
	}
	f.recoverLater(file.path.get())
	f.forget(file)
}
