package fsystest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"sync"

	"github.com/tidemill/tidemill/internal/fsys"
)

func contents() []rule {
	return []rule{
		{"ReadAndReadAt", readAndReadAt},
		{"ManyReadAtOnce", func(s scene) {
			data := noise(1<<20 + 1)
			s.must(fsys.WriteFile(s.FS, s.at("file"), data))
			r, err := s.FS.Open(s.at("file"))
			s.must(err)
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(i), 0))
					for range 30 {
						off := rng.IntN(len(data))
						buf := make([]byte, 1+rng.IntN(len(data)-off))
						n, err := r.ReadAt(buf, int64(off))
						if n != len(buf) || err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(buf, data[off:off+n]) {
							s.Errorf("ReadAt(%d, %d): %d bytes, %v, or other bytes than were written", len(buf), off, n, err)
							return
						}
					}
				})
			}
			wg.Wait()
			s.must(r.Close())
		}},
		{"ClosedIsClosed", func(s scene) {
			s.fill()
			w, err := s.FS.Create(s.at("w"))
			s.must(err)
			s.must(w.Flush())
			s.must(w.Sync())
			s.must(w.Close())
			_, err = w.Write([]byte("x"))
			s.wantPathError(err, "write", s.at("w"), fs.ErrClosed)
			s.wantPathError(w.Flush(), "flush", s.at("w"), fs.ErrClosed)
			s.wantPathError(w.Sync(), "sync", s.at("w"), fs.ErrClosed)
			s.wantPathError(w.Close(), "close", s.at("w"), fs.ErrClosed)
			r, err := s.FS.Open(s.at("file"))
			s.must(err)
			s.must(r.Close())
			_, err = r.Read(make([]byte, 1))
			s.wantPathError(err, "read", s.at("file"), fs.ErrClosed)
			_, err = r.ReadAt(make([]byte, 1), 0)
			s.wantPathError(err, "read", s.at("file"), fs.ErrClosed)
			s.wantPathError(r.Close(), "close", s.at("file"), fs.ErrClosed)
			s.wantFile("w", "")
		}},
		{"FlushedBytesAreSeenWhileTheFileIsOpen", func(s scene) {
			w, err := s.FS.Create(s.at("log"))
			s.must(err)
			defer w.Close()
			var all []byte
			for i := range 5 {
				b := noise(1 + 40_000*i)
				_, err = w.Write(b)
				s.must(err)
				all = append(all, b...)
				flush := w.Flush
				if i%2 == 1 {
					flush = w.Sync
				}
				s.must(flush())
				s.wantFile("log", string(all))
				r, err := s.FS.Open(s.at("log"))
				s.must(err)
				b = make([]byte, len(all))
				if n, err := r.ReadAt(b, 0); n != len(all) || err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(b, all) {
					s.Errorf("ReadAt of the %d bytes that were flushed: %d, %v, or other bytes", len(all), n, err)
				}
				s.must(r.Close())
			}
		}},
		{"WhatWasWrittenIsReadBack", writtenIsReadBack},
		{"WriteFileIsExclusive", func(s scene) {
			s.fill()
			err := fsys.WriteFile(s.FS, s.at("file"), []byte("new"))
			s.wantPathError(err, "create", s.at("file"), fs.ErrExist)
			s.wantFile("file", "content")
			s.must(fsys.WriteFile(s.FS, s.at("nothing"), nil))
			s.wantFile("nothing", "")
		}},
	}
}

func readAndReadAt(s scene) {
	s.fill()
	r, err := s.FS.Open(s.at("file"))
	s.must(err)
	if r.Size() != 7 {
		s.Errorf("Size %d, want 7", r.Size())
	}
	buf := make([]byte, 4)
	if n, err := r.ReadAt(buf, 1); string(buf[:n]) != "onte" || err != nil {
		s.Errorf("ReadAt(4, 1): %q, %v", buf[:n], err)
	}
	if n, err := r.ReadAt(buf, 5); string(buf[:n]) != "nt" || err != io.EOF { //nolint:errorlint // itself
		s.Errorf("ReadAt(4, 5): %q, %v, want io.EOF itself", buf[:n], err)
	}
	for _, off := range []int64{7, 8, 1 << 40} {
		if n, err := r.ReadAt(buf, off); n != 0 || err != io.EOF { //nolint:errorlint // itself
			s.Errorf("ReadAt(4, %d): %d, %v, want io.EOF itself", off, n, err)
		}
	}
	if _, err := r.ReadAt(buf, -1); err == nil || errors.Is(err, io.EOF) {
		s.Errorf("ReadAt(4, -1): %v, want an error other than io.EOF", err)
	}
	// ReadAt does not move Read.
	if b, err := io.ReadAll(r); string(b) != "content" || err != nil {
		s.Errorf("Read: %q, %v", b, err)
	}
	if n, err := r.Read(buf); n != 0 || err != io.EOF { //nolint:errorlint // itself
		s.Errorf("Read at the end: %d, %v, want io.EOF itself", n, err)
	}
	s.must(r.Close())
}

func writtenIsReadBack(s scene) {
	for _, size := range []int{0, 1, 511, 64<<10 + 1, 3 << 20} {
		data := noise(size)
		name := fmt.Sprint("size", size)
		w, err := s.FS.Create(s.at(name))
		s.must(err)
		rng := rand.New(rand.NewPCG(uint64(size), 1))
		for left := data; len(left) > 0; {
			n := min(1+rng.IntN(90_001), len(left))
			m, err := w.Write(left[:n])
			s.must(err)
			if m != n {
				s.Fatalf("Write of %d bytes returned %d", n, m)
			}
			left = left[n:]
			if rng.IntN(10) == 0 {
				s.must(w.Flush())
			}
		}
		s.must(w.Close())
		if b, err := fsys.ReadFile(s.FS, s.at(name)); err != nil || !bytes.Equal(b, data) {
			s.Errorf("of %d bytes %d were read back, %v, or they are others", size, len(b), err)
		}
		r, err := s.FS.Open(s.at(name))
		s.must(err)
		if r.Size() != int64(size) {
			s.Errorf("Size of the reader %d, want %d", r.Size(), size)
		}
		s.must(r.Close())
		if in, err := s.FS.Stat(s.at(name)); err != nil || in.Size != int64(size) {
			s.Errorf("Stat: %+v, %v, want size %d", in, err, size)
		}
	}
}

// noise returns bytes that no two places have alike.
func noise(n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}
