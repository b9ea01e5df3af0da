package main

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/internal/fsys"
)

func TestVerifyOfAGoodLog(t *testing.T) {
	f := fsys.NewMem()
	writeLog(t, f, "/job/log", 5)
	writeLog(t, f, "/job/blocks/lines", 2)
	writeLog(t, f, "/job/state/state", 1)
	want := strings.Join([]string{
		"LOG           EPOCH  SEGMENTS  RECORDS  BYTES  TORN TAILS  DAMAGE",
		"log           1      3         5        40     0           none",
		"blocks/lines  1      1         2        16     0           none",
		"state/state   1      1         1        8      0           none",
		"",
	}, "\n")
	r := tidemillCmd(t, f, "wal", "verify", "/job")
	expect(t, r, 0, nil, nil)
	if d := cmp.Diff(want, r.out); d != "" || r.err != "" {
		t.Errorf("output (-want +got):\n%s\nerror: %s", d, r.err)
	}
	for dir, name := range map[string]string{
		"/job/log": "log ", "/job/blocks": "lines ", "/job/blocks/lines": "lines ", "/job/state/state/e-000001": "e-000001 ",
	} {
		r := tidemillCmd(t, f, "wal", "verify", dir)
		expect(t, r, 0, []string{"\n" + name}, nil)
		if n := strings.Count(r.out, "\n"); n != 2 {
			t.Errorf("%s: %d lines, want 2:\n%s", dir, n, r.out)
		}
	}
}

func TestVerifyNamesFileAndOffsetOfDamage(t *testing.T) {
	f := fsys.NewMem()
	writeLog(t, f, "/job/log", 6)
	writeLog(t, f, "/job/blocks/lines", 4)
	flip(t, f, segment("/job/log", 2), "record 4")
	r := tidemillCmd(t, f, "wal", "verify", "/job")
	expect(t, r, 1,
		[]string{
			"log           1      3         5 ", "1 place\n", // later segments are read too
			"blocks/lines  1      2         4 ",
			"damage: " + segment("/job/log", 2) + " at 64: lost: record 4 (",
		},
		[]string{"1 damaged place in 5 segments: restore the files"})
}

func TestVerifyCountsATornTailAndIsContent(t *testing.T) {
	f := fsys.NewMem()
	writeLog(t, f, "/job/log", 4)
	edit(t, f, segment("/job/log", 2), cutTail(3))
	r := tidemillCmd(t, f, "wal", "verify", "/job/log")
	expect(t, r, 0, []string{"log  1      2         3        24     1           none\n", "torn: " + segment("/job/log", 2) + " at 64: 25 bytes that count for nothing\n"}, nil)
}

func TestVerifyOfWhatIsNoLog(t *testing.T) {
	f := fsys.NewMem()
	if err := f.MkdirAll("/empty"); err != nil {
		t.Fatal(err)
	}
	if err := fsys.WriteFile(f, "/file", nil); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{
		"/empty": "/empty holds no log: give the directory of a job",
		"/gone":  "directory /gone does not exist: give the one that the job was started with",
		"/file":  "/file is a file: give the directory",
	} {
		for _, command := range []string{"verify", "dump"} {
			expect(t, tidemillCmd(t, f, "wal", command, dir), 1, nil, []string{says})
		}
	}
}

func TestVerifyOfAnUnreadableFileIsNoDamage(t *testing.T) {
	f := fsys.NewMem()
	writeLog(t, f, "/job/log", 2)
	f.FailWith(func(op, name string) error {
		if op == "open" {
			return errDenied
		}
		return nil
	})
	r := tidemillCmd(t, f, "wal", "verify", "/job")
	expect(t, r, 1, nil, []string{errDenied.Error()})
	if strings.Contains(r.out+r.err, "damage") {
		t.Errorf("it is called damage: %s%s", r.out, r.err)
	}
}

func TestProgressComesAfterASecondAndThenLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		begin := time.Now()
		var lines atomic.Int64
		stop := progress(&b, func() string { lines.Add(1); return time.Since(begin).String() })
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if lines.Load() > 0 {
			t.Error("a short run shows progress")
		}
		time.Sleep(8 * time.Second)
		stop()
		time.Sleep(time.Hour)
		if got, want := b.String(), "1s\n3s\n7s\n"; got != want {
			t.Errorf("progress %q, want %q", got, want)
		}
	})
}

func TestVerifyTellsHowMuchItHasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fsys.NewMem()
		writeLog(t, f, "/job/log", 2)
		f.Slow(func(op, name string) time.Duration {
			if op == "open" {
				return 1500 * time.Millisecond
			}
			return 0
		})
		r := tidemillCmd(t, f, "wal", "verify", "/job/log")
		expect(t, r, 0, nil, []string{"verify: 0 B of 92 B read\n"})
	})
}
