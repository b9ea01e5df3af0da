package codec_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
)

var update = flag.Bool("update", false, "write the fixtures that are missing; those that exist are kept for ever")

// TestFixturesOfV1 reads frames as the first format version wrote them, and
// checks that they are still written so (Invariant 12).
func TestFixturesOfV1(t *testing.T) {
	fixture(t, "string", "", "tide", "mühle", strings.Repeat("x", 200))
	fixture(t, "bytes", []byte("tide"), nil, []byte{}, bytes.Repeat([]byte{0xff}, 127))
	fixture(t, "int", 0, -1, 1<<40, math.MinInt)
	fixture(t, "int64", int64(-300), math.MaxInt64)
	fixture(t, "int32", int32(300), math.MinInt32)
	fixture(t, "uint64", uint64(300), math.MaxUint64)
	fixture(t, "float64", 1.5, math.Copysign(0, -1), math.Inf(1))
	fixture(t, "bool", true, false)
	fixture(t, "strings", []string{"a", ""}, nil, []string{})
	fixture(t, "ints", []int{1, -1}, nil, []int{})
	fixture(t, "int64s", []int64{1, -1}, nil, []int64{})
	fixture(t, "float64s", []float64{0.5}, nil, []float64{})
	fixture(t, "struct", flat{1, "one", true, 1.5, 255}, flat{})
	fixture(t, "nested", nested{Names: []string{"x"}, ByName: map[string]int{"b": 2, "a": 1}, ByID: map[int32]word{2: "b", -1: "a"}, At: noon})
	fixture(t, "time", noon, time.Time{})
	fixture(t, "empty", []string(nil)[:0]...)
}

func fixture[T any](t *testing.T, name string, records ...T) {
	t.Helper()
	file := filepath.Join("testdata", "v1", name+".frame")
	now := frameOf(t, records...)
	old, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) && *update {
		err, old = os.WriteFile(file, now, 0o644), now
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := codec.OpenFrame(old)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var got []T
	if _, err := codec.EachInFrame(codec.For[T](), f, func(v T) bool { got = append(got, v); return true }); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	if d := cmp.Diff(records, got, exact); d != "" {
		t.Errorf("%s: -want +read:\n%s", file, d)
	}
	if !bytes.Equal(old, now) {
		t.Errorf("%s: written otherwise now: a change of the format needs a new version\nwas %x\nnow %x", file, old, now)
	}
}

func TestFrameLayout(t *testing.T) {
	frame := frameOf(t, "tide", "")
	want := []byte("TMF\x01\x06string")
	want = binary.LittleEndian.AppendUint32(want, 2)
	want = binary.LittleEndian.AppendUint32(want, 6)
	body := "\x04tide\x00"
	sum := crc32.Checksum(append(bytes.Clone(want), body...), crc32.MakeTable(crc32.Castagnoli))
	want = append(binary.LittleEndian.AppendUint32(want, sum), body...)
	if !bytes.Equal(frame, want) {
		t.Errorf("frame\n%x, want\n%x", frame, want)
	}
}

func TestEveryDamagedByteIsDetected(t *testing.T) {
	frame := frameOf(t, flat{1, "one", true, 1.5, 255}, flat{})
	for i := range frame {
		for _, flip := range []byte{1, 0x80, 0xff} {
			bad := bytes.Clone(frame)
			bad[i] ^= flip
			if _, err := codec.OpenFrame(bad); err == nil {
				t.Errorf("byte %d changed by %#x: the frame opens", i, flip)
			} else if i != 3 && !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("byte %d changed by %#x: %v, want ErrCorrupt", i, flip, err)
			}
		}
	}
	for n := range frame {
		if _, err := codec.OpenFrame(frame[:n]); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v, want ErrCorrupt", n, err)
		}
	}
	if _, err := codec.OpenFrame(append(bytes.Clone(frame), 0)); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a byte too many: %v, want ErrCorrupt", err)
	}
	if _, err := codec.OpenFrame(frame); err != nil {
		t.Errorf("the frame itself: %v", err)
	}
}

