package main

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/examples/internal/proc"
)

func TestMain(m *testing.M) { proc.Main(m, main) }

func TestRunsAsItStands(t *testing.T) {
	t.Parallel()
	end := proc.Start(t, "-for", "3s").Wait()
	said := end.Complaints()
	if end.Code != 0 || len(said) != 1 || !strings.HasPrefix(said[0], "wordcount: stopped gracefully: ") || !strings.HasSuffix(said[0], ", nothing left") {
		t.Errorf("said %q; %s", said, end)
	}
	if n := strings.Count(end.Stdout, "print\n"); n < 2 || !strings.Contains(end.Stdout, "\n(the,") {
		t.Errorf("%d batches, want at least 2 with counts; %s", n, end)
	}
}

// Every word of a large text counts once, whatever the engine is set to.
func TestCountsEveryWordOfALargeText(t *testing.T) {
	large := largeText(25 << 20)
	small := large[:bytes.LastIndexByte(large[:6<<20], '\n')]
	wantLarge, wantSmall := wordsOf(large), wordsOf(small)
	for _, test := range []struct {
		text     []byte
		want     map[string]int
		settings string
	}{
		{large, wantLarge, ""},
		{large, wantLarge, "executors=3"},
		// Little memory: received blocks and shuffles go through the disk.
		{small, wantSmall, "executors=2 memory-limit=2MiB max-block-bytes=64KiB"},
		// Many small batches.
		{small, wantSmall, "batch-interval=20ms block-interval=5ms max-batch-records=5000"},
		{small, wantSmall, "checked=true executors=2"},
	} {
		t.Run(test.settings, func(t *testing.T) {
			server := proc.Serve(t, test.text)
			out := filepath.Join(t.TempDir(), "out")
			args := []string{"-addr", server.Addr, "-out", out, "-batch", "200ms", "-log-level", "error"}
			for s := range strings.FieldsSeq(test.settings) {
				args = append(args, "-set", s)
			}
			p := proc.Start(t, args...)
			p.UntilRead(server)
			p.Signal(syscall.SIGTERM)
			end := p.Wait()
			if said := end.Complaints(); end.Code != 0 || len(said) != 1 || !strings.HasSuffix(said[0], ", nothing left") {
				t.Errorf("said %q; %s", said, end)
			}
			compare(t, test.want, proc.Saved(t, out, "counts"))
		})
	}
}

// A stop in the middle of a text counts all lines up to some line, and no other.
func TestStopInTheMiddleCountsABeginningOfTheText(t *testing.T) {
	text := largeText(10 << 20)
	server := proc.Serve(t, text)
	out := filepath.Join(t.TempDir(), "out")
	p := proc.Start(t, "-addr", server.Addr, "-out", out, "-batch", "50ms", "-set", "receiver-byte-rate=5e6", "-log-level", "error")
	p.Until("two batches saved", func() bool {
		done, err := filepath.Glob(filepath.Join(out, "counts-*", "_SUCCESS"))
		return err == nil && len(done) >= 2
	})
	p.Signal(syscall.SIGTERM)
	if end := p.Wait(); end.Code != 0 {
		t.Error(end)
	}
	got := proc.Saved(t, out, "counts")
	words := 0
	for _, n := range got {
		words += n
	}
	var begin []byte
	for line := range bytes.Lines(text) {
		if words <= 0 {
			break
		}
		words -= len(bytes.Fields(line))
		begin = text[:len(begin)+len(line)]
	}
	if len(begin) == 0 || len(begin) == len(text) {
		t.Errorf("stopped after %d bytes of %d, want the middle", len(begin), len(text))
	}
	compare(t, wordsOf(begin), got)
}

// What is received counts, also when the batch it would be in is far away.
func TestOneSignalWorksOffWhatWasReceived(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		text := []byte("one two\r\n\r\ntwo three\n\nthree three") // no end of line
		server := proc.Serve(t, text)
		out := t.TempDir()
		p := proc.Start(t, "-addr", server.Addr, "-out", out, "-batch", "1h")
		p.UntilRead(server)
		p.Signal(sig)
		end := p.Wait()
		if end.Code != 0 || !strings.Contains(end.Stderr, "stopped gracefully: 1 batches done, nothing left\n") {
			t.Errorf("%v: %s", sig, end)
		}
		compare(t, map[string]int{"one": 1, "two": 2, "three": 3}, proc.Saved(t, out, "counts"))
	}
}

