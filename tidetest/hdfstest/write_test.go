package hdfstest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

func TestFilesOfManyBlocksAreReadBack(t *testing.T) {
	inBubble(t, hdfstest.Options{BlockSize: 100 << 10}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		for _, size := range []int{0, 1, 511, 512, 513, 64 << 10, 100 << 10, 100<<10 + 1, 950_001} {
			want := random(size)
			write(t, client, "/f", want)
			wantContent(t, client, "/f", want)
			if n, err := c.Replicas("/f"); err != nil || size > 0 && n != 3 {
				t.Errorf("%d bytes: %d replicas, error %v", size, n, err)
			}
			must(t, client.Remove("/f"))
		}
		if used := c.Used(); used != 0 {
			t.Errorf("%d bytes are left after all was removed", used)
		}
	})
}

func TestReadsBeginAnywhere(t *testing.T) {
	inBubble(t, hdfstest.Options{BlockSize: 4 << 10}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		want := random(10_000)
		write(t, client, "/f", want)
		r, err := client.Open("/f")
		must(t, err)
		defer func() { _ = r.Close() }()
		for _, at := range []int64{0, 1, 511, 512, 4095, 4096, 9_999, 700} {
			_, err := r.Seek(at, io.SeekStart)
			must(t, err)
			got, err := io.ReadAll(io.LimitReader(r, 5000))
			must(t, err)
			if !bytes.Equal(got, want[at:min(at+5000, 10_000)]) {
				t.Errorf("from %d: %d bytes are not those written", at, len(got))
			}
		}
		sum, err := r.Checksum()
		must(t, err)
		if len(sum) != 16 {
			t.Errorf("Checksum has %d bytes, want an MD5", len(sum))
		}
	})
}

func TestFlushDoesNotAwaitAcknowledgements(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		w, err := client.Create("/f")
		must(t, err)
		c.HoldAcks(0, true)
		begin := time.Now()
		_, err = w.Write([]byte("one"))
		must(t, err)
		must(t, w.Flush())
		if d := time.Since(begin); d != 0 {
			t.Errorf("Flush took %v while a datanode held its acknowledgements", d)
		}
		closed := make(chan error, 1)
		go func() { closed <- w.Close() }()
		sleep(10 * time.Second)
		select {
		case err := <-closed:
			t.Fatalf("Close returned %v before the packets were acknowledged", err)
		default:
		}
		c.HoldAcks(0, false)
		must(t, <-closed)
		wantContent(t, client, "/f", []byte("one"))
	})
}

func TestAckDelayDoesNotAddUp(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		c.AckDelay(1, time.Second)
		w, err := client.Create("/f")
		must(t, err)
		for range 4 {
			_, err = w.Write([]byte("x"))
			must(t, err)
			must(t, w.Flush())
		}
		begin := time.Now()
		must(t, w.Close())
		if d := time.Since(begin); d != time.Second {
			t.Errorf("Close took %v, want the 1s of one acknowledgement", d)
		}
	})
}

func TestErrorAcksAreSeenByCloseOnly(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		w, err := client.Create("/f")
		must(t, err)
		must(t, c.AckError(2, "ERROR_INVALID"))
		for range 200 {
			_, err = w.Write([]byte("record"))
			must(t, err)
			must(t, w.Flush())
		}
		if err := w.Close(); err == nil || !strings.Contains(err.Error(), "ERROR_INVALID") {
			t.Errorf("Close: %v, want the status of the datanode", err)
		}
		if err := c.AckError(0, "NO_SUCH"); err == nil {
			t.Error("AckError took a status that Hadoop does not have")
		}
	})
}

