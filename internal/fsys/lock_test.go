package fsys_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tidemill/tidemill/internal/fsys"
)

var lockConformance = []rule{
	{"LockIsHeldByOne", func(t *testing.T, f system, root string) {
		name := path.Join(root, "LOCK")
		first, err := f.Lock(name)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skipf("no locks here: %v", err)
		}
		noErr(t, err)
		if in, err := f.Stat(name); in.Size != 0 || in.Dir || err != nil {
			t.Errorf("the lock's file is %+v, %v", in, err)
		}
		_, err = f.Lock(name)
		var pe *fs.PathError
		if !errors.Is(err, fsys.ErrLocked) || !errors.As(err, &pe) || pe.Op != "lock" || pe.Path != name {
			t.Errorf("second lock: %v, want op lock, path %q, cause %v", err, name, fsys.ErrLocked)
		}
		noErr(t, first.Close())
		second, err := f.Lock(name)
		noErr(t, err)
		// Closing the first again does not free the second.
		noErr(t, first.Close())
		_, err = f.Lock(name)
		isErr(t, err, fsys.ErrLocked)
		noErr(t, second.Close())
	}},

	{"LockNamesWhatItCannotOpen", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		for name, cause := range map[string]error{
			"none/x": fs.ErrNotExist, "file/x": syscall.ENOTDIR, "empty": syscall.EISDIR,
		} {
			_, err := f.Lock(at(name))
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skipf("no locks here: %v", err)
			}
			var pe *fs.PathError
			if !errors.Is(err, cause) || !errors.As(err, &pe) || pe.Op != "lock" || pe.Path != at(name) {
				t.Errorf("lock %s: %v, want op lock, path %q, cause %v", name, err, at(name), cause)
			}
		}
	}},

	{"LockLeavesAFileAsItIs", func(t *testing.T, f system, root string) {
		at := scene(t, f, root)
		l, err := f.Lock(at("file"))
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skipf("no locks here: %v", err)
		}
		noErr(t, err)
		noErr(t, l.Close())
		if b, err := fsys.ReadFile(f, at("file")); string(b) != "content" || err != nil {
			t.Errorf("locked file holds %q, %v", b, err)
		}
	}},
}

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
