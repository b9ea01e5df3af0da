package executor

import (
	"context"
	"fmt"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/block"
	"github.com/tidemill/tidemill/rdd"
)

// shuffles holds the map outputs of an executor. They stay typed while memory
// allows, and are encoded frames in the block store otherwise.
type shuffles struct {
	store *block.Store

	mu   sync.Mutex
	sets map[base.DataSet][]string // shuffles by the data set that reads them
	outs map[string]*shuffleOut
}

type shuffleOut struct {
	maps map[int]mapOut
}

// mapOut is what one map task left.
type mapOut struct {
	typed    []rdd.Bucket // nil when encoded
	keys     []string     // of the frames in the block store
	reserved int64
}

func (s *shuffles) init(store *block.Store) {
	s.store = store
	s.sets = map[base.DataSet][]string{}
	s.outs = map[string]*shuffleOut{}
}

// put keeps a map output. With encode it is encoded at once.
func (s *shuffles) put(ctx context.Context, reader base.DataSet, shuffle string, mapPart int, attempt base.Attempt, buckets []rdd.Bucket, encode bool, seen func([]byte)) error {
	var size int64
	for _, b := range buckets {
		size += b.Size()
	}
	o := mapOut{typed: buckets, reserved: size}
	if encode || !s.store.Reserve(size) {
		o = mapOut{}
		for i, b := range buckets {
			frame, err := b.Encode()
			if err != nil {
				return err
			}
			seen(frame)
			key := fmt.Sprintf("shuffle/%s/%d.%d/%d", shuffle, mapPart, attempt, i)
			s.store.Drop(key) // of an attempt whose executor came back to it
			if err := s.store.Put(ctx, key, frame, base.MemoryAndDisk); err != nil {
				return err
			}
			o.keys = append(o.keys, key)
		}
	}
	s.mu.Lock()
	out := s.outs[shuffle]
	if out == nil {
		out = &shuffleOut{maps: map[int]mapOut{}}
		s.outs[shuffle] = out
		s.sets[reader] = append(s.sets[reader], shuffle)
	}
	old := out.maps[mapPart]
	out.maps[mapPart] = o
	s.mu.Unlock()
	s.free(old, o)
	return nil
}

// get returns a bucket: typed, or a frame.
func (s *shuffles) get(shuffle string, mapPart, part int) (rdd.Bucket, []byte, error) {
	s.mu.Lock()
	var o mapOut
	out := s.outs[shuffle]
	if out != nil {
		o = out.maps[mapPart]
	}
	s.mu.Unlock()
	switch {
	case part < len(o.typed):
		return o.typed[part], nil, nil
	case part < len(o.keys):
		frame, err := s.store.Get(o.keys[part])
		return nil, frame, err
	}
	return nil, nil, fmt.Errorf("no output of map partition %d for partition %d", mapPart, part)
}

// release forgets what the data sets read that over chooses.
func (s *shuffles) release(over func(base.DataSet) bool) {
	s.mu.Lock()
	var old []mapOut
	for ds, ids := range s.sets {
		if !over(ds) {
			continue
		}
		for _, id := range ids {
			for _, o := range s.outs[id].maps {
				old = append(old, o)
			}
			delete(s.outs, id)
		}
		delete(s.sets, ds)
	}
	s.mu.Unlock()
	for _, o := range old {
		s.free(o, mapOut{})
	}
}

// free gives back what old held, but for keys that now holds too.
func (s *shuffles) free(old, now mapOut) {
	if old.reserved > 0 {
		s.store.Release(old.reserved)
	}
	same := map[string]bool{}
	for _, k := range now.keys {
		same[k] = true
	}
	for _, k := range old.keys {
		if !same[k] {
			s.store.Drop(k)
		}
	}
}
