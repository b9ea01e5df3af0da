package hdfs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
	"github.com/tidemill/tidemill/wal"
)

// callPort is the port that every datanode of a cluster takes calls at.
const callPort = "9867"

// sees opens a file, which must have exactly the bytes of want.
func (u *user) sees(name string, want []byte) {
	u.k.Helper()
	r, err := u.Open(name)
	u.k.must(err)
	defer r.Close()
	if r.Size() != int64(len(want)) {
		u.k.Fatalf("%s: size %d, want %d", name, r.Size(), len(want))
	}
	got, err := io.ReadAll(r)
	u.k.must(err)
	if !bytes.Equal(got, want) {
		u.k.Fatalf("%s: %d bytes, want %d with the same content", name, len(got), len(want))
	}
}

// asked are the datanodes that were asked how much there is, in order.
func (u *user) asked() []int {
	u.wire.mu.Lock()
	defer u.wire.mu.Unlock()
	var nodes []int
	for _, at := range u.wire.dialed {
		host, port, _ := net.SplitHostPort(at)
		for i := 0; port == callPort && i < 4; i++ {
			if strings.HasPrefix(u.k.Datanode(i), host+":") {
				nodes = append(nodes, i)
				break
			}
		}
	}
	return nodes
}

// pipelineOf is that of the last block of a file.
func (k *kit) pipelineOf(name string) []int {
	k.Helper()
	nodes, err := k.Pipeline(name)
	k.must(err)
	return nodes
}

// Row "file of another still being written": what was flushed is all there is, at
// every size about a chunk, a packet and a block.
func TestAnotherSeesWhatWasFlushed(t *testing.T) {
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		f := a.create("/f")
		var written []byte
		put := func(size int) {
			k.Helper()
			part := random(size)
			k.commit(f, part)
			written = append(written, part...)
			b.sees("/f", written)
		}
		for i, size := range sizes {
			put(size)
			if i%3 == 1 {
				a.want("/f", written) // which tells the namenode a length that is soon the one before
			}
			// What no packet has brought anywhere is not there.
			_, err := f.Write([]byte("not flushed"))
			k.must(err)
			synctest.Wait()
			b.sees("/f", written)
			written = append(written, "not flushed"...)
		}
		put(1<<20 - len(written) - 1)
		put(1) // a block is full, and the next one not begun
		put(1)
		put(2<<20 + 17) // over two more
		put(1<<20 - 17 - 1 - 512)
		put(512)
		if in, err := b.Stat("/f"); err != nil || in.Size == int64(len(written)) {
			t.Errorf("the namenode says %d bytes, %v: a datanode need not be asked", in.Size, err)
		}
		k.must(f.Close())
		b.want("/f", written)
	})
}

// Of a file that has no block yet nobody can tell whether it is empty: its
// writer may have been given one since. When a block was begun and nothing
// flushed, a datanode says 0, and it is.
func TestAnotherSeesNothingFlushed(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		f := a.create("/f")
		k.must(f.Flush())
		_, err := b.Open("/f")
		k.wantError(err, hdfs.ErrWriting)
		if want := "open /f: the file is still being written"; err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		if asked := b.asked(); asked != nil {
			t.Errorf("datanodes %v were asked for a block that is none", asked)
		}
		_, err = f.Write([]byte("begun"))
		k.must(err)
		b.sees("/f", nil)
		k.must(f.Flush())
		b.sees("/f", []byte("begun"))
	})
}

// A block is whole and the next one was refused: the file has no last block that
// a datanode could be asked about.
func TestAnotherOpensBetweenTwoBlocks(t *testing.T) {
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		f := a.create("/f")
		data := random(1 << 20)
		k.commit(f, data)
		b.sees("/f", data)
		k.must(k.SetQuota("/", 0, 1))
		k.wantError(flushed(f, []byte("more")), hdfs.ErrQuota)
		asked := len(b.asked())
		_, err := b.Open("/f")
		k.wantError(err, hdfs.ErrWriting, "open /f")
		if n := len(b.asked()); n != asked {
			t.Errorf("%d datanodes were asked about a block that is complete", n-asked)
		}
		b.recover("/f")
		b.want("/f", data)
	})
}

// What a datanode has, and one behind it has not acknowledged, is not seen.
func TestAnotherSeesNoUnacknowledgedBytes(t *testing.T) {
	for position := range 3 {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
			f := a.create("/f")
			first, more := random(70000), random(70001)
			k.commit(f, first)
			held := k.pipelineOf("/f")[position]
			k.HoldAcks(held, true)
			wait := later(func() error { return flushed(f, more) })
			sleep(time.Second)
			if have, err := k.Content("/f"); err != nil || len(have) != len(first)+len(more) {
				t.Fatalf("datanodes have %d bytes, %v", len(have), err)
			}
			b.sees("/f", first)
			k.HoldAcks(held, false)
			k.must(wait())
			b.sees("/f", slices.Concat(first, more))
		})
	}
}

