package receiver_test

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/receiver"
)

// logs is a directory of files that grow.
type logs struct {
	t    testing.TB
	fs   *fsys.Mem
	open map[string]fsys.File
}

func newLogs(t testing.TB) *logs {
	l := &logs{t: t, fs: fsys.NewMem(), open: map[string]fsys.File{}}
	l.must(l.fs.Mkdir("/logs"))
	return l
}

func (l *logs) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// write appends text to a file, which it makes if need be.
func (l *logs) write(name, text string) {
	l.t.Helper()
	f := l.open[name]
	if f == nil {
		var err error
		f, err = l.fs.Create("/logs/" + name)
		l.must(err)
		l.open[name] = f
	}
	_, err := io.WriteString(f, text)
	l.must(err)
}

func (l *logs) remove(name string) {
	l.t.Helper()
	l.must(l.open[name].Close())
	delete(l.open, name)
	l.must(l.fs.Remove("/logs/" + name))
}

// tailing runs a DirTail of l with short lines; from is the position to go on from.
func tailing(w *world, l *logs, env receiver.Env) *job {
	if env.Epoch == 0 {
		env.Epoch = 7
	}
	return runIn(w, env, func() receiver.Receiver[string] {
		return &receiver.DirTail{FS: l.fs, Dir: "/logs", MaxLine: 20}
	})
}

// position is the newest of the added blocks.
func (w *world) position() (p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.log {
		if b.Position != nil {
			p = b.Position
		}
	}
	return p
}

func wantRecords(t *testing.T, w *world, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, records[string](w)); diff != "" {
		t.Error(diff)
	}
}

func TestTailDirFollowsFilesInTheOrderOfTheirNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(t), newLogs(t)
		l.write("b", "b1\nb2\r\n\nhalf")
		l.write("a", "a1\n")
		for _, name := range []string{".hidden", "_x", "y.tmp", "z._COPYING_"} {
			l.write(name, "not this\n")
		}
		l.must(l.fs.Mkdir("/logs/dir"))
		j := tailing(w, l, receiver.Env{})
		synctest.Wait()
		wantRecords(t, w, "a1", "b1", "b2", "")
		l.write("b", " a line\nb4")
		l.write("a", "a2\na3\n")
		l.write("aa", "new\n")
		time.Sleep(199 * time.Millisecond)
		synctest.Wait()
		wantRecords(t, w, "a1", "b1", "b2", "")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		wantRecords(t, w, "a1", "b1", "b2", "", "a2", "a3", "new", "half a line")
		l.write("b", "\n")
		time.Sleep(time.Second)
		mustEnd(t, j)
		wantRecords(t, w, "a1", "b1", "b2", "", "a2", "a3", "new", "half a line", "b4")
		if got := w.kinds(); got != "started stopped" {
			t.Errorf("events: %s", got)
		}
		if d := cmp.Diff(map[string]int64{"a": 9, "aa": 4, "b": 23}, receiver.TailPosition(t, w.position())); d != "" {
			t.Error(d)
		}
	})
}

func TestTailDirLongLinesAndBadBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(t), newLogs(t)
		full := strings.Repeat("f", 20)
		l.write("a", full+"\r\n"+full+"g\nshort\n")
		l.write("b", strings.Repeat("x", 1000))
		j := tailing(w, l, receiver.Env{})
		synctest.Wait()
		wantRecords(t, w, full, "short")
		l.write("b", strings.Repeat("y", 600_000)) // longer than is read at once, and over several looks
		time.Sleep(time.Second)
		l.write("b", "z\nafter\n\xff\xfe\nthen\xff\n")
		time.Sleep(time.Second)
		l.write("b", "end\n")
		time.Sleep(time.Second)
		mustEnd(t, j)
		wantRecords(t, w, full, "short", "after", "\ufffd\ufffd", "then\ufffd", "end")
		w.untilEvent(receiver.Error, `file "a": the line at 22 has 21 bytes, the limit is 20: skipped`)
		w.untilEvent(receiver.Error, `file "b": the line at 0 has 601001 bytes, the limit is 20: skipped`)
		w.untilEvent(receiver.Error, `file "b": the line at 601008 is not UTF-8`)
		if n := strings.Count(w.kinds(), "error"); n != 3 {
			t.Errorf("events: %s", w.kinds())
		}
	})
}

