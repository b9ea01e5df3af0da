package hdfs_test

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"

	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
	"github.com/tidemill/tidemill/wal"
)

// Row "writer killed", as its log sees it.
func TestWriterKilledKeepsTheRecords(t *testing.T) {
	for _, level := range []wal.Level{wal.LevelFlush, wal.LevelSync} {
		for n := range len(sizes) + 1 {
			t.Run(fmt.Sprint(level, n), func(t *testing.T) {
				bubble(t, hdfstest.Options{}, func(k *kit) {
					a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
					j := a.journal(wal.Config{Level: level, SegmentBytes: 300000})
					for _, size := range sizes[:n] {
						j.append(random(size))
					}
					for _, r := range numbered(3) {
						j.Start(r)
					}
					a.wire.cut()
					j.want(b, 3)
				})
			})
		}
	}
}

// Row "writer frozen": what wakes up finds its file ended and its directory gone.
func TestFrozenWriterIsFenced(t *testing.T) {
	for _, quiet := range []bool{true, false} {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
			j := a.journal(wal.Config{})
			j.append(numbered(20)...)
			side := a.create(j.dir + "/side") // another file of the same writer
			k.commit(side, random(1000))
			wait := func() error { return j.try(random(99)) }
			a.wire.freeze()
			if !quiet {
				wait = later(wait)
				synctest.Wait()
			}
			j.acked = j.acked[:20:20]
			j.want(b, 0)
			a.wire.thaw()
			k.wantError(wait(), wal.ErrFenced)
			if len(j.acked) != 20 {
				t.Error("a fenced writer acknowledged a record")
			}
			if err := flushed(side, random(10)); err == nil {
				t.Error("flush of a file that was recovered: nil")
			}
			_, err := a.Create(j.dir + "/0000000000000002.wal")
			k.wantError(err, fs.ErrNotExist)
			if err := side.Close(); err != nil {
				t.Errorf("close after a failed flush: %v", err)
			}
			b.want(j.dir+".sealed/side", random(1000))
		})
	}
}

// Row "writer frozen": between the rename of its directory and the recovery of
// its lease a writer goes on. What it acknowledged then is in the file.
func TestAcknowledgedBetweenRenameAndRecovery(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		j := a.journal(wal.Config{})
		j.append(numbered(10)...)
		k.must(b.Rename(j.dir, j.dir+".sealed"))
		j.append(numbered(15)...)
		_, err := a.Create(j.dir + "/other")
		k.wantError(err, fs.ErrNotExist)
		b.recover(j.dir + ".sealed/0000000000000001.wal")
		k.wantError(j.try(random(10)), wal.ErrFenced)
		j.want(b, 0)
	})
}
