package hdfstest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// nothing is what a datanode says of a replica of which nobody may see a byte.
const nothing = -1

// port is an address of the i-th datanode that has a block.
func port(located hdfstest.Answer, i int, name string) string {
	id := located.List("locs")[i].Sub("id")
	return net.JoinHostPort(id.Str("ipAddr"), strconv.FormatInt(id.Num(name), 10))
}

// askVisible asks the i-th datanode that has a block how much of it there is.
func askVisible(t *testing.T, c *hdfstest.Cluster, located hdfstest.Answer, i int) (int64, error) {
	t.Helper()
	conn, err := c.Dial(t.Context(), "tcp", port(located, i, "ipcPort"))
	if err != nil {
		return 0, err
	}
	return askOver(t, conn, located)
}

func askOver(t *testing.T, conn net.Conn, located hdfstest.Answer) (int64, error) {
	t.Helper()
	must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	raw, err := hdfstest.RawDatanode(conn)
	must(t, err)
	defer func() { _ = raw.Close() }()
	answer, err := raw.Call("getReplicaVisibleLength", hdfstest.Fields{"block": located.Sub("b")})
	if err != nil {
		return 0, err
	}
	return answer.Num("length"), nil
}

// wantVisible asks all datanodes of a pipeline.
func wantVisible(t *testing.T, c *hdfstest.Cluster, located hdfstest.Answer, want ...int64) {
	t.Helper()
	for i, want := range want {
		if got, err := askVisible(t, c, located, i); got != want || err != nil {
			t.Errorf("datanode %d of the pipeline: %d bytes, error %v, want %d", i, got, err, want)
		}
	}
}

func TestVisibleIsWhatAllBehindAcknowledged(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		b, located := rawBlockLocated(t, c, "/f")
		nodes := must1(c.Pipeline("/f"))
		wantVisible(t, c, located, 0, 0, 0)
		send := func(p hdfstest.Packet, held int, before ...int64) {
			t.Helper()
			if held >= 0 {
				c.HoldAcks(nodes[held], true)
			}
			must(t, b.Send(p))
			sleep(time.Second)
			wantVisible(t, c, located, before...)
			if held >= 0 {
				c.HoldAcks(nodes[held], false)
			}
			must1(b.Ack())
		}
		send(hdfstest.Packet{Data: random(512)}, 2, 0, 0, 0)
		send(hdfstest.Packet{Offset: 512, Seqno: 1, Data: random(100)}, 1, 512, 512, 612)
		// The last chunk comes again, with more.
		send(hdfstest.Packet{Offset: 512, Seqno: 2, Data: random(1000)}, 0, 612, 1512, 1512)
		send(hdfstest.Packet{Offset: 512, Seqno: 3, Data: random(10)}, -1, 1512, 1512, 1512)
		send(hdfstest.Packet{Offset: 9999, Seqno: -1}, -1, 1512, 1512, 1512)
		send(hdfstest.Packet{Offset: 1512, Seqno: 4, Last: true}, -1, 1512, 1512, 1512)
		if calls := c.Calls("getReplicaVisibleLength"); calls != 21 {
			t.Errorf("%d calls counted, want 21", calls)
		}
	})
}

// What a datanode has stored and refused is not visible there, nor in front of it.
func TestRefusedBytesAreNotVisible(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		b, located := rawBlockLocated(t, c, "/f")
		nodes := must1(c.Pipeline("/f"))
		must(t, b.Send(hdfstest.Packet{Data: random(512)}))
		must1(b.Ack())
		must(t, c.AckError(nodes[1], "ERROR"))
		must(t, b.Send(hdfstest.Packet{Offset: 512, Seqno: 1, Data: random(512)}))
		must1(b.Ack())
		wantVisible(t, c, located, 512, 512, 1024)
	})
}

