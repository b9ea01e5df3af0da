package hdfs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
	"github.com/tidemill/tidemill/wal"
)

// Row "datanode killed": whichever of the pipeline dies, the log goes on in
// another segment, and the one before is recovered beside that.
func TestDatanodeKilled(t *testing.T) {
	for at := range 3 {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u := k.open(hdfs.Config{})
			j := u.journal(wal.Config{})
			j.append(numbered(50)...)
			old := j.segment()
			k.KillDatanode(j.pipeline()[at])
			k.within(0, time.Second, func() { j.append(numbered(50)...) })
			if j.segment() == old {
				t.Errorf("position %d: the log goes on in the segment whose datanode died", at)
			}
			sleep(5 * time.Second)
			if s := u.Stats(); s.Abandoned != 1 || s.Recovered != 1 {
				t.Errorf("position %d: %+v, want one file given up and recovered", at, s)
			}
			if n := u.log.count("[WARN]", "given up", old); n != 1 {
				t.Errorf("position %d: told %d times of the file that was given up:\n%s", at, n, u.log)
			}
			if open, err := u.Writing(old); open || err != nil {
				t.Errorf("position %d: still written: %v, %v", at, open, err)
			}
			if n := len(u.read(old)); n < 50*20 {
				t.Errorf("position %d: %d bytes of the old segment", at, n)
			}
			u.wire.cut()
			j.want(k.open(hdfs.Config{}), 0)
		})
	}
}

// Row "datanode killed", in the middle of what one commit sends.
func TestDatanodeKilledInTheMiddleOfACommit(t *testing.T) {
	for at := range 3 {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u := k.open(hdfs.Config{})
			f := u.create("/f")
			data := random(3 << 20)
			k.commit(f, data[:1<<20])
			nodes, err := k.Pipeline("/f")
			k.must(err)
			_, err = f.Write(data[1<<20 : 2<<20])
			k.must(err)
			k.KillDatanode(nodes[at])
			_, werr := f.Write(data[2<<20:])
			if ferr := f.Flush(); ferr == nil {
				t.Fatalf("position %d: acknowledged; write said %v", at, werr)
			}
			k.must(f.Close())
			u.wantPrefix("/f", data, 1<<20)
		})
	}
}

// Row "datanode hung": a commit fails after Timeout, and the log goes on elsewhere.
func TestDatanodeHung(t *testing.T) {
	for at := range 3 {
		bubble(t, hdfstest.Options{Datanodes: 4, Replication: 3}, func(k *kit) {
			const limit = 10 * time.Second // the default
			u := k.open(hdfs.Config{})
			f := u.create("/f")
			k.commit(f, random(1000))
			j := u.journal(wal.Config{})
			j.append(numbered(10)...)
			nodes, err := k.Pipeline("/f")
			k.must(err)
			k.PauseDatanode(nodes[at])
			k.within(limit, limit+time.Second, func() {
				err := flushed(f, random(1000))
				if err == nil || !strings.Contains(err.Error(), "no answer within 10s") {
					t.Errorf("position %d: %v", at, err)
				}
			})
			// The namenode knows by now that it is silent.
			k.within(0, limit+time.Second, func() { j.append(numbered(10)...) })
			k.must(f.Close())
			u.wantPrefix("/f", append(random(1000), random(1000)...), 1000)
			u.wire.cut()
			j.want(k.open(hdfs.Config{}), 0)
		})
	}
}

// A datanode hangs when a file is closed that was not flushed.
func TestDatanodeHungAtClose(t *testing.T) {
	for at := range 3 {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u := k.open(hdfs.Config{})
			f := u.create("/f")
			data := random(80000)
			k.commit(f, data[:10000])
			nodes, err := k.Pipeline("/f")
			k.must(err)
			k.PauseDatanode(nodes[at])
			_, err = f.Write(data[10000:])
			k.must(err)
			k.within(10*time.Second, 11*time.Second, func() {
				if err := f.Close(); err == nil || !strings.Contains(err.Error(), "close: no answer within 10s") {
					t.Errorf("position %d: %v", at, err)
				}
			})
			u.wantPrefix("/f", data, 10000)
		})
	}
}

// A file that is begun on a datanode that hangs is begun elsewhere.
func TestDatanodeHungAtTheFirstBlock(t *testing.T) {
	for hung := range 3 {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u := k.open(hdfs.Config{Timeout: 2 * time.Second})
			k.PauseDatanode(hung)
			k.within(0, 10*time.Second, func() { u.put("/f", random(5000)) })
			u.want("/f", random(5000))
		})
	}
}

