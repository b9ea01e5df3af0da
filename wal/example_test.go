package wal_test

import (
	"context"
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// A process claims an epoch, reads what its predecessors left, and goes on.
func Example() {
	ctx, disk := context.Background(), fsys.NewMem()
	process := func(event string) error {
		claimed, err := wal.Claim(ctx, disk, "log", wal.ClaimOptions{})
		if err != nil {
			return err
		}
		defer claimed.Close()
		next := uint64(1)
		for _, epoch := range claimed.Sealed {
			report, err := wal.Scan(ctx, disk, epoch.Dir, wal.ScanOptions{}, func(seq uint64, _ base.Handle, rec []byte) error {
				fmt.Printf("epoch %s replays %d: %s\n", claimed.Epoch, seq, rec)
				return nil
			})
			if err != nil {
				return err
			}
			next = max(next, report.Last+1)
		}
		w, err := wal.Create(wal.Config{FS: disk}, claimed.Dir, "driver", claimed.Epoch, next)
		if err != nil {
			return err
		}
		defer w.Kill() // without a seal, as a crash would
		_, err = w.Append(ctx, []byte(event))
		return err
	}
	for _, event := range []string{"batch 1 planned", "batch 1 done", "batch 2 planned"} {
		if err := process(event); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// epoch 2 replays 1: batch 1 planned
	// epoch 3 replays 1: batch 1 planned
	// epoch 3 replays 2: batch 1 done
}

// Records are read by handle, and go when nobody needs them.
func ExampleStore() {
	ctx := context.Background()
	s, err := wal.OpenStore(wal.StoreConfig{Config: wal.Config{FS: fsys.NewMem()}, Dir: "received"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	w, err := s.Writer(ctx, "clicks", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := w.Append(ctx, []byte("a block"))
	if err != nil {
		fmt.Println(err)
		return
	}
	rec, err := s.Read(ctx, h)
	fmt.Printf("%s: %s, %v\n", h, rec, err)
	s.Release(h)
	// Output: clicks/e-1/1@39+7: a block, <nil>
}
