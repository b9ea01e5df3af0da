package hdfs

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// quiet is how long something may take before it is told of, and louder how
	// often it is told of after that.
	quiet  = 3 * time.Second
	louder = 30 * time.Second
)

// notices tells of what takes long: once for each thing that is waited for, and
// again from time to time.
type notices struct {
	log hclog.Logger

	mu      sync.Mutex
	waits   map[string]*wait
	lastAny time.Time
}

type wait struct {
	users int
	since time.Time
	told  time.Time
}

// begin counts a user of what is waited for. The result ends that, and is told how.
func (n *notices) begin(what string) func(error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waits == nil {
		n.waits = map[string]*wait{}
	}
	w := n.waits[what]
	if w == nil {
		w = &wait{since: time.Now()}
		n.waits[what] = w
	}
	w.users++
	return func(err error) {
		n.mu.Lock()
		w.users--
		told := !w.told.IsZero()
		took := time.Since(w.since)
		if w.users == 0 {
			delete(n.waits, what)
		}
		n.mu.Unlock()
		if told && w.users == 0 && answered(err) && !notActive(err) {
			n.log.Info("HDFS answers again", "what", what, "after", took.Round(time.Millisecond))
		}
	}
}

// waiting says that an attempt has failed and another will follow.
func (n *notices) waiting(what string, err error) {
	now := time.Now()
	n.mu.Lock()
	w := n.waits[what]
	tell := w != nil && now.Sub(w.since) >= quiet && now.Sub(w.told) >= louder && now.Sub(n.lastAny) >= time.Second
	var since time.Duration
	if tell {
		w.told, n.lastAny = now, now
		since = now.Sub(w.since)
	}
	n.mu.Unlock()
	if tell {
		n.log.Warn("HDFS: waiting, and trying again", "what", what, "since", since.Round(time.Millisecond), "error", err)
	}
}

// tellEvery is how often the number of files made is told.
const tellEvery = time.Hour

// hourly counts events by the minute.
type hourly struct {
	minutes [60]struct{ at, n int64 }
}

func (h *hourly) add(now time.Time) {
	at := now.Unix() / 60
	m := &h.minutes[at%60]
	if m.at != at {
		m.at, m.n = at, 0
	}
	m.n++
}

func (h *hourly) sum(now time.Time) (n int64) {
	at := now.Unix() / 60
	for _, m := range h.minutes {
		if at-m.at < 60 {
			n += m.n
		}
	}
	return n
}

// token is part of names that nobody else has.
func token() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
