package fsys_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tidemill/tidemill/internal/fsys"
)

const lockVariable = "FSYS_TEST_LOCK"

// TestLocalLockEndsWithItsProcess also is the process, when the variable names
// the file to lock.
func TestLocalLockEndsWithItsProcess(t *testing.T) {
	if name := os.Getenv(lockVariable); name != "" {
		_, err := fsys.Local().Lock(name)
		fmt.Println("locked:", err)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	name := filepath.Join(t.TempDir(), "LOCK")
	if l, err := fsys.Local().Lock(name); errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("no locks here: %v", err)
	} else {
		noErr(t, errors.Join(err, l.Close()))
	}
	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLocalLockEndsWithItsProcess$")
	other.Env = append(os.Environ(), lockVariable+"="+name)
	stdin, err := other.StdinPipe() // open until the end, also if this process dies
	noErr(t, err)
	stdout, err := other.StdoutPipe()
	noErr(t, err)
	noErr(t, other.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if line != "locked: <nil>\n" {
		t.Errorf("the other process said %q, %v", line, err)
	}
	_, err = fsys.Local().Lock(name)
	isErr(t, err, fsys.ErrLocked)

	noErr(t, other.Process.Kill())
	_ = other.Wait() // says that it was killed
	_ = stdin.Close()
	l, err := fsys.Local().Lock(name)
	noErr(t, err)
	noErr(t, l.Close())
}
