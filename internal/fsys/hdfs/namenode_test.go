package hdfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
	"github.com/tidemill/tidemill/wal"
)

// calls are all operations that ask the namenode, each on names of its own.
// Prepare makes what they need.
var calls = map[string]func(u *user) error{
	"Create":   func(u *user) error { return closed(u.Create("/calls/new")) },
	"Mkdir":    func(u *user) error { return u.Mkdir("/calls/dir") },
	"MkdirAll": func(u *user) error { return u.MkdirAll("/calls/a/b/c") },
	"Rename":   func(u *user) error { return u.Rename("/calls/from", "/calls/to") },
	"Remove":   func(u *user) error { return u.Remove("/calls/remove") },
	"Stat": func(u *user) error {
		in, err := u.Stat("/calls/old")
		if err == nil && in.Size != 1000 {
			err = fmt.Errorf("size %d, want 1000", in.Size)
		}
		return err
	},
	"List": func(u *user) error {
		infos, err := u.List("/calls/full")
		if err == nil && len(infos) != 3 {
			err = fmt.Errorf("%d entries, want 3", len(infos))
		}
		return err
	},
	"Open": func(u *user) error {
		data, err := fsys.ReadFile(u, "/calls/old")
		if err == nil && string(data) != string(random(1000)) {
			err = fmt.Errorf("%d bytes that are not those of the file", len(data))
		}
		return err
	},
	"SyncDir": func(u *user) error { return u.SyncDir("/calls") },
	"Hosts": func(u *user) error {
		hosts, err := u.Hosts("/calls/old", 0, 1000)
		if err == nil && len(hosts) != 3 {
			err = fmt.Errorf("hosts %q, want 3", hosts)
		}
		return err
	},
	"Promise": func(u *user) error {
		_, err := u.Promise(true)
		return err
	},
}

func closed(f fsys.File, err error) error {
	if err == nil {
		err = f.Close()
	}
	return err
}

func prepare(u *user) {
	u.k.Helper()
	u.k.must(u.MkdirAll("/calls/full"))
	for _, name := range []string{"from", "remove", "old", "full/1", "full/2", "full/3"} {
		u.put("/calls/"+name, random(1000))
	}
}

// done checks that every call has had its effect, once.
func done(k *kit) {
	k.Helper()
	tree := strings.Join(slices.DeleteFunc(k.Tree(), func(p string) bool { return !strings.HasPrefix(p, "/calls/") }), " ")
	want := "/calls/ /calls/a/ /calls/a/b/ /calls/a/b/c/ /calls/dir/ /calls/full/ /calls/full/1 /calls/full/2 /calls/full/3 /calls/new /calls/old /calls/to"
	if tree != want {
		k.Errorf("there is\n%s\nwant\n%s", tree, want)
	}
}

// changes are the calls that a namenode in safe mode refuses.
var changes = map[string]bool{"Create": true, "Mkdir": true, "MkdirAll": true, "Rename": true, "Remove": true}

// ride has all calls made side by side while the namenode is away. They must not
// be over before it serves again, and all succeed.
func ride(k *kit, u *user, reads, writes time.Duration) {
	k.Helper()
	waits := map[string]func() error{}
	began := time.Now()
	for name, call := range calls {
		waits[name] = later(func() error {
			err := call(u)
			least := reads
			if changes[name] {
				least = writes
			}
			if took := time.Since(began); err == nil && (took < least && name != "Promise" || took > writes+3*time.Second) {
				err = fmt.Errorf("over after %v", took)
			}
			return err
		})
	}
	for name, wait := range waits {
		if err := wait(); err != nil {
			k.Errorf("%s: %v", name, err)
		}
	}
	done(k)
}

// Row "namenode killed": files go on, and calls wait, also for the end of the safe
// mode after a start.
func TestNamenodeKilled(t *testing.T) {
	for _, safe := range []time.Duration{0, 10 * time.Second} {
		bubble(t, hdfstest.Options{SafeModeFor: safe}, func(k *kit) {
			u := k.open(hdfs.Config{})
			prepare(u)
			f := u.create("/open")
			k.commit(f, random(100))
			k.KillNamenode(0)
			time.AfterFunc(20*time.Second, func() { k.RestartNamenode(0) })
			k.within(0, 0, func() {
				k.commit(f, random(200)) // the datanodes are there
				_, err := f.Write(random(70000))
				k.must(err)
				k.must(f.Sync())
			})
			wait := later(f.Close)
			ride(k, u, 20*time.Second, 20*time.Second+safe)
			k.must(wait())
			if open := k.OpenFiles(); len(open) != 0 {
				t.Errorf("open: %v", open)
			}
			u.want("/open", append(append(random(100), random(200)...), random(70000)...))
			if s := u.Stats(); s.Abandoned != 0 {
				t.Errorf("%+v: a file was given up", s)
			}
		})
	}
}

