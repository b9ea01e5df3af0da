package driver

import (
	"fmt"
	"slices"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/receiver"
)

// Tracker keeps the received blocks that are in no batch yet, and the receiver
// epochs. It is a pure core. A block goes in in two steps, so that the log can
// have it first: Begin, then Commit or Abort.
type Tracker struct {
	streams map[base.UID]*tracked
}

type tracked struct {
	epoch   base.Epoch // the newest registered
	high    map[base.Epoch]uint64
	flying  map[base.BlockID]bool // in the log's hands
	waiting []plan.Block
	// position is the source's after the newest block: only the contiguous
	// prefix of added blocks moves it on.
	position []byte
}

// NewTracker returns a tracker for the given streams.
func NewTracker(streams []base.UID) *Tracker {
	tr := &Tracker{streams: map[base.UID]*tracked{}}
	for _, s := range streams {
		tr.streams[s] = &tracked{high: map[base.Epoch]uint64{}, flying: map[base.BlockID]bool{}}
	}
	return tr
}

// Restore takes in what the log says of a stream. One that no receiver of this
// program serves keeps its blocks where they are.
func (tr *Tracker) Restore(f StreamFacts) {
	s := tr.streams[f.Stream]
	if s == nil {
		return
	}
	s.epoch, s.position, s.waiting = f.Epoch, f.Position, slices.Clone(f.Waiting)
	for _, h := range f.High {
		s.high[h.Epoch] = h.Counter
	}
}

// Position returns the source position after the newest block of a stream.
func (tr *Tracker) Position(stream base.UID) []byte { return tr.streams[stream].position }

// NextEpoch returns the epoch that the next start of the stream's receiver gets.
func (tr *Tracker) NextEpoch(stream base.UID) base.Epoch { return tr.streams[stream].epoch + 1 }

// Register makes epoch the stream's current one. Blocks of older ones are
// refused from now on (Invariant 7).
func (tr *Tracker) Register(stream base.UID, epoch base.Epoch) {
	s := tr.streams[stream]
	s.epoch = max(s.epoch, epoch)
}

// Epoch returns the stream's current epoch, 0 before the first start.
func (tr *Tracker) Epoch(stream base.UID) base.Epoch { return tr.streams[stream].epoch }

// Begin says whether a block may go into the log. already means that it is in
// (Invariant 2): at or below the high-water mark, which is kept for ever.
func (tr *Tracker) Begin(b plan.Block) (already bool, err error) {
	s := tr.streams[b.ID.Stream]
	switch {
	case s == nil:
		return false, fmt.Errorf("block %s: no receiver stream has this name", b.ID)
	case b.ID.Counter <= s.high[b.ID.Epoch] && b.ID.Counter > 0:
		return true, nil
	case b.ID.Epoch < s.epoch:
		return false, fmt.Errorf("block %s: %w (epoch %d)", b.ID, receiver.ErrFenced, s.epoch)
	case b.ID.Epoch > s.epoch:
		return false, fmt.Errorf("block %s: epoch %d is not registered", b.ID, b.ID.Epoch)
	case s.flying[b.ID]:
		return false, fmt.Errorf("block %s is being added: try again", b.ID)
	case b.ID.Counter != s.high[b.ID.Epoch]+1:
		return false, fmt.Errorf("block %s is out of order: the next counter is %d", b.ID, s.high[b.ID.Epoch]+1)
	}
	s.flying[b.ID] = true
	return false, nil
}

// Commit takes in a block that the log has.
func (tr *Tracker) Commit(b plan.Block) {
	s := tr.streams[b.ID.Stream]
	delete(s.flying, b.ID)
	s.high[b.ID.Epoch] = b.ID.Counter
	if b.Position != nil {
		s.position = b.Position
	}
	s.waiting = append(s.waiting, b)
}

// Abort forgets that a block was begun.
func (tr *Tracker) Abort(b plan.Block) { delete(tr.streams[b.ID.Stream].flying, b.ID) }

// Peek returns the blocks that the next batch takes of a stream: the oldest
// ones within the limit, at least one if there is any.
func (tr *Tracker) Peek(stream base.UID, limit graph.Limit) []plan.Block {
	var records, bytes int64
	for i, b := range tr.streams[stream].waiting {
		records += int64(b.Records)
		bytes += b.Bytes
		if i > 0 && (limit.Records > 0 && records > limit.Records || limit.Bytes > 0 && bytes > limit.Bytes) {
			return slices.Clone(tr.streams[stream].waiting[:i])
		}
	}
	return slices.Clone(tr.streams[stream].waiting)
}

// Allocate removes blocks that the log now has in a batch's plan. It returns
// those that do not wait any more: they were dropped since they were peeked at.
func (tr *Tracker) Allocate(stream base.UID, blocks []plan.Block) (gone []base.BlockID) {
	left := make(map[base.BlockID]bool, len(blocks))
	for _, b := range blocks {
		left[b.ID] = true
	}
	s := tr.streams[stream]
	s.waiting = slices.DeleteFunc(s.waiting, func(b plan.Block) bool {
		found := left[b.ID]
		delete(left, b.ID)
		return found
	})
	for _, b := range blocks {
		if left[b.ID] {
			gone = append(gone, b.ID)
		}
	}
	return gone
}

// LostOf lists the waiting blocks that only the given executor held: those of a
// write-ahead log are still there.
func (tr *Tracker) LostOf(executor base.ExecutorID) []plan.Block {
	var out []plan.Block
	for _, name := range tr.names() {
		for _, b := range tr.streams[name].waiting {
			if b.Executor == executor && b.Handle.IsZero() {
				out = append(out, b)
			}
		}
	}
	return out
}

// Drop removes waiting blocks that the log says are lost.
func (tr *Tracker) Drop(ids []base.BlockID) {
	gone := map[base.BlockID]bool{}
	for _, id := range ids {
		gone[id] = true
	}
	for _, s := range tr.streams {
		s.waiting = slices.DeleteFunc(s.waiting, func(b plan.Block) bool { return gone[b.ID] })
	}
}

// Lag sums up the blocks of a stream that are in no batch yet.
func (tr *Tracker) Lag(stream base.UID) (records, bytes int64) {
	for _, b := range tr.streams[stream].waiting {
		records += int64(b.Records)
		bytes += b.Bytes
	}
	return records, bytes
}

// Waiting sums up the blocks that are in no batch yet.
func (tr *Tracker) Waiting() (blocks int, records int64) {
	for _, s := range tr.streams {
		blocks += len(s.waiting)
		for _, b := range s.waiting {
			records += int64(b.Records)
		}
	}
	return blocks, records
}

func (tr *Tracker) names() []base.UID {
	out := make([]base.UID, 0, len(tr.streams))
	for name := range tr.streams {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
