package hdfstest_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// recovered calls recoverLease once and tells whether the file is closed within d.
func recovered(t *testing.T, c *hdfstest.Cluster, name string, d time.Duration) bool {
	t.Helper()
	raw := rawClient(t, c)
	if by("recoverLease", name, "successor").do(t, raw, "") == "true" {
		return true
	}
	for range d / (100 * time.Millisecond) {
		sleep(100 * time.Millisecond)
		if on("isFileClosed", name).do(t, raw, "") == "true" {
			return true
		}
	}
	return false
}

func TestRecoveryClosesWhatAWriterLeft(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client, want := newClient(t, c), random(5000)
		w, err := client.Create("/f")
		must(t, err)
		_, err = w.Write(want)
		must(t, err)
		must(t, w.Flush())
		sleep(0)
		if info, err := client.Stat("/f"); err != nil || info.Size() != 0 {
			t.Errorf("an open file has size %d, want 0", info.Size())
		}
		if diff := cmp.Diff(map[string]string{"/f": client.Name()}, c.Leases()); diff != "" {
			t.Errorf("leases (-want +got)\n%s", diff)
		}
		raw := rawClient(t, c)
		if got := by("recoverLease", "/f", "B").do(t, raw, ""); got != "false" {
			t.Fatalf("recoverLease said %s at once: it takes a heartbeat", got)
		}
		if diff := cmp.Diff(map[string]string{"/f": "HDFS_NameNode"}, c.Leases()); diff != "" {
			t.Errorf("leases during the recovery (-want +got)\n%s", diff)
		}
		if !recovered(t, c, "/f", time.Second) {
			t.Fatal("not closed after a heartbeat")
		}
		wantContent(t, client, "/f", want)
		// The old writer is fenced.
		if err := w.Close(); err == nil {
			t.Error("the old writer closed the file")
		}
		wantContent(t, client, "/f", want)
		if files := c.OpenFiles(); files != nil {
			t.Errorf("%v are open", files)
		}
	})
}

func TestFencedWriterGetsNoBlock(t *testing.T) {
	inBubble(t, hdfstest.Options{BlockSize: 1024}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		w, err := client.Create("/f")
		must(t, err)
		_, err = w.Write(random(1024))
		must(t, err)
		sleep(0)
		if !recovered(t, c, "/f", time.Second) {
			t.Fatal("not closed after a heartbeat")
		}
		if _, err := w.Write(random(1024)); err == nil {
			err = w.Close()
			if err == nil {
				t.Error("the old writer went on")
			}
		}
		raw := rawClient(t, c)
		if got := by("addBlock", "/f", client.Name()).do(t, raw, ""); got != "LeaseExpiredException" {
			t.Errorf("addBlock: %s, want LeaseExpiredException", got)
		}
		_ = w.Close()
	})
}

// Datanodes may have more than was acknowledged, each another part of it.
func TestRecoveryCutsToTheShortestReplica(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		b, pipeline := rawBlock(t, c, "/f")
		must(t, b.Send(hdfstest.Packet{Seqno: 1, Data: []byte("acked")}))
		_, err := b.Ack()
		must(t, err)
		c.FillDatanode(pipeline[2], true)
		must(t, b.Send(hdfstest.Packet{Seqno: 2, Data: []byte("acked and more")}))
		sleep(0)
		got, err := c.Content("/f")
		must(t, err)
		if string(got) != "acked and more" {
			t.Fatalf("the first datanode has %q", got)
		}
		if !recovered(t, c, "/f", time.Second) {
			t.Fatal("not closed after a heartbeat")
		}
		client := newClient(t, c)
		wantContent(t, client, "/f", []byte("acked"))
		if n, err := c.Replicas("/f"); err != nil || n != 3 {
			t.Errorf("%d replicas, error %v", n, err)
		}
	})
}

func TestRecoveryEndsThePipeline(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		b, _ := rawBlock(t, c, "/f")
		must(t, b.Send(hdfstest.Packet{Seqno: 1, Data: []byte("one")}))
		_, err := b.Ack()
		must(t, err)
		if !recovered(t, c, "/f", time.Second) {
			t.Fatal("not closed after a heartbeat")
		}
		if ack, err := b.Ack(); !errors.Is(err, io.EOF) {
			t.Errorf("the old writer reads %v, error %v, want the end of the connection", ack, err)
		}
		_ = b.Send(hdfstest.Packet{Seqno: 2, Offset: 3, Data: []byte(" two")})
		sleep(0)
		if got := must1(c.Content("/f")); string(got) != "one" {
			t.Errorf("the old writer made it %q", got)
		}
	})
}

