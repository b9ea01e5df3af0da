package hdfs_test

import (
	"context"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// Row "leaks": writers that failed, in whatever way, leave nothing behind.
func TestFailedWritersLeaveNothing(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		u.put("/warm", random(10))
		sleep(10 * time.Second) // spare clients are gone
		before := runtime.NumGoroutine()
		for i := range 50 {
			name := fmt.Sprintf("/f%d", i)
			f := u.create(name)
			k.commit(f, random(1000))
			nodes, err := k.Pipeline(name)
			k.must(err)
			switch i % 4 {
			case 0:
				k.KillDatanode(nodes[i%3])
			case 1:
				k.must(k.AckError(nodes[i%3], "ERROR"))
			case 2:
				k.PauseDatanode(nodes[i%3])
			case 3:
				k.must(k.open(hdfs.Config{}).Remove(name))
			}
			if err := flushed(f, random(70000)); err == nil {
				t.Fatalf("file %d: acknowledged", i)
			}
			k.must(f.Close())
			k.must(k.AckError(nodes[i%3], "SUCCESS"))
			k.ResumeDatanode(nodes[i%3])
			k.must(k.RestartDatanode(nodes[i%3]))
		}
		sleep(30 * time.Second)
		// Each of the others that removed a file has its client.
		if now := runtime.NumGoroutine(); now > before+3*13 {
			t.Errorf("%d goroutines before, %d after 50 files", before, now)
		}
	})
}

// Row "leaks": Close ends what waits, and what was begun is nobody's any more.
func TestCloseOfTheFileSystem(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		u.put("/old", random(1000))
		f, g := u.create("/f"), u.create("/g")
		k.commit(f, random(1000))
		quiet := u.create("/quiet")
		_, err := quiet.Write(random(1000))
		k.must(err)
		r := u.openFile("/old")
		k.must(u.Mkdir("/d"))
		k.SafeMode(true)
		waits := []func() error{
			later(func() error { return u.Mkdir("/e") }),
			later(func() error { return closed(u.Create("/h")) }),
			later(func() error { return u.Recover(context.Background(), []string{"/f"}, nil) }),
		}
		sleep(5 * time.Second)
		k.within(0, 0, func() {
			k.must(u.FS.Close())
			k.must(u.FS.Close())
			for _, wait := range waits {
				k.wantError(wait(), fs.ErrClosed)
			}
		})
		k.wantError(flushed(f, random(10)), fs.ErrClosed, "/f")
		k.wantError(flushed(g, random(10)), fs.ErrClosed, "/g")
		_, err = u.Stat("/old")
		k.wantError(err, fs.ErrClosed)
		_, err = r.ReadAt(make([]byte, 10), 0)
		if err == nil {
			t.Error("read after the file system was closed: nil")
		}
		// Who has asked for nothing since learns by Close that what was written is lost.
		k.wantError(quiet.Close(), fs.ErrClosed, "/quiet")
		f.Close()
		g.Close()
		k.wantError(f.Close(), fs.ErrClosed)
		if open := k.OpenFiles(); !slices.Equal(open, []string{"/f", "/g", "/quiet"}) {
			t.Errorf("open: %q: the namenode was told of an end", open)
		}
	})
}

// Everything a File refuses after Close.
func TestClosedFile(t *testing.T) {
	bubble(t, hdfstest.Options{}, func(k *kit) {
		u := k.open(hdfs.Config{})
		f := u.create("/f")
		k.must(f.Close())
		_, err := f.Write([]byte("x"))
		k.wantError(err, fs.ErrClosed)
		k.wantError(f.Flush(), fs.ErrClosed)
		k.wantError(f.Sync(), fs.ErrClosed)
		k.wantError(f.Close(), fs.ErrClosed)
	})
}

// Nothing of a bubble is left but what its cluster has, once the file system is
// closed and its files after it. (A bubble with a goroutine left panics.)
func TestNothingIsLeft(t *testing.T) {
	for i := range 4 {
		synctest.Test(t, func(t *testing.T) {
			c := hdfstest.Start(hdfstest.Options{})
			defer c.Close()
			f, err := hdfs.New(hdfs.Config{Addresses: c.Namenodes(), User: "tester", Dial: c.Dial})
			if err != nil {
				t.Fatal(err)
			}
			var files []fsys.File
			for n := range 3 {
				file, err := f.Create(fmt.Sprintf("/f%d", n))
				if err == nil {
					err = flushed(file, random(n*70000))
				}
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, file)
			}
			switch i {
			case 1:
				c.KillNamenode(0)
			case 2:
				c.KillDatanode(1)
			case 3:
				time.Sleep(45 * time.Second)
			}
			f.Close()
			for _, file := range files {
				file.Close()
			}
		})
	}
}
