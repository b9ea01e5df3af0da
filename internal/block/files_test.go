package block_test

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"syscall"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/block"
	"github.com/tidemill/tidemill/internal/fsys"
)

func TestFilesOfAnEarlierProcessAreSteppedOver(t *testing.T) {
	s, disk := newStore(t, 10)
	noErr(t, disk.Mkdir(dir))
	for i := 1; i <= 3; i++ {
		noErr(t, fsys.WriteFile(disk, fmt.Sprintf("%s/block-%08d", dir, i), []byte("old")))
	}
	a := put(t, s, "a", 20, base.DiskOnly)
	wantBlock(t, s, "a", a)
	noErr(t, s.Close())
	if got := filesIn(t, disk); len(got) != 3 {
		t.Errorf("files: %v, want the three old ones", got)
	}
}

// Invariant 8.
func TestDamagedFilesAreCorrupt(t *testing.T) {
	data := bytesOf("k", 100)
	flipped := bytes.Clone(data)
	flipped[50] ^= 1
	for name, bad := range map[string][]byte{
		"flipped bit": flipped, "short": data[:99], "empty": nil, "long": append(bytes.Clone(data), 0),
	} {
		t.Run(name, func(t *testing.T) {
			s, disk := newStore(t, 10)
			noErr(t, s.Put(t.Context(), "k", data, base.DiskOnly))
			file := path.Join(dir, filesIn(t, disk)[0])
			noErr(t, disk.Remove(file))
			noErr(t, fsys.WriteFile(disk, file, bad))
			got, err := s.Get("k")
			wantError(t, err, base.ErrCorrupt, `"k"`, file)
			if got != nil {
				t.Error("bytes beside the error")
			}
			// A put of the same bytes does not hide it.
			wantError(t, s.Put(t.Context(), "k", data, base.DiskOnly), base.ErrCorrupt, `"k"`, file)
		})
	}
}

func TestReadErrorIsNotCorruption(t *testing.T) {
	s, disk := newStore(t, 10)
	put(t, s, "k", 20, base.DiskOnly)
	disk.FailWith(func(op, name string) error {
		if op == "read" {
			return syscall.EIO
		}
		return nil
	})
	_, err := s.Get("k")
	wantError(t, err, syscall.EIO, `"k"`, dir)
	if errors.Is(err, base.ErrCorrupt) || errors.Is(err, block.ErrNotFound) {
		t.Errorf("error %v passes for another", err)
	}
}

func TestDiskFullKeepsBlocksInMemory(t *testing.T) {
	for _, op := range []string{"mkdirall", "create", "write", "close"} {
		t.Run(op, func(t *testing.T) {
			s, disk := newStore(t, 100)
			a := put(t, s, "a", 60, base.MemoryAndDisk)
			disk.FailWith(func(o, name string) error {
				if o == op {
					return syscall.ENOSPC
				}
				return nil
			})
			for _, l := range []base.StorageLevel{base.MemoryOnly, base.MemoryAndDisk} {
				err := s.Put(t.Context(), "b", make([]byte, 60), l)
				wantError(t, err, syscall.ENOSPC, `"b"`, `move block "a"`, dir, "no space left")
			}
			wantError(t, s.TryPut(t.Context(), "b", make([]byte, 60), base.MemoryOnly), syscall.ENOSPC)
			wantError(t, s.Put(t.Context(), "b", make([]byte, 60), base.DiskOnly), syscall.ENOSPC, `"b"`, dir)
			if s.Reserve(60) {
				t.Error("Reserve got room that is not there")
			}
			wantNoBlock(t, s, "b")
			wantStats(t, s, block.Stats{Blocks: 1, MemoryBytes: 60, SpillErrors: 5})
			if err := s.Stats().LastSpillError; !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("LastSpillError %v", err)
			}
			disk.FailWith(nil)
			if got := filesIn(t, disk); len(got) != 0 {
				t.Errorf("partial files left: %v", got)
			}
			wantBlock(t, s, "a", a)
			b := put(t, s, "b", 60, base.MemoryOnly) // space again
			wantBlock(t, s, "a", a)
			wantBlock(t, s, "b", b)
		})
	}
}
