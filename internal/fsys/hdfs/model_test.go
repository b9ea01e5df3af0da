package hdfs_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
	"github.com/tidemill/tidemill/wal"
)

// step is one of what happens to a log: something is appended, breaks, or is
// mended.
type step struct {
	what string
	n    int // a datanode, or a size
}

var faulty = []string{"create", "addBlock", "complete", "updateBlockForPipeline", "delete", "getFileInfo", "isFileClosed", "renewLease", "recoverLease"}

func drawStep(t *rapid.T) step {
	what := rapid.SampledFrom([]string{
		"append", "append", "append", "append", "append", "append", "append", "append", "append", "append", "append",
		"append", "append", "append", "append", "append", "wait", "wait", "wait", "wait", "wait", "heal", "heal",
		"killDatanode", "restartDatanode", "restartDatanode", "pauseDatanode", "resumeDatanode", "fillDatanode", "emptyDatanode",
		"refuse", "accept", "killNamenode", "restartNamenode", "restartNamenode", "cut", "mend", "mend", "safe", "unsafe",
		"dropBefore", "dropAfter", "short", "long", "roll",
	}).Draw(t, "what")
	most := map[string]int{"append": 3000, "wait": 8000, "dropBefore": len(faulty) - 1, "dropAfter": len(faulty) - 1}[what]
	if most == 0 {
		most = 2
	}
	return step{what, rapid.IntRange(0, most).Draw(t, "n")}
}

func (k *kit) apply(s step, u *user) {
	switch s.what {
	case "heal":
		u.wire.mend()
		k.heal()
	case "wait":
		sleep(time.Duration(s.n) * time.Millisecond)
	case "killDatanode":
		k.KillDatanode(s.n)
	case "restartDatanode":
		k.must(k.RestartDatanode(s.n))
	case "pauseDatanode":
		k.PauseDatanode(s.n)
	case "resumeDatanode":
		k.ResumeDatanode(s.n)
	case "fillDatanode", "emptyDatanode":
		k.FillDatanode(s.n, s.what == "fillDatanode")
	case "refuse":
		k.must(k.AckError(s.n, "ERROR"))
	case "accept":
		k.must(k.AckError(s.n, "SUCCESS"))
	case "killNamenode":
		k.KillNamenode(0)
	case "restartNamenode":
		k.must(k.RestartNamenode(0))
	case "cut":
		u.wire.cut()
	case "mend":
		u.wire.mend()
	case "safe", "unsafe":
		k.SafeMode(s.what == "safe")
	case "dropBefore":
		k.FailNext(faulty[s.n], 1, hdfstest.DropBefore())
	case "dropAfter":
		k.FailNext(faulty[s.n], 1, hdfstest.DropAfter())
	case "short":
		k.ShortPipeline(1 + s.n)
	case "long":
		k.ShortPipeline(0)
	}
}

// heal ends all faults.
func (k *kit) heal() {
	k.SafeMode(false)
	k.ShortPipeline(0)
	k.must(k.RestartNamenode(0))
	for i := range 3 {
		k.ResumeDatanode(i)
		k.must(k.RestartDatanode(i))
		k.FillDatanode(i, false)
		k.must(k.AckError(i, "SUCCESS"))
	}
}

// Whatever fails, in whatever order: a successor finds every acknowledged record,
// once, with its bytes.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	records, broken := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		level := rapid.SampledFrom([]wal.Level{wal.LevelFlush, wal.LevelSync}).Draw(rt, "level")
		closing := rapid.Bool().Draw(rt, "close mode") && rapid.Bool().Draw(rt, "indeed")
		alive := rapid.Bool().Draw(rt, "the writer lives on")
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 20, 150).Draw(rt, "steps")
		var err error
		bubble(t, hdfstest.Options{DeadAfter: 20 * time.Second}, func(k *kit) {
			u := k.open(hdfs.Config{CloseToCommit: closing, Patience: 40 * time.Second})
			j := u.journal(wal.Config{Level: level, SegmentBytes: 20000, SegmentAge: 15 * time.Second})
			var tickets []*wal.Ticket
			var recs [][]byte
			for _, s := range steps {
				switch s.what {
				case "append":
					rec := random(s.n)
					recs = append(recs, rec)
					tickets = append(tickets, j.Start(rec))
				case "roll":
					go j.Roll(context.Background())
				default:
					k.apply(s, u)
				}
				synctest.Wait()
			}
			if !alive {
				u.wire.cut()
			}
			acked := acknowledged(tickets)
			records += acked
			broken += int(u.Stats().Abandoned)
			k.heal()
			err = found(k, recs, func() int { return acknowledged(tickets) })
			if now := acknowledged(tickets); err == nil && !alive && now != acked {
				err = fmt.Errorf("%d acknowledged without a network", now-acked)
			}
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
	if records < 300 || broken < 30 {
		t.Errorf("%d records acknowledged, %d files broken: the test tries too little", records, broken)
	}
}

// acknowledged counts the records that are acknowledged, and nothing else of them.
func acknowledged(tickets []*wal.Ticket) int {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	n := 0
	for _, t := range tickets {
		if _, err := t.Wait(over); err == nil {
			n++
		}
	}
	return n
}

// found has a successor claim the log and compare what it finds.
func found(k *kit, recs [][]byte, acked func() int) error {
	ctx := context.Background()
	b := k.open(hdfs.Config{})
	claimed, err := wal.Claim(ctx, b, "/log", wal.ClaimOptions{})
	if err != nil {
		return err
	}
	must := acked() // nobody can be acknowledged after the claim
	n := 0
	for _, e := range claimed.Sealed {
		_, err := wal.Scan(ctx, b, e.Dir, wal.ScanOptions{}, func(seq uint64, _ base.Handle, rec []byte) error {
			if n++; seq != uint64(n) || n > len(recs) || !bytes.Equal(rec, recs[n-1]) {
				return fmt.Errorf("record %d has sequence %d and %d bytes that are not those appended", n, seq, len(rec))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	sleep(time.Minute)
	if late := acked(); late != must {
		return fmt.Errorf("%d records were acknowledged after the claim", late-must)
	}
	if n < must {
		return fmt.Errorf("%d records found, %d were acknowledged", n, must)
	}
	return nil
}
