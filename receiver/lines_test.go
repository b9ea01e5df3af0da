package receiver_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidemill/tidemill/receiver"
)

func TestLinesAreTheSameHoweverTheyArrive(t *testing.T) {
	const limit = 5
	in := "a\r\nb\n\n\r\nc\rd\n12345\n12345\r\n123456\n123456\r\n1234567890\r\n\r\r\nlast\r"
	want := []string{"a", "b", "", "", "c\rd", "12345", "12345", "\r", "last"}
	long := []int64{6, 6, 10}
	for size := 1; size <= len(in); size++ {
		lines, tooLong := receiver.CutLines(limit, slices.Collect(slices.Chunk([]byte(in), size))...)
		if !slices.Equal(lines, want) || !slices.Equal(tooLong, long) {
			t.Errorf("chunks of %d: %q, too long %v", size, lines, tooLong)
		}
	}
}

func FuzzCutLines(f *testing.F) {
	f.Add([]byte("a\r\nb\n12345678\r\r\n\nrest"), uint8(3), uint8(4))
	f.Add([]byte("\r"), uint8(1), uint8(0))
	f.Fuzz(func(t *testing.T, in []byte, size, limit uint8) {
		lines, long := receiver.CutLines(int(limit), slices.Collect(slices.Chunk(in, int(size)+1))...)
		var want []string
		var wantLong []int64
		all := bytes.SplitAfter(in, []byte{'\n'})
		for _, l := range all {
			if len(l) == 0 {
				continue
			}
			s := strings.TrimSuffix(strings.TrimSuffix(string(l), "\n"), "\r")
			if len(s) > int(limit) {
				wantLong = append(wantLong, int64(len(s)))
			} else {
				want = append(want, s)
			}
		}
		if !slices.Equal(lines, want) || !slices.Equal(long, wantLong) {
			t.Errorf("%q by %d, limit %d: %q %v, want %q %v", in, int(size)+1, limit, lines, long, want, wantLong)
		}
	})
}

// The counts were taken from the rules of Java's decoder.
func TestBadBytesAreReplacedAsJavaDoes(t *testing.T) {
	const r = "\ufffd"
	for in, want := range map[string]string{
		"":                             "",
		"grün €😀":                      "grün €😀",
		"\ufffd":                       r,
		"\xff\xfe\x00ok":               r + r + "\x00ok",
		"\x80\xbf":                     r + r,
		"\xc0\x80":                     r + r,
		"a\xc3":                        "a" + r,
		"\xe2\x82":                     r,
		"\xe2\x82a":                    r + "a",
		"\xe2a\x82":                    r + "a" + r,
		"\xe0\x80\x80":                 r + r + r,
		"\xed\xa0\x80":                 r,
		"\xf0\x9f\x98":                 r,
		"\xf0\x80\x80\x80":             r + r + r + r,
		"\xf4\x90\x80\x80":             r + r + r + r,
		"\xf5\x80":                     r + r,
		"\xf0\x9f\x98\xf0\x9f\x98\x80": r + "😀",
	} {
		if got := string(receiver.AppendValid(nil, []byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzAppendValid(f *testing.F) {
	f.Add([]byte("a\xe2\x82b"))
	f.Fuzz(func(t *testing.T, in []byte) {
		out := receiver.AppendValid(nil, in)
		switch {
		case !utf8.Valid(out):
			t.Errorf("%q became %q", in, out)
		case utf8.Valid(in) && !bytes.Equal(in, out):
			t.Errorf("valid %q became %q", in, out)
		case strings.ToValidUTF8(string(in), "") != strings.ReplaceAll(string(out), "\ufffd", "") && !bytes.Contains(in, []byte("\ufffd")):
			t.Errorf("%q became %q: lost what was valid", in, out)
		}
	})
}
