package hdfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
	"github.com/tidemill/tidemill/wal"
)

// visible reads a file that another has open: refused, or at least what was
// flushed, never fewer bytes that look like all of it.
func (u *user) visible(name string, written []byte, flushed int) {
	u.k.Helper()
	got, err := fsys.ReadFile(u, name)
	if errors.Is(err, hdfs.ErrWriting) {
		return
	}
	u.k.must(err)
	if len(got) < flushed || !bytes.HasPrefix(written, got) {
		u.k.Errorf("%s: another reads %d bytes, %d were flushed", name, len(got), flushed)
	}
}

// B45: a flush that was neither durable nor visible.
func TestB45FlushIsDurable(t *testing.T) {
	for _, idle := range []bool{false, true} {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
			a.wire.idle = time.Minute
			f := a.create("/f")
			var written []byte
			for i := range 100 {
				rec := fmt.Appendf(nil, "%050d", i)
				written = append(written, rec...)
				k.commit(f, rec)
				if i%10 == 0 {
					b.visible("/f", written, len(written))
				}
			}
			if idle {
				sleep(70 * time.Second)
				k.commit(f, []byte("one more"))
				written = append(written, "one more"...)
			}
			a.wire.cut()
			b.recover("/f")
			b.want("/f", written)
		})
	}
}

// B46: a close that did not close, and leases.
func TestB46CloseIsRepeatedAndLeasesAreKept(t *testing.T) {
	t.Run("Complete", func(t *testing.T) {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u := k.open(hdfs.Config{Patience: 20 * time.Second})
			k.FailNext("complete", 3, hdfstest.CompleteFalse())
			u.put("/f", random(1000))
			if open := k.OpenFiles(); len(open) != 0 {
				t.Errorf("closed, and open: %q", open)
			}
			k.FailNext("complete", 1<<30, hdfstest.CompleteFalse())
			g := u.create("/g")
			k.commit(g, random(1000))
			k.within(20*time.Second, 22*time.Second, func() { k.wantError(g.Close(), hdfs.ErrUnavailable) })
			u.want("/g", random(1000))
		})
	})
	t.Run("Hours", func(t *testing.T) {
		bubble(t, hdfstest.Options{SoftLimit: time.Minute, HardLimit: 20 * time.Minute}, func(k *kit) {
			u, other := k.open(hdfs.Config{}), k.open(hdfs.Config{})
			f := u.create("/f")
			k.commit(f, random(1000))
			sleep(time.Hour)
			_, err := other.Create("/f")
			k.wantError(err, fs.ErrExist, "/f")
			k.commit(f, random(2000))
			k.must(f.Close())
			other.want("/f", append(random(1000), random(2000)...))
		})
	})
	t.Run("Crash", func(t *testing.T) {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
			j := a.journal(wal.Config{})
			j.append(numbered(100)...)
			old := j.segment()
			size := len(a.read(old)) // which tells the namenode a length
			a.wire.cut()
			b.visible(old, func() []byte { c, _ := k.Content(old); return c }(), size)
			_, err := b.Create(old)
			k.wantError(err, fs.ErrExist, old)
			j.want(b, 0) // claims the next epoch, and recovers what the one before left
			next := b.journal(wal.Config{})
			next.append(numbered(10)...)
			if next.dir == j.dir {
				t.Errorf("a successor writes in %s too", next.dir)
			}
		})
	})
}

// B47: a datanode lost during a write, failover, safe mode.
func TestB47DatanodeLostFailoverAndSafeMode(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("Datanode%d", nodes), func(t *testing.T) {
			bubble(t, hdfstest.Options{Datanodes: nodes}, func(k *kit) {
				u := k.open(hdfs.Config{})
				j := u.journal(wal.Config{})
				j.append(numbered(49)...)
				first := j.pipeline()[0]
				k.HoldAcks(first, true)
				wait := later(func() error { return j.try(random(60000)) })
				sleep(time.Second) // record 50 is on its way
				k.KillDatanode(first)
				k.HoldAcks(first, false)
				time.AfterFunc(5*time.Second, func() { k.RestartDatanode(first) })
				k.within(0, 10*time.Second, func() { k.must(wait()) })
				j.append(numbered(10)...)
				u.wire.cut()
				j.want(k.open(hdfs.Config{}), 0)
			})
		})
	}
	t.Run("Standby", func(t *testing.T) {
		bubble(t, hdfstest.Options{Namenodes: 2}, func(k *kit) {
			u := k.open(hdfs.Config{})
			j := u.journal(wal.Config{SegmentBytes: 1000})
			j.append(numbered(10)...)
			k.StandbyAll()
			time.AfterFunc(5*time.Second, func() { k.Activate(1) })
			k.within(0, 8*time.Second, func() { j.append(numbered(100)...) })
			u.wire.cut()
			j.want(k.open(hdfs.Config{}), 0)
		})
	})
	t.Run("SafeMode", func(t *testing.T) {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			k.SafeMode(true)
			time.AfterFunc(20*time.Second, func() { k.SafeMode(false) })
			u := k.open(hdfs.Config{})
			var j *journal
			k.within(20*time.Second, 22*time.Second, func() { j = u.journal(wal.Config{}) })
			j.append(numbered(10)...)
			if n := u.log.count("[WARN]", "safe mode"); n == 0 {
				t.Error("nobody is told what is waited for")
			}
			// In the middle of a checkpoint.
			f := u.create("/snapshot.tmp")
			k.commit(f, random(5000))
			k.SafeMode(true)
			time.AfterFunc(20*time.Second, func() { k.SafeMode(false) })
			k.within(20*time.Second, 22*time.Second, func() {
				k.must(f.Close())
				k.must(u.Rename("/snapshot.tmp", "/snapshot"))
			})
			u.want("/snapshot", random(5000))
			k.SafeMode(true)
			brief := k.open(hdfs.Config{Patience: 5 * time.Second})
			k.wantError(brief.Mkdir("/d"), hdfs.ErrUnavailable, "safe mode")
		})
	})
}
