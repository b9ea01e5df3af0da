package receiver

import (
	"bytes"
	"unicode/utf8"
)

// lineCutter cuts a stream of bytes into lines.
type lineCutter struct {
	max     int                     // bytes of a line without its end
	emit    func(line []byte) error // line is valid during the call
	tooLong func(length int64)      // called instead for a longer line

	tail    []byte // of an unfinished line that may still be short enough
	skipped int64  // length so far of one that is not, 0 if there is none
	cr      bool   // the last skipped byte is \r
}

// feed takes the next bytes. It stops at the first error of emit and says how
// many bytes of the line and after it are left.
func (l *lineCutter) feed(b []byte) (left int64, err error) {
	for len(b) > 0 {
		line, rest, found := bytes.Cut(b, []byte{'\n'})
		if !found {
			l.keep(line)
			break
		}
		whole := l.pending() + int64(len(b))
		if l.pending() == 0 {
			err = l.finish(line)
		} else {
			l.keep(line)
			err = l.end()
		}
		if err != nil {
			return whole, err
		}
		b = rest
	}
	return 0, nil
}

// pending returns the length of the unfinished line.
func (l *lineCutter) pending() int64 { return l.skipped + int64(len(l.tail)) }

// end finishes the unfinished line if there is one.
func (l *lineCutter) end() error {
	tail := l.tail
	l.tail = l.tail[:0]
	switch {
	case l.skipped > 0:
		n := l.skipped
		if l.cr {
			n--
		}
		l.skipped = 0
		l.tooLong(n)
	case len(tail) > 0:
		return l.finish(tail)
	}
	return nil
}

// keep adds to the unfinished line, of which only the length is kept once it
// is too long even without a \r.
func (l *lineCutter) keep(b []byte) {
	if len(b) == 0 {
		return
	}
	if l.skipped == 0 && len(l.tail)+len(b) <= l.max+1 {
		l.tail = append(l.tail, b...)
		return
	}
	l.skipped = l.pending() + int64(len(b))
	l.tail = l.tail[:0]
	l.cr = b[len(b)-1] == '\r'
}

func (l *lineCutter) finish(line []byte) error {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if len(line) > l.max {
		l.tooLong(int64(len(line)))
		return nil
	}
	return l.emit(line)
}

// appendValid appends b with U+FFFD for each ill-formed sequence: a maximal
// part of a character, else a single byte. Surrogates count as one sequence,
// as they do for Java's decoder.
func appendValid(dst, b []byte) []byte {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = illFormed(b)
			dst = utf8.AppendRune(dst, utf8.RuneError)
		} else {
			dst = append(dst, b[:n]...)
		}
		b = b[n:]
	}
	return dst
}

// illFormed returns the length of the ill-formed sequence that b begins with.
func illFormed(b []byte) int {
	low, high := byte(0x80), byte(0xbf) // of the second byte
	want := 0
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		want = 2
	case c >= 0xe0 && c <= 0xef:
		want = 3
		if c == 0xe0 {
			low = 0xa0
		}
	case c >= 0xf0 && c <= 0xf4:
		want = 4
		switch c {
		case 0xf0:
			low = 0x90
		case 0xf4:
			high = 0x8f
		}
	}
	n := 1
	for n < want && n < len(b) && b[n] >= low && b[n] <= high {
		n++
		low, high = 0x80, 0xbf
	}
	return n
}