func TestNewerFrameIsRefusedWithBothNumbers(t *testing.T) {
	frame := frameOf(t, "tide")
	frame[3] = 2
	for _, open := range []func([]byte) (codec.Frame, error){codec.OpenFrame, codec.TrustFrame} {
		if _, err := open(frame); err == nil || !strings.Contains(err.Error(), "version 2") || !strings.Contains(err.Error(), "reads 1") {
			t.Errorf("error %v, want one with versions 2 and 1", err)
		}
	}
}

// TestFrameBoundsHoldWithoutChecksum: TrustFrame skips the checksum, not the bounds.
func TestFrameBoundsHoldWithoutChecksum(t *testing.T) {
	const count, size = 11, 15 // offsets in a frame of strings
	for name, damage := range map[string]func([]byte) []byte{
		"count over size": func(b []byte) []byte { binary.LittleEndian.PutUint32(b[count:], 6); return b },
		"size over bytes": func(b []byte) []byte { binary.LittleEndian.PutUint32(b[size:], 6); return b },
		"size under":      func(b []byte) []byte { binary.LittleEndian.PutUint32(b[size:], 4); return b },
		"size huge":       func(b []byte) []byte { binary.LittleEndian.PutUint32(b[size:], math.MaxUint32); return b },
		"id too long":     func(b []byte) []byte { b[4] = 255; return b },
		"magic":           func(b []byte) []byte { b[0] = 't'; return b },
	} {
		if _, err := codec.TrustFrame(damage(frameOf(t, "tide"))); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
	if f, err := codec.TrustFrame(frameOf(t, "tide")); err != nil || f.ID != "string" || f.Count != 1 || string(f.Body) != "\x04tide" {
		t.Errorf("the frame itself: %+v, %v", f, err)
	}
}

func TestFrameCountMustMatchTheRecords(t *testing.T) {
	for _, count := range []uint32{1, 3} {
		frame := frameOf(t, "ti", "de")
		binary.LittleEndian.PutUint32(frame[11:], count)
		f, err := codec.TrustFrame(frame)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := codec.EachInFrame(codec.For[string](), f, func(string) bool { return true }); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("count %d for two records: %v, want ErrCorrupt", count, err)
		}
		ints := frameOf(t, 1000, 2000)
		binary.LittleEndian.PutUint32(ints[8:], count)
		f, err = codec.TrustFrame(ints)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := codec.EachInFrame(codec.For[int](), f, func(int) bool { return true }); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("count %d for two ints: %v, want ErrCorrupt", count, err)
		}
	}
}

func TestFrameOfAnotherTypeIsRefused(t *testing.T) {
	f, err := codec.OpenFrame(frameOf(t, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	_, err = codec.EachInFrame(codec.For[int64](), f, func(int64) bool { return true })
	if err == nil || !strings.Contains(err.Error(), `"int"`) || !strings.Contains(err.Error(), `"int64"`) {
		t.Errorf("error %v, want one that names both codecs", err)
	}
}

// Ids were cut at 255 bytes, so that types whose names begin alike were taken
// for each other.
func TestLongCodecIDsStayApart(t *testing.T) {
	long := func(end string) *codec.Codec[string] {
		c := *codec.For[string]()
		c.ID = strings.Repeat("x", 300) + end
		return &c
	}
	w := codec.NewFrameWriter(long("a"))
	if err := w.Append("tide"); err != nil {
		t.Fatal(err)
	}
	f, err := codec.OpenFrame(w.Finish())
	if err != nil {
		t.Fatal(err)
	}
	yield := func(string) bool { return true }
	if _, err := codec.EachInFrame(long("a"), f, yield); err != nil {
		t.Errorf("with its own codec: %v", err)
	}
	if _, err := codec.EachInFrame(long("b"), f, yield); err == nil {
		t.Error("a codec whose id differs at the end reads the frame")
	}
}

func TestFinishStartsAFrameOfItsOwn(t *testing.T) {
	w := codec.NewFrameWriter(codec.For[string]())
	_ = w.Append("first")
	first := w.Finish()
	before := bytes.Clone(first)
	if w.Count() != 0 || w.Size() != 0 {
		t.Errorf("after Finish: %d records, %d bytes", w.Count(), w.Size())
	}
	_ = w.Append("second")
	if second := w.Finish(); !bytes.Equal(first, before) || !bytes.Equal(second, frameOf(t, "second")) {
		t.Error("a finished frame changes when the writer goes on (Invariant 15)")
	}
}
