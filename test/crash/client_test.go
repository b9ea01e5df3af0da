package crash

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

// client posts lines and remembers what became of them. A line is an id, which
// no other has, and a word.
type client struct {
	url string

	mu      sync.Mutex
	next    int
	acked   map[string]bool // answered 200
	unknown map[string]bool // sent, and no answer that says what became of it
}

func newClient(addr string) *client {
	return &client{url: "http://" + addr + "/", acked: map[string]bool{}, unknown: map[string]bool{}}
}

// lines makes up lines that were never sent.
func (c *client) lines(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]string, n)
	for i := range out {
		c.next++
		out[i] = fmt.Sprintf("%d w%d", c.next, rand.IntN(20))
	}
	return out
}

// run posts until ctx ends.
func (c *client) run(ctx context.Context, posters int) {
	var wg sync.WaitGroup
	for range posters {
		wg.Go(func() {
			h := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
			defer h.CloseIdleConnections()
			for ctx.Err() == nil {
				if !c.post(ctx, h, c.lines(1+rand.IntN(5))) {
					<-time.After(5 * time.Millisecond) // the job is down or busy
				}
			}
		})
	}
	wg.Wait()
}

// post sends lines once. What is unknown is never sent again, so that it may
// count once or not at all.
func (c *client) post(ctx context.Context, h *http.Client, lines []string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(strings.Join(lines, "\n")))
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

// check compares the committed lines with what was acknowledged.
func (c *client) check(t *testing.T, committed map[int64][]string) {
	t.Helper()
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
