package executor

import (
	"context"
	"fmt"
	"sync"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/internal/rpc"
	"github.com/tidemill/tidemill/internal/state"
)

// states holds the state partitions that live here. A partition is used by one
// task at a time: its turn is a token.
type states struct {
	mu    sync.Mutex
	parts map[rpc.StatePart]*hostedState
}

type hostedState struct {
	turn chan struct{}
	part state.Part // nil until it is made or restored; owned by who has the turn
}

func (s *states) get(p rpc.StatePart) *hostedState {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.parts[p]
	if h == nil {
		h = &hostedState{turn: make(chan struct{}, 1)}
		h.turn <- struct{}{}
		if s.parts == nil {
			s.parts = map[rpc.StatePart]*hostedState{}
		}
		s.parts[p] = h
	}
	return h
}

// settle ends the batch t: state that lives here becomes its version, or goes
// back to the one before; what lives elsewhere by now is dropped.
func (s *states) settle(m rpc.EndBatch) {
	commit := map[rpc.StatePart]bool{}
	for _, p := range m.Commit {
		commit[p] = true
	}
	keep := map[rpc.StatePart]bool{}
	for _, p := range m.Keep {
		keep[p] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, h := range s.parts {
		if !commit[p] && !keep[p] {
			delete(s.parts, p)
			continue
		}
		select {
		case <-h.turn:
		default:
			// A task that was given up still uses it. It is left to that task,
			// and restored from storage when it is needed again.
			delete(s.parts, p)
			continue
		}
		if h.part != nil {
			if commit[p] && h.part.Running() == m.Time {
				h.part.Commit()
			} else {
				h.part.Rollback()
			}
		}
		h.turn <- struct{}{}
	}
}

// State implements [rdd.StateEnv]. The partition is the task's own until
// endState.
func (v *env) State(ctx context.Context, op base.UID, part int, fresh func() state.Part) (state.Part, error) {
	var want *rpc.StateAt
	for i := range v.st.States {
		if v.st.States[i].Part == part {
			want = &v.st.States[i]
		}
	}
	if want == nil {
		return nil, fmt.Errorf("executor: no word about the state of %s, partition %d", op, part)
	}
	h := v.e.states.get(rpc.StatePart{Op: op, Part: part})
	select {
	case <-h.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	v.state = h
	if h.part != nil {
		h.part.Rollback() // of an attempt whose outcome nobody took (Invariant 6)
	}
	if h.part == nil || h.part.Version() != want.Version {
		p := fresh()
		var files [][]byte
		for _, f := range want.Restore {
			data, err := v.e.cfg.States.Get(ctx, f)
			if err != nil {
				return nil, fmt.Errorf("restore state of %s, partition %d: %w", op, part, err)
			}
			files = append(files, data)
		}
		if err := p.Restore(files); err != nil {
			return nil, fmt.Errorf("restore state of %s, partition %d: %w", op, part, err)
		}
		if p.Version() != want.Version {
			return nil, fmt.Errorf("restore state of %s, partition %d: its files are of batch %s, wanted %s", op, part, p.Version(), want.Version)
		}
		h.part = p
	}
	return h.part, nil
}

// endState gives the partition back. After a success its delta is stored
// first, and named in the outcome.
func (v *env) endState(ctx context.Context, done *rpc.TaskDone, err error) error {
	h := v.state
	if h == nil {
		return err
	}
	v.state = nil
	defer func() { h.turn <- struct{}{} }()
	if err == nil {
		var data []byte
		if data, done.StateFull, err = h.part.Delta(); err == nil {
			var f base.Handle
			if f, err = v.e.cfg.States.Put(ctx, data); err == nil {
				done.State = &f
			}
		}
	}
	if err != nil && h.part != nil {
		h.part.Rollback()
	}
	return err
}

// Emit implements [rdd.StateEnv].
func (v *env) Emit(ctx context.Context, key plan.CacheKey, frame []byte) error {
	name := keptKey(key)
	v.e.mu.Lock()
	v.e.kept[key.Node.Set] = true
	v.e.mu.Unlock()
	v.e.store.Drop(name) // of an attempt before
	if err := v.e.store.Put(ctx, name, frame, base.MemoryAndDisk); err != nil {
		return err
	}
	v.kept = append(v.kept, key)
	if v.hash != nil {
		v.hash(frame)
	}
	if op := v.e.g.Op(key.Node.Set.UID); op != nil && op.Remember > op.Slide {
		// A later batch may read it, so it must outlive this executor.
		f, err := v.e.cfg.States.Put(ctx, frame)
		if err != nil {
			return err
		}
		v.emissions = append(v.emissions, rpc.EmissionAt{Key: key, File: f})
	}
	return nil
}

// Emission implements [rdd.StateEnv].
func (v *env) Emission(ctx context.Context, key plan.CacheKey) ([]byte, error) {
	name := keptKey(key)
	data, err := v.e.store.Get(name)
	if err != nil {
		peer, perr := v.e.hub.Peer(v.st.kept[key])
		if perr == nil {
			data, perr = peer.Stored(name)
		}
		err = perr
	}
	if err != nil {
		for _, f := range v.st.Emissions {
			if f.Key == key {
				data, err = v.e.cfg.States.Get(ctx, f.File)
			}
		}
	}
	if err == nil {
		_, err = codec.OpenFrame(data)
	}
	if err != nil {
		return nil, &base.LostEmissionError{Set: key.Node.Set, Part: key.Part, Reason: err.Error()}
	}
	v.blocks = append(v.blocks, readBlock{name, data})
	return data, nil
}
