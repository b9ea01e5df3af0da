package wal

import (
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

// Hosts returns the hosts that hold the segment of a record, those with most of
// it first: none of a segment that is still being written, and none if the file
// system does not know, or is away.
func (s *Store) Hosts(h base.Handle) ([]string, error) {
	s.mu.Lock()
	if to, ok := s.moved[h]; ok {
		h = to
	}
	key := keyOf(h)
	closed, length := false, int64(0)
	if seg := s.segments[key]; seg != nil {
		closed, length = seg.closed, seg.bytes
	}
	s.mu.Unlock()
	placed := fsys.PlacedOf(s.cfg.FS, s.cfg.Dir)
	if !closed || placed == nil {
		return nil, nil
	}
	dir, err := s.files.epochDir(key.epochKey)
	if err != nil {
		return nil, fmt.Errorf("wal: hosts of %s: %w", h, err)
	}
	// As with reading, a rename between the two looks goes from the first to the
	// second.
	hosts, err := placed.Hosts(join(dir, segmentFile(key.number)), 0, length)
	if gone(err) {
		hosts, err = placed.Hosts(join(dir+sealedSuffix, segmentFile(key.number)), 0, length)
	}
	if err != nil {
		return nil, fmt.Errorf("wal: hosts of %s: %w", h, err)
	}
	return hosts, nil
}
