package hdfstest_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// Whatever happens to datanodes while a block is written: a recovery keeps what
// was acknowledged, and invents nothing.
func TestRecoveryKeepsWhatWasAcknowledged(t *testing.T) {
	closed, more := 0, 0
	for seed := range uint64(150) {
		inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
			r := rand.New(rand.NewPCG(seed, 1))
			conn, b := rawBlockConn(t, c, "/f")
			var sent []byte
			var seqno int64
			acked, broken := 0, false
			for range 3 + r.IntN(20) {
				switch i := r.IntN(3); r.IntN(8) {
				case 0:
					c.KillDatanode(i)
				case 1:
					must(t, c.RestartDatanode(i))
				case 2:
					c.PauseDatanode(i)
				case 3:
					c.ResumeDatanode(i)
				case 4:
					c.FillDatanode(i, r.IntN(2) == 0)
				default:
					from := len(sent) / 512 * 512
					part := random(1 + r.IntN(2000))
					sent = append(sent, part...)
					seqno++
					_ = b.Send(hdfstest.Packet{Seqno: seqno, Offset: int64(from), Data: sent[from:]})
					if broken {
						continue
					}
					must(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
					ack, err := b.Ack()
					if broken = err != nil || ack.Seqno != seqno; !broken {
						acked = len(sent)
					}
				}
			}
			if !recovered(t, c, "/f", 2*time.Second) {
				for i := range 3 {
					must(t, c.RestartDatanode(i))
				}
				if !recovered(t, c, "/f", 2*time.Second) {
					t.Fatalf("seed %d: not closed with all datanodes there", seed)
				}
			}
			closed++
			for i := range 3 {
				must(t, c.RestartDatanode(i))
			}
			got, err := newClient(t, c).ReadFile("/f")
			must(t, err)
			if len(got) < acked || !bytes.HasPrefix(sent, got) {
				t.Errorf("seed %d: %d of %d bytes are left, %d were acknowledged", seed, len(got), len(sent), acked)
			}
			if len(got) > acked {
				more++
			}
		})
	}
	if more == 0 || more == closed {
		t.Errorf("%d of %d files had more than was acknowledged: the test tries one case only", more, closed)
	}
}

// FuzzNodes sends nonsense to a namenode and a datanode, which must go on.
func FuzzNodes(f *testing.F) {
	f.Add(false, []byte("hrpc\x09\x00\x00\x00\x00\x00\x10\x0a\x08\x02\x10\x00\x18\x05\x22\x00"))
	f.Add(true, []byte{0, 28, 0x50, 4, 1, 2, 3, 4})
	f.Add(true, []byte{0, 28, 0x51, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, datanode bool, sent []byte) {
		c := hdfstest.Start(hdfstest.Options{Datanodes: 1})
		defer c.Close()
		address := c.Namenodes()[0]
		if datanode {
			address = c.Datanode(0)
		}
		conn := must1(c.Dial(t.Context(), "tcp", address))
		_, _ = conn.Write(sent) // the node may have ended the connection
		must(t, conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		_, _ = conn.Read(make([]byte, 1000))
		must(t, conn.Close())
		write(t, newClient(t, c), "/f", []byte("one"))
	})
}
