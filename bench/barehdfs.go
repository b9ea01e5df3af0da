package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/encoding/protowire"
)

// bareHDFS is the plain side on HDFS: the library's writer, and a commit that
// counts packets out and acknowledgements in. It handles no failure.
type bareHDFS struct {
	client *hdfs.Client
	file   *hdfs.FileWriter
	acks   *ackCount
}

func openBareHDFS(addr, user, name string) (*bareHDFS, error) {
	b := &bareHDFS{acks: &ackCount{}}
	b.acks.changed.L = &b.acks.mu
	c, err := hdfs.NewClient(hdfs.ClientOptions{
		Addresses: []string{addr}, User: user,
		DatanodeDialFunc: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &ackConn{Conn: c, in: bufio.NewReader(c), acks: b.acks}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	b.client = c
	b.file, err = c.Create(name)
	return b, err
}

func (b *bareHDFS) commit(rec []byte) error {
	if _, err := b.file.Write(rec); err != nil {
		return err
	}
	if err := b.file.Flush(); err != nil {
		return err
	}
	return b.acks.wait()
}

func (b *bareHDFS) close() error {
	err := b.file.Close()
	for end := time.Now().Add(10 * time.Second); hdfs.IsErrReplicating(err) && time.Now().Before(end); {
		err = b.file.Close()
	}
	return errors.Join(err, b.client.Close())
}

// ackCount counts packets.
type ackCount struct {
	mu          sync.Mutex
	changed     sync.Cond
	sent, acked int
	err         error
}

func (a *ackCount) wait() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.acked < a.sent && a.err == nil {
		a.changed.Wait()
	}
	return a.err
}

func (a *ackCount) add(sent, acked int, err error) {
	a.mu.Lock()
	a.sent += sent
	a.acked += acked
	a.err = errors.Join(a.err, err)
	a.changed.Broadcast()
	a.mu.Unlock()
}

// ackConn is the connection to a datanode: after the request every write is a
// packet, and after its answer every message an acknowledgement.
type ackConn struct {
	net.Conn
	in      *bufio.Reader
	acks    *ackCount
	request bool
	answer  bool
	left    []byte
}

func (c *ackConn) Write(b []byte) (int, error) {
	if c.request {
		c.acks.add(1, 0, nil)
	}
	c.request = true
	return c.Conn.Write(b)
}

func (c *ackConn) Read(b []byte) (int, error) {
	if len(c.left) == 0 {
		n, err := binary.ReadUvarint(c.in)
		if err != nil {
			return 0, err
		}
		msg := make([]byte, n)
		if _, err := io.ReadFull(c.in, msg); err != nil {
			return 0, err
		}
		if c.answer {
			c.acks.add(0, 1, success(msg))
		}
		c.answer = true
		c.left = append(binary.AppendUvarint(nil, n), msg...)
	}
	n := copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}

// success is nil if every datanode says so.
func success(msg []byte) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return protowire.ParseError(n)
		}
		msg = msg[n:]
		if num == 2 && typ == protowire.VarintType {
			if status, _ := protowire.ConsumeVarint(msg); status != 0 {
				return fmt.Errorf("datanode answered status %d", status)
			}
		}
		if n = protowire.ConsumeFieldValue(num, typ, msg); n < 0 {
			return protowire.ParseError(n)
		}
		msg = msg[n:]
	}
	return nil
}
