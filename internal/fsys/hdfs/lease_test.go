package hdfs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// Row "lease lost": another has recovered the file. What its writer is told does
// not contradict what is there.
func TestLeaseLost(t *testing.T) {
	for _, size := range []int{0, 100, 512, 70000, 1 << 20, 1<<20 + 5} {
		for _, more := range []int{0, 1, 70000, -1, -70000} { // negative: nobody flushes it
			bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
				a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
				f := a.create("/f")
				k.commit(f, random(size))
				b.recover("/f")
				b.want("/f", random(size))
				_, err := f.Write(random(max(more, -more)))
				if more > 0 && err == nil {
					if err = f.Flush(); err == nil {
						t.Errorf("%d and %d bytes: acknowledged", size, more)
					}
				}
				if err == nil {
					err = f.Close()
				}
				if err == nil && more != 0 {
					t.Errorf("%d and %d bytes: closed, without what was written", size, more)
				}
				sleep(2 * time.Second)
				b.want("/f", random(size))
			})
		}
	}
}

// A recovery in the middle of Close: who is told that the file is whole finds it
// so.
func TestLeaseLostWhileClosing(t *testing.T) {
	for _, method := range []string{"updateBlockForPipeline", "complete"} {
		for _, fault := range []hdfstest.Fault{hdfstest.DropBefore(), hdfstest.DropAfter(), hdfstest.Exception("org.apache.hadoop.ipc.RetriableException", "later")} {
			bubble(t, hdfstest.Options{}, func(k *kit) {
				a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
				f := a.create("/f")
				k.commit(f, random(70000))
				k.FailNext(method, 1, fault)
				k.FailNext("complete", 5, hdfstest.DropBefore())
				k.FailNext("getBlockLocations", 3, hdfstest.DropBefore()) // it takes long enough to recover
				wait := later(f.Close)
				b.recover("/f")
				err := wait()
				if err != nil && !errors.Is(err, hdfs.ErrLease) {
					t.Errorf("%s: %v", method, err)
				}
				b.want("/f", random(70000))
				k.must(b.Remove("/f"))
			})
		}
	}
}

// A file that was removed and made again by another is not closed by its first
// writer. It may be recovered, which costs its writer no more than a new file.
func TestFileOfAnotherIsNotClosed(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		f := a.create("/f")
		k.commit(f, random(70000))
		k.must(b.Remove("/f"))
		g := b.create("/f")
		k.commit(g, random(500))
		k.FailNext("updateBlockForPipeline", 1, hdfstest.DropBefore())
		before := k.Calls("complete")
		if err := f.Close(); err == nil {
			t.Error("a file that is gone was closed")
		}
		if n := k.Calls("complete") - before; n != 0 {
			t.Errorf("%d calls to close the other's file", n)
		}
		sleep(2 * time.Second)
		g.Close()
		b.wantPrefix("/f", random(500), 500)
	})
}

// Row "recovery waits for datanodes".
func TestRecoveryWaitsForDatanodes(t *testing.T) {
	start := func(k *kit) *user {
		a := k.open(hdfs.Config{})
		k.commit(a.create("/f"), random(1000))
		a.wire.cut()
		return k.open(hdfs.Config{Patience: 30 * time.Second})
	}
	kill := func(k *kit, n int) {
		nodes, err := k.Pipeline("/f")
		k.must(err)
		for _, i := range nodes[:n] {
			k.KillDatanode(i)
		}
	}
	t.Run("OneDead", func(t *testing.T) {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			b := start(k)
			kill(k, 1)
			k.within(0, 2*time.Second, func() { b.recover("/f") })
			b.want("/f", random(1000))
		})
	})
	t.Run("AllDead", func(t *testing.T) {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			b := start(k)
			kill(k, 3)
			k.within(30*time.Second, 32*time.Second, func() {
				err := b.Recover(context.Background(), []string{"/f"}, nil)
				if err == nil || !strings.Contains(err.Error(), "hdfs fsck /f") || !strings.Contains(err.Error(), "not recovered within 30s") {
					t.Errorf("got %v", err)
				}
			})
			if n := b.log.count("[WARN]", "lease of /f"); n != 1 {
				t.Errorf("told %d times:\n%s", n, b.log)
			}
			_, err := b.Open("/f")
			k.wantError(err, hdfs.ErrWriting, "/f")
		})
	})
	t.Run("AllBack", func(t *testing.T) {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			b := start(k)
			kill(k, 3)
			time.AfterFunc(20*time.Second, func() { k.RestartDatanode(0); k.RestartDatanode(1); k.RestartDatanode(2) })
			k.within(20*time.Second, 22*time.Second, func() { b.recover("/f") })
			b.want("/f", random(1000))
			if s := b.Stats(); s.Recovered != 1 {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("Cancelled", func(t *testing.T) {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			b := start(k)
			kill(k, 3)
			ctx, cancel := context.WithCancel(context.Background())
			wait := later(func() error { return b.Recover(ctx, []string{"/f"}, nil) })
			sleep(2 * time.Second)
			k.within(0, 0, func() {
				cancel()
				k.wantError(wait(), context.Canceled, "/f")
			})
		})
	})
	t.Run("Closed", func(t *testing.T) {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			b := start(k)
			kill(k, 3)
			wait := later(func() error { return b.Recover(context.Background(), []string{"/f"}, nil) })
			sleep(2 * time.Second)
			k.within(0, 0, func() {
				b.FS.Close()
				k.wantError(wait(), fs.ErrClosed, "/f")
			})
		})
	})
}

