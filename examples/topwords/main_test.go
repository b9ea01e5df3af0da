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
	end := proc.Start(t, "-window", "2s", "-slide", "1s", "-for", "2500ms").Wait()
	if end.Code != 0 || strings.Count(end.Stdout, "top\n") < 2 || !strings.Contains(end.Stdout, "\n(the,") {
		t.Error(end)
	}
}

// Words come into the window, stay for its length, and leave.
func TestWindowSlidesOverTheText(t *testing.T) {
	t.Parallel()
	// More words than are printed: c is in the eleventh place.
	server := proc.Serve(t, []byte("a b a c\na b\r\n\nd d e e f f g g h h i i j j k k l l"))
	p := proc.Start(t, "-addr", server.Addr, "-set", "batch-interval=50ms", "-set", "block-interval=20ms", "-window", "600ms", "-slide", "100ms")
	p.UntilRead(server)
	full := "top\n" + rule + "(a,3)\n(b,2)\n(d,2)\n(e,2)\n(f,2)\n(g,2)\n(h,2)\n(i,2)\n(j,2)\n(k,2)\n\n"
	empty := "top\n" + rule + "\n"
	p.UntilSaid(full)
	p.Until("the window empty again", func() bool {
		_, after, _ := strings.Cut(p.Stdout(), full)
		return strings.Contains(after, empty)
	})
	p.Signal(os.Interrupt)
	end := p.Wait()
	// Six windows see a batch; fewer see all of the text if it fell into two.
	if n := strings.Count(end.Stdout, full); end.Code != 0 || n < 3 || n > 6 {
		t.Errorf("%d full windows, want 3 to 6; %s", n, end)
	}
}

const rule = "-------------------------------------------\n"

func TestWindowMustFitTheBatches(t *testing.T) {
	t.Parallel()
	end := proc.Start(t, "-window", "2500ms").Wait()
	lines := end.Complaints()
	if end.Code != 1 || len(lines) != 1 || !strings.Contains(lines[0], "2.5s") || !strings.Contains(lines[0], "multiple of the slide 1s") {
		t.Errorf("complaints %q; %s", lines, end)
	}
}