// A datanode that died and came back may lack what the others got meanwhile.
func TestRecoveryPrefersLivingReplicas(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		b, pipeline := rawBlock(t, c, "/f")
		must(t, b.Send(hdfstest.Packet{Seqno: 1, Data: []byte("one")}))
		_, err := b.Ack()
		must(t, err)
		c.KillDatanode(pipeline[2])
		must(t, b.Send(hdfstest.Packet{Seqno: 2, Data: []byte("one and two")}))
		sleep(0)
		must(t, c.RestartDatanode(pipeline[2]))
		if !recovered(t, c, "/f", time.Second) {
			t.Fatal("not closed after a heartbeat")
		}
		wantContent(t, newClient(t, c), "/f", []byte("one and two"))
		if n := must1(c.Replicas("/f")); n != 2 {
			t.Errorf("%d replicas, want the 2 of those that lived", n)
		}
	})
}

func TestCompleteNeedsAFinishedReplicaOfThatLength(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		raw := rawClient(t, c)
		for name, length := range map[string]int{"/right": 3, "/wrong": 4} {
			b, located := rawBlockLocated(t, c, name)
			must(t, b.Send(hdfstest.Packet{Seqno: 1, Data: []byte("one")}))
			_, err := b.Ack()
			must(t, err)
			id := located.Sub("b")
			end := step{method: "complete", fields: hdfstest.Fields{"src": name, "clientName": "raw", "last": hdfstest.Fields{
				"poolId": id.Str("poolId"), "blockId": int(id.Num("blockId")), "generationStamp": int(id.Num("generationStamp")), "numBytes": length,
			}}}
			if got := end.do(t, raw, ""); got != "false" {
				t.Errorf("%s: complete before the last packet: %s", name, got)
			}
			must(t, b.Send(hdfstest.Packet{Seqno: 2, Offset: 3, Last: true}))
			_, err = b.Ack()
			must(t, err)
			for range 2 { // once more is the same
				if got, want := end.do(t, raw, ""), map[bool]string{true: "true", false: "false"}[length == 3]; got != want {
					t.Errorf("%s: complete after the last packet: %s, want %s", name, got, want)
				}
			}
		}
	})
}

func TestRecoveryLeavesOutWhoIsSilent(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		b, pipeline := rawBlock(t, c, "/f")
		must(t, b.Send(hdfstest.Packet{Seqno: 1, Data: []byte("one")}))
		_, err := b.Ack()
		must(t, err)
		c.PauseDatanode(pipeline[1])
		c.KillDatanode(pipeline[2])
		if !recovered(t, c, "/f", time.Second) {
			t.Fatal("not closed after a heartbeat")
		}
		wantContent(t, newClient(t, c), "/f", []byte("one"))
		// What they have is old, and goes when they are back.
		c.ResumeDatanode(pipeline[1])
		must(t, c.RestartDatanode(pipeline[2]))
		if n, used := must1(c.Replicas("/f")), c.Used(); n != 1 || used != 3 {
			t.Errorf("%d replicas and %d bytes, want 1 and 3", n, used)
		}
	})
}

func TestRecoveryWaitsForADatanode(t *testing.T) {
	inBubble(t, hdfstest.Options{Datanodes: 2}, func(t *testing.T, c *hdfstest.Cluster) {
		b, _ := rawBlock(t, c, "/f")
		must(t, b.Send(hdfstest.Packet{Seqno: 1, Data: []byte("one")}))
		_, err := b.Ack()
		must(t, err)
		c.KillDatanode(0)
		c.KillDatanode(1)
		if recovered(t, c, "/f", time.Minute) {
			t.Fatal("closed without a datanode that has the bytes")
		}
		must(t, c.RestartDatanode(1))
		if !recovered(t, c, "/f", time.Second) {
			t.Fatal("not closed a heartbeat after the datanode was back")
		}
		wantContent(t, newClient(t, c), "/f", []byte("one"))
	})
}

func TestBlockWithoutBytesIsRemoved(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		raw := rawClient(t, c)
		create("/f", "A").do(t, raw, "")
		by("addBlock", "/f", "A").do(t, raw, "")
		rawBlock(t, c, "/g") // set up, nothing sent
		for _, name := range []string{"/f", "/g"} {
			if !recovered(t, c, name, time.Second) {
				t.Fatalf("%s is not closed after a heartbeat", name)
			}
			wantContent(t, newClient(t, c), name, nil)
		}
	})
}

// Close again after a Close whose stream had failed commits bytes that no
// datanode has; a recovery mends it.
func TestSecondCloseCommitsTooMuch(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		w, err := client.Create("/f")
		must(t, err)
		_, err = w.Write([]byte("acked"))
		must(t, err)
		must(t, w.Flush())
		sleep(0)
		for i := range 3 {
			c.FillDatanode(i, true)
		}
		_, err = w.Write([]byte("-lost"))
		must(t, err)
		if err := w.Close(); err == nil {
			t.Fatal("Close returned nil on full disks")
		}
		for range 3 {
			if err := w.Close(); err == nil {
				t.Fatal("a second Close returned nil")
			}
		}
		info, err := client.Stat("/f")
		must(t, err)
		if info.Size() != 10 {
			t.Errorf("size %d, want the 10 bytes that were committed", info.Size())
		}
		if !recovered(t, c, "/f", time.Second) {
			t.Fatal("not closed after a heartbeat")
		}
		wantContent(t, client, "/f", []byte("acked"))
	})
}