// Row "recovery waits for datanodes": many files wait side by side.
func TestRecoveryOfManyFiles(t *testing.T) {
	bubble(t, hdfstest.Options{Heartbeat: 3 * time.Second}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("/f%d", i))
			k.commit(a.create(names[i]), random(100+i))
		}
		a.put("/closed", nil)
		a.wire.cut()
		// Three groups of 32 and one of four, each about a heartbeat.
		lefts := map[int]bool{}
		k.within(0, 15*time.Second, func() {
			k.must(b.Recover(context.Background(), append(names, "/closed", "/none"), func(left int, name string) { lefts[left] = true }))
		})
		if len(lefts) != 102 || !lefts[0] {
			t.Errorf("told of %d different numbers of files that are left", len(lefts))
		}
		for i, name := range names {
			b.want(name, random(100+i))
		}
		if n := b.Stats().Recovered; n != 100 {
			t.Errorf("%d recovered, want 100", n)
		}
	})
}

// Row "file of another still being written": it gives what was flushed, or else is
// refused. It is never taken for an empty one.
func TestFileOfAnother(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		refused := func(least, most time.Duration) {
			k.Helper()
			k.within(least, most, func() {
				_, err := b.Open("/f")
				k.wantError(err, hdfs.ErrWriting, "/f")
			})
		}
		f := a.create("/f")
		refused(0, 0) // it has no block yet
		var written []byte
		for i := range 3 {
			written = append(written, random(1000+i)...)
			k.commit(f, random(1000+i))
			b.visible("/f", written, len(written))
			if i == 1 {
				a.want("/f", written) // which tells the namenode a length that is soon the one before
			}
			if open, err := b.Writing("/f"); !open || err != nil {
				t.Errorf("Writing says %v, %v", open, err)
			}
		}
		for i := range 3 {
			k.PauseDatanode(i)
		}
		refused(10*time.Second, 30*time.Second) // Timeout for each
		for i := range 3 {
			k.ResumeDatanode(i)
		}
		k.must(f.Close())
		if open, err := b.Writing("/f"); open || err != nil {
			t.Errorf("Writing says %v, %v after Close", open, err)
		}
		_, err := b.Writing("/none")
		k.wantError(err, fs.ErrNotExist)
		b.want("/f", written)
		b.put("/empty", nil)
		a.want("/empty", nil)
	})
}

// Its own writer reads what was flushed, and no more.
func TestOwnFileIsReadAsFarAsFlushed(t *testing.T) {
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		u, other := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		f := u.create("/f")
		u.want("/f", nil)
		var written []byte
		for _, size := range append(sizes, 1<<20) {
			part := random(size)
			written = append(written, part...)
			k.commit(f, part)
			u.want("/f", written)
			_, err := f.Write(part)
			k.must(err)
			synctest.Wait()
			u.want("/f", written) // what comes after it may have arrived
			infos, err := u.List("/")
			k.must(err)
			if len(infos) != 1 || infos[0].Size != int64(len(written)) {
				t.Errorf("list: %+v, want %d bytes", infos, len(written))
			}
			kept, err := k.Content("/f")
			k.must(err)
			if in, err := other.Stat("/f"); err != nil || in.Size > int64(len(kept)) {
				t.Errorf("the namenode was told of %d bytes, %v; the datanodes have %d", in.Size, err, len(kept))
			}
			written = append(written, part...)
			// To another it is being written, or at most what was flushed.
			if r, err := other.Open("/f"); err == nil {
				if r.Size() > int64(len(written)) {
					t.Errorf("another sees %d bytes of %d", r.Size(), len(written))
				}
				r.Close()
			} else if !errors.Is(err, hdfs.ErrWriting) {
				t.Error(err)
			}
		}
		k.must(f.Close())
		u.want("/f", written)
	})
}

// A rename by its own FS does not lose an open file.
func TestOwnFileIsRenamed(t *testing.T) {
	for _, whole := range []bool{true, false} {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u := k.open(hdfs.Config{})
			k.must(u.Mkdir("/a"))
			f := u.create("/a/f")
			k.commit(f, random(1000))
			k.must(u.Rename("/a", "/b"))
			u.want("/b/f", random(1000))
			data := append(random(1000), random(2000)...)
			k.commit(f, data[1000:])
			u.want("/b/f", data)
			if whole {
				k.FailNext("updateBlockForPipeline", 1, hdfstest.DropBefore()) // the rest goes by the path
				k.must(f.Close())
			} else {
				k.KillDatanode(0)
				if err := flushed(f, random(10)); err == nil {
					t.Error("acknowledged")
				}
				k.must(f.Close())
			}
			u.wantPrefix("/b/f", append(data, random(10)...), len(data))
			if open := k.OpenFiles(); len(open) != 0 {
				t.Errorf("open: %q", open)
			}
		})
	}
}
