package hdfstest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/colinmarc/hdfs/v2"

	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

func TestCallsFailAsAsked(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		mk := mkdirs("/d", true)
		c.FailNext("mkdirs", 1, hdfstest.DropBefore())
		c.FailNext("mkdirs", 2, hdfstest.DropAfter())
		if _, err := rawClient(t, c).Call("mkdirs", mk.fields); !errors.Is(err, io.EOF) {
			t.Errorf("dropped before: %v, want the end of the connection", err)
		}
		if tree := c.Tree(); tree != nil {
			t.Errorf("dropped before, and there is %v", tree)
		}
		for range 2 {
			if _, err := rawClient(t, c).Call("mkdirs", mk.fields); !errors.Is(err, io.EOF) {
				t.Errorf("dropped after: %v, want the end of the connection", err)
			}
		}
		if tree := c.Tree(); !slices.Equal(tree, []string{"/d/"}) {
			t.Errorf("dropped after, and there is %v", tree)
		}
		raw := rawClient(t, c)
		c.FailNext("mkdirs", 1, hdfstest.Exception("java.io.IOException", "as asked"))
		if _, err := raw.Call("mkdirs", mk.fields); exception(err) != "java.io.IOException" || !strings.Contains(err.Error(), "as asked") {
			t.Errorf("exception: %v", err)
		}
		c.FailNext("mkdirs", 1, hdfstest.Delay(time.Hour))
		begin := time.Now()
		if got := mk.do(t, raw, ""); got != "true" || time.Since(begin) != time.Hour {
			t.Errorf("delay: %s after %v", got, time.Since(begin))
		}
		if n := c.Calls("mkdirs"); n != 5 {
			t.Errorf("%d calls counted, want 5", n)
		}
	})
}

func TestHungCallEndsWithItsConnection(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		c.FailNext("mkdirs", 1, hdfstest.Hang())
		conn := must1(c.Dial(t.Context(), "tcp", c.Namenodes()[0]))
		raw := rawOver(t, conn)
		must(t, conn.SetReadDeadline(time.Now().Add(time.Hour)))
		if _, err := raw.Call("mkdirs", mkdirs("/d", true).fields); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v, want a timeout", err)
		}
		if tree := c.Tree(); tree != nil {
			t.Errorf("a hung call made %v", tree)
		}
	})
}

func TestDelayedCallEndsWithItsConnection(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		c.FailNext("mkdirs", 1, hdfstest.Delay(time.Hour))
		conn := must1(c.Dial(t.Context(), "tcp", c.Namenodes()[0]))
		raw := rawOver(t, conn)
		begin := time.Now()
		must(t, conn.SetReadDeadline(begin.Add(time.Second)))
		if _, err := raw.Call("mkdirs", mkdirs("/d", true).fields); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v, want a timeout", err)
		}
		must(t, conn.Close())
		c.Close()
		if d := time.Since(begin); d != time.Second {
			t.Errorf("Close waited for a call that nobody waits for: %v", d)
		}
	})
}

// What a node had read when it was killed is not done by the next one.
func TestKilledNamenodeForgetsCalls(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		raw := rawClient(t, c)
		c.PauseNamenode(0)
		failed := make(chan error, 1)
		go func() {
			_, err := raw.Call("mkdirs", mkdirs("/d", true).fields)
			failed <- err
		}()
		sleep(time.Second)
		must(t, c.RestartNamenode(0))
		if err := <-failed; err == nil {
			t.Error("the call succeeded")
		}
		if tree := c.Tree(); tree != nil {
			t.Errorf("the call made %v", tree)
		}
	})
}

func TestCompleteSaysNotYet(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		c.FailNext("complete", 2, hdfstest.CompleteFalse())
		w, err := client.Create("/f")
		must(t, err)
		_, err = w.Write([]byte("one"))
		must(t, err)
		for range 2 {
			if err := w.Close(); !hdfs.IsErrReplicating(err) {
				t.Errorf("Close: %v, want ErrReplicating", err)
			}
		}
		must(t, w.Close())
		wantContent(t, client, "/f", []byte("one"))
	})
}

