package hdfstest_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/colinmarc/hdfs/v2"
	"go.uber.org/goleak"

	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

func TestMain(m *testing.M) {
	// The client library leaks this one for each failed writer, unless
	// Options.SilentWrites.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/colinmarc/hdfs/v2/internal/transfer.(*blockWriteStream).ackPackets"))
}

// inBubble runs f with a cluster in fake time. Nothing may remain in the bubble,
// so the library must be able to end what it leaks elsewhere.
func inBubble(t *testing.T, opts hdfstest.Options, f func(t *testing.T, c *hdfstest.Cluster)) {
	t.Helper()
	opts.SilentWrites = true
	bubble(t, opts, f)
}

func bubble(t *testing.T, opts hdfstest.Options, f func(t *testing.T, c *hdfstest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := hdfstest.Start(opts)
		t.Cleanup(c.Close)
		f(t, c)
	})
}

func newClient(t *testing.T, c *hdfstest.Cluster) *hdfs.Client {
	t.Helper()
	client, err := hdfs.NewClient(hdfs.ClientOptions{
		Addresses: c.Namenodes(), User: "tester", NamenodeDialFunc: c.Dial, DatanodeDialFunc: c.Dial,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func rawClient(t *testing.T, c *hdfstest.Cluster) *hdfstest.RawClient {
	t.Helper()
	conn, err := c.Dial(t.Context(), "tcp", c.Namenodes()[0])
	if err != nil {
		t.Fatal(err)
	}
	return rawOver(t, conn)
}

func rawOver(t *testing.T, conn net.Conn) *hdfstest.RawClient {
	t.Helper()
	raw, err := hdfstest.Raw(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	return raw
}

// must is for steps that are not what a test is about.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, client *hdfs.Client, name string, data []byte) {
	t.Helper()
	w, err := client.Create(name)
	must(t, err)
	if len(data) > 0 { // an empty write begins a block that no datanode ever has
		_, err = w.Write(data)
		must(t, err)
	}
	must(t, w.Close())
}

func wantContent(t *testing.T, client *hdfs.Client, name string, want []byte) {
	t.Helper()
	got, err := client.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: read %d bytes, want %d with the same content", name, len(got), len(want))
	}
}

// random returns bytes that no two places share by accident.
func random(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = r.Read(b)
	return b
}

// exception returns the Java class of a refusal, "" for other errors.
func exception(err error) string {
	var ours *hdfstest.Refusal
	if errors.As(err, &ours) {
		return ours.Class
	}
	var theirs hdfs.Error
	if errors.As(err, &theirs) {
		return theirs.Exception()
	}
	return ""
}

// sleep lets fake time pass.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// must1 is for values of steps that are not what a test is about.
func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
