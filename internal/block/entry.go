package block

import (
	"container/list"

	"github.com/tidemill/tidemill/internal/base"
)

// entry is a block that is, or is about to be, in a store. key, size and level
// never change; the rest is guarded by the store's lock.
type entry struct {
	key   string
	size  int64
	level base.StorageLevel

	data     []byte        // until file is set
	file     *file         // once the block is on disk
	spilling bool          // a file is being written from data
	place    *list.Element // in budget.movable
	dropped  bool          // no longer in the store
}
