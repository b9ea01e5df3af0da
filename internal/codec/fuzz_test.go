package codec_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
)

// allocatedPerByte bounds what decoding may allocate for each byte of input:
// an element of one byte may become a value of some hundred.
const allocatedPerByte = 1 << 10

func seed(f *testing.F) {
	files, err := filepath.Glob("testdata/v1/*.frame")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

func FuzzOpenFrame(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := codec.OpenFrame(b)
		if err != nil {
			return
		}
		if len(frame.Body) > len(b) || frame.Count > len(frame.Body) {
			t.Errorf("%d records in %d of %d bytes", frame.Count, len(frame.Body), len(b))
		}
		if trusted, err := codec.TrustFrame(b); err != nil || trusted.ID != frame.ID || !bytes.Equal(trusted.Body, frame.Body) {
			t.Errorf("TrustFrame: %v", err)
		}
	})
}

// FuzzReadRecord gives bytes that did not pass a checksum to every decoder.
func FuzzReadRecord(f *testing.F) {
	for _, s := range []string{
		"\x00", "\x04tide", "\x05tide", "\x80\x01", "\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\x02\x01\x01\x02", "\x08\x00\x00\x00\x00\x00\x00\xf8\x7f",
		"\n\xd7\xd7\xde\xde\xde\xde\xde\xde\xff\x00",
		"\x05\xdd\xff\xff\xff\xff", "\x05\xdf\xff\xff\xff\xff", "\x0a\xd7\xff\x00\x00\x00\x00\x00\x00\x00\x00",
		"\x19\x83\xa5Inner\xc0\xa5Names\x92\xa1x\xa0\xa4ByID\x81\xff\xa1a",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		read[string](t, b)
		read[[]byte](t, b)
		read[int](t, b)
		read[int64](t, b)
		read[int32](t, b)
		read[uint64](t, b)
		read[float64](t, b)
		read[bool](t, b)
		read[[]string](t, b)
		read[[]int](t, b)
		read[[]int64](t, b)
		read[[]float64](t, b)
		read[flat](t, b)
		read[nested](t, b)
		read[time.Time](t, b)
		read[[][]string](t, b)
		read[map[int]map[string][]int](t, b)
		read[twoValues](t, b)
	})
}

func read[T any](t *testing.T, b []byte) {
	t.Helper()
	c := codec.For[T]()
	slack := uint64(1 << 20)
	if c.ID == codec.For[nested]().ID {
		slack = 128 << 20 // with times and maps: what the library takes for the most entries it makes room for
	}
	var v T
	var n int
	var err error
	if bytes := allocated(func() { v, n, err = c.Read(b) }); bytes > slack+uint64(len(b))*allocatedPerByte {
		t.Errorf("%T: %d bytes allocated for %d", v, bytes, len(b))
	}
	if err != nil {
		if !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%T: %v, want ErrCorrupt", v, err)
		}
		return
	}
	if n <= 0 || n > len(b) {
		t.Fatalf("%T: took %d of %d bytes", v, n, len(b))
	}
	// What was read can be written, and reads back as the same.
	again, err := c.Append(nil, v)
	if err != nil {
		t.Fatalf("%T: %v", v, err)
	}
	w, _, err := c.Read(again)
	if err != nil {
		t.Fatalf("%T: %v", v, err)
	}
	if twice, err := c.Append(nil, w); err != nil || !bytes.Equal(again, twice) {
		t.Errorf("%T: written as %x, then as %x (%v)", v, again, twice, err)
	}
}
