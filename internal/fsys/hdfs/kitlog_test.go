package hdfs_test

import (
	"bytes"
	"context"
	"path"
	"strings"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/wal"
)

// journal is a log that a user writes.
type journal struct {
	*wal.Writer
	k     *kit
	u     *user
	dir   string
	acked [][]byte

	mu     sync.Mutex
	alarms []error
}

// journal claims /log and opens a log there.
func (u *user) journal(cfg wal.Config) *journal {
	u.k.Helper()
	j := &journal{k: u.k, u: u}
	claimed, err := wal.Claim(context.Background(), u, "/log", wal.ClaimOptions{})
	u.k.must(err)
	cfg.FS, cfg.Alarm = u, j.alarm
	j.dir = claimed.Dir
	j.Writer, err = wal.Create(cfg, claimed.Dir, "x", claimed.Epoch, 1)
	u.k.must(err)
	u.k.Cleanup(func() {
		// Nothing that the writer does may wait for a cluster that is not there.
		u.wire.thaw()
		u.FS.Close()
		j.Kill()
	})
	return j
}

func (j *journal) alarm(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.alarms = append(j.alarms, err)
}

// append appends records, each of which must be acknowledged.
func (j *journal) append(recs ...[]byte) {
	j.k.Helper()
	for _, rec := range recs {
		j.k.must(j.try(rec))
	}
}

// try appends one record, and notes it if it is acknowledged.
func (j *journal) try(rec []byte) error {
	_, err := j.Append(context.Background(), rec)
	if err == nil {
		j.acked = append(j.acked, rec)
	}
	return err
}

// segment is the path of the newest segment.
func (j *journal) segment() string {
	j.k.Helper()
	infos, err := j.u.List(j.dir)
	j.k.must(err)
	newest := ""
	for _, in := range infos {
		if strings.HasSuffix(in.Name, ".wal") {
			newest = in.Name
		}
	}
	return path.Join(j.dir, newest)
}

// pipeline is that of the newest segment.
func (j *journal) pipeline() []int {
	j.k.Helper()
	nodes, err := j.k.Pipeline(j.segment())
	j.k.must(err)
	return nodes
}

// want has a successor claim the log, and checks that it finds every
// acknowledged record once, with its bytes, and at most the given number of
// others after them.
func (j *journal) want(successor *user, more int) {
	j.k.Helper()
	ctx := context.Background()
	claimed, err := wal.Claim(ctx, successor, "/log", wal.ClaimOptions{})
	j.k.must(err)
	found := 0
	last := claimed.Sealed[len(claimed.Sealed)-1]
	_, err = wal.Scan(ctx, successor, last.Dir, wal.ScanOptions{}, func(seq uint64, _ base.Handle, rec []byte) error {
		if found++; uint64(found) != seq {
			j.k.Fatalf("record %d has sequence %d", found, seq)
		}
		if found <= len(j.acked) && !bytes.Equal(rec, j.acked[found-1]) {
			j.k.Fatalf("record %d has %d bytes that are not those appended", found, len(rec))
		}
		return nil
	})
	j.k.must(err)
	if found < len(j.acked) || found > len(j.acked)+more {
		j.k.Fatalf("%d records found, %d were acknowledged, at most %d may be there besides", found, len(j.acked), more)
	}
}

// numbered are n records.
func numbered(n int) [][]byte {
	var recs [][]byte
	for i := range n {
		recs = append(recs, random(20+i))
	}
	return recs
}