// The namenode's answer was lost, the client asks again with the same id.
func TestRetryCacheKnowsTheCall(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		raw := rawClient(t, c)
		if got := create("/f", "A").do(t, raw, ""); got != "ok fs" {
			t.Fatal(got)
		}
		raw.Again()
		if got := create("/f", "A").do(t, raw, ""); got != "ok fs" {
			t.Errorf("the same call again: %s, want the same answer", got)
		}
		if got := create("/f", "A").do(t, raw, ""); got != "AlreadyBeingCreatedException" {
			t.Errorf("another call: %s", got)
		}
		sleep(10 * time.Minute)
		raw.Again()
		if got := create("/f", "A").do(t, raw, ""); got != "AlreadyBeingCreatedException" {
			t.Errorf("a call that was refused, again: %s", got)
		}
	})
}

func TestWritersOutliveTheNamenode(t *testing.T) {
	inBubble(t, hdfstest.Options{SafeModeFor: 30 * time.Second}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		w, err := client.Create("/f")
		must(t, err)
		_, err = w.Write([]byte("before"))
		must(t, err)
		must(t, w.Flush())
		sleep(0)
		c.KillNamenode(0)
		_, err = w.Write([]byte(" and after"))
		must(t, err)
		must(t, w.Flush())
		if _, err := client.Create("/g"); err == nil {
			t.Error("created a file without a namenode")
		}
		if _, err := c.Dial(t.Context(), "tcp", c.Namenodes()[0]); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v, want a refused connection", err)
		}
		must(t, c.RestartNamenode(0))
		sleep(6 * time.Second) // the library's own backoff
		if _, err := client.Stat("/f"); err != nil {
			t.Errorf("read in safe mode: %v", err)
		}
		if err := w.Close(); exception(err) != "org.apache.hadoop.hdfs.server.namenode.SafeModeException" {
			t.Errorf("Close in safe mode: %v", err)
		}
		sleep(30 * time.Second)
		must(t, w.Close())
		wantContent(t, client, "/f", []byte("before and after"))
	})
}

func TestFailover(t *testing.T) {
	inBubble(t, hdfstest.Options{Namenodes: 2}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		write(t, client, "/f", []byte("one"))
		c.Activate(1)
		wantContent(t, client, "/f", []byte("one"))
		if got := on("getFileInfo", "/f").do(t, rawClient(t, c), ""); got != "StandbyException" {
			t.Errorf("the old active one said %s", got)
		}
		c.KillNamenode(1)
		c.Activate(0)
		sleep(6 * time.Second)
		wantContent(t, client, "/f", []byte("one"))
		c.StandbyAll()
		if _, err := client.Stat("/f"); err == nil {
			t.Error("a standby answered")
		}
		c.Activate(0)
		sleep(6 * time.Second)
		wantContent(t, client, "/f", []byte("one"))
	})
}

func TestPausedNodesAreSilent(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		raw := rawClient(t, c)
		c.PauseNamenode(0)
		conn := must1(c.Dial(t.Context(), "tcp", c.Namenodes()[0]))
		defer func() { _ = conn.Close() }()
		must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		if _, err := must1(hdfstest.Raw(conn)).Call("getFileInfo", hdfstest.Fields{"src": "/"}); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a paused namenode: %v, want a timeout", err)
		}
		answered := make(chan string, 1)
		go func() { answered <- on("getFileInfo", "/").do(t, raw, "") }()
		sleep(time.Minute)
		select {
		case got := <-answered:
			t.Errorf("a paused namenode said %s", got)
		default:
		}
		c.ResumeNamenode(0)
		if got := <-answered; got != "ok fs" {
			t.Errorf("the call it had got: %s", got)
		}
	})
}

