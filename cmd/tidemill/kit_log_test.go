package main

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// writeLog writes n records into epoch 1 of a log, in segments of two, and ends
// as a crash would: the last segment is not sealed.
func writeLog(t *testing.T, f fsys.FS, dir string, n int) {
	t.Helper()
	epoch := path.Join(dir, "e-000001")
	if err := f.MkdirAll(epoch); err != nil {
		t.Fatal(err)
	}
	w, err := wal.Create(wal.Config{FS: f}, epoch, path.Base(dir), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Kill()
	for i := range n {
		if i > 0 && i%2 == 0 {
			if err := w.Roll(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Append(t.Context(), fmt.Appendf(nil, "record %d", i+1)); err != nil {
			t.Fatal(err)
		}
	}
}

// journal writes events into the log of a job at /job.
func journal(t *testing.T, f fsys.FS, events ...driver.Event) {
	t.Helper()
	j, err := driver.OpenJournal(t.Context(), driver.JournalConfig{FS: f, Dir: "/job/log"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(false); err != nil {
		t.Fatal(err)
	}
}

// edit changes the bytes of a file.
func edit(t *testing.T, f fsys.FS, name string, change func([]byte) []byte) {
	t.Helper()
	data, err := fsys.ReadFile(f, name)
	if err == nil {
		err = f.Remove(name)
	}
	if err == nil {
		err = fsys.WriteFile(f, name, change(bytes.Clone(data)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// flip changes one byte of a file in which a text begins.
func flip(t *testing.T, f fsys.FS, name, text string) {
	t.Helper()
	edit(t, f, name, func(b []byte) []byte {
		at := bytes.Index(b, []byte(text))
		if at < 0 {
			t.Fatalf("%s does not hold %q", name, text)
		}
		b[at] ^= 0x40
		return b
	})
}

func cutTail(n int) func([]byte) []byte {
	return func(b []byte) []byte { return b[:len(b)-n] }
}

// segment is the name of a segment of epoch 1 of a log.
func segment(dir string, n int) string { return fmt.Sprintf("%s/e-000001/%016d.wal", dir, n) }

// expect checks the exit code and what was said, errors in one line.
func expect(t *testing.T, r result, code int, out, errs []string) {
	t.Helper()
	bad := t.Failed()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	for _, s := range out {
		if !strings.Contains(r.out, s) {
			t.Errorf("output does not say %q", s)
		}
	}
	for _, s := range errs {
		if !strings.Contains(r.err, s) {
			t.Errorf("error does not say %q", s)
		}
	}
	if n := strings.Count(r.err, "\n"); code != 0 && n > 1 {
		t.Errorf("the error takes %d lines", n)
	}
	if t.Failed() && !bad {
		t.Logf("output:\n%s\nerror:\n%s", r.out, r.err)
	}
}

const second = base.BatchTime(1000)
