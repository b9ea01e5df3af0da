package fsys_test

import (
	"errors"
	"fmt"
	"io/fs"

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