// Nobody has to read code or a stack to know what to mend.
func TestWrongUseIsOneLineThatSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	refused := refusingAddr(t)
	for _, test := range []struct {
		args string
		code int
		want []string
	}{
		{"-addr " + refused, 1, []string{`receiver "lines"`, "not reached", refused, "connection refused"}},
		{"-addr nowhere", 1, []string{"nowhere", "missing port"}},
		{"-dir " + dir, 1, []string{"-dir " + dir, "not empty", "file"}},
		{"-dir " + file, 1, []string{"-dir", file, "not a directory"}},
		{"-out " + file, 1, []string{`output "counts"`, "output directory can't be made", file, "not a directory"}},
		{"-out " + file + "/below", 1, []string{`output "counts"`, "output directory can't be made", file, "not a directory"}},
		{"-set no-such=1", 2, []string{`no setting "no-such"`, "batch-interval"}},
		{"-set executors=0", 2, []string{"executors", "0", "at least 1"}},
		{"-set executors=two", 2, []string{"executors", `"two"`, "whole number"}},
		{"-set memory-limit=1GB", 2, []string{"memory-limit", `"1GB"`, "1GiB"}},
		{"-set executors", 2, []string{"name=value"}},
		{"-batch 1500us", 2, []string{"batch-interval", "1.5ms", "whole number of milliseconds"}},
		{"-batch -1s", 2, []string{"batch-interval", "-1s", "positive"}},
		{"-batch soon", 2, []string{`"soon"`, "-batch"}},
		{"-for -1s", 2, []string{"-for", "negative"}},
		{"-executors -2", 2, []string{"-executors", "positive"}},
		{"-log-level loud", 2, []string{"-log-level", "loud", "debug"}},
		{"-bogus", 2, []string{"-bogus", "-help"}},
		{"input.txt", 2, []string{`"input.txt"`, "flags"}},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			// Of two flags of one name the second counts.
			end := proc.Start(t, strings.Fields("-log-level off -batch 50ms "+test.args)...).Wait()
			lines := end.Complaints()
			if end.Code != test.code || len(lines) != 1 {
				t.Fatalf("exit code %d, complaints %q; want %d and one complaint\n%s", end.Code, lines, test.code, end)
			}
			for _, w := range append(test.want, "wordcount: ") {
				if !strings.Contains(lines[0], w) {
					t.Errorf("%q does not hold %q", lines[0], w)
				}
			}
		})
	}
}

// refusingAddr is an address at which nobody listens.
func refusingAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// largeText makes lines of words whose frequencies follow Zipf's law, with all
// that lines of text may have: both kinds of ends, none at the last line,
// nothing in them, much white space, letters of several bytes.
func largeText(size int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 4, 40_000)
	letters := []string{"a", "e", "i", "n", "r", "s", "t", "ü", "ж", "水"}
	words := make([]string, 40_001)
	for i := range words {
		for n := i; ; n /= len(letters) {
			words[i] += letters[n%len(letters)]
			if n < len(letters) {
				break
			}
		}
	}
	var b bytes.Buffer
	for b.Len() < size {
		switch n := rng.IntN(100); {
		case n < 5: // an empty line
		case n < 8:
			b.WriteString(" \t ")
		default:
			for i := range 1 + rng.IntN(2*n) {
				if i > 0 {
					b.WriteByte(" \t"[rng.IntN(10)/9])
				}
				b.WriteString(words[zipf.Uint64()])
			}
		}
		if rng.IntN(20) == 0 {
			b.WriteByte('\r')
		}
		b.WriteByte('\n')
	}
	b.WriteString("the last line has no end")
	return b.Bytes()
}

// wordsOf counts words the plain way.
func wordsOf(text []byte) map[string]int {
	counts := map[string]int{}
	start := 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && text[i] != ' ' && text[i] != '\t' && text[i] != '\r' && text[i] != '\n' {
			continue
		}
		if i > start {
			counts[string(text[start:i])]++
		}
		start = i + 1
	}
	return counts
}

func compare(t *testing.T, want, got map[string]int) {
	t.Helper()
	if !maps.Equal(want, got) { // cmp.Diff takes seconds for so many
		diff := cmp.Diff(want, got)
		total := func(m map[string]int) (n int) {
			for _, c := range m {
				n += c
			}
			return n
		}
		t.Errorf("%d words, want %d (-want +got):\n%.2000s", total(got), total(want), diff)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	end := proc.Start(t, "-help").Wait()
	for _, want := range []string{"Usage of wordcount:\n", "-addr host:port", "-set name=value", "(default: an embedded one)\n"} {
		if end.Code != 0 || !strings.Contains(end.Stderr, want) {
			t.Errorf("%q is missing; %s", want, end)
		}
	}
	if strings.Contains(end.Stderr, "127.0.0.1") {
		t.Errorf("the help shows an address that changes with every run; %s", end)
	}
}
