package hdfs

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"time"

	lib "github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// piece is how much is handed to the library at once: it copies all of it before it
// sends the first packet. Config.Timeout is for that much.
const piece = 128 << 10

// writer is one attempt at writing a file: a client, the stream of what its
// datanodes acknowledge, and the library's writer.
type writer struct {
	fs     *FS
	path   *location
	client *client
	stream *stream
	out    *lib.FileWriter
}

// writer makes a file and opens it for writing.
func (f *FS) writer(at *location, l layout) (_ *writer, err error) {
	w, p := &writer{fs: f, path: at}, at.get()
	began, delay := time.Now(), 20*time.Millisecond
	done := f.log.begin("create " + p)
	defer func() { done(err) }()
	again := false
	for {
		err := w.connect(l)
		if err == nil {
			w.out, err = w.create(l)
		}
		if err = interpret(err); err == nil {
			f.created()
			return w, nil
		}
		w.close()
		if answered(err) && !notActive(err) {
			if again && errors.Is(err, fs.ErrExist) {
				err = fmt.Errorf("%w: an attempt whose answer was lost may have made it", err)
			}
			return nil, err
		}
		again = again || !answered(err)
		if f.ctx.Err() != nil {
			return nil, fs.ErrClosed
		}
		f.first.Add(1)
		if waited := time.Since(began); waited >= f.cfg.Patience {
			return nil, unavailable(waited.Round(time.Second).String(), err)
		}
		f.log.waiting("create "+p, err)
		if !f.pause(delay) {
			return nil, fs.ErrClosed
		}
		delay = min(2*delay, time.Second)
	}
}

// connect takes the client of a file that ended well, or makes one.
func (w *writer) connect(l layout) error {
	f := w.fs
	f.mu.Lock()
	if n := len(f.spare); n > 0 && !f.closed {
		old := f.spare[n-1]
		f.spare = f.spare[:n-1]
		f.mu.Unlock()
		w.client, w.stream = old.client, old.stream
		w.stream.reset()
		return nil
	}
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return fs.ErrClosed
	}
	w.stream = newStream(l.least)
	c, err := f.connect(w.stream)
	w.client = c
	return err
}

func (w *writer) create(l layout) (*lib.FileWriter, error) {
	defer w.within("create")()
	return w.client.CreateFile(w.path.get(), l.replication, l.blockSize, filePermission)
}

// created counts a file, and tells from time to time how many there were: each
// costs the namenode memory and an entry in its log.
func (f *FS) created() {
	now := time.Now()
	f.mu.Lock()
	if f.told.IsZero() {
		f.told = now
	}
	tell := now.Sub(f.told) >= tellEvery
	var hour int64
	if tell {
		f.told = now
		hour = f.creates.sum(now)
	}
	f.stats.Creates++
	f.creates.add(now)
	all := f.stats.Creates
	f.mu.Unlock()
	if tell {
		f.cfg.Log.Info("files made on HDFS", "last hour", hour, "in all", all)
	}
}

// within has the stream fail if the step is not over in time. That closes the
// connections, so that no call of the library blocks for longer.
func (w *writer) within(step string) (done func() bool) { return w.watch(step).Stop }

func (w *writer) watch(step string) *time.Timer {
	s := w.stream // the next attempt has another
	return time.AfterFunc(w.fs.cfg.Timeout, func() {
		s.fail(fmt.Errorf("%s: no answer within %v", step, w.fs.cfg.Timeout))
	})
}

// put hands bytes to the library.
func (w *writer) put(b []byte) error {
	limit := w.watch("write")
	defer limit.Stop()
	for len(b) > 0 {
		n, err := w.putPiece(b[:min(len(b), piece)])
		if err != nil {
			return err
		}
		b = b[n:]
		limit.Reset(w.fs.cfg.Timeout)
	}
	return nil
}

func (w *writer) putPiece(b []byte) (int, error) {
	block, err := blockOf(w.out)
	if err != nil {
		return 0, err
	}
	sent, delay := 0, time.Millisecond
	for {
		before := block.UnsafePointer()
		n, err := w.out.Write(b[sent:])
		sent += n
		if failed := w.stream.error(); failed != nil {
			return sent, failed
		}
		if err == nil {
			return sent, nil
		}
		// The datanodes have not told the namenode yet that an earlier block is
		// whole. The library has forgotten the last one, which the namenode must
		// be told again when it is asked for the next.
		if err = interpret(err); !isNotReplicatedYet(err) {
			return sent, err
		}
		block.Set(reflect.NewAt(block.Type().Elem(), before))
		if !w.fs.pause(delay) {
			return sent, fs.ErrClosed
		}
		delay = min(2*delay, 100*time.Millisecond)
	}
}

// blockOf is where the library has the block that it is writing.
func blockOf(out *lib.FileWriter) (reflect.Value, error) {
	f := reflect.ValueOf(out).Elem().FieldByName("blockWriter")
	if !f.IsValid() || f.Kind() != reflect.Pointer {
		return f, fmt.Errorf("hdfs: the library has no block where version 2.4.0 has it: %T", out)
	}
	return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem(), nil
}

