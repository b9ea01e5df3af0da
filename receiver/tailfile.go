package receiver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// tailFile is a file that a [DirTail] follows. Its offset is in the position.
type tailFile struct {
	*tail
	name     string
	seen     int64 // bytes that were looked at; the end of it may be half a line
	skipping int64 // bytes of a line that is too long, so far
	fixed    int64 // lines that were not UTF-8
}

// most is the number of lines stored at once.
const most = 8192

// read stores the complete lines from the file's offset on. What is appended
// meanwhile, beyond size, has its turn after the other files.
func (f *tailFile) read(r io.ReaderAt, size int64) error {
	have := 0 // bytes in the buffer, from the offset on
	for {
		if f.skipping > 0 {
			if done, err := f.skip(r); err != nil || !done {
				return err
			}
			have = 0
		}
		if have == len(f.buf) {
			f.grow()
		}
		at := f.position[f.name]
		n, err := r.ReadAt(f.buf[have:], at+int64(have))
		have += n
		f.seen = at + int64(have)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		end := bytes.LastIndexByte(f.buf[:have], '\n') + 1
		if storeErr := f.store(f.buf[:end]); storeErr != nil {
			return storeErr
		}
		have = copy(f.buf, f.buf[end:have])
		if have > f.cfg.MaxLine+1 { // too long even without a \r
			f.skipping, have = int64(have), 0
		}
		if err != nil || f.seen >= size {
			return nil
		}
	}
}

// grow makes room for the rest of a line.
func (f *tailFile) grow() {
	size := max(chunk, min(2*len(f.buf), f.cfg.MaxLine+2))
	if size > len(f.buf) {
		f.buf = append(make([]byte, 0, size), f.buf...)[:size]
	}
}

// skip looks for the end of a line that is too long, past what is known of it.
func (f *tailFile) skip(r io.ReaderAt) (done bool, err error) {
	at := f.position[f.name]
	for {
		n, err := r.ReadAt(f.buf, at+f.skipping)
		if end := bytes.IndexByte(f.buf[:n], '\n'); end >= 0 {
			length := f.skipping + int64(end)
			f.report(fmt.Errorf("the line at %d has %d bytes, the limit is %d: skipped", at, length, f.cfg.MaxLine))
			f.position[f.name], f.skipping = at+length+1, 0
			return true, nil
		}
		f.skipping += int64(n)
		f.seen = at + f.skipping
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// store stores whole lines, as many at once as the rate limit lets through in
// a block interval. The strings are views of the buffer: they are encoded
// before StoreManyAt returns.
func (f *tailFile) store(text []byte) error {
	var lines []string
	flush := func(at int64) error {
		f.position[f.name] = at
		f.encoded = f.position.append(f.encoded[:0])
		err := f.sink.StoreManyAt(f.ctx, lines, f.encoded)
		lines = lines[:0]
		return err
	}
	batch := f.batch()
	at := f.position[f.name]
	for line := range bytes.Lines(text) {
		start := at
		at += int64(len(line))
		line = bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'})
		if len(line) > f.cfg.MaxLine {
			f.report(fmt.Errorf("the line at %d has %d bytes, the limit is %d: skipped", start, len(line), f.cfg.MaxLine))
			continue
		}
		lines = append(lines, view(f.valid(line, start)))
		if len(lines) >= batch {
			if err := flush(at); err != nil {
				return err
			}
			batch = f.batch()
		}
	}
	return flush(at)
}

func (f *tailFile) batch() int {
	return min(most, f.sink.run.limit.within(f.sink.run.env.Config.BlockInterval))
}

// valid replaces what is not UTF-8.
func (f *tailFile) valid(line []byte, at int64) []byte {
	if utf8.Valid(line) {
		return line
	}
	if f.fixed++; f.fixed == 1 {
		f.report(fmt.Errorf("the line at %d is not UTF-8: the bad bytes are replaced by U+FFFD, and those of later lines", at))
	}
	return appendValid(nil, line)
}

func (f *tailFile) report(err error) {
	f.sink.ReportError(fmt.Errorf("tail of %s: file %q: %w", f.cfg.Dir, f.name, err))
}
