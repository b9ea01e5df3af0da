package hdfs_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// Row "writer killed": what Flush acknowledged is there after a recovery, at
// whatever commit the process dies, and nothing that was not written.
func TestWriterKilledKeepsWhatWasFlushed(t *testing.T) {
	for n := range len(sizes) + 1 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, hdfstest.Options{}, func(k *kit) {
				a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
				f := a.create("/f")
				var written []byte
				for _, size := range sizes[:n] {
					part := random(size)
					written = append(written, part...)
					k.commit(f, part)
				}
				acked := len(written)
				rest := random(100000) // nobody flushes it
				written = append(written, rest...)
				_, err := f.Write(rest)
				k.must(err)
				a.wire.cut()
				b.recover("/f")
				b.wantPrefix("/f", written, acked)
				if open, err := b.Writing("/f"); open || err != nil {
					t.Errorf("writing: %v, %v", open, err)
				}
				if err := f.Flush(); err == nil {
					t.Error("flush without a network: nil")
				}
			})
		})
	}
}

// Row "datanode answers error": whichever of them, the commit fails and so does
// everything after it.
func TestErrorOfADatanodeIsNoAcknowledgement(t *testing.T) {
	for at := range 3 {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u := k.open(hdfs.Config{})
			f := u.create("/f")
			data := random(5000)
			k.commit(f, data[:3000])
			nodes, err := k.Pipeline("/f")
			k.must(err)
			k.must(k.AckError(nodes[at], "ERROR"))
			err = flushed(f, data[3000:])
			if err == nil {
				t.Fatalf("position %d: acknowledged", at)
			}
			k.must(k.AckError(nodes[at], "SUCCESS"))
			if again := f.Flush(); again == nil {
				t.Error("a flush after a failed one: nil")
			}
			if _, again := f.Write(data); again == nil {
				t.Error("a write after a failed flush: nil")
			}
			if in, err := u.Stat("/f"); err != nil || in.Size != 3000 {
				t.Errorf("stat %d, %v; 3000 bytes were flushed", in.Size, err)
			}
			k.must(f.Close()) // who wrote has been told
			u.wantPrefix("/f", data, 3000)
		})
	}
}

// Row "datanode answers error": no acknowledgement, no return.
func TestFlushWaitsForAcknowledgements(t *testing.T) {
	for at := range 3 {
		for _, sync := range []bool{false, true} {
			bubble(t, hdfstest.Options{}, func(k *kit) {
				u := k.open(hdfs.Config{})
				f := u.create("/f")
				k.commit(f, random(10))
				nodes, err := k.Pipeline("/f")
				k.must(err)
				k.HoldAcks(nodes[at], true)
				_, err = f.Write(random(10))
				k.must(err)
				done := false
				wait := later(func() error {
					defer func() { done = true }()
					if sync {
						return f.Sync()
					}
					return f.Flush()
				})
				sleep(9 * time.Second)
				if done {
					t.Fatalf("position %d: returned without an acknowledgement", at)
				}
				k.HoldAcks(nodes[at], false)
				synctest.Wait()
				k.must(wait())
			})
		}
	}
}

// Row "too few replicas".
func TestTooFewReplicasAreNoCommit(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		k.ShortPipeline(1)
		f := u.create("/f")
		k.wantError(flushed(f, random(100)), hdfs.ErrReplicas, "the namenode hands out 1, at least 2 must acknowledge", "/f", "waited 5m")
		k.wantError(f.Sync(), hdfs.ErrReplicas)
		// Nobody has anything of it, so a file waits for enough of them.
		late := u.create("/late")
		go func() {
			sleep(7 * time.Second)
			k.ShortPipeline(0)
		}()
		k.within(7*time.Second, 9*time.Second, func() { k.must(flushed(late, random(100))) })
		k.must(late.Close())
		k.ShortPipeline(1)
		one := k.open(hdfs.Config{MinReplicas: 1})
		one.put("/g", random(100))
		k.ShortPipeline(2)
		u.put("/h", random(100))
		all := k.open(hdfs.Config{MinReplicas: 3})
		k.wantError(flushed(all.create("/i"), random(100)), hdfs.ErrReplicas, "the namenode hands out 2, at least 3 must acknowledge")
		k.ShortPipeline(0)
		all.put("/j", random(100))
	})
}

