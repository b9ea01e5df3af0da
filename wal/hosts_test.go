package wal_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// placedFS says of each file that the host of its name holds all of it.
type placedFS struct {
	*fsys.Mem
	away bool
}

func (p *placedFS) Hosts(name string, offset, length int64) ([]string, error) {
	in, err := p.Stat(name)
	if err != nil {
		return nil, err
	}
	if offset != 0 || length != in.Size {
		return nil, fmt.Errorf("%d bytes at %d of a file of %d", length, offset, in.Size)
	}
	return []string{"host of " + name}, nil
}

func (p *placedFS) Away(string) bool { return p.away }

func TestHostsAreThoseOfAClosedSegment(t *testing.T) {
	p := &placedFS{Mem: fsys.NewMem()}
	s := openStore(t, p, nil)
	w := storeWriter(t, s, "orders", 4)
	h := add(t, w, "first")[0]
	hosts := func(h base.Handle) string {
		t.Helper()
		got, err := s.Hosts(h)
		must(t, err)
		return strings.Join(got, ", ")
	}
	if got := hosts(h); got != "" {
		t.Errorf("hosts %q of a segment that is written", got)
	}
	must(t, w.Roll(t.Context()))
	if got := hosts(h); got != "host of s/orders/e-000004/0000000000000001.wal" {
		t.Errorf("hosts %q of a closed segment", got)
	}
	storeWriter(t, s, "orders", 5) // seals epoch 4
	if got := hosts(h); got != "host of s/orders/e-000004.sealed/0000000000000001.wal" {
		t.Errorf("hosts %q of a sealed segment", got)
	}
	p.away = true
	if got := hosts(h); got != "" {
		t.Errorf("hosts %q, but the file system is away", got)
	}
	p.away = false
	if got := hosts(base.Handle{Log: "orders", Epoch: 9, Segment: 1}); got != "" {
		t.Errorf("hosts %q of a segment that nobody knows", got)
	}
	// Another process finds it sealed.
	must(t, s.Close())
	s = openStore(t, p, nil)
	if _, err := s.Recover(t.Context(), []base.Handle{h}); err != nil {
		t.Fatal(err)
	}
	if got := hosts(h); got != "host of s/orders/e-000004.sealed/0000000000000001.wal" {
		t.Errorf("hosts %q after a recovery", got)
	}
	must(t, p.Remove("s/orders/e-000004.sealed/0000000000000001.wal"))
	_, err := s.Hosts(h)
	wantError(t, err, fs.ErrNotExist, h.String())
}

// A record that moved is asked for where it is.
func TestHostsFollowRecordsThatMoved(t *testing.T) {
	for at := 1; at < 8; at++ {
		synctest.Test(t, func(t *testing.T) {
			p := &placedFS{Mem: fsys.NewMem()}
			s := openStore(t, p, func(c *wal.StoreConfig) { c.Level = wal.LevelMemory })
			w := storeWriter(t, s, "a", 1)
			f := &faults{op: "write", at: at, err: &fsys.ShortWrite{N: 30}}
			p.FailWith(f.hook)
			p.Slow(func(op, _ string) time.Duration { return time.Second })
			hs := add(t, w, numbered(9)...)
			p.Slow(nil)
			time.Sleep(time.Hour)
			must(t, w.Roll(t.Context()))
			if !f.fired() {
				t.Fatal("no write failed")
			}
			for i, h := range hs {
				hosts, err := s.Hosts(h)
				must(t, err)
				if len(hosts) != 1 {
					t.Fatalf("%s: hosts %q", h, hosts)
				}
				data, err := fsys.ReadFile(p, strings.TrimPrefix(hosts[0], "host of "))
				must(t, err)
				if !bytes.Contains(data, []byte(numbered(9)[i])) {
					t.Errorf("%s: %s has no %q", h, hosts[0], numbered(9)[i])
				}
			}
			must(t, s.Close())
		})
	}
}

func TestNoHostsWhereTheFileSystemDoesNotTell(t *testing.T) {
	s := openStore(t, fsys.NewMem(), nil)
	w := storeWriter(t, s, "orders", 4)
	h := add(t, w, "first")[0]
	must(t, w.Close())
	if got, err := s.Hosts(h); len(got) > 0 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
