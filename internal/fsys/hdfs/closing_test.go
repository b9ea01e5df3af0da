package hdfs_test

import (
	"io/fs"
	"testing"
	"time"

	lib "github.com/colinmarc/hdfs/v2"

	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
	"github.com/tidemill/tidemill/wal"
)

// closing is what all tests of the row "close mode" have in common.
var closing = hdfs.Config{CloseToCommit: true}

// Row "close mode": what is flushed is in a closed file, which others read.
func TestCloseModeCommitsByClosing(t *testing.T) {
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		a, b := k.open(closing), k.open(hdfs.Config{})
		f := a.create("/f")
		var written []byte
		for i, size := range append(sizes, 1<<20, 2<<20) {
			part := random(size)
			written = append(written, part...)
			if i%2 == 0 {
				k.commit(f, part)
			} else {
				_, err := f.Write(part)
				k.must(err)
				k.must(f.Sync())
			}
			if open := k.OpenFiles(); len(open) != 0 {
				t.Fatalf("open after a commit: %v", open)
			}
			b.want("/f", written)
			a.want("/f", written)
		}
		k.must(f.Flush())
		k.must(f.Close())
		b.want("/f", written)
	})
}

// Row "close mode": datanodes and writers die.
func TestCloseModeSurvivesFailures(t *testing.T) {
	for at := range 3 {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u := k.open(closing)
			j := u.journal(wal.Config{})
			j.append(numbered(5)...)
			nodes := j.pipeline()
			k.KillDatanode(nodes[at])
			k.within(0, 30*time.Second, func() { j.append(numbered(5)...) })
			k.must(k.RestartDatanode(nodes[at]))
			j.append(numbered(5)...)
			u.wire.cut()
			j.want(k.open(hdfs.Config{}), 0)
		})
	}
	for n := range len(sizes) {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			a, b := k.open(closing), k.open(closing)
			f := a.create("/f")
			var written []byte
			for _, size := range sizes[:n] {
				written = append(written, random(size)...)
				k.commit(f, random(size))
			}
			_, err := f.Write(random(77777))
			k.must(err)
			a.wire.cut()
			b.recover("/f")
			b.wantPrefix("/f", append(written, random(77777)...), len(written))
		})
	}
}

// Row "close mode": the lease of a writer that died is waited for.
func TestCloseModeWaitsForALease(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(closing)
		f := u.create("/f")
		k.commit(f, random(1000))
		dead := newWire(k.Dial)
		c, err := lib.NewClient(lib.ClientOptions{Addresses: k.Namenodes(), User: "tester", NamenodeDialFunc: dead.dial, DatanodeDialFunc: dead.dial})
		k.must(err)
		_, err = c.Append("/f")
		k.must(err)
		dead.cut()
		k.must(c.Close())
		k.within(time.Minute, time.Minute+5*time.Second, func() { k.commit(f, random(500)) })
		u.want("/f", append(random(1000), random(500)...))
	})
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(closing)
		f := u.create("/f")
		k.commit(f, random(1000))
		k.must(k.open(hdfs.Config{}).Remove("/f"))
		k.within(0, time.Second, func() { k.wantError(flushed(f, random(10)), fs.ErrNotExist, "/f") })
	})
}
