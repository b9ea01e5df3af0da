package hdfs_test

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
	"github.com/tidemill/tidemill/wal"
)

// Row "answer lost": the call was executed or not, and nobody says which. What is
// reported must be what is there.
func TestLostAnswers(t *testing.T) {
	whole := func(u *user) { u.want("/f", random(70000)) }
	write := func(u *user) error {
		f, err := u.Create("/f")
		if err != nil {
			return err
		}
		if err := flushed(f, random(70000)); err != nil {
			return err
		}
		return f.Close()
	}
	for _, c := range []struct {
		method string
		calls  []string // of the calls below; none is writing a file
	}{
		{method: "create"},
		{method: "addBlock"},
		{method: "updateBlockForPipeline"},
		{method: "complete"},
		{"mkdirs", []string{"Mkdir", "MkdirAll"}},
		{"rename2", []string{"Rename"}},
		{"setXAttr", []string{"Mkdir"}},
		{"delete", []string{"Remove"}},
		{"getFileInfo", []string{"Stat", "Open", "SyncDir", "Mkdir"}},
		{"getListing", []string{"List"}},
		{"getBlockLocations", []string{"Hosts"}},
		{"getServerDefaults", []string{"Promise", "Stat"}},
	} {
		for name, fault := range map[string]hdfstest.Fault{
			"before": hdfstest.DropBefore(), "after": hdfstest.DropAfter(), "hung": hdfstest.Hang(),
		} {
			t.Run(c.method+"/"+name, func(t *testing.T) {
				if c.calls == nil {
					bubble(t, hdfstest.Options{}, func(k *kit) {
						u := k.open(hdfs.Config{Timeout: short})
						k.FailNext(c.method, 1, fault)
						err := write(u)
						if c.method == "create" && name == "after" {
							// It exists, and is nobody's: another process may have made it.
							k.wantError(err, fs.ErrExist, "an attempt whose answer was lost may have made it")
							if open := k.OpenFiles(); len(open) != 1 {
								t.Errorf("open: %v", open)
							}
							return
						}
						k.must(err)
						whole(u)
						if open := k.OpenFiles(); len(open) != 0 {
							t.Errorf("open: %v", open)
						}
						if s := u.Stats(); s.Abandoned != 0 {
							t.Errorf("%+v: given up", s)
						}
					})
				}
				for _, call := range c.calls {
					bubble(t, hdfstest.Options{}, func(k *kit) {
						prepare(k.open(hdfs.Config{}))
						u := k.open(hdfs.Config{Timeout: short})
						before := k.Calls(c.method)
						k.FailNext(c.method, 1, fault)
						k.must(calls[call](u))
						if n := k.Calls(c.method) - before; n < 2 {
							t.Fatalf("%s: %d calls of %s, want two or more", call, n, c.method)
						}
						for other, f := range calls {
							if other != call && changes[other] {
								k.must(f(u))
							}
						}
						done(k)
					})
				}
			})
		}
	}
}

// The answers that a recovery and the reading of an open file wait for.
func TestLostAnswersOfRecoveries(t *testing.T) {
	for name, fault := range map[string]hdfstest.Fault{"before": hdfstest.DropBefore(), "after": hdfstest.DropAfter(), "hung": hdfstest.Hang()} {
		for _, method := range []string{"recoverLease", "isFileClosed", "fsync"} {
			t.Run(method+"/"+name, func(t *testing.T) {
				bubble(t, hdfstest.Options{}, func(k *kit) {
					a := k.open(hdfs.Config{Timeout: short})
					f := a.create("/f")
					k.commit(f, random(70000))
					if method == "fsync" {
						k.FailNext(method, 1, fault)
						a.want("/f", random(70000))
						k.must(f.Close())
						a.want("/f", random(70000))
						return
					}
					b := k.open(hdfs.Config{Timeout: short})
					a.wire.cut()
					k.FailNext(method, 1, fault)
					b.recover("/f")
					b.want("/f", random(70000))
				})
			})
		}
	}
}

