package hdfstest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// silent connects to a datanode that reads nothing.
func silent(t *testing.T, c *hdfstest.Cluster) net.Conn {
	t.Helper()
	c.PauseDatanode(0)
	conn := must1(c.Dial(t.Context(), "tcp", c.Datanode(0)))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestDeadlines(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		conn := silent(t, c)
		begin := time.Now()
		must(t, conn.SetReadDeadline(begin.Add(time.Second)))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("read: %v after %v", err, time.Since(begin))
		}
		if ne := net.Error(nil); !errors.As(readError(conn), &ne) || !ne.Timeout() {
			t.Error("a passed deadline is not a timeout of package net")
		}
		must(t, conn.SetWriteDeadline(begin.Add(3*time.Second)))
		n, err := conn.Write(make([]byte, 1<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 3*time.Second || n < 256<<10 || n == 1<<20 {
			t.Errorf("write: %d bytes, %v after %v", n, err, time.Since(begin))
		}
		must(t, conn.SetDeadline(time.Time{}))
		time.AfterFunc(time.Minute, func() { _ = conn.SetReadDeadline(time.Now()) })
		if err := readError(conn); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != time.Minute+3*time.Second {
			t.Errorf("a deadline set while reading: %v after %v", err, time.Since(begin))
		}
	})
}

func readError(conn net.Conn) error {
	_, err := conn.Read(make([]byte, 1))
	return err
}

func TestEndsOfConnections(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		conn := silent(t, c)
		_, err := conn.Write(make([]byte, 10))
		must(t, err)
		c.KillDatanode(0)
		if err := readError(conn); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read after the node's death: %v, want a reset", err)
		}
		// As with the kernel's sockets, one write is taken before it is known.
		if _, err := conn.Write(make([]byte, 10)); err != nil {
			t.Errorf("first write after the node's death: %v", err)
		}
		if _, err := conn.Write(make([]byte, 10)); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("second write after the node's death: %v, want a broken pipe", err)
		}
		must(t, conn.Close())
		must(t, conn.Close())
		if _, err := conn.Write(make([]byte, 10)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after Close: %v", err)
		}
		if err := readError(conn); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
		must(t, c.RestartDatanode(0))
		conn = must1(c.Dial(t.Context(), "tcp", c.Datanode(0)))
		_, err = conn.Write([]byte("not the protocol"))
		must(t, err)
		if err := readError(conn); !errors.Is(err, io.EOF) {
			t.Errorf("after nonsense: %v, want the end of the connection", err)
		}
	})
}

func TestDialFails(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(t *testing.T, c *hdfstest.Cluster) {
		if _, err := c.Dial(t.Context(), "tcp", "elsewhere:8020"); err == nil {
			t.Error("dialed a node that is not there")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Dial(ctx, "tcp", c.Datanode(0)); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		c.Close()
		c.Close()
		if _, err := c.Dial(t.Context(), "tcp", c.Datanode(0)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("closed cluster: %v", err)
		}
		must(t, c.RestartDatanode(0))
		if _, err := c.Dial(t.Context(), "tcp", c.Datanode(0)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a node started after Close: %v", err)
		}
	})
}

func TestLatencyDelaysEachWay(t *testing.T) {
	bubble(t, hdfstest.Options{Latency: 10 * time.Millisecond}, func(t *testing.T, c *hdfstest.Cluster) {
		raw := rawClient(t, c)
		begin := time.Now()
		if got := on("getFileInfo", "/").do(t, raw, ""); got != "ok fs" {
			t.Error(got)
		}
		if d := time.Since(begin); d != 20*time.Millisecond {
			t.Errorf("a call took %v, want 20ms", d)
		}
	})
}

func TestWriteFailsAloudUnlessSilentWrites(t *testing.T) {
	bubble(t, hdfstest.Options{SilentWrites: true}, func(t *testing.T, c *hdfstest.Cluster) {
		conn := silent(t, c)
		c.KillDatanode(0)
		for range 3 {
			if n, err := conn.Write([]byte("lost")); n != 4 || err != nil {
				t.Errorf("a silent write: %d, %v", n, err)
			}
		}
		nn := must1(c.Dial(t.Context(), "tcp", c.Namenodes()[0]))
		c.KillNamenode(0)
		_, first := nn.Write([]byte("x"))
		_, second := nn.Write([]byte("x"))
		if errs := []bool{first != nil, second != nil}; !slices.Equal(errs, []bool{false, true}) {
			t.Errorf("writes to a dead namenode failed: %v", errs)
		}
	})
}