// A replica whose writer is gone has what was acknowledged; one whose datanode
// was restarted does not know.
func TestVisibleAfterTheWriterIsGone(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		b, located := rawBlockLocated(t, c, "/f")
		nodes := must1(c.Pipeline("/f"))
		must(t, b.Send(hdfstest.Packet{Data: random(700)}))
		must1(b.Ack())
		c.HoldAcks(nodes[2], true)
		must(t, b.Send(hdfstest.Packet{Offset: 512, Seqno: 1, Data: random(500)}))
		sleep(time.Second)
		must(t, b.Close())
		sleep(time.Second)
		c.HoldAcks(nodes[2], false)
		wantVisible(t, c, located, 700, 700, 700)
		must(t, c.RestartDatanode(nodes[1]))
		wantVisible(t, c, located, 700, nothing, 700)
		must1(rawClient(t, c).Call("recoverLease", hdfstest.Fields{"src": "/f", "clientName": "B"}))
		sleep(2 * time.Second)
		if content := must1(c.Content("/f")); len(content) != 1012 {
			t.Fatalf("%d bytes after the recovery, want 1012", len(content))
		}
		if got, err := askVisible(t, c, located, 0); got != 1012 || err != nil {
			t.Errorf("%d bytes after the recovery, error %v, want 1012", got, err)
		}
	})
}

// What a file had when it was finished is visible while it is appended to.
func TestVisibleWhileAppended(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		write(t, client, "/f", random(1000))
		raw := rawClient(t, c)
		where := hdfstest.Fields{"src": "/f", "offset": 0, "length": 1000}
		w := must1(client.Append("/f"))
		must1(w.Write(random(3000)))
		must(t, w.Flush())
		sleep(time.Second)
		located := must1(raw.Call("getBlockLocations", where)).Sub("locations").Sub("lastBlock")
		wantVisible(t, c, located, 4000, 4000, 4000)
		for _, i := range must1(c.Pipeline("/f")) {
			c.HoldAcks(i, true)
		}
		must1(w.Write(random(10)))
		must(t, w.Flush())
		sleep(time.Second)
		wantVisible(t, c, located, 4000, 4000, 4000)
		for i := range 3 {
			c.HoldAcks(i, false)
		}
		must(t, w.Close())
		wantVisible(t, c, located, 4010, 4010, 4010)

		for i := range 3 {
			c.HoldAcks(i, true)
		}
		w = must1(client.Append("/f"))
		must1(w.Write(random(3000)))
		must(t, w.Flush())
		sleep(time.Second)
		wantVisible(t, c, located, 4010, 4010, 4010)
		for i := range 3 {
			c.HoldAcks(i, false)
		}
		must(t, w.Close())
	})
}

