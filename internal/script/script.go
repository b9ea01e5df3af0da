package script

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden output of testdata/*.txt")

// Command does what a line of words says and returns the lines it has to say.
type Command func(words []string) ([]string, error)

// Run plays all files testdata/NAME.txt, each with a new Command. A file is a list
// of blocks, each of command lines, a line "----", and the output, up to an
// empty line. Lines from "#" on are prose.
func Run(t *testing.T, start func(name string) Command) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := play(string(text), start(name))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(string(text), got); d != "" {
				t.Errorf("%s (-want +got):\n%s", file, d)
			}
		})
	}
}

// play runs a script and returns it with the output it has now.
func play(text string, do Command) (string, error) {
	var b strings.Builder
	var out []string
	inOutput := false
	for n, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case inOutput && line != "":
			continue
		case line == "----":
			inOutput = true
			b.WriteString("----\n" + strings.Join(append(out, ""), "\n"))
			out = nil
			continue
		case inOutput || line == "":
			inOutput = false
		case !strings.HasPrefix(line, "#"):
			lines, err := do(strings.Fields(line))
			if err != nil {
				return "", fmt.Errorf("line %d: %q: %w", n+1, line, err)
			}
			out = append(out, lines...)
		}
		b.WriteString(line + "\n")
	}
	if len(out) > 0 {
		return "", errors.New("the last block has no ---- line")
	}
	return b.String(), nil
}