func TestTailDirFileThatIsCutOffIsReportedAndReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(t), newLogs(t)
		l.write("a", "1\n2\n3")
		j := tailing(w, l, receiver.Env{})
		time.Sleep(time.Second)
		l.remove("a")
		l.write("a", "4\n5") // between two looks: the same file, shorter
		time.Sleep(time.Second)
		wantRecords(t, w, "1", "2", "4")
		w.untilEvent(receiver.Error, `file "a": it has 3 bytes and had 5: it was cut off`)
		l.write("a", "\n")
		time.Sleep(time.Second)
		mustEnd(t, j)
		wantRecords(t, w, "1", "2", "4", "5")

		// A later run knows only what the position says.
		l.remove("a")
		l.write("a", "6\n")
		w.high = 0
		j = tailing(w, l, receiver.Env{Epoch: 8, From: w.position()})
		time.Sleep(time.Second)
		l.write("a", "a line") // the last one was begun
		time.Sleep(time.Second)
		l.remove("a")
		l.write("a", "7\n8\n") // not before it
		time.Sleep(time.Second)
		mustEnd(t, j)
		wantRecords(t, w, "1", "2", "4", "5", "6", "7", "8")
		w.untilEvent(receiver.Error, `file "a": it has 4 bytes and had 8: it was cut off`)
		w.untilEvent(receiver.Error, `file "a": it has 2 bytes and had 4: it was cut off`)
	})
}

// A file that grows as fast as it is read leaves the others their turn.
func TestTailDirReadsTheOthersWhileOneGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(t), newLogs(t)
		l.write("a", "a\n")
		l.write("b", "b\n")
		n := 0
		l.fs.FailWith(func(op, name string) error {
			if op == "read" && name == "/logs/a" && n < 100 {
				n++
				l.write("a", strings.Repeat("more\n", 100_000)) // more than is read at once
			}
			return nil
		})
		j := tailing(w, l, receiver.Env{})
		synctest.Wait()
		if got := records[string](w); n >= 100 || !slices.Contains(got, "b") {
			t.Errorf("%d lines while one file grew %d times, b among them: %v", len(got), n, slices.Contains(got, "b"))
		}
		mustEnd(t, j)
	})
}

func TestTailDirFileThatIsGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(t), newLogs(t)
		l.write("a", "1\n")
		l.write("b", "2\n")
		j := tailing(w, l, receiver.Env{})
		time.Sleep(time.Second)
		l.remove("a")
		l.write("b", "3\n")
		time.Sleep(time.Second)
		if d := cmp.Diff(map[string]int64{"b": 4}, receiver.TailPosition(t, w.position())); d != "" {
			t.Error(d)
		}
		l.write("a", "4\n")
		time.Sleep(time.Second)
		mustEnd(t, j)
		wantRecords(t, w, "1", "2", "3", "4")
		if got := w.kinds(); got != "started stopped" {
			t.Errorf("events: %s", got)
		}
	})
}

func TestTailDirIsHeldBackInSmallSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(t), newLogs(t)
		l.write("a", strings.Repeat("line\n", 1000))
		j := tailing(w, l, receiver.Env{Config: receiver.Config{MaxRate: 100}})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := len(records[string](w)); n < 480 || n > 520 || slices.Max(w.sizes()) > 20 {
			t.Errorf("%d lines in 5s at 100/s, block sizes %v", n, w.sizes())
		}
		mustEnd(t, j)
	})
}

func TestTailDirThatCannotBeReadSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(t), newLogs(t)
		l.must(l.fs.Remove("/logs"))
		j := tailing(w, l, receiver.Env{})
		if err := <-j.done; err == nil || !strings.Contains(err.Error(), "tail of /logs: ") || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("Run returned %v", err)
		}
		l.must(l.fs.Mkdir("/logs"))
		for _, bad := range []string{"\x02", "\x01\x00\x05a", "\x01\x01\x00\x00", "\x01\x00\x01a\x00\x00\x01a\x00"} {
			j := tailing(newWorld(t), l, receiver.Env{From: []byte(bad)})
			if err := <-j.done; err == nil || !strings.Contains(err.Error(), "position") {
				t.Errorf("position %q: Run returned %v", bad, err)
			}
		}
	})
}