// After the death of a datanode that is not the first, Write and Flush succeed
// for ever and the survivors store what comes.
func TestDeadMirrorIsSeenByCloseOnly(t *testing.T) {
	for position := range 3 {
		inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
			client := newClient(t, c)
			w, err := client.Create("/f")
			must(t, err)
			_, err = w.Write([]byte("acked"))
			must(t, err)
			must(t, w.Flush())
			sleep(0)
			pipeline, err := c.Pipeline("/f")
			must(t, err)
			c.KillDatanode(pipeline[position])
			for range 499 {
				_, err = w.Write([]byte("-more"))
				must(t, err) // the first one's connection is silent in a bubble
				must(t, w.Flush())
			}
			err = w.Close()
			sleep(0)
			switch {
			case err == nil:
				t.Fatalf("position %d: Close returned nil", position)
			case position > 0 && !strings.Contains(err.Error(), "Ack error from datanode: ERROR"):
				t.Errorf("position %d: Close: %v, want the error of the acknowledgement", position, err)
			case position == 0 && !errors.Is(err, syscall.ECONNRESET):
				t.Errorf("position 0: Close: %v, want a reset", err)
			}
			got, err := c.Content("/f")
			must(t, err)
			if want := 5 + 499*5; position > 0 && len(got) != want {
				t.Errorf("position %d: the datanodes have %d bytes, want %d", position, len(got), want)
			}
			if !recovered(t, c, "/f", 2*time.Second) {
				t.Fatalf("position %d: not closed 2s after recoverLease", position)
			}
			got, err = client.ReadFile("/f")
			must(t, err)
			if !bytes.HasPrefix(got, []byte("acked")) {
				t.Errorf("position %d: acknowledged bytes are lost: %q", position, got)
			}
		})
	}
}

func TestKilledDatanodeIsNamedInTheAck(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		for position, want := range []hdfstest.Ack{{}, {Seqno: -2, Statuses: []int64{0, 1}}, {Seqno: -2, Statuses: []int64{0, 0, 1}}} {
			if position == 0 {
				continue
			}
			b, pipeline := rawBlock(t, c, "/f"+string(rune('0'+position)))
			must(t, b.Send(hdfstest.Packet{Seqno: 1, Data: []byte("one")}))
			ack, err := b.Ack()
			must(t, err)
			if diff := cmp.Diff(hdfstest.Ack{Seqno: 1, Statuses: []int64{0, 0, 0}}, ack); diff != "" {
				t.Errorf("acknowledgement (-want +got)\n%s", diff)
			}
			c.KillDatanode(pipeline[position])
			ack, err = b.Ack()
			must(t, err)
			if diff := cmp.Diff(want, ack); diff != "" {
				t.Errorf("position %d: acknowledgement (-want +got)\n%s", position, diff)
			}
			must(t, c.RestartDatanode(pipeline[position]))
		}
	})
}

func TestDeadTargetIsTheBadLink(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		for dead := range 3 {
			c.KillDatanode(dead)
			w, err := client.Create("/f")
			must(t, err)
			_, err = w.Write([]byte("x"))
			pipeline, perr := c.Pipeline("/f")
			must(t, perr)
			if len(pipeline) != 3 {
				t.Fatalf("pipeline %v: a datanode was avoided at once", pipeline)
			}
			if pipeline[0] == dead {
				if !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("first datanode dead: %v, want a refused connection", err)
				}
			} else if err == nil || err.Error() != "write failed: ERROR ()" {
				t.Errorf("target dead: %v, want write failed: ERROR ()", err)
			}
			must(t, client.Remove("/f"))
			must(t, c.RestartDatanode(dead))
		}
	})
}

// rawBlock creates a file and begins its first block.
func rawBlock(t *testing.T, c *hdfstest.Cluster, name string) (*hdfstest.RawBlock, []int) {
	t.Helper()
	_, b := rawBlockConn(t, c, name)
	return b, must1(c.Pipeline(name))
}

func rawBlockConn(t *testing.T, c *hdfstest.Cluster, name string) (net.Conn, *hdfstest.RawBlock) {
	t.Helper()
	conn, located := rawFile(t, c, name)
	return conn, beginBlock(t, conn, located)
}

func rawBlockLocated(t *testing.T, c *hdfstest.Cluster, name string) (*hdfstest.RawBlock, hdfstest.Answer) {
	t.Helper()
	conn, located := rawFile(t, c, name)
	return beginBlock(t, conn, located), located
}

// rawFile creates a file with a block and connects to its first datanode.
func rawFile(t *testing.T, c *hdfstest.Cluster, name string) (net.Conn, hdfstest.Answer) {
	t.Helper()
	raw := rawClient(t, c)
	if got := create(name, "raw", hdfstest.Fields{"replication": 3}).do(t, raw, ""); got != "ok fs" {
		t.Fatalf("create %s: %s", name, got)
	}
	answer, err := raw.Call("addBlock", hdfstest.Fields{"src": name, "clientName": "raw"})
	must(t, err)
	conn, err := c.Dial(t.Context(), "tcp", c.Datanode(must1(c.Pipeline(name))[0]))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn, answer.Sub("block")
}

