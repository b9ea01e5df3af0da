package hdfs_test

import (
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
	"github.com/tidemill/tidemill/wal"
)

// Row "block boundary": files of several blocks, in odd pieces.
func TestManyBlocks(t *testing.T) {
	for _, piece := range []int{1<<20 - 1, 1 << 20, 1<<20 + 1, 333333, 65536 * 3, 2<<20 + 511} {
		bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
			u, other := k.open(hdfs.Config{}), k.open(hdfs.Config{})
			data := random(3<<20 + 1<<19)
			f := u.create("/f")
			for at, i := 0, 0; at < len(data); i++ {
				next := min(at+piece, len(data))
				_, err := f.Write(data[at:next])
				k.must(err)
				at = next
				switch i % 3 {
				case 0:
					k.must(f.Flush())
					u.want("/f", data[:at])
				case 1:
					k.must(f.Sync())
				}
			}
			k.must(f.Close())
			u.want("/f", data)
			other.want("/f", data)
			hosts, err := u.Hosts("/f", 1<<20+5, 10)
			if err != nil || len(hosts) != 3 {
				t.Errorf("hosts of the second block: %q, %v", hosts, err)
			}
		})
	}
}

// Row "block boundary": the namenode does not know yet that the block before is
// whole.
func TestNotReplicatedYet(t *testing.T) {
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		u := k.open(hdfs.Config{})
		data := random(3<<20 + 5)
		f := u.create("/f")
		k.commit(f, data[:1<<20])
		k.FailNext("addBlock", 5, hdfstest.Exception("org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException", "Not replicated yet: /f"))
		k.commit(f, data[1<<20:])
		k.must(f.Close())
		u.want("/f", data)
		if s := u.Stats(); s.Creates != 1 || s.Abandoned != 0 {
			t.Errorf("%+v: one file would do", s)
		}
	})
}

// Row "block boundary": a datanode dies where the block is switched.
func TestDatanodeKilledBetweenBlocks(t *testing.T) {
	for at := range 3 {
		for _, first := range []int{1<<20 - 1, 1 << 20} {
			bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
				u := k.open(hdfs.Config{})
				data := random(2 << 20)
				f := u.create("/f")
				k.commit(f, data[:first])
				nodes, err := k.Pipeline("/f")
				k.must(err)
				k.KillDatanode(nodes[at])
				_, werr := f.Write(data[first:])
				ferr := f.Flush()
				if ferr == nil {
					t.Fatalf("position %d: acknowledged; write said %v", at, werr)
				}
				k.must(f.Close())
				u.wantPrefix("/f", data, first)
			})
		}
	}
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		u := k.open(hdfs.Config{})
		j := u.journal(wal.Config{SegmentBytes: 4 << 20})
		for i := range 20 {
			j.append(random(200000 + i))
			if i%6 == 5 {
				k.KillDatanode(i % 3)
				k.within(0, 5*time.Second, func() { j.append(random(900000 + i)) })
				k.must(k.RestartDatanode(i % 3))
			}
		}
		u.wire.cut()
		j.want(k.open(hdfs.Config{}), 0)
	})
}

// The writer of many blocks dies.
func TestWriterOfManyBlocksKilled(t *testing.T) {
	for _, size := range []int{1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20, 3<<20 + 700} {
		bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
			a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
			f := a.create("/f")
			k.commit(f, random(size))
			a.want("/f", random(size)) // which tells the namenode a length
			_, err := f.Write(random(150000))
			k.must(err)
			a.wire.cut()
			b.recover("/f")
			b.wantPrefix("/f", append(random(size), random(150000)...), size)
		})
	}
}