// Row "namenode killed": a segment that is due by age goes on until another can
// be made, and nobody who appends waits.
func TestNamenodeKilledPostponesRolling(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		j := u.journal(wal.Config{SegmentAge: 5 * time.Second})
		j.append(random(10))
		first := j.segment()
		k.KillNamenode(0)
		time.AfterFunc(32*time.Second, func() { k.RestartNamenode(0) })
		sleep(2 * time.Second)
		if !u.Away("") {
			t.Error("the namenode is away, and nobody knows")
		}
		for range 60 {
			sleep(500 * time.Millisecond)
			k.within(0, 0, func() { j.append(random(10)) })
		}
		for range 20 {
			sleep(500 * time.Millisecond)
			k.within(0, 100*time.Millisecond, func() { j.append(random(10)) }) // one attempt may fail yet
		}
		if u.Away("") {
			t.Error("the namenode is back, and nobody knows")
		}
		if j.segment() == first {
			t.Error("the segment was not sealed when the namenode was back")
		}
		if len(j.alarms) != 0 {
			t.Errorf("alarms: %v", j.alarms)
		}
		u.wire.cut()
		j.want(k.open(hdfs.Config{}), 0)
	})
}

// The library's calls wait for each other in a way that stops fake time, so this
// is below its period of one second.
const short = 900 * time.Millisecond

// Row "namenode hung": every call is bounded.
func TestNamenodeHung(t *testing.T) {
	for name, call := range calls {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			prepare(k.open(hdfs.Config{}))
			u := k.open(hdfs.Config{Timeout: short, Patience: time.Nanosecond})
			if name == "Create" {
				u.Promise(true) // or it asks twice
			}
			k.PauseNamenode(0)
			k.within(0, 2*short, func() {
				err := call(u)
				if name == "Create" && u.Stats().Creates == 0 && err == nil {
					t.Error("a file was made by nobody")
				}
				if name != "Promise" || err != nil {
					k.wantError(err, hdfs.ErrUnavailable, "waited")
				}
			})
			k.ResumeNamenode(0)
			sleep(5 * time.Second)
			err := call(u)
			if name == "Create" && errors.Is(err, fs.ErrExist) && len(k.OpenFiles()) == 1 {
				return // it got the call all the same, as nobody's
			}
			if err != nil {
				t.Errorf("%s after the namenode went on: %v", name, err)
			}
		})
	}
}

