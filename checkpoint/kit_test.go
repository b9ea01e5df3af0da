package checkpoint_test

import (
	"flag"
	"path"
	"testing"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// update is the flag of package script: it writes the fixtures that are
// missing; those that exist are kept for ever.
func update() bool { return flag.Lookup("update").Value.String() == "true" }

// disk is a file system with epoch directories.
func disk(t testing.TB, dirs ...string) *fsys.Mem {
	t.Helper()
	m := fsys.NewMem()
	for _, d := range dirs {
		if err := m.Mkdir(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	return m
}

// snap is the snapshot of an epoch at seq; its body is told by both.
func snap(epoch base.Epoch, seq uint64) checkpoint.Snapshot {
	body := make([]byte, 100+seq%50)
	for i := range body {
		body[i] = byte(uint64(i)*7 + seq + uint64(epoch)*31)
	}
	return checkpoint.Snapshot{Epoch: epoch, Seq: seq, Body: body}
}

// write writes snapshots of epoch 1 into a directory.
func write(t testing.TB, f fsys.FS, dir string, seqs ...uint64) {
	t.Helper()
	for _, seq := range seqs {
		if _, err := checkpoint.Write(f, dir, snap(1, seq)); err != nil {
			t.Fatal(err)
		}
	}
}

// damage changes a file.
func damage(t testing.TB, f fsys.FS, name string, change func([]byte) []byte) {
	t.Helper()
	b, err := fsys.ReadFile(f, name)
	if err == nil {
		err = f.Remove(name)
	}
	if err == nil {
		err = fsys.WriteFile(f, name, change(b))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func half(b []byte) []byte { return b[:len(b)/2] }
func none([]byte) []byte   { return nil }

// names lists the files of some directories.
func names(t testing.TB, f fsys.FS, dirs ...string) (out []string) {
	t.Helper()
	for _, d := range dirs {
		entries, err := f.List(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, path.Join(d, e.Name))
		}
	}
	return out
}

// seqs are the sequence numbers of files.
func seqs(all []checkpoint.Info) (out []uint64) {
	for _, in := range all {
		out = append(out, in.Seq)
	}
	return out
}

// newest returns the sequence number of the newest snapshot, which must be as it
// was written, 0 if there is none, and the paths of what was passed over.
func newest(t testing.TB, f fsys.FS, dirs ...string) (seq uint64, bad []string, err error) {
	t.Helper()
	s, passed, err := checkpoint.Newest(f, dirs)
	for _, b := range passed {
		if b.Err == nil {
			t.Errorf("%s is bad without a reason", b.Path)
		}
		bad = append(bad, b.Path)
	}
	if s == nil {
		return 0, bad, err
	}
	if want := snap(s.Epoch, s.Seq); string(want.Body) != string(s.Body) {
		t.Errorf("snapshot %d has another body than was written", s.Seq)
	}
	return s.Seq, bad, err
}