// Row "too few replicas", when the cluster has no more for any file.
func TestMoreMustAcknowledgeThanThereAreReplicas(t *testing.T) {
	bubble(t, hdfstest.Options{Replication: 1}, func(k *kit) {
		u := k.open(hdfs.Config{MinReplicas: 2})
		_, err := u.Create("/f")
		k.wantError(err, hdfs.ErrReplicas, "at least 2 datanodes must acknowledge, and the cluster's replication is 1")
		_, err = u.Promise(false)
		k.wantError(err, hdfs.ErrReplicas)
		one := k.open(hdfs.Config{})
		one.put("/g", random(100))
	})
}

// Row "false end": after a failed stream the namenode is told no length, however
// much was on its way.
func TestFailedStreamIsNeverCompleted(t *testing.T) {
	const packet = 64 << 10
	for i := range 18 {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u, other := k.open(hdfs.Config{}), k.open(hdfs.Config{})
			f := u.create("/f")
			data := random(20 * packet)
			if i > 0 {
				k.commit(f, data[:i*packet])
			}
			before := k.Calls("complete")
			k.must(k.AckError(i%3, "ERROR"))
			_, err := f.Write(data[i*packet:])
			if ferr := f.Flush(); err == nil && ferr == nil {
				t.Fatalf("packet %d: acknowledged", i)
			}
			f.Close()
			if n := k.Calls("complete") - before; n != 0 {
				t.Errorf("packet %d: the namenode was told %d times that the file is whole", i, n)
			}
			k.must(k.AckError(i%3, "SUCCESS"))
			u.wantPrefix("/f", data, i*packet)
			kept, err := k.Content("/f")
			k.must(err)
			other.want("/f", kept)
		})
	}
}

// The last packet of a commit asks for a sync, and no other.
func TestSyncIsAskedOnce(t *testing.T) {
	const packet = 64 << 10
	counts := func(k *kit) int64 { return k.Syncs(0) + k.Syncs(1) + k.Syncs(2) }
	for _, size := range []int{1, 512, 513, 5000, packet - 1, packet, packet + 1, packet + 511, packet + 512, packet + 513, 2 * packet, 5*packet - 1, 5 * packet} {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u := k.open(hdfs.Config{})
			f := u.create("/f")
			for round := range 3 {
				_, err := f.Write(random(size))
				k.must(err)
				before := counts(k)
				k.must(f.Sync())
				if n := counts(k) - before; n != 3 {
					t.Errorf("%d bytes, round %d: %d syncs of 3 datanodes for one Sync", size, round, n)
				}
				before = counts(k)
				k.must(f.Sync())
				k.must(f.Flush())
				if n := counts(k) - before; n != 0 {
					t.Errorf("%d bytes: %d syncs of what was synced", size, n)
				}
				k.commit(f, random(size))
				if n := counts(k) - before; n != 0 {
					t.Errorf("%d bytes: %d syncs for a Flush", size, n)
				}
				k.must(f.Sync())
				if n := counts(k) - before; n != 3 {
					t.Errorf("%d bytes: %d syncs of 3 datanodes for a Sync after a Flush", size, n)
				}
			}
			k.must(f.Close())
		})
	}
}

// A block that is full was synced before the next one begins.
func TestSyncOverABlockBoundary(t *testing.T) {
	for _, size := range []int{1<<20 - 1, 1 << 20, 1<<20 + 1, 1<<20 + 512, 2<<20 + 100} {
		bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
			u := k.open(hdfs.Config{})
			f := u.create("/f")
			_, err := f.Write(random(size))
			k.must(err)
			k.must(f.Sync())
			blocks := (int64(size) + 1<<20 - 1) >> 20
			if n := k.Syncs(0); n < blocks {
				t.Errorf("%d bytes in %d blocks: %d syncs of a datanode", size, blocks, n)
			}
			k.must(f.Close())
			u.want("/f", random(size))
		})
	}
}