// A datanode that does not tell is no reason to give up.
func TestTheNextDatanodeIsAsked(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(k *kit, i int)
		took time.Duration
	}{
		"killed": {lose: func(k *kit, i int) { k.KillDatanode(i) }},
		"hung":   {lose: func(k *kit, i int) { k.PauseDatanode(i) }, took: short},
		"wiped":  {lose: func(k *kit, i int) { k.WipeDatanode(i) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
				a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{Timeout: short})
				f := a.create("/f")
				data := random(1<<20 + 70000)
				k.commit(f, data)
				nodes := k.pipelineOf("/f")
				for n := range 2 {
					c.lose(k, nodes[n])
					k.within(time.Duration(n+1)*c.took, time.Duration(n+1)*c.took, func() {
						r, err := b.Open("/f")
						k.must(err)
						defer r.Close()
						if r.Size() != int64(len(data)) {
							t.Errorf("without %d datanodes: size %d, want %d", n+1, r.Size(), len(data))
						}
					})
					if got := b.asked(); !slices.Equal(got[len(got)-n-2:], nodes[:n+2]) {
						t.Errorf("asked %v, want %v", got, nodes[:n+2])
					}
				}
				b.sees("/f", data)
			})
		})
	}
}

// A datanode that was restarted while it wrote does not know how much the others
// have.
func TestRestartedDatanodesDoNotTell(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		data := random(70000)
		k.commit(a.create("/f"), data)
		nodes := k.pipelineOf("/f")
		for n := range 2 {
			k.must(k.RestartDatanode(nodes[n]))
			b.sees("/f", data)
			if got := b.asked(); !slices.Equal(got[len(got)-n-2:], nodes[:n+2]) {
				t.Errorf("asked %v, want %v", got, nodes[:n+2])
			}
		}
		k.must(k.RestartDatanode(nodes[2]))
		_, err := b.Open("/f")
		k.wantError(err, hdfs.ErrWriting, "-1 bytes of a block are visible")
		b.recover("/f")
		b.want("/f", data)
	})
}

// When none tells, the error says why the last one did not, at once but for those
// that hang.
func TestNoDatanodeTells(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(k *kit, i int)
		took time.Duration
		why  string
	}{
		"killed": {lose: func(k *kit, i int) { k.KillDatanode(i) }, why: "connection refused"},
		"hung":   {lose: func(k *kit, i int) { k.PauseDatanode(i) }, took: 3 * short, why: "timeout"},
		"wiped":  {lose: func(k *kit, i int) { k.WipeDatanode(i) }, why: "ReplicaNotFoundException: Replica does not exist"},
		"fails": {lose: func(k *kit, i int) {
			k.FailNext("getReplicaVisibleLength", 1, hdfstest.Exception("java.io.IOException", "no such disk"))
		}, why: "IOException: no such disk"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, hdfstest.Options{}, func(k *kit) {
				a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{Timeout: short})
				k.commit(a.create("/f"), random(70000))
				nodes := k.pipelineOf("/f")
				for _, i := range nodes {
					c.lose(k, i)
				}
				k.within(c.took, c.took, func() {
					_, err := b.Open("/f")
					k.wantError(err, hdfs.ErrWriting, "open /f", c.why)
					if strings.Contains(err.Error(), "\n") {
						t.Errorf("error %q has more than a line", err)
					}
				})
				if got := b.asked(); !slices.Equal(got, nodes) {
					t.Errorf("asked %v, want each of %v once", got, nodes)
				}
			})
		})
	}
}