func TestLeaseLimits(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		b, _ := rawBlock(t, c, "/f") // by a client that renews nothing
		must(t, b.Send(hdfstest.Packet{Seqno: 1, Data: []byte("one")}))
		_, err := b.Ack()
		must(t, err)
		raw := rawClient(t, c)
		sleep(59 * time.Second)
		if got := by("append", "/f", "B").do(t, raw, ""); got != "AlreadyBeingCreatedException" {
			t.Errorf("before the soft limit: %s", got)
		}
		sleep(2 * time.Second)
		for range 2 {
			if got := by("append", "/f", "B").do(t, raw, ""); got != "RecoveryInProgressException" {
				t.Errorf("after the soft limit: %s", got)
			}
		}
		sleep(time.Second)
		if got := by("append", "/f", "B").do(t, raw, ""); got != "ok block stat" {
			t.Errorf("after the recovery: %s", got)
		}
		for range 19 {
			sleep(time.Minute)
			by("renewLease", "/f", "B").doWithout(t, raw, "src")
		}
		sleep(19 * time.Minute)
		if got := on("isFileClosed", "/f").do(t, raw, ""); got != "false" {
			t.Errorf("before the hard limit: closed %s", got)
		}
		sleep(time.Minute)
		on("isFileClosed", "/f").do(t, raw, "") // the namenode looks when it is called
		sleep(time.Second)
		if got := on("isFileClosed", "/f").do(t, raw, ""); got != "true" {
			t.Errorf("after the hard limit: closed %s", got)
		}
	})
}

func TestStartedNamenodeCountsLeasesAnew(t *testing.T) {
	for name, takeOver := range map[string]func(*testing.T, *hdfstest.Cluster){
		"restart":  func(t *testing.T, c *hdfstest.Cluster) { must(t, c.RestartNamenode(0)) },
		"failover": func(_ *testing.T, c *hdfstest.Cluster) { c.Activate(1); c.Activate(0) },
	} {
		inBubble(t, hdfstest.Options{Namenodes: 2}, func(t *testing.T, c *hdfstest.Cluster) {
			create("/f", "A").do(t, rawClient(t, c), "")
			sleep(59 * time.Second)
			takeOver(t, c)
			sleep(59 * time.Second)
			if got := by("append", "/f", "B").do(t, rawClient(t, c), ""); got != "AlreadyBeingCreatedException" {
				t.Errorf("%s: %s", name, got)
			}
		})
	}
}

func TestRenameDoesNotStopAWriter(t *testing.T) {
	inBubble(t, hdfstest.Options{BlockSize: 1024}, func(t *testing.T, c *hdfstest.Cluster) {
		client, want := newClient(t, c), random(3000)
		must(t, client.Mkdir("/e6", 0o755))
		w, err := client.Create("/e6/f")
		must(t, err)
		_, err = w.Write(want[:1500])
		must(t, err)
		must(t, client.Rename("/e6", "/e6.sealed"))
		if _, err := client.Create("/e6/g"); err == nil {
			t.Error("created a file in a directory that is gone")
		}
		_, err = w.Write(want[1500:])
		must(t, err)
		must(t, w.Close())
		wantContent(t, client, "/e6.sealed/f", want)
		if diff := cmp.Diff([]string{"/e6.sealed/", "/e6.sealed/f"}, c.Tree()); diff != "" {
			t.Errorf("tree (-want +got)\n%s", diff)
		}
	})
}

func TestAppendGoesOnWhereItWas(t *testing.T) {
	inBubble(t, hdfstest.Options{BlockSize: 1024}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		var want []byte
		write(t, client, "/f", nil)
		for _, size := range []int{1, 510, 1, 512, 700, 300, 24, 2048} {
			w, err := client.Append("/f")
			must(t, err)
			if info, err := client.Stat("/f"); err != nil || info.Size() != int64(len(want)) {
				t.Errorf("open for append: size %d, want the %d from before", info.Size(), len(want))
			}
			more := random(size)
			_, err = w.Write(more)
			must(t, err)
			must(t, w.Close())
			want = append(want, more...)
			wantContent(t, client, "/f", want)
		}
	})
}

// After fsync with a length readers see that many bytes, and the library those
// up to the next chunk too.
func TestFsyncTellsTheLength(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client, data := newClient(t, c), random(1000)
		w, err := client.Create("/f")
		must(t, err)
		_, err = w.Write(data)
		must(t, err)
		must(t, w.Flush())
		sleep(0)
		_, err = rawClient(t, c).Call("fsync", hdfstest.Fields{"src": "/f", "client": client.Name(), "lastBlockLength": 100})
		must(t, err)
		info, err := client.Stat("/f")
		must(t, err)
		got, err := client.ReadFile("/f")
		must(t, err)
		if info.Size() != 100 || !bytes.Equal(got, data[:512]) {
			t.Errorf("size %d, want 100; read %d bytes, want 512", info.Size(), len(got))
		}
		must(t, w.Close())
		wantContent(t, client, "/f", data)
	})
}