func TestPausedDatanodeKeepsNothingMoving(t *testing.T) {
	for position := range 3 {
		inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
			b, pipeline := rawBlock(t, c, "/f")
			must(t, b.Send(hdfstest.Packet{Seqno: 1, Data: []byte("one")}))
			_, err := b.Ack()
			must(t, err)
			c.PauseDatanode(pipeline[position])
			must(t, b.Send(hdfstest.Packet{Seqno: 2, Data: []byte("one and two")}))
			acked := make(chan error, 1)
			go func() {
				_, err := b.Ack()
				acked <- err
			}()
			sleep(time.Minute)
			select {
			case err := <-acked:
				t.Errorf("position %d: an acknowledgement through a paused datanode, error %v", position, err)
			default:
			}
			c.ResumeDatanode(pipeline[position])
			must(t, <-acked)
		})
	}
}

func TestSilentDatanodesAreAvoided(t *testing.T) {
	inBubble(t, hdfstest.Options{Datanodes: 4, Replication: 3}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		uses := func(i int) bool {
			t.Helper()
			used := false
			for range 4 { // each comes first once
				raw := rawClient(t, c)
				create("/f", "A", hdfstest.Fields{"replication": 3}).do(t, raw, "")
				by("addBlock", "/f", "A").do(t, raw, "")
				used = used || slices.Contains(must1(c.Pipeline("/f")), i)
				must(t, client.Remove("/f"))
			}
			return used
		}
		c.KillDatanode(2)
		if !uses(2) {
			t.Error("a datanode was avoided as soon as it was dead")
		}
		sleep(3 * time.Second)
		if uses(2) {
			t.Error("a stale datanode is used, though there are enough others")
		}
		c.PauseDatanode(3)
		sleep(4 * time.Second)
		if !uses(2) || !uses(3) {
			t.Error("stale datanodes are not used, though there are too few others")
		}
		sleep(11 * time.Second)
		if uses(2) || uses(3) {
			t.Error("a dead datanode is used")
		}
		must(t, c.RestartDatanode(2))
		if !uses(2) {
			t.Error("a restarted datanode is not used")
		}
		c.ShortPipeline(1)
		write(t, client, "/short", []byte("x"))
		if n := must1(c.Replicas("/short")); n != 1 {
			t.Errorf("%d replicas with a short pipeline, want 1", n)
		}
		for i := range 4 {
			c.FillDatanode(i, true)
		}
		raw := rawClient(t, c)
		create("/f", "A").do(t, raw, "")
		_, err := raw.Call("addBlock", hdfstest.Fields{"src": "/f", "clientName": "A"})
		if err == nil || !strings.Contains(err.Error(), "File /f could only be written to 0 of the 1 minReplication nodes. There are 3 datanode(s) running") {
			t.Errorf("full datanodes: %v", err)
		}
	})
}

func TestKilledDatanodeKeepsItsReplicas(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client, want := newClient(t, c), random(100_000)
		write(t, client, "/f", want)
		c.KillDatanode(0)
		c.KillDatanode(1)
		if n := must1(c.Replicas("/f")); n != 1 {
			t.Errorf("%d replicas with two datanodes dead, want 1", n)
		}
		wantContent(t, client, "/f", want)
		c.WipeDatanode(2)
		if _, err := client.ReadFile("/f"); err == nil {
			t.Error("read a file that no datanode has")
		}
		must(t, c.RestartDatanode(1))
		wantContent(t, client, "/f", want)
	})
}

