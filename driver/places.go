package driver

import (
	"context"
	"slices"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
)

// mostLocating bounds how long a batch waits to hear where its input is, and so
// does a quarter of the batch interval: a job must not fall behind for it.
const mostLocating = time.Second

// locate tells the scheduler which executors and hosts hold the input of a batch.
// That is a hint, in no plan and no log. What executors hold is known; a file
// system is asked for the rest, by one batch at a time. An answer that comes late
// is for what of the batch has not started by then.
func (d *Driver) locate(b *plan.Batch) {
	var ask []func(context.Context)
	for _, s := range d.g.Sources {
		in, ok := b.Input(s.Op.UID)
		if !ok || in.Absent || in.Parts < 1 {
			continue
		}
		set := base.DataSet{UID: in.UID, Time: b.Time}
		if p, ok := s.Planner.(graph.Placer); ok {
			ask = append(ask, func(ctx context.Context) {
				at, err := p.Places(ctx, in)
				if err != nil {
					d.cfg.Log.Debug("not known where all input is", "batch", set.Time, "source", set.UID, "error", err)
				}
				d.sched.place(set, at)
			})
		}
		if s.Planner != nil {
			continue
		}
		at, logged := d.holders(in, nil)
		d.sched.place(set, at)
		if logged && d.cfg.Blocks != nil {
			ask = append(ask, func(ctx context.Context) {
				at, _ := d.holders(in, d.segmentHosts(ctx))
				d.sched.place(set, at)
			})
		}
	}
	if len(ask) == 0 || !d.locating.CompareAndSwap(false, true) {
		return
	}
	ctx, cancel := context.WithTimeout(d.hard, min(mostLocating, d.g.Interval/4))
	done := make(chan struct{})
	d.watchers.Go(func() {
		defer d.locating.Store(false)
		defer cancel()
		what := base.TaskError{Set: base.DataSet{Time: b.Time}, Operator: "asking where the input of a batch is"}
		err := d.userCode(what, func() error {
			defer close(done)
			for _, f := range ask {
				f(ctx)
			}
			return nil
		})
		if err != nil {
			d.cfg.Log.Debug("not known where all input is", "batch", b.Time, "error", err)
		}
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// holders says who holds the blocks of each partition of a receiver's part: the
// executor that stored them or, when that is gone, the hosts of the write-ahead
// log. logged is set if there are blocks of the second kind.
func (d *Driver) holders(in plan.Input, hosts func(base.Handle) []string) (at [][]plan.Place, logged bool) {
	d.mu.Lock()
	live := slices.Clone(d.order)
	d.mu.Unlock()
	at = make([][]plan.Place, in.Parts)
	first := 0
	for part, end := range plan.SpreadBlocks(in.Blocks, in.Parts) {
		for _, b := range in.Blocks[first:end] {
			switch {
			case b.Lost:
			case slices.Contains(live, b.Executor):
				at[part] = plan.AddPlace(at[part], plan.Place{Name: string(b.Executor), Bytes: b.Bytes})
			case !b.Handle.IsZero():
				logged = true
				if hosts == nil {
					continue
				}
				for _, h := range hosts(b.Handle) {
					at[part] = plan.AddPlace(at[part], plan.Place{Name: plan.HostName(h), Bytes: b.Bytes})
				}
			}
		}
		first = end
	}
	return at, logged
}

// segmentHosts returns a function that gives the hosts of logged blocks and asks
// for each segment once, until ctx ends.
func (d *Driver) segmentHosts(ctx context.Context) func(base.Handle) []string {
	known := map[base.Handle][]string{}
	return func(h base.Handle) []string {
		segment := base.Handle{Log: h.Log, Epoch: h.Epoch, Segment: h.Segment}
		hosts, ok := known[segment]
		if ok || ctx.Err() != nil {
			return hosts
		}
		hosts, err := d.cfg.Blocks.Hosts(h)
		if err != nil {
			d.cfg.Log.Debug("not known where a segment is", "block", h, "error", err)
		}
		known[segment] = hosts
		return hosts
	}
}

// place takes in where the partitions of a source's data set are. That is known
// for as long as the data set may be read.
func (s *scheduler) place(set base.DataSet, at [][]plan.Place) {
	if len(at) > 0 {
		s.do(func() { s.places[set] = at })
	}
}

// prefers says, for each task of a stage, which executors and hosts have what it
// reads; nil if that is known of none.
func (s *scheduler) prefers(st plan.Stage) [][]string {
	if len(s.places) == 0 && len(s.kept) == 0 {
		return nil
	}
	var out [][]string
	for i, part := range st.Parts {
		if places := plan.Places(st.Root, part, s.placesOf); places != nil {
			if out == nil {
				out = make([][]string, len(st.Parts))
			}
			out[i] = places
		}
	}
	return out
}

// placesOf says where a partition is that is kept, or comes from a source.
func (s *scheduler) placesOf(n *plan.Node, part int) ([]plan.Place, bool) {
	if n.Level != base.StorageNone || n.Kind == plan.Emitted {
		if at := s.kept[plan.CacheKey{Node: n.ID, Part: part}]; at != "" {
			return []plan.Place{{Name: string(at), Bytes: 1}}, true
		}
	}
	if len(n.Narrow) > 0 || len(n.Shuffles) > 0 {
		return nil, false
	}
	if at := s.places[n.ID.Set]; len(at) == n.Parts && part < len(at) {
		return at[part], true
	}
	return nil, false
}