func beginBlock(t *testing.T, conn net.Conn, located hdfstest.Answer) *hdfstest.RawBlock {
	t.Helper()
	b, bad, err := hdfstest.WriteBlock(conn, located)
	must(t, err)
	if bad != "" {
		t.Fatalf("bad link %s", bad)
	}
	return b
}

func TestFullDatanodeTakesNoBlock(t *testing.T) {
	for position := range 3 {
		inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
			conn, located := rawFile(t, c, "/f")
			full := must1(c.Pipeline("/f"))[position]
			c.FillDatanode(full, true)
			_, bad, err := hdfstest.WriteBlock(conn, located)
			if position == 0 {
				if !errors.Is(err, io.EOF) {
					t.Errorf("the first is full: %v, want the end of the connection", err)
				}
			} else if want := c.Datanode(full); bad != want {
				t.Errorf("position %d is full: bad link %q, want %q", position, bad, want)
			}
		})
	}
}

func TestPacketsAreCheckedAndCounted(t *testing.T) {
	inBubble(t, hdfstest.Options{Datanodes: 2}, func(t *testing.T, c *hdfstest.Cluster) {
		b, pipeline := rawBlock(t, c, "/f")
		must(t, b.Send(
			hdfstest.Packet{Seqno: 7, Data: []byte("abc")},
			hdfstest.Packet{Seqno: 9, Offset: 3, Sync: true}, // as Java's hsync without data
			hdfstest.Packet{Seqno: -1},
			hdfstest.Packet{Seqno: 3, Data: []byte("abcdef"), Sync: true}, // with the last chunk again
		))
		for _, want := range []int64{7, 9, -1, 3} {
			ack, err := b.Ack()
			must(t, err)
			if diff := cmp.Diff(hdfstest.Ack{Seqno: want, Statuses: []int64{0, 0}}, ack); diff != "" {
				t.Errorf("acknowledgement (-want +got)\n%s", diff)
			}
		}
		for _, i := range pipeline {
			if n := c.Syncs(i); n != 2 {
				t.Errorf("datanode %d counts %d syncs, want 2", i, n)
			}
		}
		got, err := c.Content("/f")
		must(t, err)
		if string(got) != "abcdef" {
			t.Errorf("content %q, want abcdef", got)
		}
	})
}

// The last datanode finds the damage, the one before it takes the blame.
func TestDamagedPacketsEndThePipeline(t *testing.T) {
	for datanodes, want := range map[int]hdfstest.Ack{1: {Seqno: 2, Statuses: []int64{2}}, 2: {Statuses: []int64{}}, 3: {Seqno: -2, Statuses: []int64{0, 1}}} {
		inBubble(t, hdfstest.Options{Datanodes: datanodes}, func(t *testing.T, c *hdfstest.Cluster) {
			b, _ := rawBlock(t, c, "/f")
			must(t, b.Send(hdfstest.Packet{Seqno: 1, Data: random(700)}))
			_, err := b.Ack()
			must(t, err)
			must(t, b.Send(hdfstest.Packet{Seqno: 2, Offset: 700, Data: random(10), Corrupt: true}))
			ack, err := b.Ack()
			if diff := cmp.Diff(want, ack); diff != "" || (datanodes == 2) != errors.Is(err, io.EOF) {
				t.Errorf("%d datanodes: error %v, acknowledgement (-want +got)\n%s", datanodes, err, diff)
			}
			if !recovered(t, c, "/f", time.Second) {
				t.Fatal("not closed after a heartbeat")
			}
			wantContent(t, newClient(t, c), "/f", random(700))
		})
	}
}

