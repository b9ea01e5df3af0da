package wal_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// B06: records of times 1, 3, 5, 7 in one segment, in any order. Release is by
// reference, not by time: the segment goes with its last record, whichever that
// is.
func TestB06SegmentGoesWithItsLastRecordNotWithATime(t *testing.T) {
	for _, times := range [][]int{{1, 3, 5, 7}, {7, 3, 5, 1}} {
		synctest.Test(t, func(t *testing.T) {
			m := fsys.NewMem()
			s := openStore(t, m, func(c *wal.StoreConfig) { c.SegmentBytes = 0 })
			w := storeWriter(t, s, "a", 1)
			at := map[int]base.Handle{}
			for _, time := range times {
				at[time] = add(t, w, fmt.Sprint(time))[0]
			}
			must(t, w.Roll(t.Context()))
			s.Release(at[1], at[3]) // all that is older than 4
			s.Release(at[1], at[3]) // twice takes nothing from the others
			synctest.Wait()
			wantRead(t, s, at[5], "5")
			wantRead(t, s, at[7], "7")
			s.Release(at[5], at[7]) // all that is older than 8
			synctest.Wait()
			if left := files(m); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			wantGone(t, s, at[5])
			must(t, w.Close())
			must(t, s.Close())
			if _, err := m.Stat("s/a/e-000001"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the empty epoch is left: %v", err)
			}
		})
	}
}

func TestOpenSegmentIsNotDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsys.NewMem()
		s := openStore(t, m, func(c *wal.StoreConfig) { c.SegmentBytes = 0 })
		w := storeWriter(t, s, "a", 1)
		s.Release(add(t, w, "one")...)
		synctest.Wait()
		if left := files(m); len(left) != 1 {
			t.Errorf("files %v", left)
		}
		wantRead(t, s, add(t, w, "two")[0], "two")
		must(t, w.Close())
	})
}

// Invariant 5: nothing is deleted before the log that names it says so durably.
func TestBeforeRemovePostpones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsys.NewMem()
		var mu sync.Mutex
		fail, calls, alarms := true, 0, 0
		s := openStore(t, m, func(c *wal.StoreConfig) {
			c.RetryDelay, c.RetryDelayMax = time.Second, time.Second
			c.BeforeRemove = func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				if len(files(m)) != 1 {
					t.Error("deleted before BeforeRemove")
				}
				if calls++; fail {
					return syscall.EIO
				}
				return nil
			}
			c.Alarm = func(error) { mu.Lock(); defer mu.Unlock(); alarms++ }
		})
		w := storeWriter(t, s, "a", 1)
		h := add(t, w, "one")
		must(t, w.Roll(t.Context()))
		s.Release(h...)
		time.Sleep(10500 * time.Millisecond)
		mu.Lock()
		if calls != 11 || alarms != 11 || len(files(m)) != 1 {
			t.Errorf("%d calls, %d alarms, files %v", calls, alarms, files(m))
		}
		fail = false
		mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(files(m)) > 0 {
			t.Errorf("files %v", files(m))
		}
		must(t, s.Close())
	})
}

func TestRemovalIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsys.NewMem()
		s := openStore(t, m, func(c *wal.StoreConfig) { c.RetryDelay, c.RetryDelayMax = time.Second, time.Second })
		w := storeWriter(t, s, "a", 1)
		hs := add(t, w, "one")
		must(t, w.Close())
		m.FailWith(func(op, _ string) error {
			if op == "remove" {
				return syscall.EBUSY
			}
			return nil
		})
		s.Release(hs...)
		time.Sleep(time.Minute)
		m.FailWith(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if left := m.String(); strings.Contains(left, "e-000001") {
			t.Errorf("left:\n%s", left)
		}
		must(t, s.Close())
	})
}

// B06 again, with groups that many goroutines write at once.
func TestB06ConcurrentGroupsKeepWhatIsLive(t *testing.T) {
	m := fsys.NewMem()
	s := openStore(t, m, nil)
	w := storeWriter(t, s, "a", 1)
	var mu sync.Mutex
	kept := map[base.Handle]string{}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 40 {
				rec := fmt.Sprintf("%d of %d", i, g)
				h, err := w.Append(context.Background(), []byte(rec))
				if err != nil {
					t.Error(err)
					return
				}
				if i%5 > 0 {
					s.Release(h)
					continue
				}
				mu.Lock()
				kept[h] = rec
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	must(t, w.Close())
	for h, rec := range kept {
		wantRead(t, s, h, rec)
		s.Release(h)
	}
	must(t, s.Close())
	if left := files(m); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
