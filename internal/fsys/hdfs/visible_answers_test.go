package hdfs_test

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// frame is what a datanode sends: messages with their lengths, and the length of
// all in front.
func frame(messages ...[]byte) []byte {
	b := make([]byte, 4)
	for _, m := range messages {
		b = protowire.AppendBytes(b, m)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// numbered fields and strings are all that the messages have.
func field(n protowire.Number, v any) []byte {
	switch v := v.(type) {
	case uint64:
		return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
	case string:
		return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), v)
	}
	return nil
}

// header is an RpcResponseHeaderProto with a status.
func header(status uint64, more ...[]byte) []byte {
	b := append(field(1, uint64(0)), field(2, status)...)
	for _, m := range more {
		b = append(b, m...)
	}
	return b
}

// says is the answer with a length.
func says(length uint64) []byte { return frame(header(0), field(1, length)) }

// strange are answers that tell no length that a file could have, and what the
// error says of them.
func strange() map[string]struct {
	answer []byte
	why    string
} {
	return map[string]struct {
		answer []byte
		why    string
	}{
		"hangs up":                    {nil, "EOF"},
		"hangs up in the length":      {[]byte{0, 0}, "EOF"},
		"hangs up in the header":      {says(1)[:7], "EOF"},
		"speaks HTTP":                 {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "not an HDFS datanode"},
		"is empty":                    {frame(), "ends too early"},
		"has a header longer than it": {[]byte{0, 0, 0, 3, 200, 1, 0}, "ends too early"},
		"has an endless length":       {append([]byte{0, 0, 0, 12}, strings.Repeat("\xff", 12)...), "ends too early"},
		"has no header":               {frame([]byte("\xff\xff\xff"), field(1, uint64(1))), "datanode 10."},
		"has a header without status": {frame(field(1, uint64(0)), field(1, uint64(1))), "datanode 10."},
		"has no body":                 {frame(header(0)), "ends too early"},
		"has an empty body":           {frame(header(0), nil), "datanode 10."},
		"has a body of another kind":  {frame(header(0), field(1, "five")), "datanode 10."},
		"refuses":                     {frame(header(1, field(4, "java.io.IOException"), field(5, "no\n\tat Disk.java"))), "IOException: no"},
		"shows nothing":               {says(math.MaxUint64), "-1 bytes of a block are visible, want 0 to 134217728"},
		"shows more than a block":     {says(128<<20 + 1), "134217729 bytes of a block are visible, want 0 to 134217728"},
		"shows as much as there is":   {says(math.MaxInt64), "bytes of a block are visible"},
		"shows less than nothing":     {says(1 << 63), "bytes of a block are visible"},
		"is fatal":                    {frame(header(2, field(4, "org.apache.hadoop.ipc.RpcServerException"))), "RpcServerException"},
	}
}

// talk makes the datanodes of some addresses answer calls so, byte by byte.
func (u *user) talk(answer []byte, who func(at string) bool) {
	next := u.wire.next
	u.wire.next = func(ctx context.Context, network, at string) (net.Conn, error) {
		if !strings.HasSuffix(at, ":"+callPort) || !who(at) {
			return next(ctx, network, at)
		}
		mine, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if _, err := theirs.Read(make([]byte, 4096)); err != nil {
				return
			}
			for i := range answer {
				if _, err := theirs.Write(answer[i:][:1]); err != nil {
					return // enough was read
				}
			}
		}()
		return mine, nil
	}
}

func everyone(string) bool { return true }

// A datanode that talks nonsense is passed over; if all do it is an error.
func TestStrangeAnswersOfDatanodes(t *testing.T) {
	for name, c := range strange() {
		t.Run(name, func(t *testing.T) {
			bubble(t, hdfstest.Options{}, func(k *kit) {
				a, b, d := k.open(hdfs.Config{}), k.open(hdfs.Config{}), k.open(hdfs.Config{})
				data := random(70000)
				k.commit(a.create("/f"), data)
				d.talk(c.answer, everyone)
				_, err := d.Open("/f")
				k.wantError(err, hdfs.ErrWriting, c.why)
				first := ""
				b.talk(c.answer, func(at string) bool {
					if first == "" {
						first = at
					}
					return at == first
				})
				b.sees("/f", data)
			})
		})
	}
}

// However an answer comes, it is one, and what it says is all that is read.
func TestAnswerOfADatanode(t *testing.T) {
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		data := random(1<<20 + 70000)
		k.commit(a.create("/f"), data)
		b.talk(says(1000), everyone)
		b.sees("/f", data[:1<<20+1000])
	})
}

// A datanode that answers nothing is given up after Timeout.
func TestSilentDatanodes(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{Timeout: short})
		k.commit(a.create("/f"), random(70000))
		k.FailNext("getReplicaVisibleLength", 3, hdfstest.Hang())
		k.within(3*short, 3*short, func() {
			_, err := b.Open("/f")
			k.wantError(err, hdfs.ErrWriting, "timeout")
		})
	})
}

// Where the Hadoop configuration says so, datanodes are called by their names.
func TestDatanodesAreAskedByName(t *testing.T) {
	dir := t.TempDir()
	conf := `<configuration><property><name>dfs.client.use.datanode.hostname</name><value>true</value></property></configuration>`
	if err := os.WriteFile(filepath.Join(dir, "hdfs-site.xml"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HADOOP_CONF_DIR", dir)
	cfg, err := hdfs.Config{User: "tester"}.FromEnvironment("nn:8020")
	if err != nil {
		t.Fatal(err)
	}
	bubble(t, hdfstest.Options{}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(cfg)
		data := random(70000)
		k.commit(a.create("/f"), data)
		b.sees("/f", data)
		b.wire.mu.Lock()
		defer b.wire.mu.Unlock()
		for _, at := range b.wire.dialed {
			if strings.HasSuffix(at, ":"+callPort) && !strings.HasPrefix(at, "dn") {
				t.Errorf("a datanode was asked at %s", at)
			}
		}
	})
}

// The end of the file system is that of a call to a datanode that is silent.
func TestCloseWhileADatanodeIsAsked(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		k.commit(a.create("/f"), random(70000))
		k.FailNext("getReplicaVisibleLength", 3, hdfstest.Hang())
		wait := later(func() error { _, err := b.Open("/f"); return err })
		sleep(time.Second)
		k.within(0, 0, func() {
			k.must(b.FS.Close())
			if wait() == nil {
				t.Error("opened after the file system was closed")
			}
		})
	})
}

// FuzzAnswer is whatever a datanode may send: an error, or a length if all of the
// answer is there.
func FuzzAnswer(f *testing.F) {
	for _, c := range strange() {
		f.Add(c.answer, uint64(7))
	}
	for _, n := range []uint64{0, 1, 1 << 40, math.MaxInt64, math.MaxUint64} {
		f.Add(says(n), n)
	}
	f.Fuzz(func(t *testing.T, b []byte, n uint64) {
		if _, err := hdfs.Answer(b); err == nil {
			size := int(binary.BigEndian.Uint32(b))
			if _, err := hdfs.Answer(b[:4+size-1]); err == nil {
				t.Errorf("%x is taken without its last byte", b)
			}
		}
		if got, err := hdfs.Answer(append(says(n), b...)); got != n || err != nil {
			t.Errorf("%d, %v, want %d", got, err, n)
		}
	})
}