// Every line once, in the order of its file, although block store, driver and
// file system fail, the receiver restarts, and other runs take over; files come,
// are rotated and go.
func TestTailDirReadsEveryLineExactlyOnce(t *testing.T) {
	restarts := 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rnd := newDice(seed)
			w, l := newWorld(t), newLogs(t)
			w.put = func(string) error {
				if rnd.IntN(4) == 0 {
					return errFlaky
				}
				return nil
			}
			w.add = func(receiver.Block) (logged bool, err error) {
				if rnd.IntN(2) == 0 {
					return rnd.IntN(2) == 0, errFlaky
				}
				return true, nil
			}
			l.fs.FailWith(func(op, _ string) error {
				if (op == "read" || op == "list" || op == "open") && rnd.IntN(20) == 0 {
					return errFlaky
				}
				return nil
			})
			want := map[string][]string{}
			written := make(chan struct{})
			go func() {
				defer close(written)
				files := []string{}
				for i := range 400 {
					if i%40 == 0 { // rotation
						files = append(files, fmt.Sprintf("app-%02d.log", i/40))
						files = files[max(0, len(files)-2):] // the one before still gets some lines
					}
					name := files[rnd.IntN(len(files))]
					line := fmt.Sprintf("%s %d", name[4:6], i)
					want[name[4:6]] = append(want[name[4:6]], line)
					cut := rnd.IntN(len(line) + 1)
					l.write(name, line[:cut])
					time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
					l.write(name, line[cut:]+"\n")
				}
			}()
			for epoch := 1; epoch < 200; epoch++ {
				done := false
				select {
				case <-written:
					done = len(records[string](w)) >= 400
				default:
				}
				if done {
					break
				}
				w.mu.Lock()
				w.high = 0
				w.mu.Unlock()
				j := tailing(w, l, receiver.Env{
					Epoch: base.Epoch(epoch), From: w.position(),
					Config: receiver.Config{RestartDelayMax: 200 * time.Millisecond, PushDelayMax: 100 * time.Millisecond, PushAttempts: 100, StartAttempts: 1000},
				})
				time.Sleep(time.Duration(200+rnd.IntN(3000)) * time.Millisecond)
				if epoch%2 == 0 {
					mustEnd(t, j)
				} else {
					j.cancel()
					<-j.done
				}
			}
			<-written
			restarts += strings.Count(w.kinds(), "restarting")
			got := map[string][]string{}
			for _, line := range records[string](w) {
				got[line[:2]] = append(got[line[:2]], line)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("seed %d: %s", seed, diff)
			}
		})
	}
	if restarts < 100 {
		t.Errorf("%d restarts: too few to show anything", restarts)
	}
}

func TestTailPositionIsCompactAndKeepsItsWriting(t *testing.T) {
	p := map[string]int64{}
	for i := range 100 {
		p[fmt.Sprintf("/var/log/application-%04d.log", i)] = int64(i) << 20
	}
	b := receiver.EncodeTailPosition(p)
	if len(b) > 1300 {
		t.Errorf("%d bytes for 100 files", len(b))
	}
	if d := cmp.Diff(p, receiver.TailPosition(t, b)); d != "" {
		t.Error(d)
	}
	// Version 1 is in the logs of drivers for ever (Invariant 12).
	if b := receiver.EncodeTailPosition(map[string]int64{"ab": 300, "ac": 1, "": 0}); string(b) != "\x01\x00\x00\x00\x00\x02ab\xac\x02\x01\x01c\x01" {
		t.Errorf("%q", b)
	}
}

func FuzzTailPosition(f *testing.F) {
	f.Add([]byte("\x01\x00\x02ab\xac\x02\x01\x01c\x01"))
	f.Add([]byte("\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := receiver.ParseTailPosition(b)
		if err != nil {
			return
		}
		again, err := receiver.ParseTailPosition(receiver.EncodeTailPosition(p))
		if d := cmp.Diff(p, again); d != "" || err != nil {
			t.Error(d, err)
		}
	})
}

// What version 1 looks like stays readable for ever (Invariant 12).
func TestTailPositionOfVersion1IsRead(t *testing.T) {
	b, err := os.ReadFile("testdata/v1/tail-position.bin")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"access-2026-11-29.log": 1 << 33, "access-2026-11-30.log": 300, "errors": 0}
	if d := cmp.Diff(want, receiver.TailPosition(t, b)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := cmp.Diff(b, receiver.EncodeTailPosition(want)); d != "" {
		t.Errorf("encoded now (-fixture +now):\n%s", d)
	}
	b[0]++
	if _, err := receiver.ParseTailPosition(b); err == nil || !strings.Contains(err.Error(), "version 2") || !strings.Contains(err.Error(), "reads 1") {
		t.Errorf("version 2: %v", err)
	}
}