// TestDatanodeAnswersAsHadoop holds for Hadoop 3.5.0 too, as
// TestNamenodeAnswersAsHadoop does.
func TestDatanodeAnswersAsHadoop(t *testing.T) {
	c := hdfstest.Start(hdfstest.Options{})
	t.Cleanup(c.Close)
	address, dial := c.Namenodes()[0], c.Dial
	if real := os.Getenv("TIDEMILL_HDFS_NAMENODE"); real != "" {
		address, dial = real, (&net.Dialer{}).DialContext
	}
	connect := func(address string) net.Conn {
		t.Helper()
		conn, err := dial(t.Context(), "tcp", address)
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	nn := rawOver(t, connect(address))
	name := fmt.Sprintf("/hdfstest-%d", time.Now().UnixNano())
	if got := create(name, "raw").do(t, nn, ""); got != "ok fs" {
		t.Fatal(got)
	}
	defer remove(name, true).do(t, nn, "")
	located := must1(nn.Call("addBlock", hdfstest.Fields{"src": name, "clientName": "raw"})).Sub("block")
	block := located.Sub("b")
	id, stamp, pool := int(block.Num("blockId")), int(block.Num("generationStamp")), block.Str("poolId")
	of := func(pool string, stamp int) hdfstest.Fields {
		return hdfstest.Fields{"block": hdfstest.Fields{"poolId": pool, "blockId": id, "generationStamp": stamp}}
	}

	raw := must1(hdfstest.RawDatanode(connect(port(located, 0, "ipcPort"))))
	const method = "getReplicaVisibleLength"
	refused := func(class, text, method string, fields hdfstest.Fields) {
		t.Helper()
		_, err := raw.Call(method, fields)
		if exception(err) != class || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %v, want %s with %q", method, err, class, text)
		}
	}
	shows := func(want int64) {
		t.Helper()
		if a, err := raw.Call(method, of(pool, stamp)); err != nil || a.Num("length") != want {
			t.Errorf("%d bytes, error %v, want %d", a.Num("length"), err, want)
		}
	}
	const missing = "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException"
	refused(missing, fmt.Sprintf("Replica does not exist %s:%d", pool, id), method, of(pool, stamp))
	b := beginBlock(t, connect(port(located, 0, "xferPort")), located)
	shows(0)
	must(t, b.Send(hdfstest.Packet{Data: random(700)}))
	must1(b.Ack())
	shows(700)
	refused("org.apache.hadoop.ipc.RetriableException", "Datanode not registered. Try again later.", method, of("BP-2", stamp))
	refused("java.io.IOException", "replica.getGenerationStamp() < block.getGenerationStamp(), block="+pool, method, of(pool, stamp+1))
	must(t, b.Send(hdfstest.Packet{Offset: 700, Seqno: 1, Last: true}))
	must1(b.Ack())
	shows(700)
	refused("org.apache.hadoop.ipc.RpcNoSuchMethodException", "Unknown method isFileClosed called on org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol", "isFileClosed", hdfstest.Fields{"src": "/"})
	raw.Version = 2
	refused("org.apache.hadoop.ipc.RPC$VersionMismatch", "(client = 2, server = 1)", method, of(pool, stamp))
	raw.Version, raw.Protocol = 1, "org.apache.hadoop.hdfs.protocol.ClientProtocol"
	refused("org.apache.hadoop.ipc.RpcNoSuchProtocolException", "Unknown protocol: "+raw.Protocol, method, of(pool, stamp))
}

// What is no call of protobuf messages ends the connection.
func TestCallOfAnotherKind(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		_, located := rawFile(t, c, "/f")
		raw := must1(hdfstest.RawDatanode(must1(c.Dial(t.Context(), "tcp", port(located, 0, "ipcPort")))))
		raw.Kind = 1
		if _, err := raw.Call("getReplicaVisibleLength", hdfstest.Fields{"block": located.Sub("b")}); !errors.Is(err, io.EOF) {
			t.Errorf("%v, want the end of the connection", err)
		}
	})
}

func TestDatanodeCallFailsAsAsked(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		_, located := rawBlockLocated(t, c, "/f")
		c.FailNext("getReplicaVisibleLength", 1, hdfstest.Exception("java.io.IOException", "as asked"))
		c.FailNext("getReplicaVisibleLength", 1, hdfstest.DropAfter())
		if _, err := askVisible(t, c, located, 1); exception(err) != "java.io.IOException" || !strings.Contains(err.Error(), "as asked") {
			t.Errorf("exception: %v", err)
		}
		if _, err := askVisible(t, c, located, 2); !errors.Is(err, io.EOF) {
			t.Errorf("dropped: %v, want the end of the connection", err)
		}
		wantVisible(t, c, located, 0, 0, 0)
	})
}

// A call before the connection's context is answered by nobody.
func TestCallWithoutContext(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		_, located := rawFile(t, c, "/f")
		raw := must1(hdfstest.RawWithoutContext(must1(c.Dial(t.Context(), "tcp", port(located, 0, "ipcPort")))))
		if _, err := raw.Call("getReplicaVisibleLength", hdfstest.Fields{"block": located.Sub("b")}); !errors.Is(err, io.EOF) {
			t.Errorf("%v, want the end of the connection", err)
		}
	})
}

