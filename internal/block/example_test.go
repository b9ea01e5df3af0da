package block_test

import (
	"context"
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/block"
	"github.com/tidemill/tidemill/internal/fsys"
)

func Example() {
	s, err := block.Open(block.Config{FS: fsys.NewMem(), Dir: "/scratch", MemoryLimit: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	for _, key := range []string{"clicks/3/1", "clicks/3/2"} {
		if err := s.Put(context.Background(), key, []byte(key)[:8], base.MemoryAndDisk); err != nil {
			fmt.Println(err)
			return
		}
	}
	st := s.Stats()
	fmt.Println(st.MemoryBytes, "bytes in memory,", st.DiskBytes, "on disk")
	fmt.Println(s.DropPrefix("clicks/3/"), "dropped")
	_, err = s.Get("clicks/3/1")
	fmt.Println(err)
	// Output:
	// 8 bytes in memory, 8 on disk
	// 2 dropped
	// block: get "clicks/3/1": no such block
}