func isNotReplicatedYet(err error) bool {
	var remote *remoteError
	return errors.As(err, &remote) && remote.class == "NotReplicatedYetException"
}

// flush sends what the library holds, and awaits the datanodes' answers to
// everything (Invariant 1).
func (w *writer) flush(sync bool) error {
	defer w.within("flush")()
	err := w.out.Flush()
	if err == nil && sync {
		err = w.stream.syncAll()
	}
	if failed := w.stream.await(); failed != nil {
		return failed
	}
	return err
}

// finish ends the last block and has the namenode close the file, whose length is
// given. An error is the namenode's only if the datanodes have everything.
func (w *writer) finish(length, blockSize int64) (whole bool, err error) {
	limit := time.AfterFunc(w.fs.cfg.Timeout, func() {
		if length > 0 && !w.ended() { // else only the namenode is awaited, which has a limit of its own
			w.stream.fail(fmt.Errorf("close: no answer within %v", w.fs.cfg.Timeout))
		}
	})
	err = interpret(w.out.Close())
	limit.Stop()
	if failed := w.stream.error(); failed != nil {
		return false, failed
	}
	if err == nil {
		return true, nil
	}
	told := errors.Is(err, lib.ErrReplicating)
	if !told && length > 0 && !w.ended() {
		return false, err
	}
	// Every packet is acknowledged. What is left is to tell the namenode, which the
	// library can't repeat: it has forgotten the block.
	return true, w.complete(length, blockSize, told)
}

// ended reports whether the datanodes are known to have everything.
func (w *writer) ended() bool { return w.stream.tracked() && w.stream.finished() }

// complete tells the namenode that the file is whole until it agrees. Told says
// that it knows the length, and only waits for the datanodes.
func (w *writer) complete(length, blockSize int64, told bool) error {
	began, delay := time.Now(), time.Millisecond
	for {
		done := false
		err := w.fs.do("close", w.path.get(), func(c *client, again bool) error {
			var err error
			done, err = c.complete(w.path.get(), w.client.Name(), length, blockSize, told)
			told = told || err == nil
			if err != nil && again && errors.Is(interpret(err), ErrLease) {
				// The attempt whose answer was lost has closed it.
				if closed, cerr := c.call("isFileClosed", arg{"src", w.path.get()}); cerr == nil && get(closed, "result").Bool() {
					done = true
					return nil
				}
			}
			return err
		})
		if err != nil || done {
			return err
		}
		if waited := time.Since(began); waited > w.fs.cfg.Patience {
			return fmt.Errorf("%w: the datanodes have everything and have not told the namenode for %v", ErrUnavailable, waited.Round(time.Second))
		}
		if !w.fs.pause(delay) {
			return fs.ErrClosed
		}
		delay = min(2*delay, 400*time.Millisecond)
	}
}

// complete is one attempt. It finds the last block again, whose length the
// namenode does not know yet.
func (c *client) complete(p, holder string, length, blockSize int64, told bool) (bool, error) {
	args := []arg{{"src", p}, {"clientName", holder}}
	if !told && length > 0 {
		located, err := c.locate(p, 0, length)
		if err != nil {
			return false, err
		}
		if !has(located, "lastBlock") {
			return false, fmt.Errorf("%w: %q has no block", errDefinite, p)
		}
		block := get(get(located, "lastBlock").Message(), "b").Message()
		block.Set(block.Descriptor().Fields().ByName("numBytes"), protoreflect.ValueOfUint64(uint64((length-1)%blockSize+1)))
		args = append(args, arg{"last", block})
	}
	resp, err := c.call("complete", args...)
	if err != nil {
		return false, err
	}
	return get(resp, "result").Bool(), nil
}

// giveUp ends an attempt whose file is not closed, and the goroutines that the
// library has for it.
func (w *writer) giveUp(err error) {
	if w.client != nil {
		w.stream.fail(err)
	}
	if w.out != nil {
		_ = w.out.Close() // ends them; it can't reach the namenode any more
	}
	w.close()
}

func (w *writer) close() {
	if w.client != nil {
		w.client.close()
	}
}

// mostSpare is how many clients are kept for later files, and spareFor how long.
const (
	mostSpare = 2
	spareFor  = 5 * time.Second
)

// reuse keeps the client of a file that ended well: the next file saves two round
// trips.
func (w *writer) reuse() {
	f := w.fs
	f.mu.Lock()
	keep := !f.closed && len(f.spare) < mostSpare && w.stream.finished()
	if keep {
		f.spare = append(f.spare, w)
	}
	f.mu.Unlock()
	if !keep {
		w.close()
		return
	}
	time.AfterFunc(spareFor, func() { f.drain(w) })
}

// drain closes a client that nobody took.
func (f *FS) drain(w *writer) {
	f.mu.Lock()
	found := false
	for i, s := range f.spare {
		if found = s == w; found {
			f.spare = append(f.spare[:i], f.spare[i+1:]...)
			break
		}
	}
	f.mu.Unlock()
	if found {
		w.close()
	}
}
