package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/examples/internal/proc"
)

func TestMain(m *testing.M) { proc.Main(m, main) }

var listening = regexp.MustCompile(`listening: stream=lines address=(http://\S+)`)

// start starts the program on a free port and returns its address.
func start(t *testing.T, args ...string) (*proc.Process, string) {
	t.Helper()
	p := proc.Start(t, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	var url string
	p.Until("the address in the log", func() bool {
		if m := listening.FindStringSubmatch(p.Stderr()); m != nil {
			url = m[1]
		}
		return url != ""
	})
	return p, url
}

func post(url, text string) error {
	resp, err := http.Post(url, "text/plain", strings.NewReader(text))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %v", resp.Status, body, err)
	}
	return nil
}

func TestCountsWhatIsSent(t *testing.T) {
	t.Parallel()
	p, url := start(t, "-batch", "200ms")
	if err := post(url, "the tide comes in\nthe mill\n"); err != nil {
		t.Error(err)
	}
	p.UntilSaid("(the,2)\n")
	p.Signal(os.Interrupt)
	if end := p.Wait(); end.Code != 0 || !strings.Contains(end.Stdout, "curl --data-binary") {
		t.Error(end)
	}
}

// What was answered with 200 before and during a graceful stop is counted
// once; the rest got an error.
func TestStopLosesNothingThatWasAnswered(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	p, url := start(t, "-batch", "100ms", "-out", out)
	want := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				word := fmt.Sprintf("w%d.%d", c, i)
				if err := post(url, word); err != nil {
					return // the program has stopped
				}
				mu.Lock()
				want[word] = 1
				n := len(want)
				mu.Unlock()
				if n == 500 {
					p.Signal(os.Interrupt)
				}
			}
		})
	}
	wg.Wait()
	if end := p.Wait(); end.Code != 0 {
		t.Error(end)
	}
	got := proc.Saved(t, out, "counts")
	// A request whose answer got lost with the connection may be stored.
	maps.DeleteFunc(got, func(word string, n int) bool { return n == 1 && want[word] == 0 })
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 500 {
		t.Errorf("%d words were answered: %s", len(want), diff)
	}
}

func TestAddressInUseEndsTheJob(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	end := proc.Start(t, "-addr", l.Addr().String()).Wait()
	lines := end.Complaints()
	if end.Code != 1 || len(lines) != 1 || !strings.Contains(lines[0], l.Addr().String()) || !strings.Contains(lines[0], "in use") {
		t.Errorf("complaints %q; %s", lines, end)
	}
}