func TestMisplacedPackets(t *testing.T) {
	for name, tt := range map[string]struct {
		packet hdfstest.Packet
		ok     bool
		length int
	}{
		"gap":                      {hdfstest.Packet{Seqno: 2, Offset: 701, Data: random(10)}, false, 700},
		"all there already":        {hdfstest.Packet{Seqno: 2, Offset: 0, Data: random(700)}, true, 700},
		"part of the last chunk":   {hdfstest.Packet{Seqno: 2, Offset: 512, Data: random(100)}, true, 700},
		"from the last chunk":      {hdfstest.Packet{Seqno: 2, Offset: 512, Data: random(700)}, true, 1212},
		"from a whole chunk":       {hdfstest.Packet{Seqno: 2, Offset: 0, Data: random(900)}, true, 900},
		"rest of the last chunk":   {hdfstest.Packet{Seqno: 2, Offset: 700, Data: random(324)}, true, 1024},
		"from within a chunk":      {hdfstest.Packet{Seqno: 2, Offset: 300, Data: random(900)}, false, 700},
		"out of a chunk":           {hdfstest.Packet{Seqno: 2, Offset: 700, Data: random(325)}, false, 700},
		"before the block":         {hdfstest.Packet{Seqno: 2, Offset: -512, Data: random(2000)}, false, 700},
		"a heartbeat, out of turn": {hdfstest.Packet{Seqno: -1}, true, 700},
	} {
		inBubble(t, hdfstest.Options{Datanodes: 1}, func(t *testing.T, c *hdfstest.Cluster) {
			b, _ := rawBlock(t, c, "/f")
			must(t, b.Send(hdfstest.Packet{Seqno: 1, Data: random(700)}))
			_, err := b.Ack()
			must(t, err)
			must(t, b.Send(tt.packet))
			_, err = b.Ack()
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", name, err)
			}
			if got := must1(c.Content("/f")); len(got) != tt.length {
				t.Errorf("%s: %d bytes stored, want %d", name, len(got), tt.length)
			}
		})
	}
}

// As Hadoop 3.5.0 has it: the block being written is listed, its length is what
// fsync told, and the file's length leaves it out.
func TestLocationsOfAnOpenFile(t *testing.T) {
	inBubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(t *testing.T, c *hdfstest.Cluster) {
		client, raw := newClient(t, c), rawClient(t, c)
		w := must1(client.Create("/f"))
		_, err := w.Write(random(1<<20 + 5000))
		must(t, err)
		must(t, w.Flush())
		sleep(0)
		check := func(offset, length int, want string) {
			t.Helper()
			a, err := raw.Call("getBlockLocations", hdfstest.Fields{"src": "/f", "offset": offset, "length": length})
			must(t, err)
			l := a.Sub("locations")
			got := fmt.Sprintf("length %d open %v last %d complete %v:", l.Num("fileLength"), l.Flag("underConstruction"),
				l.Sub("lastBlock").Sub("b").Num("numBytes"), l.Flag("isLastBlockComplete"))
			for _, b := range l.List("blocks") {
				got += fmt.Sprintf(" %d@%d on %d", b.Sub("b").Num("numBytes"), b.Num("offset"), len(b.List("locs")))
			}
			if got != want {
				t.Errorf("offset %d length %d:\n got %s\nwant %s", offset, length, got, want)
			}
		}
		check(0, 1<<30, "length 1048576 open true last 0 complete false: 1048576@0 on 3 0@1048576 on 3")
		check(0, 0, "length 1048576 open true last 0 complete false: 1048576@0 on 3")
		check(0, 10, "length 1048576 open true last 0 complete false: 1048576@0 on 3")
		_, err = raw.Call("fsync", hdfstest.Fields{"src": "/f", "client": client.Name(), "lastBlockLength": 100})
		must(t, err)
		check(0, 1<<30, "length 1048576 open true last 100 complete false: 1048576@0 on 3 100@1048576 on 3")
		check(1<<20+50, 10, "length 1048576 open true last 100 complete false: 100@1048576 on 3")
		must(t, w.Close())
		check(0, 1<<30, "length 1053576 open false last 5000 complete true: 1048576@0 on 3 5000@1048576 on 3")
		check(0, 10, "length 1053576 open false last 5000 complete true: 1048576@0 on 3")
		check(1<<30, 10, "length 1053576 open false last 5000 complete true:")
		w = must1(client.Append("/f"))
		check(0, 1<<30, "length 1048576 open true last 5000 complete false: 1048576@0 on 3 5000@1048576 on 3")
		must(t, w.Close())
	})
}
