package realcluster

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ErrMissing says that a program must be installed first.
var ErrMissing = errors.New("not installed")

// exitMissing is how a launcher says that.
const exitMissing = 3

// commandLimit bounds one command of a launcher, which waits for at most 90 s
// itself; the first one of all may fetch a hundred jars before.
const commandLimit = 5 * time.Minute

//go:embed hdfs lib.sh pom-hdfs.xml
var scripts embed.FS

// launcher runs the commands of one launcher on one cluster.
type launcher struct {
	name string // of the script
	base string // the directory of all there is: scripts and cluster
}

// newLauncher unpacks the scripts into a directory of their own.
func newLauncher(name string) (launcher, error) {
	base, err := os.MkdirTemp("", "realcluster-"+name+"-")
	if err != nil {
		return launcher{}, fmt.Errorf("realcluster: %w", err)
	}
	l := launcher{name: name, base: base}
	if err := os.CopyFS(filepath.Join(base, "bin"), scripts); err != nil {
		return launcher{}, errors.Join(fmt.Errorf("realcluster: %w", err), l.remove())
	}
	return l, nil
}

func (l launcher) dir() string { return filepath.Join(l.base, "cluster") }

func (l launcher) remove() error { return os.RemoveAll(l.base) }

// run runs a command and returns what it wrote to standard output. The error
// holds what it complained of: the last lines of a log, if a node did not start.
func (l launcher) run(command string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	all := append([]string{filepath.Join(l.base, "bin", l.name), command, "--dir", l.dir()}, args...)
	cmd := exec.CommandContext(ctx, "bash", all...)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	complaint := strings.TrimSpace(stderr.String())
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitMissing || errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("realcluster: %w: %s", ErrMissing, complaint)
	}
	return "", fmt.Errorf("realcluster: %s %s: %w\n%s", l.name, strings.Join(append([]string{command}, args...), " "), errors.Join(err, ctx.Err()), complaint)
}

// env reads the file that the launcher has written of the cluster.
func (l launcher) env() (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(l.dir(), "env"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("realcluster: %s does not run", l.name)
	}
	if err != nil {
		return nil, fmt.Errorf("realcluster: %w", err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			env[key] = value
		}
	}
	return env, nil
}

// Unavailable ends a test whose service did not start: it is skipped if what is
// missing is a program, but not on CI, where everything is there or the build is
// wrong.
func Unavailable(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrMissing) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	t.Fatal(err)
}