// Row "dead datanode, as many replicas as nodes": one replica less is asked for,
// and the rest when the file is closed.
func TestDeadDatanodeLeavesAReplicaOut(t *testing.T) {
	for dead := range 3 {
		bubble(t, hdfstest.Options{DeadAfter: time.Hour}, func(k *kit) {
			u := k.open(hdfs.Config{})
			k.KillDatanode(dead)
			f := u.create("/f")
			k.within(0, time.Second, func() { k.commit(f, random(100)) })
			if n, err := k.Replicas("/f"); n != 2 || err != nil {
				t.Errorf("%d replicas, %v, want 2", n, err)
			}
			before := k.Calls("setReplication")
			k.must(f.Close())
			if n := k.Calls("setReplication") - before; n != 1 {
				t.Errorf("the third replica was asked for %d times", n)
			}
			if n := replication(k, "/f"); n != 3 {
				t.Errorf("the file asks for %d replicas, want 3", n)
			}
			k.must(k.RestartDatanode(dead))
			before = k.Calls("setReplication")
			u.put("/g", random(100))
			if n := k.Calls("setReplication") - before; n != 0 || replication(k, "/g") != 3 {
				t.Errorf("with all nodes there: %d calls, replication %d", n, replication(k, "/g"))
			}
		})
	}
}

// Row "dead datanode, as many replicas as nodes", where all must acknowledge: it
// is waited for, and told of.
func TestDeadDatanodeIsWaitedForIfAllMustAcknowledge(t *testing.T) {
	bubble(t, hdfstest.Options{DeadAfter: time.Hour}, func(k *kit) {
		u := k.open(hdfs.Config{MinReplicas: 3})
		k.KillDatanode(1)
		time.AfterFunc(20*time.Second, func() { k.RestartDatanode(1) })
		k.within(20*time.Second, 22*time.Second, func() { u.put("/f", random(100)) })
		if n := u.log.count("[WARN]", "first block of /f"); n != 1 {
			t.Errorf("told %d times, want once:\n%s", n, u.log)
		}
		if n := u.log.count("[INFO]", "HDFS answers again", "first block of /f"); n != 1 {
			t.Errorf("told %d times that it is over:\n%s", n, u.log)
		}
		u.want("/f", random(100))
	})
	bubble(t, hdfstest.Options{Datanodes: 4, Replication: 3, StaleAfter: time.Hour}, func(k *kit) {
		u := k.open(hdfs.Config{MinReplicas: 3})
		k.KillDatanode(1)
		k.KillDatanode(2)
		k.must(k.RestartDatanode(1)) // another one is there to take its place
		k.within(0, 12*time.Second, func() { u.put("/f", random(100)) })
	})
	bubble(t, hdfstest.Options{DeadAfter: time.Hour}, func(k *kit) {
		u := k.open(hdfs.Config{MinReplicas: 3, Patience: 7 * time.Second})
		k.KillDatanode(1)
		f := u.create("/f")
		k.within(7*time.Second, 8*time.Second, func() {
			k.wantError(flushed(f, random(100)), hdfs.ErrNoDatanode, "waited 7s", "/f")
		})
		if u.Stats().Creates < 7 {
			t.Errorf("%+v: the file was not made anew", u.Stats())
		}
	})
}

// Row "datanodes full".
func TestDatanodesFull(t *testing.T) {
	fill := func(k *kit, full bool) {
		for i := range 3 {
			k.FillDatanode(i, full)
		}
	}
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{Patience: 30 * time.Second})
		f := u.create("/f")
		fill(k, true)
		k.within(30*time.Second, 32*time.Second, func() {
			k.wantError(flushed(f, random(100)), hdfs.ErrNoDatanode, "could only be written to 0", "waited 3")
		})
		if u.log.count("[WARN]", "first block of /f", "no datanode takes a block") != 1 {
			t.Errorf("log:\n%s", u.log)
		}
		fill(k, false)
		u.put("/g", random(100))
		u.want("/g", random(100))
	})
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		j := u.journal(wal.Config{SegmentBytes: 2000})
		j.append(numbered(10)...)
		fill(k, true)
		time.AfterFunc(40*time.Second, func() { fill(k, false) })
		k.within(40*time.Second, 42*time.Second, func() { j.append(numbered(20)...) })
		u.wire.cut()
		j.want(k.open(hdfs.Config{}), 0)
	})
}

// Row "idle": a datanode ends a connection on which it hears nothing for a
// minute, so something is said.
func TestIdleFileCanBeWritten(t *testing.T) {
	for _, idle := range []time.Duration{70 * time.Second, 10 * time.Minute} {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u := k.open(hdfs.Config{})
			u.wire.idle = time.Minute
			f := u.create("/f")
			k.commit(f, random(100))
			sleep(idle)
			k.commit(f, random(200))
			k.must(f.Sync())
			sleep(idle)
			k.must(f.Close())
			u.want("/f", append(random(100), random(200)...))
			if s := u.Stats(); s.Abandoned != 0 || s.Creates != 1 {
				t.Errorf("%+v: one file would do", s)
			}
		})
	}
}