// However many make one directory at once, whatever answers are lost: one has made
// it.
func TestMkdirIsExclusive(t *testing.T) {
	for _, fault := range []string{"none", "before", "after"} {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			for _, method := range []string{"mkdirs", "setXAttr"} {
				switch fault {
				case "before":
					k.FailNext(method, 4, hdfstest.DropBefore())
				case "after":
					k.FailNext(method, 4, hdfstest.DropAfter())
				}
			}
			var waits []func() error
			for range 8 {
				u := k.open(hdfs.Config{})
				waits = append(waits, later(func() error { return u.Mkdir("/d") }))
			}
			made := 0
			for _, wait := range waits {
				if err := wait(); err == nil {
					made++
				} else {
					k.wantError(err, fs.ErrExist, "/d")
				}
			}
			if made != 1 {
				t.Errorf("%d of 8 have made it, answers lost: %s", made, fault)
			}
		})
	}
}

// A rename whose target another has made meanwhile is not taken for one's own.
func TestLostAnswerIsNotTakenForSuccess(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		k.must(u.Mkdir("/a"))
		k.must(u.Mkdir("/b"))
		k.FailNext("rename2", 1, hdfstest.DropBefore())
		k.wantError(u.Rename("/a", "/b"), fs.ErrExist, "/a", "/b")
		k.FailNext("rename2", 1, hdfstest.DropBefore())
		k.wantError(u.Rename("/none", "/c"), fs.ErrNotExist)
		k.FailNext("delete", 1, hdfstest.DropBefore())
		k.must(u.RemoveAll("/none"))
		k.wantError(u.Mkdir("/a"), fs.ErrExist)
		k.wantError(u.Remove("/none"), fs.ErrNotExist)
	})
}

// Where a block is switched, a lost answer is the end of the file, and the log
// goes on in another.
func TestLostAnswerBetweenBlocks(t *testing.T) {
	for _, method := range []string{"addBlock", "updateBlockForPipeline"} {
		for _, fault := range []hdfstest.Fault{hdfstest.DropBefore(), hdfstest.DropAfter()} {
			bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
				u := k.open(hdfs.Config{})
				j := u.journal(wal.Config{SegmentBytes: 8 << 20})
				j.append(random(700000))
				k.FailNext(method, 1, fault)
				k.within(0, 5*time.Second, func() { j.append(random(700000), random(10)) })
				u.wire.cut()
				j.want(k.open(hdfs.Config{}), 0)
			})
		}
	}
}

// Row "complete says not yet".
func TestCompleteSaysNotYet(t *testing.T) {
	for _, n := range []int{1, 3, 10} {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u, other := k.open(hdfs.Config{}), k.open(hdfs.Config{})
			f := u.create("/f")
			k.commit(f, random(70000))
			before := k.Calls("complete")
			k.FailNext("complete", n, hdfstest.CompleteFalse())
			k.within(0, 3*time.Second, func() { k.must(f.Close()) })
			if calls := k.Calls("complete") - before; calls != int64(n)+1 {
				t.Errorf("%d calls for %d refusals", calls, n)
			}
			other.want("/f", random(70000))
		})
	}
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		k.FailNext("complete", 2, hdfstest.CompleteFalse())
		k.FailNext("complete", 1, hdfstest.DropAfter()) // it is closed, and nobody says so
		u.put("/f", random(70000))
		u.want("/f", random(70000))
	})
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u, other := k.open(hdfs.Config{Patience: 10 * time.Second}), k.open(hdfs.Config{})
		f := u.create("/f")
		k.commit(f, random(70000))
		k.FailNext("complete", 1<<30, hdfstest.CompleteFalse())
		wait := later(f.Close)
		for range 9 {
			sleep(time.Second)
			r, err := other.Open("/f")
			if err == nil && r.Size() != 70000 {
				t.Errorf("another sees %d bytes, want 70000", r.Size())
			}
			if err != nil && !errors.Is(err, hdfs.ErrWriting) {
				t.Error(err)
			}
			if r != nil {
				r.Close()
			}
		}
		k.wantError(wait(), hdfs.ErrUnavailable, "have everything and have not told the namenode", "/f")
		u.want("/f", random(70000)) // its lease is recovered by now
		other.want("/f", random(70000))
	})
}