func TestQuotas(t *testing.T) {
	inBubble(t, hdfstest.Options{BlockSize: 1000}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		must(t, client.Mkdir("/q", 0o755))
		must(t, c.SetQuota("/q", 3, 7000))
		write(t, client, "/q/a", random(10))
		if _, err := client.Create("/q/b"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Create("/q/c"); exception(err) != "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException" {
			t.Errorf("the fourth name: %v", err)
		}
		must(t, client.Remove("/q/b"))
		w, err := client.Create("/q/b")
		must(t, err)
		_, err = w.Write(random(2500)) // two blocks of three replicas fit
		if exception(err) != "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException" {
			t.Errorf("the third block: %v", err)
		}
		_ = w.Close()
		must(t, client.Remove("/q/b"))
		write(t, client, "/r", random(2000))
		must(t, client.Rename("/r", "/q/b"))
		must(t, client.Rename("/q/b", "/q/c")) // counted already
		write(t, client, "/r", random(2400))
		if err := client.Rename("/r", "/q/c"); exception(err) != "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException" {
			t.Errorf("a rename beyond the quota of bytes: %v", err)
		}
		if err := client.Rename("/r", "/q/d"); exception(err) != "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException" {
			t.Errorf("a rename beyond the quota of names: %v", err)
		}
		if err := c.SetQuota("/none", 1, 1); err == nil {
			t.Error("a quota for a directory that is not there")
		}
	})
}

func TestDeniedAndSafe(t *testing.T) {
	inBubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		must(t, client.MkdirAll("/d/e", 0o755))
		write(t, client, "/d/e/f", []byte("one"))
		must(t, c.Deny("/d"))
		for name, f := range map[string]func() error{
			"create": func() error { _, err := client.Create("/d/e/g"); return err },
			"append": func() error { _, err := client.Append("/d/e/f"); return err },
			"mkdir":  func() error { return client.Mkdir("/d/x", 0o755) },
			"rename": func() error { return client.Rename("/d/e", "/e") },
			"remove": func() error { return client.RemoveAll("/d") },
		} {
			if err := f(); !errors.Is(err, os.ErrPermission) {
				t.Errorf("%s in a denied directory: %v", name, err)
			}
		}
		wantContent(t, client, "/d/e/f", []byte("one"))
		must(t, c.Allow("/d"))
		c.SafeMode(true)
		if err := client.Mkdir("/d/x", 0o755); exception(err) != "org.apache.hadoop.hdfs.server.namenode.SafeModeException" {
			t.Errorf("safe mode: %v", err)
		}
		c.SafeMode(false)
		must(t, client.Mkdir("/d/x", 0o755))
	})
}

func TestListingsComeInPages(t *testing.T) {
	inBubble(t, hdfstest.Options{ListPage: 7}, func(t *testing.T, c *hdfstest.Cluster) {
		client := newClient(t, c)
		var want []string
		for i := range 50 {
			name := "d" + strings.Repeat("x", i)
			must(t, client.Mkdir("/"+name, 0o755))
			want = append(want, name)
		}
		infos, err := client.ReadDir("/")
		must(t, err)
		var got []string
		for _, i := range infos {
			got = append(got, i.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("listed %v", got)
		}
		if n := c.Calls("getListing"); n != 8 {
			t.Errorf("%d calls for 50 entries in pages of 7, want 8", n)
		}
	})
}

// The same nodes answer other processes over TCP, and come back on their ports.
func TestOverTCP(t *testing.T) {
	c := hdfstest.Start(hdfstest.Options{BlockSize: 300 << 10})
	t.Cleanup(c.Close)
	must(t, c.Listen())
	options := hdfs.ClientOptions{Addresses: c.Namenodes(), User: "tester"}
	dial := func() *hdfs.Client {
		client, err := hdfs.NewClient(options)
		must(t, err)
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	client, want := dial(), random(1_000_000)
	write(t, client, "/f", want)
	wantContent(t, client, "/f", want)
	wantContent(t, newClient(t, c), "/f", want) // in memory, same addresses
	before := c.Namenodes()[0]
	c.KillNamenode(0)
	if _, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", before); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dead namenode: %v, want a refused connection", err)
	}
	must(t, c.RestartNamenode(0))
	w, err := dial().Create("/g")
	must(t, err)
	_, err = w.Write(want)
	must(t, err)
	must(t, w.Flush())
	pipeline := must1(c.Pipeline("/g"))
	c.KillDatanode(pipeline[0])
	if err := w.Close(); err == nil {
		t.Error("Close returned nil after the death of a datanode")
	}
	must(t, c.RestartDatanode(pipeline[0]))
	wantContent(t, dial(), "/f", want)
}
