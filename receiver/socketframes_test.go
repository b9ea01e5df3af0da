package receiver_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/tidemill/tidemill/receiver"
)

// framed puts the length in front of each payload.
func framed(payloads ...string) string {
	var b []byte
	for _, p := range payloads {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return string(b)
}

// gotFrames waits for n records.
func gotFrames(w *world, n int) (out []string) {
	w.t.Helper()
	w.until("records", func() bool {
		have := 0
		for _, b := range w.log {
			have += b.Records
		}
		return have >= n
	})
	for _, rec := range records[[]byte](w) {
		out = append(out, string(rec))
	}
	return out
}

// The same bytes in the record, in the log and in the block store.
func TestB10dFramesKeepBytesThatAreNotUTF8(t *testing.T) {
	w, s := newWorld(t), listen(t)
	d := withDiary(w)
	j := run(w, soon, receiver.SocketFrames(s.addr()))
	raw := "\xff\xfe\x00ok"
	s.send(s.accept(), framed(raw))
	if got := gotFrames(w, 1); !slices.Equal(got, []string{raw}) {
		t.Errorf("%q", got)
	}
	mustEnd(t, j)
	for _, b := range w.log {
		if !bytes.HasSuffix(d.read(b.Handle), []byte(raw)) || !bytes.HasSuffix(w.blocks[b.Key], []byte(raw)) {
			t.Errorf("in the log %q, in the store %q", d.read(b.Handle), w.blocks[b.Key])
		}
	}
}

func TestSocketFramesAreTheSameHoweverTheyArrive(t *testing.T) {
	w, s := newWorld(t), listen(t)
	j := run(w, soon, receiver.SocketFrames(s.addr()))
	large := strings.Repeat("z", 3<<20) // several times the read buffer
	want := []string{"a", "", "\n\r\n", large, "b", strings.Repeat("y", 256<<10-4), "c"}
	c := s.accept()
	ahead := 0
	for i, p := range want { // each with the begin of the next, in its length or in its payload
		part := framed(p)[ahead:]
		ahead = 0
		if i+1 < len(want) {
			next := framed(want[i+1])
			ahead = min(1+i, len(next)-1)
			part += next[:ahead]
		}
		s.send(c, part)
		if got := gotFrames(w, i+1); !slices.Equal(got, want[:i+1]) {
			t.Fatalf("%d frames after frame %d was sent", len(got), i)
		}
	}
	c.Close()
	w.untilEvent(receiver.Restarting, "")
	mustEnd(t, j)
	if strings.Contains(w.kinds(), "error") {
		t.Errorf("events: %s", w.kinds())
	}
}

func TestSocketFramesLengthOverTheLimitEndsTheConnection(t *testing.T) {
	w, s := newWorld(t), listen(t)
	j := run(w, soon, func() receiver.Receiver[[]byte] { return &receiver.FrameSocket{Addr: s.addr(), MaxFrame: 3} })
	s.send(s.accept(), framed("123", "1234", "12"))
	w.untilEvent(receiver.Restarting, "frame 2: its length is 4 bytes, the limit is 3")
	s.send(s.accept(), "\xff\xff\xff\xff") // nothing of that size is made
	w.untilEvent(receiver.Restarting, "frame 1: its length is 4294967295 bytes, the limit is 3")
	s.send(s.accept(), framed("9"))
	if got := gotFrames(w, 2); !slices.Equal(got, []string{"123", "9"}) {
		t.Errorf("%q", got)
	}
	mustEnd(t, j)
}

func TestSocketFramesTornFrameIsDroppedAndReported(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		left string
	}{
		"in the payload": {framed("one", "two")[:12], "5 bytes of frame 2"},
		"in the length":  {framed("one", "two")[:9], "2 bytes of frame 2"},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := newWorld(t), listen(t)
			j := run(w, soon, receiver.SocketFrames(s.addr()))
			c := s.accept()
			s.send(c, test.text)
			c.Close()
			w.untilEvent(receiver.Error, test.left+" and after are dropped")
			s.send(s.accept(), framed("three"))
			if got := gotFrames(w, 2); !slices.Equal(got, []string{"one", "three"}) {
				t.Errorf("%q", got)
			}
			mustEnd(t, j)
		})
	}
	t.Run("at a stop", func(t *testing.T) {
		w, s := newWorld(t), listen(t)
		j := run(w, soon, receiver.SocketFrames(s.addr()))
		s.send(s.accept(), framed("one", "two")[:12])
		gotFrames(w, 1)
		mustEnd(t, j)
		w.untilEvent(receiver.Error, "5 bytes of frame 2 and after are dropped")
	})
}
