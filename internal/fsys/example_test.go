package fsys_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"

	"github.com/tidemill/tidemill/internal/fsys"
)

// A file appears under its final name complete or not at all, and only once.
func Example() {
	disk := fsys.NewMem()
	for _, content := range []string{"first", "second"} {
		if err := fsys.WriteFile(disk, content+".tmp", []byte(content)); err != nil {
			fmt.Println(err)
			return
		}
		err := disk.Rename(content+".tmp", "snapshot-7")
		fmt.Println(content, errors.Is(err, fs.ErrExist), err)
	}
	b, err := fsys.ReadFile(disk, "snapshot-7")
	fmt.Println(string(b), err)
	// Output:
	// first false <nil>
	// second true rename second.tmp snapshot-7: file exists
	// first <nil>
}

// A snapshot is found after a power loss once the directory is synced, and
// under its final name it is always whole.
func ExampleMem_CrashAt() {
	rng := rand.New(rand.NewPCG(1, 2))
	for n, crashed := int64(1), true; crashed; n++ {
		disk := fsys.NewMem()
		disk.CrashAt(n)
		err := fsys.WriteFile(disk, "tmp", []byte("facts"))
		if err == nil {
			err = disk.Rename("tmp", "snapshot")
		}
		if err == nil {
			err = disk.SyncDir("/")
		}
		crashed = disk.Crashed()

		b, lost := fsys.ReadFile(disk.AfterPowerLoss(rng), "snapshot")
		if err == nil && lost != nil || lost == nil && string(b) != "facts" {
			fmt.Printf("crash at %d: %q, %v\n", n, b, lost)
		}
		if !crashed {
			fmt.Println("operations:", n-1)
		}
	}
	// Output:
	// operations: 6
}
