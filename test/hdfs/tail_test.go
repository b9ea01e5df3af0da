package hdfs

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/test/realcluster"
	"github.com/tidemill/tidemill/wal"
)

// TestAcknowledgedTailIsReadable kills a process that appends to a log, and reads
// the log at once (Invariants 1 and 14).
func TestAcknowledgedTailIsReadable(t *testing.T) {
	h := cluster(t)
	t.Run("flush", func(t *testing.T) { tails(t, h, wal.LevelFlush, 8, none) })
	t.Run("sync", func(t *testing.T) {
		before := fsyncs(t, h)
		acked := tails(t, h, wal.LevelSync, 2, none)
		for i, n := range before {
			// At most all appenders wait for one sync.
			want := n + int64(acked/appenders)
			for limit := time.Now().Add(5 * time.Second); fsyncs(t, h)[i] < want; { // it is told late
				if time.Now().After(limit) {
					t.Errorf("datanode %d has synced %d times for %d records, want %d times at least", i+1, fsyncs(t, h)[i]-n, acked, want-n)
					break
				}
				<-time.After(100 * time.Millisecond)
			}
		}
	})
	for i, fault := range []struct {
		name     string
		do, undo func(realcluster.Node) error
	}{{"killed", h.Kill, h.Restart}, {"frozen", h.Pause, h.Resume}} {
		node := realcluster.Datanode(i + 1)
		t.Run("flush with "+node.String()+" "+fault.name, func(t *testing.T) {
			defer func() {
				must(t, fault.undo(node))
				must(t, h.Wait())
			}()
			tails(t, h, wal.LevelFlush, 2, func() error { return fault.do(node) })
		})
	}
}

func fsyncs(t *testing.T, h *realcluster.HDFS) (out [3]int64) {
	for i := range out {
		var err error
		out[i], err = h.FsyncCount(realcluster.Datanode(i + 1))
		must(t, err)
	}
	return out
}

func none() error { return nil }

// tails kills n writers, the first one at the moment of a fault, and returns how
// many records were acknowledged.
func tails(t *testing.T, h *realcluster.HDFS, level wal.Level, n int, fault func() error) (acked int) {
	f := files(t, h)
	var took []time.Duration
	found := 0
	for round := range n {
		dir := h.URL(fmt.Sprintf("tail/%s/%d", t.Name(), round))
		w := startWriter(t, dir, level)
		w.await(t, 200)
		<-time.After(time.Duration(rand.IntN(500)) * time.Millisecond)
		faulty := make(chan error, 1)
		if round == 0 {
			go func() { faulty <- fault() }()
		} else {
			faulty <- nil
		}
		ids := w.kill(t)
		began := time.Now()
		claimed, err := wal.Claim(t.Context(), f, dir, wal.ClaimOptions{})
		must(t, err)
		have := map[string]bool{}
		for _, e := range claimed.Sealed {
			_, err := wal.Scan(t.Context(), f, e.Dir, wal.ScanOptions{}, func(_ uint64, _ base.Handle, rec []byte) error {
				have[string(rec)] = true
				return nil
			})
			must(t, err)
		}
		took = append(took, time.Since(began))
		must(t, claimed.Close())
		must(t, <-faulty)
		lost := 0
		for _, id := range ids {
			if !have[string(record(id))] {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("round %d: %d of %d acknowledged records are lost", round, lost, len(ids))
		}
		acked, found = acked+len(ids), found+len(have)
	}
	t.Logf("summary: %d writers at level %v killed: %d records acknowledged, %d found; from kill to read %s", n, level, acked, found, spread(took))
	return acked
}
