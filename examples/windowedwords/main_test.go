package main

import (
	"os"
	"strings"
	"testing"

	"github.com/tidemill/tidemill/examples/internal/proc"
)

func TestMain(m *testing.M) { proc.Main(m, main) }

func TestRunsAsItStands(t *testing.T) {
	t.Parallel()
	end := proc.Start(t, "-window", "2s", "-for", "2500ms").Wait()
	if end.Code != 0 || strings.Count(end.Stdout, "top\n") < 2 || !strings.Contains(end.Stdout, "\n(the,") {
		t.Error(end)
	}
}

// Words come into the window, stay for its length, and leave it without a trace.
func TestWordsLeaveWithTheWindow(t *testing.T) {
	t.Parallel()
	server := proc.Serve(t, []byte("a b a c\na b\r\n\nd d"))
	p := proc.Start(t, "-addr", server.Addr, "-set", "batch-interval=50ms", "-set", "block-interval=20ms", "-window", "600ms", "-slide", "100ms")
	p.UntilRead(server)
	const rule = "-------------------------------------------\n"
	full := "top\n" + rule + "(a,3)\n(b,2)\n(d,2)\n(c,1)\n\n"
	p.UntilSaid(full)
	p.Until("the window empty again", func() bool {
		_, after, _ := strings.Cut(p.Stdout(), full)
		return strings.Contains(after, "top\n"+rule+"\n")
	})
	p.Signal(os.Interrupt)
	if end := p.Wait(); end.Code != 0 {
		t.Error(end)
	}
}
