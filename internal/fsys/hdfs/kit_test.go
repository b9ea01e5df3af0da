package hdfs_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	lib "github.com/colinmarc/hdfs/v2"
	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// kit is a cluster in fake time.
type kit struct {
	*testing.T
	*hdfstest.Cluster
}

// bubble runs f with a cluster in fake time. At its end nothing may be left.
func bubble(t *testing.T, o hdfstest.Options, f func(k *kit)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := hdfstest.Start(o)
		t.Cleanup(c.Close)
		f(&kit{T: t, Cluster: c})
	})
}

// user is a process that uses the cluster: its file system, its network and
// what it logs.
type user struct {
	*hdfs.FS
	k    *kit
	wire *wire
	log  *lines

	mu    sync.Mutex
	files []fsys.File
}

// open starts a process. It is ended with the test, its files after it.
func (k *kit) open(cfg hdfs.Config) *user {
	k.Helper()
	u := &user{k: k, wire: newWire(k.Dial), log: &lines{}}
	cfg.Addresses, cfg.User, cfg.Dial = k.Namenodes(), "tester", u.wire.dial
	cfg.Log = hclog.New(&hclog.LoggerOptions{Output: u.log, Level: hclog.Info, DisableTime: true})
	var err error
	u.FS, err = hdfs.New(cfg)
	k.must(err)
	k.Cleanup(u.end)
	return u
}

func (u *user) end() {
	u.wire.thaw()
	u.FS.Close()
	u.mu.Lock()
	files := u.files
	u.mu.Unlock()
	for _, f := range files {
		f.Close()
	}
}

// Create is that of the file system. The file is closed with the test if not before.
func (u *user) Create(name string) (fsys.File, error) {
	f, err := u.FS.Create(name)
	if err == nil {
		u.mu.Lock()
		u.files = append(u.files, f)
		u.mu.Unlock()
	}
	return f, err
}

// must is for steps that are not what a test is about.
func (k *kit) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func (u *user) create(name string) fsys.File {
	u.k.Helper()
	f, err := u.Create(name)
	u.k.must(err)
	return f
}

// put makes a whole file.
func (u *user) put(name string, data []byte) {
	u.k.Helper()
	f := u.create(name)
	u.k.commit(f, data)
	u.k.must(f.Close())
}

// commit writes and flushes.
func (k *kit) commit(f fsys.File, data []byte) {
	k.Helper()
	k.must(flushed(f, data))
}

func flushed(f fsys.File, data []byte) error {
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Flush()
}

func (u *user) read(name string) []byte {
	u.k.Helper()
	data, err := fsys.ReadFile(u, name)
	u.k.must(err)
	return data
}

// want reads a file and compares.
func (u *user) want(name string, want []byte) {
	u.k.Helper()
	if got := u.read(name); !bytes.Equal(got, want) {
		u.k.Fatalf("%s: %d bytes, want %d with the same content", name, len(got), len(want))
	}
	if in, err := u.Stat(name); err != nil || in.Size != int64(len(want)) {
		u.k.Fatalf("%s: stat says %d bytes, %v; want %d", name, in.Size, err, len(want))
	}
}

// wantPrefix reads a file that must hold at least the first acked bytes of
// written, and nothing else.
func (u *user) wantPrefix(name string, written []byte, acked int) {
	u.k.Helper()
	got := u.read(name)
	if len(got) < acked || !bytes.HasPrefix(written, got) {
		u.k.Fatalf("%s: %d bytes, %d of %d were acknowledged; prefix: %v", name, len(got), acked, len(written), bytes.HasPrefix(written, got))
	}
}

func (u *user) recover(names ...string) {
	u.k.Helper()
	u.k.must(u.Recover(context.Background(), names, nil))
}

// wantError checks an error's kind and that it speaks of all parts.
func (k *kit) wantError(err, is error, parts ...string) {
	k.Helper()
	if !errors.Is(err, is) {
		k.Fatalf("got error %v, want one that is %v", err, is)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			k.Errorf("error %q does not say %q", err, part)
		}
	}
}

