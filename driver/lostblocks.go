package driver

import (
	"fmt"
	"slices"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
)

// CounterLostRecords counts the records that OnLostBlocks: skip left out.
const CounterLostRecords = "tidemill.lost-records"

// giveUpWaiting gives up the blocks that only a lost executor held and that
// are in no batch yet.
func (d *Driver) giveUpWaiting(id base.ExecutorID) {
	d.tmu.Lock()
	blocks := d.tracker.LostOf(id)
	d.tmu.Unlock()
	if len(blocks) == 0 || !d.giveUp(blocks, fmt.Sprintf("executor %s, which held them, is lost", id)) {
		return
	}
	d.tmu.Lock()
	d.tracker.Drop(blockIDs(blocks))
	d.tmu.Unlock()
}

// giveUpPlanned gives up blocks of a batch that tasks can't read. It returns
// when the log has the loss. Several tasks, also of other executors, may meet
// the same one; it counts once.
func (d *Driver) giveUpPlanned(blocks []plan.Block, reason string) {
	done := make(chan struct{})
	var mine []plan.Block
	var others []chan struct{}
	d.tmu.Lock()
	for _, b := range blocks {
		if other := d.lost[b.ID]; other != nil {
			others = append(others, other)
			continue
		}
		d.lost[b.ID] = done
		mine = append(mine, b)
	}
	d.tmu.Unlock()
	if len(mine) > 0 {
		d.giveUp(mine, reason)
		close(done)
	}
	for _, other := range others {
		<-other // an append ends when the job does
	}
}

// giveUp writes a loss that the policy allows into the log, counts it and
// shows it (Invariant 9).
func (d *Driver) giveUp(blocks []plan.Block, reason string) bool {
	var records int64
	for _, b := range blocks {
		records += int64(b.Records)
	}
	if err := d.append(d.hard, BlocksLost{Blocks: blockIDs(blocks), Records: records, Reason: reason}); err != nil {
		d.fail(err)
		return false
	}
	d.mu.Lock()
	d.counters[CounterLostRecords] += records
	d.mu.Unlock()
	d.alarm(Alarm{Kind: "blocks-lost", Message: fmt.Sprintf("%d records in %d received blocks are lost and left out: %s", records, len(blocks), reason)})
	return true
}

func blockIDs(blocks []plan.Block) []base.BlockID {
	ids := make([]base.BlockID, len(blocks))
	for i, b := range blocks {
		ids[i] = b.ID
	}
	return ids
}

// lossy reports whether a remembered batch lost blocks, so that attempts at
// one partition may rightly differ.
func (d *Driver) lossy() bool {
	d.tmu.Lock()
	defer d.tmu.Unlock()
	return len(d.lost) > 0
}

// allocate takes the blocks of a planned input out of the waiting ones. Those
// that were given up while the plan went into the log are marked: the input is
// read without them.
func (d *Driver) allocate(in *plan.Input) {
	d.tmu.Lock()
	gone := d.tracker.Allocate(in.UID, in.Blocks)
	d.tmu.Unlock()
	if len(gone) == 0 {
		return
	}
	in.Blocks = slices.Clone(in.Blocks) // the log may hold the plan as it was
	for i := range in.Blocks {
		in.Blocks[i].Lost = slices.Contains(gone, in.Blocks[i].ID)
	}
}

// blocksOf finds the planned blocks of an error.
func (d *Driver) blocksOf(e *base.LostBlocksError) []plan.Block {
	d.lmu.Lock()
	defer d.lmu.Unlock()
	b := d.lineage.Batch(e.Batch)
	if b == nil {
		return nil
	}
	var out []plan.Block
	for _, in := range b.Inputs {
		for _, blk := range in.Blocks {
			if slices.Contains(e.Blocks, blk.ID) {
				out = append(out, blk)
			}
		}
	}
	return out
}