// Row "namenode hung": another takes over.
func TestNamenodeHungAndFailover(t *testing.T) {
	bubble(t, hdfstest.Options{Namenodes: 2}, func(k *kit) {
		u := k.open(hdfs.Config{Timeout: short})
		prepare(u)
		f := u.create("/open")
		k.commit(f, random(100))
		k.PauseNamenode(0)
		k.Activate(1)
		k.within(short, short+100*time.Millisecond, func() { k.must(calls["Stat"](u)) })
		sleep(time.Second) // the file's client has found out too
		k.must(f.Close())
		for name, call := range calls {
			k.within(0, 2*time.Second, func() {
				if err := call(u); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		done(k)
	})
}

// Row "namenode hung": an answer that comes too late is nobody's.
func TestLateAnswerIsDropped(t *testing.T) {
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		u := k.open(hdfs.Config{Timeout: short})
		u.put("/a", random(100))
		u.put("/b", random(200))
		f := u.create("/c")
		k.commit(f, random(300))
		k.FailNext("renewLease", 2, hdfstest.Delay(2*short)) // of the file's client and the shared one
		sleep(10 * time.Second)
		k.FailNext("getFileInfo", 1, hdfstest.Delay(2*short))
		for range 3 {
			for name, size := range map[string]int64{"/a": 100, "/b": 200, "/c": 300} {
				if in, err := u.Stat(name); err != nil || in.Size != size {
					t.Errorf("%s has %d bytes, %v, want %d", name, in.Size, err, size)
				}
			}
		}
		k.commit(f, random(1<<20)) // for which its client asks for a block
		k.must(f.Close())
		u.want("/c", append(random(300), random(1<<20)...))
	})
}

// Row "standby": no namenode is active for a while.
func TestStandby(t *testing.T) {
	bubble(t, hdfstest.Options{Namenodes: 2}, func(k *kit) {
		u := k.open(hdfs.Config{})
		prepare(u)
		f := u.create("/open")
		k.commit(f, random(100))
		k.StandbyAll()
		time.AfterFunc(5*time.Second, func() { k.Activate(1) })
		k.within(0, 0, func() { k.commit(f, random(200)) })
		wait := later(f.Close)
		ride(k, u, 5*time.Second, 5*time.Second)
		k.must(wait())
		u.want("/open", append(random(100), random(200)...))
	})
	bubble(t, hdfstest.Options{Namenodes: 2}, func(k *kit) {
		u := k.open(hdfs.Config{Patience: 10 * time.Second})
		k.StandbyAll()
		k.within(10*time.Second, 12*time.Second, func() {
			k.wantError(u.Mkdir("/d"), hdfs.ErrUnavailable, "StandbyException", "waited 10s")
		})
	})
}

// Row "safe mode".
func TestSafeMode(t *testing.T) {
	for _, start := range []bool{true, false} {
		bubble(t, hdfstest.Options{}, func(k *kit) {
			u := k.open(hdfs.Config{})
			prepare(u)
			f := u.create("/open")
			k.commit(f, random(100))
			if start {
				u = k.open(hdfs.Config{}) // it has asked nothing yet
			}
			k.SafeMode(true)
			time.AfterFunc(20*time.Second, func() { k.SafeMode(false) })
			wait := later(f.Close)
			ride(k, u, 0, 20*time.Second)
			k.must(wait())
			for _, what := range []string{"create /calls/new", "rename /calls/from", "remove /calls/remove", "mkdir /calls/a/b/c"} {
				if n := u.log.count("[WARN]", "trying again", what, "safe mode"); n > 1 {
					t.Errorf("told %d times of %s", n, what)
				}
			}
			if n := u.log.count("[WARN]", "trying again", "safe mode"); n < 3 {
				t.Errorf("told %d times:\n%s", n, u.log)
			}
		})
	}
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{Patience: 30 * time.Second})
		k.SafeMode(true)
		k.within(30*time.Second, 32*time.Second, func() {
			k.wantError(u.Mkdir("/d"), hdfs.ErrUnavailable, "safe mode", "waited 3", "/d")
		})
		k.wantError(closed(u.Create("/f")), hdfs.ErrUnavailable, "safe mode", "waited 3", "/f")
		if n := u.log.count("[WARN]", "what=\"mkdir /d\""); n != 1 {
			t.Errorf("told %d times of one directory in 30 s:\n%s", n, u.log)
		}
	})
}

// Row "quota": an answer, not an outage.
func TestQuota(t *testing.T) {
	bubble(t, hdfstest.Options{BlockSize: 1 << 20}, func(k *kit) {
		u := k.open(hdfs.Config{})
		k.must(u.MkdirAll("/q"))
		k.must(k.SetQuota("/q", 2, 0))
		u.put("/q/1", nil)
		k.within(0, 0, func() {
			k.wantError(closed(u.Create("/q/2")), hdfs.ErrQuota, "directory /q is exceeded", "/q/2")
			k.wantError(u.MkdirAll("/q/3"), hdfs.ErrQuota, "directory /q is exceeded")
			k.wantError(u.Mkdir("/q/3"), hdfs.ErrQuota, "directory /q is exceeded")
		})
		k.must(k.SetQuota("/q", 3, 0))
		u.put("/q/2", nil)

		k.must(k.SetQuota("/q", 0, 3<<20))
		u.put("/q/1M", nil)
		f := u.create("/q/bytes")
		k.commit(f, random(1<<20))
		k.within(0, 0, func() {
			k.wantError(flushed(f, random(1<<20)), hdfs.ErrQuota, "quota of /q is exceeded", "/q/bytes")
		})
		k.must(f.Close())
		u.want("/q/bytes", random(1<<20)) // what was acknowledged
		k.within(0, 0, func() {
			k.wantError(flushed(u.create("/q/more"), random(10)), hdfs.ErrQuota, "quota of /q is exceeded")
		})
		k.must(k.SetQuota("/q", 0, 30<<20))
		u.put("/q/late", random(2<<20))
		u.want("/q/late", random(2<<20))
	})
}

// Row "permission": an answer, not an outage.
func TestPermission(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		prepare(u)
		k.must(k.Deny("/calls"))
		for name := range changes {
			k.within(0, 0, func() { k.wantError(calls[name](u), fs.ErrPermission, "/calls") })
		}
		k.must(k.Allow("/calls"))
		for name := range changes {
			k.must(calls[name](u))
		}
		done(k)
	})
}
