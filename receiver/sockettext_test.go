package receiver_test

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill/receiver"
)

// server is a loopback text server that the test drives by hand.
type server struct {
	t testing.TB
	l net.Listener
}

func listen(t testing.TB) *server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &server{t: t, l: l}
}

func (s *server) addr() string { return s.l.Addr().String() }

func (s *server) accept() *net.TCPConn {
	s.t.Helper()
	_ = s.l.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second))
	c, err := s.l.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c.(*net.TCPConn)
}

func (s *server) send(c io.Writer, text string) {
	s.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
}

// soon makes blocks visible quickly in real time.
var soon = receiver.Config{BlockInterval: 2 * time.Millisecond}

// got waits for n records and returns them.
func got(w *world, n int) []string {
	w.t.Helper()
	w.until("records", func() bool {
		have := 0
		for _, b := range w.log {
			have += b.Records
		}
		return have >= n
	})
	return records[string](w)
}

func (w *world) untilEvent(kind receiver.EventKind, text string) {
	w.t.Helper()
	w.until("event "+kind.String()+" with "+text, func() bool {
		return slices.ContainsFunc(w.events, func(e receiver.Event) bool {
			return e.Kind == kind && strings.Contains(e.Message, text)
		})
	})
}

// sent sends text to a new connection and returns the n records that come of it.
func sent(t *testing.T, n int, text string) (*world, []string) {
	t.Helper()
	w, s := newWorld(t), listen(t)
	j := run(w, soon, receiver.SocketText(s.addr()))
	c := s.accept()
	s.send(c, text)
	lines := got(w, n)
	c.Close()
	w.untilEvent(receiver.Restarting, "")
	mustEnd(t, j)
	return w, lines
}

func TestB10aCRAtTheEndOfARead(t *testing.T) {
	w, s := newWorld(t), listen(t)
	j := run(w, soon, receiver.SocketText(s.addr()))
	c := s.accept()
	s.send(c, "first\na\r")
	got(w, 1) // so all of it has been read
	s.send(c, "\nb\n")
	if lines := got(w, 3); !slices.Equal(lines, []string{"first", "a", "b"}) {
		t.Errorf("%q", lines)
	}
	mustEnd(t, j)
}

func TestB10eEmptyLinesAreRecords(t *testing.T) {
	if _, lines := sent(t, 5, "\na\n\n\r\nb\n"); !slices.Equal(lines, []string{"", "a", "", "", "b"}) {
		t.Errorf("%q", lines)
	}
}

func TestB10fLoneCRIsPartOfTheLine(t *testing.T) {
	if _, lines := sent(t, 2, "c\rd\n\re\r\r\n"); !slices.Equal(lines, []string{"c\rd", "\re\r"}) {
		t.Errorf("%q", lines)
	}
}

// The way Spark decodes text; SocketFrames keeps bytes as they are.
func TestB10dBytesThatAreNotUTF8AreReplacedAndReported(t *testing.T) {
	w, lines := sent(t, 4, "grün\n\xff\xfe\x00ok\n\xff\nfine\n")
	if !slices.Equal(lines, []string{"grün", "\ufffd\ufffd\x00ok", "\ufffd", "fine"}) {
		t.Errorf("%q", lines)
	}
	w.untilEvent(receiver.Error, "line 2 is not UTF-8")
	w.untilEvent(receiver.Error, "2 lines of this connection were not UTF-8")
	if n := strings.Count(w.kinds(), "error"); n != 2 {
		t.Errorf("events: %s", w.kinds())
	}
}

// Never abcdef.
func TestB10bLastHalfLine(t *testing.T) {
	t.Run("clean end", func(t *testing.T) {
		w, s := newWorld(t), listen(t)
		j := run(w, soon, receiver.SocketText(s.addr()))
		c := s.accept()
		s.send(c, "abc")
		c.Close()
		c = s.accept()
		s.send(c, "def\n")
		if lines := got(w, 2); !slices.Equal(lines, []string{"abc", "def"}) {
			t.Errorf("%q", lines)
		}
		mustEnd(t, j)
		if got := w.kinds(); got != "started restarting started stopped" {
			t.Errorf("events: %s", got)
		}
	})
	t.Run("broken connection", func(t *testing.T) {
		w, s := newWorld(t), listen(t)
		j := run(w, soon, receiver.SocketText(s.addr()))
		c := s.accept()
		s.send(c, "one\nabc")
		got(w, 1) // or the reset could overtake the data
		_ = c.SetLinger(0)
		c.Close()
		w.untilEvent(receiver.Restarting, "3 bytes after line 1 are dropped")
		c = s.accept()
		s.send(c, "def\n")
		if lines := got(w, 2); !slices.Equal(lines, []string{"one", "def"}) {
			t.Errorf("%q", lines)
		}
		mustEnd(t, j)
	})
	t.Run("stop", func(t *testing.T) {
		w, s := newWorld(t), listen(t)
		j := run(w, soon, receiver.SocketText(s.addr()))
		c := s.accept()
		s.send(c, "one\nabc")
		got(w, 1)
		mustEnd(t, j)
		w.untilEvent(receiver.Error, "3 bytes after line 1 are dropped: stopped")
		if lines := got(w, 1); !slices.Equal(lines, []string{"one"}) {
			t.Errorf("%q", lines)
		}
	})
}

