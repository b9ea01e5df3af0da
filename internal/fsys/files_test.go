package fsys_test

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/tidemill/tidemill/internal/fsys"
)

func TestDirectoriesThatAreMadeOutliveAPowerLoss(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		m := fsys.NewMem()
		if err := fsys.MakeDirs(m, "/a/b/c"); err != nil {
			t.Fatal(err)
		}
		if err := m.Mkdir("/a/d"); err != nil { // by somebody who died before its name was durable
			t.Fatal(err)
		}
		if err := fsys.MakeDirs(m, "/a/d"); err != nil {
			t.Fatal(err)
		}
		m = m.AfterPowerLoss(rng)
		for _, dir := range []string{"/a/b/c", "/a/d"} {
			if info, err := m.Stat(dir); err != nil || !info.Dir {
				t.Errorf("seed %d: %s: %v, %v", seed, dir, info, err)
			}
		}
		if err := fsys.WriteFile(m, "/a/file", nil); err != nil {
			t.Fatal(err)
		}
		for _, under := range []string{"/a/file", "/a/file/x"} {
			if err := fsys.MakeDirs(m, under); !errors.Is(err, syscall.ENOTDIR) {
				t.Errorf("%s: %v", under, err)
			}
		}
	}
}
