package crashjob

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Client posts lines and remembers what became of them. A line is an id, which
// no other has, and a word. Its methods may be called concurrently.
type Client struct {
	mu      sync.Mutex
	next    int
	acked   map[string]bool // answered 200
	unknown map[string]bool // sent, and no answer that says what became of it
}

// NewClient returns a client that has sent nothing.
func NewClient() *Client { return &Client{acked: map[string]bool{}, unknown: map[string]bool{}} }

// Acked is how many lines were acknowledged.
func (c *Client) Acked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked)
}

// Unknown is how many lines were sent without an answer that says what became of
// them. They may be in a batch or in none.
func (c *Client) Unknown() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.unknown)
}

// lines makes up lines that were never sent.
func (c *Client) lines(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]string, n)
	for i := range out {
		c.next++
		out[i] = fmt.Sprintf("%d w%d", c.next, rand.IntN(20))
	}
	return out
}

// Run posts to the job at addr until ctx ends. An answer may take as long as
// patience.
func (c *Client) Run(ctx context.Context, addr string, posters int, patience time.Duration) {
	const shortest, longest = 5 * time.Millisecond, 50 * time.Millisecond
	var wg sync.WaitGroup
	for range posters {
		wg.Go(func() {
			h := &http.Client{Transport: &http.Transport{}, Timeout: patience}
			defer h.CloseIdleConnections()
			for pause := shortest; ctx.Err() == nil; {
				if c.post(ctx, h, addr, c.lines(1+rand.IntN(5))) {
					pause = shortest
				} else {
					<-time.After(pause) // the job is down or busy
					pause = min(2*pause, longest)
				}
			}
		})
	}
	wg.Wait()
}

// post sends lines once. What is unknown is never sent again, so that it may
// count once or not at all.
func (c *Client) post(ctx context.Context, h *http.Client, addr string, lines []string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		return false
	}
	status := 0
	res, err := h.Do(req)
	if err == nil {
		status = res.StatusCode
		_, _ = io.Copy(io.Discard, res.Body) // its end tells nothing more
		_ = res.Body.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range lines {
		if status == http.StatusOK {
			c.acked[l] = true
		} else {
			c.unknown[l] = true
		}
	}
	return status == http.StatusOK
}

// Check compares the committed lines, by batch time, with what was acknowledged.
func (c *Client) Check(t testing.TB, committed map[int64][]string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	in := map[string]int64{}
	for at, lines := range committed {
		for _, l := range lines {
			if before, twice := in[l]; twice {
				t.Errorf("line %q is in batch %d and in batch %d", l, before, at)
			}
			in[l] = at
			if !c.acked[l] && !c.unknown[l] {
				t.Errorf("line %q was never sent", l)
			}
		}
	}
	lost := 0
	for l := range c.acked {
		if _, ok := in[l]; !ok {
			if lost++; lost <= 5 {
				t.Errorf("line %q was acknowledged and is in no batch", l)
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d acknowledged lines are lost", lost)
	}
}