// Invariant 9: what was read and could not be stored is counted.
func TestSocketTextReportsWhatAStopLeavesUnstored(t *testing.T) {
	w, s := newWorld(t), listen(t)
	cfg := soon
	cfg.MaxRate = 0.001
	j := run(w, cfg, receiver.SocketText(s.addr()))
	s.send(s.accept(), "one\ntwo\nhalf")
	got(w, 1)
	mustEnd(t, j)
	w.untilEvent(receiver.Error, "8 bytes after line 1 are dropped: stopped")
}

func TestB10cLongLineIsSkippedAndReported(t *testing.T) {
	w, s := newWorld(t), listen(t)
	j := run(w, soon, receiver.SocketText(s.addr()))
	c := s.accept()
	full := strings.Repeat("x", 1<<20)
	s.send(c, "one\n"+full+"\n"+strings.Repeat("y", 10<<20)+"\r\nfour\n"+full+"z\nsix\n")
	if lines := got(w, 4); !slices.Equal(lines, []string{"one", full, "four", "six"}) {
		t.Errorf("%d lines", len(lines))
	}
	w.untilEvent(receiver.Error, "line 3 has 10485760 bytes, the limit is 1048576: skipped (1 ")
	w.untilEvent(receiver.Error, "line 5 has 1048577 bytes, the limit is 1048576: skipped (2 ")
	mustEnd(t, j)
}

func TestSocketTextLimitCanBeSet(t *testing.T) {
	w, s := newWorld(t), listen(t)
	j := run(w, soon, func() receiver.Receiver[string] { return &receiver.TextSocket{Addr: s.addr(), MaxLine: 3} })
	c := s.accept()
	s.send(c, "123\n1234\n12\n")
	if lines := got(w, 2); !slices.Equal(lines, []string{"123", "12"}) {
		t.Errorf("%q", lines)
	}
	mustEnd(t, j)
}

func TestSocketTextRefusedPortEndsTheJob(t *testing.T) {
	w, s := newWorld(t), listen(t)
	addr := s.addr()
	s.l.Close()
	j := run(w, receiver.Config{RestartDelay: time.Millisecond}, receiver.SocketText(addr))
	err := <-j.done
	if err == nil || !strings.Contains(err.Error(), "not reached in 7 attempts") || !strings.Contains(err.Error(), addr) ||
		!strings.Contains(err.Error(), "refused") {
		t.Errorf("Run returned %v", err)
	}
	if e := w.last(receiver.Failed); !e.Fatal || !strings.Contains(e.Message, addr) {
		t.Errorf("event %+v", e)
	}
}

// A stop ends a blocked read, quietly.
func TestB09cSocketTextStopsWhileItReads(t *testing.T) {
	w, s := newWorld(t), listen(t)
	j := run(w, soon, receiver.SocketText(s.addr()))
	s.accept()
	w.untilEvent(receiver.Started, "")
	began := time.Now()
	mustEnd(t, j)
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
	if got := w.kinds(); got != "started stopped" {
		t.Errorf("events: %s", got)
	}
}

func TestSocketTextLargeFile(t *testing.T) {
	w, s := newWorld(t), listen(t)
	j := run(w, receiver.Config{}, receiver.SocketText(s.addr()))
	text := bytes.Repeat([]byte(line99+"\n"), 250_000) // 25 MB
	c := s.accept()
	began := time.Now()
	if _, err := c.Write(text); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if lines := got(w, 250_000); len(lines) != 250_000 || lines[0] != line99 || lines[249_999] != line99 {
		t.Errorf("%d lines", len(lines))
	}
	t.Logf("25 MB in %v", time.Since(began))
	mustEnd(t, j)
}
