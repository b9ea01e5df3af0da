package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

const (
	// What the log adds to a record, and the size at which it begins a new file.
	recordHeader = 20
	segmentBytes = 64 << 20
)

// bareLog is the plain side of the log's benchmarks. It puts as many bytes into
// files of the same size, with the same syncs, but they are only copied: there
// are no checksums, sequences, handles or retries. Like the log's, its file is
// synced together with its directory's names once it is full, beside the
// writing of the next one.
type bareLog struct {
	dir   string
	level string // flush or sync

	file     *os.File
	files    int
	size     int64
	named    bool // sync: the directory has been synced
	retiring chan error
	buf      []byte

	wake  chan struct{} // buffers one
	ended chan struct{}

	mu    sync.Mutex
	queue [][]byte
	done  chan struct{} // closed when the queue is written
	stop  bool
}

// frame puts a record into the buffer as the log does, with an empty header.
func (l *bareLog) frame(rec []byte) {
	l.buf = append(l.buf, make([]byte, recordHeader)...)
	l.buf = append(l.buf, rec...)
}

// write appends b to the file and brings it to the level.
func (l *bareLog) write(b []byte) error {
	n := int64(len(b))
	if l.file != nil && l.size+n > segmentBytes {
		if err := l.retire(); err != nil {
			return err
		}
	}
	if l.file == nil {
		l.files++
		f, err := os.OpenFile(filepath.Join(l.dir, fmt.Sprintf("%016d", l.files)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		l.file, l.size, l.named = f, 0, false
	}
	l.size += n
	if _, err := l.file.Write(b); err != nil {
		return err
	}
	if l.level != "sync" {
		return nil
	}
	if err := l.file.Sync(); err != nil || l.named {
		return err
	}
	l.named = true
	return syncDir(l.dir)
}

// retire syncs and closes the file, in the background.
func (l *bareLog) retire() error {
	if err := l.settle(); err != nil {
		return err
	}
	f, named, done := l.file, l.named, make(chan error, 1)
	l.file, l.retiring = nil, done
	go func() {
		err := f.Sync()
		if err == nil && !named {
			err = syncDir(l.dir)
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		done <- err
	}()
	return nil
}

func (l *bareLog) settle() error {
	if l.retiring == nil {
		return nil
	}
	err := <-l.retiring
	l.retiring = nil
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// startGroups begins the goroutine that append needs.
func (l *bareLog) startGroups() {
	l.wake, l.ended, l.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go l.groups()
}

// append writes a record together with those of other goroutines, and waits
// for that.
func (l *bareLog) append(rec []byte) {
	l.mu.Lock()
	l.queue = append(l.queue, rec)
	done, first := l.done, len(l.queue) == 1
	l.mu.Unlock()
	if first {
		l.poke()
	}
	<-done
}

func (l *bareLog) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// groups writes all that is queued with one write, and wakes those who wait.
func (l *bareLog) groups() {
	defer close(l.ended)
	var spare [][]byte
	for range l.wake {
		l.mu.Lock()
		queue, done, stop := l.queue, l.done, l.stop
		l.queue, l.done = spare[:0], make(chan struct{})
		l.mu.Unlock()
		l.buf = l.buf[:0]
		for _, rec := range queue {
			l.frame(rec)
		}
		if len(queue) > 0 {
			if err := l.write(l.buf); err != nil {
				fatal(err)
			}
		}
		close(done)
		if stop {
			return
		}
		clear(queue)
		spare = queue
	}
}

// close ends the goroutine, if there is one, and syncs what is written.
func (l *bareLog) close() error {
	if l.wake != nil {
		l.mu.Lock()
		l.stop = true
		l.mu.Unlock()
		l.poke()
		<-l.ended
	}
	if l.file != nil {
		if err := l.retire(); err != nil {
			return err
		}
	}
	return l.settle()
}
