package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemill/tidemill/examples/internal/proc"
)

func TestFullDiskEndsTheJobWithItsReason(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("needs the right to mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	out := filepath.Join(disk, "out")
	end := proc.Start(t, "-out", out, "-batch", "20ms").Wait()
	lines := end.Complaints()
	if end.Code != 1 || len(lines) != 1 || !strings.Contains(lines[0], `output "counts"`) || !strings.Contains(lines[0], out) || !strings.Contains(lines[0], "no space left on device") {
		t.Errorf("complaints %q; %s", lines, end)
	}
	// What was committed before is whole.
	if err := proc.Add(out, "counts", map[string]int{}); err != nil {
		t.Error(err)
	}
}