// The size is that of the moment of Open, and its bytes are right whatever becomes
// of the file, read on or read by connections that were made later.
func TestTheFileGoesOnWhileItIsRead(t *testing.T) {
	for name, event := range map[string]func(k *kit, a, b *user, f fsys.File, more []byte){
		"stays":               func(*kit, *user, *user, fsys.File, []byte) {},
		"closed":              func(k *kit, _, _ *user, f fsys.File, _ []byte) { k.must(f.Close()) },
		"grows":               func(k *kit, _, _ *user, f fsys.File, more []byte) { k.commit(f, more) },
		"grows by a little":   func(k *kit, _, _ *user, f fsys.File, more []byte) { k.commit(f, more[:3]) },
		"grows and is closed": func(k *kit, _, _ *user, f fsys.File, more []byte) { k.commit(f, more); k.must(f.Close()) },
		"writer dies":         func(_ *kit, a, _ *user, _ fsys.File, _ []byte) { a.wire.cut() },
		"writer dies and the lease is recovered": func(k *kit, a, b *user, f fsys.File, more []byte) {
			_, err := f.Write(more)
			k.must(err)
			a.wire.cut()
			b.recover("/f")
		},
	} {
		for _, lost := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
					a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
					f := a.create("/f")
					data, more := random(1<<20+70001), random(1<<20)
					k.commit(f, data)
					r := b.openFile("/f")
					got := make([]byte, 1<<20-1000)
					_, err := io.ReadFull(r, got)
					k.must(err)
					event(k, a, b, f, more)
					located := k.Calls("getBlockLocations")
					if lost {
						b.wire.cut()
						time.AfterFunc(200*time.Millisecond, b.wire.mend)
					}
					rest, err := io.ReadAll(r)
					k.must(err)
					if got = append(got, rest...); !bytes.Equal(got, data) {
						t.Fatalf("%d bytes, want %d with the same content", len(got), len(data))
					}
					if again := k.Calls("getBlockLocations") > located; again != lost {
						t.Errorf("the file was opened again: %v, want %v", again, lost)
					}
					part := make([]byte, 1000)
					n, err := r.ReadAt(part, int64(len(data))-700)
					if n != 700 || err != io.EOF || !bytes.Equal(part[:n], data[len(data)-700:]) {
						t.Errorf("at the end: %d bytes, %v, want 700 and EOF", n, err)
					}
					if r.Size() != int64(len(data)) {
						t.Errorf("size %d, was %d", r.Size(), len(data))
					}
				})
			})
		}
	}
}

// Many read one Reader while the file grows, and lose their connections.
func TestManyReadWhatGrows(t *testing.T) {
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		f := a.create("/f")
		data := random(2<<20 + 12345)
		k.commit(f, data)
		r := b.openFile("/f")
		var waits []func() error
		for g := range 8 {
			waits = append(waits, later(func() error {
				rng := rand.New(rand.NewPCG(uint64(g), 2))
				for range 30 {
					time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
					off := rng.IntN(len(data))
					got := make([]byte, rng.IntN(100000))
					n, err := r.ReadAt(got, int64(off))
					if err != nil && err != io.EOF {
						return err
					}
					if want := min(len(got), len(data)-off); n != want || !bytes.Equal(got[:n], data[off:][:n]) {
						return errors.New("other bytes than were written")
					}
				}
				return nil
			}))
		}
		for i := range 10 {
			sleep(50 * time.Millisecond)
			k.commit(f, random(200000+i))
			if i%3 == 2 {
				b.wire.cut()
				time.AfterFunc(10*time.Millisecond, b.wire.mend)
			}
		}
		for _, wait := range waits {
			k.must(wait())
		}
	})
}

// A log that is being written is read by another, who finds what is acknowledged
// and nothing wrong.
func TestAnotherScansALogBeingWritten(t *testing.T) {
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		a, b := k.open(hdfs.Config{}), k.open(hdfs.Config{})
		j := a.journal(wal.Config{SegmentBytes: 3 << 20})
		scan := func() {
			k.Helper()
			var found [][]byte
			report, err := wal.Scan(context.Background(), b, j.dir, wal.ScanOptions{}, func(seq uint64, _ base.Handle, rec []byte) error {
				if found = append(found, bytes.Clone(rec)); uint64(len(found)) != seq {
					k.Fatalf("record %d has sequence %d", len(found), seq)
				}
				return nil
			})
			k.must(err)
			if len(report.Torn)+len(report.Damaged) > 0 {
				t.Errorf("torn %v, damaged %v", report.Torn, report.Damaged)
			}
			if !slices.EqualFunc(found, j.acked, bytes.Equal) {
				k.Fatalf("%d records found, want the %d acknowledged", len(found), len(j.acked))
			}
		}
		scan()
		for _, rec := range numbered(40) {
			j.append(rec)
			scan()
		}
		for range 12 { // over blocks and segments
			j.append(random(700000))
			scan()
		}
		if infos, err := b.List(j.dir); err != nil || len(infos) < 3 {
			t.Fatalf("%d files, %v: the log has one segment", len(infos), err)
		}
		// One that is on its way is not there, or all of it.
		k.HoldAcks(j.pipeline()[2], true)
		wait := later(func() error { return j.try(random(1000)) })
		sleep(time.Second)
		scan()
		k.HoldAcks(j.pipeline()[2], false)
		k.must(wait())
		scan()
	})
}