// Calls fail with their datanode, as blocks do.
func TestCallsOfAFailedDatanode(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		b, located := rawBlockLocated(t, c, "/f")
		nodes := must1(c.Pipeline("/f"))
		must(t, b.Send(hdfstest.Packet{Data: random(700)}))
		must1(b.Ack())

		c.PauseDatanode(nodes[0])
		begin := time.Now()
		if _, err := askVisible(t, c, located, 0); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Errorf("paused: %v after %v, want a timeout after a minute", err, time.Since(begin))
		}
		time.AfterFunc(10*time.Second, func() { c.ResumeDatanode(nodes[0]) })
		wantVisible(t, c, located, 700)

		c.PauseDatanode(nodes[0])
		time.AfterFunc(10*time.Second, func() { c.KillDatanode(nodes[0]) })
		if _, err := askVisible(t, c, located, 0); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("killed while asked: %v, want a reset", err)
		}
		if _, err := askVisible(t, c, located, 0); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("killed: %v, want a refusal", err)
		}
		must(t, c.RestartDatanode(nodes[0]))
		wantVisible(t, c, located, nothing)
	})
}

// The port is one of its own, in memory and on loopback, before and after a
// restart; and a name leads to it.
func TestPortOfCalls(t *testing.T) {
	c := hdfstest.Start(hdfstest.Options{})
	t.Cleanup(c.Close)
	must(t, c.Listen())
	b, located := rawBlockLocated(t, c, "/f")
	nodes := must1(c.Pipeline("/f"))
	must(t, b.Send(hdfstest.Packet{Data: random(700)}))
	must1(b.Ack())
	at := port(located, 0, "ipcPort")
	if host, _, err := net.SplitHostPort(at); err != nil || host != "127.0.0.1" {
		t.Fatalf("calls go to %s", at)
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	named := "dn" + strconv.Itoa(nodes[0]) + at[strings.LastIndex(at, ":"):]
	for name, conn := range map[string]net.Conn{
		"loopback":         must1(dialer.Dial("tcp", at)),
		"in memory":        must1(c.Dial(context.Background(), "tcp", at)),
		"by name":          must1(c.Dial(context.Background(), "tcp", named)),
		"by name and 9867": must1(c.Dial(context.Background(), "tcp", named[:3]+":9867")),
	} {
		if got, err := askOver(t, conn, located); got != 700 || err != nil {
			t.Errorf("%s: %d bytes, error %v, want 700", name, got, err)
		}
	}
	c.KillDatanode(nodes[0])
	if conn, err := dialer.Dial("tcp", at); err == nil {
		t.Error("a killed datanode takes calls")
		_ = conn.Close()
	}
	must(t, c.RestartDatanode(nodes[0]))
	if got, err := askOver(t, must1(dialer.Dial("tcp", at)), located); got != nothing || err != nil {
		t.Errorf("after a restart: %d bytes, error %v, want none", got, err)
	}
}

// What a restarted datanode was writing cannot be read there either, until a
// recovery.
func TestReplicaOfARestartedDatanodeIsNotRead(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		b, _ := rawBlockLocated(t, c, "/f")
		must(t, b.Send(hdfstest.Packet{Data: random(700)}))
		must1(b.Ack())
		must1(rawClient(t, c).Call("fsync", hdfstest.Fields{"src": "/f", "client": "raw", "lastBlockLength": 700}))
		wantContent(t, client, "/f", random(700))
		for i := range 3 {
			must(t, c.RestartDatanode(i))
		}
		if _, err := client.ReadFile("/f"); err == nil || !strings.Contains(err.Error(), "Replica is not readable") {
			t.Errorf("read after a restart: %v", err)
		}
		if !recovered(t, c, "/f", 2*time.Second) {
			t.Fatal("not recovered")
		}
		wantContent(t, client, "/f", random(700))
	})
}
