package driver

import (
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/rpc"
)

// rated takes in a batch that has ended and tells the receivers whose rate it
// changes.
func (d *Driver) rated(b BatchInfo) error {
	d.tmu.Lock()
	changed := d.rates.Completed(b)
	d.tmu.Unlock()
	for _, r := range changed {
		if err := d.post(RateUpdated{Stream: r.Stream, Rate: r.PerSecond}); err != nil {
			return err
		}
		d.tmu.Lock()
		p := d.receivers[r.Stream]
		var at base.ExecutorID
		if p != nil {
			at = p.at
		}
		d.tmu.Unlock()
		if e := d.executor(at); e != nil {
			_ = e.Send(rpc.RateLimit{Stream: r.Stream, Rate: r.PerSecond}) // one that is gone says so by Gone
		}
	}
	return nil
}

// rateOf returns the rate in force of a stream, 0 if it has none.
func (d *Driver) rateOf(stream base.UID) float64 {
	d.tmu.Lock()
	defer d.tmu.Unlock()
	for _, r := range d.rates.Rates() {
		if r.Stream == stream {
			return r.PerSecond
		}
	}
	return 0
}

// limits shares out the limit of a batch among the sources, by what waits in
// each (Invariant 9). A source always may give one indivisible piece.
func (d *Driver) limits(turn int64) []graph.Limit {
	n := len(d.g.Sources)
	records, bytes := make([]int64, n), make([]int64, n)
	d.tmu.Lock()
	for i, s := range d.g.Sources {
		records[i], bytes[i] = -1, -1 // a planner looks when it is asked
		if s.Receiver != nil {
			records[i], bytes[i] = d.tracker.Lag(s.Op.UID)
		}
	}
	d.tmu.Unlock()
	out := make([]graph.Limit, n)
	if d.cfg.MaxBatchRecords > 0 {
		for i, share := range ShareLimit(d.cfg.MaxBatchRecords, records, turn) {
			out[i].Records = max(1, share)
		}
	}
	if d.cfg.MaxBatchBytes > 0 {
		for i, share := range ShareLimit(d.cfg.MaxBatchBytes, bytes, turn) {
			out[i].Bytes = max(1, share)
		}
	}
	return out
}