// within runs f, which must take between least and most of fake time.
func (k *kit) within(least, most time.Duration, f func()) {
	k.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took < least || took > most {
		k.Fatalf("took %v, want %v to %v", took, least, most)
	}
}

// later runs f beside the test. The result waits for it.
func later[T any](f func() T) (wait func() T) {
	done := make(chan T, 1)
	go func() { done <- f() }()
	return func() T { return <-done }
}

// sleep lets fake time pass.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// nap is sleep for one of several goroutines.
func nap(d time.Duration) { time.Sleep(d) }

// random returns bytes that no two places share by accident.
func random(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8)})
	_, _ = r.Read(b)
	return b
}

// sizes are lengths of writes around those of chunks and packets.
var sizes = []int{1, 511, 512, 513, 3000, 65535, 65536, 65537, 64, 131072, 66047, 700, 200000, 65024}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count is how many lines have all parts.
func (l *lines) count(parts ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
line:
	for line := range strings.Lines(l.text.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue line
			}
		}
		n++
	}
	return n
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// wire is the network of one process.
type wire struct {
	next func(ctx context.Context, network, addr string) (net.Conn, error)

	mu      sync.Mutex
	changed *sync.Cond
	frozen  bool
	down    bool
	idle    time.Duration // a connection without a write for so long is ended; 0 is never
	conns   map[*wired]struct{}
	dialed  []string
}

func newWire(next func(ctx context.Context, network, addr string) (net.Conn, error)) *wire {
	w := &wire{next: next, conns: map[*wired]struct{}{}}
	w.changed = sync.NewCond(&w.mu)
	return w
}

var errCut = errors.New("the network is cut")

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.pass()
	w.mu.Lock()
	w.dialed = append(w.dialed, addr)
	down, idle := w.down, w.idle
	w.mu.Unlock()
	if down {
		return nil, errCut
	}
	c, err := w.next(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := &wired{Conn: c, w: w, limit: idle}
	if idle > 0 {
		conn.timer = time.AfterFunc(idle, func() { c.Close() })
	}
	w.mu.Lock()
	w.conns[conn] = struct{}{}
	w.mu.Unlock()
	return conn, nil
}

// cut ends all connections, as the death of the process does, and lets nobody
// connect until it is mended.
func (w *wire) cut() {
	w.mu.Lock()
	w.down = true
	conns := w.conns
	w.conns = map[*wired]struct{}{}
	w.mu.Unlock()
	for c := range conns {
		c.Conn.Close()
	}
}

func (w *wire) mend() {
	w.mu.Lock()
	w.down = false
	w.mu.Unlock()
}

// freeze lets nothing pass, as if the process stood still.
func (w *wire) freeze() {
	w.mu.Lock()
	w.frozen = true
	w.mu.Unlock()
}

func (w *wire) thaw() {
	w.mu.Lock()
	w.frozen = false
	w.changed.Broadcast()
	w.mu.Unlock()
}

func (w *wire) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.frozen {
		w.changed.Wait()
	}
}

// last is the address that was dialed last.
func (w *wire) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dialed[len(w.dialed)-1]
}

type wired struct {
	net.Conn
	w     *wire
	limit time.Duration
	timer *time.Timer
}

func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.w.pass()
	return n, err
}

func (c *wired) Write(b []byte) (int, error) {
	c.w.pass()
	if c.timer != nil {
		c.timer.Reset(c.limit)
	}
	return c.Conn.Write(b)
}

func (c *wired) Close() error {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.w.mu.Lock()
	delete(c.w.conns, c)
	c.w.mu.Unlock()
	return c.Conn.Close()
}

// replication is how many replicas a file asks for.
func replication(k *kit, name string) int {
	k.Helper()
	c, err := lib.NewClient(lib.ClientOptions{Addresses: k.Namenodes(), User: "tester", NamenodeDialFunc: k.Dial, DatanodeDialFunc: k.Dial})
	k.must(err)
	defer c.Close()
	in, err := c.Stat(name)
	k.must(err)
	return int(in.Sys().(interface{ GetBlockReplication() uint32 }).GetBlockReplication())
}
