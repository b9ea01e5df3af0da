package hdfs_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

func (u *user) openFile(name string) fsys.Reader {
	u.k.Helper()
	r, err := u.Open(name)
	u.k.must(err)
	u.k.Cleanup(func() { r.Close() })
	return r
}

// datanode is the one that was dialed last.
func (u *user) datanode() int {
	u.k.Helper()
	for i := range 3 {
		if u.k.Datanode(i) == u.wire.last() {
			return i
		}
	}
	u.k.Fatalf("%s is no datanode", u.wire.last())
	return -1
}

// Row "replica lost while reading": the others have it.
func TestReplicaLostWhileReading(t *testing.T) {
	lose := map[string]func(k *kit, i int){
		"killed": func(k *kit, i int) { k.KillDatanode(i) },
		"hung":   func(k *kit, i int) { k.PauseDatanode(i) },
		"wiped":  func(k *kit, i int) { k.KillDatanode(i); k.WipeDatanode(i); k.RestartDatanode(i) },
	}
	for name, lose := range lose {
		t.Run(name, func(t *testing.T) {
			bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
				u := k.open(hdfs.Config{})
				data := random(3<<20 + 17)
				u.put("/f", data)
				r := u.openFile("/f")
				got := make([]byte, 100000)
				_, err := io.ReadFull(r, got)
				k.must(err)
				first := u.datanode()
				lose(k, first)
				rest, err := io.ReadAll(r)
				k.must(err)
				if got = append(got, rest...); !bytes.Equal(got, data) {
					t.Fatalf("%d bytes, want %d with the same content", len(got), len(data))
				}
				second := u.datanode()
				if second == first {
					t.Error("nothing was read after the loss")
				}
				lose(k, second)
				part := make([]byte, 5000)
				_, err = r.ReadAt(part, 2<<20-2000)
				k.must(err)
				if !bytes.Equal(part, data[2<<20-2000:][:5000]) {
					t.Error("other bytes from the last replica")
				}
			})
		})
	}
}

// Row "replica lost while reading", all of them.
func TestAllReplicasLostWhileReading(t *testing.T) {
	kill := func(k *kit) {
		for i := range 3 {
			k.KillDatanode(i)
		}
	}
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		u.put("/f", random(100000))
		r := u.openFile("/f")
		kill(k)
		k.within(30*time.Second, 35*time.Second, func() {
			if _, err := r.ReadAt(make([]byte, 100), 5000); err == nil || err == io.EOF {
				t.Errorf("read without datanodes: %v", err)
			}
		})
	})
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		u.put("/f", random(100000))
		r := u.openFile("/f")
		kill(k)
		time.AfterFunc(15*time.Second, func() { k.RestartDatanode(2) })
		got := make([]byte, 50000)
		k.within(15*time.Second, 17*time.Second, func() {
			_, err := r.ReadAt(got, 5000)
			k.must(err)
		})
		if !bytes.Equal(got, random(100000)[5000:55000]) {
			t.Error("other bytes")
		}
	})
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		u.put("/f", random(100000))
		r := u.openFile("/f")
		kill(k)
		wait := later(func() error { _, err := r.ReadAt(make([]byte, 100), 5000); return err })
		sleep(5 * time.Second)
		k.within(0, 0, func() {
			u.FS.Close()
			if wait() == nil {
				t.Error("read without datanodes: nil")
			}
		})
	})
}

// Many read one Reader while datanodes come and go.
func TestReadConcurrentlyWhileDatanodesFail(t *testing.T) {
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		u := k.open(hdfs.Config{})
		data := random(5<<20 + 1)
		u.put("/f", data)
		r := u.openFile("/f")
		var waits []func() error
		for g := range 8 {
			waits = append(waits, later(func() error {
				rng := rand.New(rand.NewPCG(uint64(g), 1))
				for range 60 {
					nap(time.Duration(rng.IntN(50)) * time.Millisecond)
					off := rng.IntN(len(data))
					b := make([]byte, rng.IntN(200000))
					n, err := r.ReadAt(b, int64(off))
					if want := min(len(b), len(data)-off); n != want || err != nil && (err != io.EOF || off+len(b) <= len(data)) {
						return fmt.Errorf("%d bytes at %d: got %d, %w", len(b), off, n, err)
					}
					if !bytes.Equal(b[:n], data[off:][:n]) {
						return fmt.Errorf("%d bytes at %d are not those of the file", n, off)
					}
				}
				return nil
			}))
		}
		for i := range 12 {
			sleep(100 * time.Millisecond)
			k.KillDatanode(i % 3)
			sleep(100 * time.Millisecond)
			k.must(k.RestartDatanode(i % 3))
		}
		for _, wait := range waits {
			k.must(wait())
		}
	})
}

// A file that is gone while it is read is an error, not a wait.
func TestReadOfARemovedFile(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u, other := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		u.put("/f", random(1<<20))
		r := u.openFile("/f")
		k.must(other.Remove("/f"))
		k.within(0, 35*time.Second, func() {
			if n, err := r.ReadAt(make([]byte, 1000), 500); err == nil {
				t.Errorf("%d bytes of a file that is gone", n)
			}
		})
		_, err := u.Open("/f")
		k.wantError(err, fs.ErrNotExist)
		k.must(r.Close())
		_, err = r.ReadAt(make([]byte, 1), 0)
		k.wantError(err, fs.ErrClosed)
		k.wantError(r.Close(), fs.ErrClosed)
	})
}

// After a skip the library has forgotten where it is.
func TestReplicaLostAfterASkip(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		data := random(1 << 20)
		u.put("/f", data)
		r := u.openFile("/f")
		read := func(off, n int) {
			k.Helper()
			b := make([]byte, n)
			_, err := r.ReadAt(b, int64(off))
			k.must(err)
			if !bytes.Equal(b, data[off:][:n]) {
				k.Fatalf("%d bytes at %d are not those of the file", n, off)
			}
		}
		read(0, 100)
		read(5000, 100)
		k.KillDatanode(u.datanode())
		read(5100, 900000)
	})
}
