package driver

import (
	"context"
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
)

// repackAll cuts the state of operators whose number of partitions has changed
// into the new one, before any batch runs.
func (d *Driver) repackAll(ctx context.Context, f *Facts) error {
	for _, op := range d.g.Ops {
		if op.State == nil || op.State.Repack == nil {
			continue
		}
		var old []StateFacts // all partitions, since an operator applies a batch with all or none
		for _, s := range f.States {
			if s.Op == op.UID {
				old = append(old, s)
			}
		}
		if parts := d.g.Parts(op.UID); len(old) > 0 && len(old) != parts {
			if err := d.repack(ctx, f, op, old, parts); err != nil {
				return fmt.Errorf("cut the state of %q from %d partitions into %d: %w", op.UID, len(old), parts, err)
			}
		}
	}
	return nil
}

// repack writes the new partitions, then the event that puts them in the place
// of the old ones; a crash before that leaves orphans (Invariant 5).
func (d *Driver) repack(ctx context.Context, f *Facts, op *plan.Op, old []StateFacts, parts int) error {
	e := StateRepacked{Op: op.UID, Files: make([]base.Handle, parts)}
	var files []base.Handle
	lists := make([][][]byte, len(old))
	for i, s := range old {
		e.Version = max(e.Version, s.Version)
		files = append(files, s.Files...)
		for _, h := range s.Files {
			data, err := d.cfg.States.Get(ctx, h)
			if err != nil {
				return err
			}
			lists[i] = append(lists[i], data)
		}
	}
	at := base.TaskError{Set: base.DataSet{UID: op.UID, Time: e.Version}, Operator: op.Display}
	for part := range parts {
		var data []byte
		err := d.userCode(at, func() (err error) { // migrations and codecs
			data, err = op.State.Repack(lists, part)
			return err
		})
		if err == nil {
			e.Files[part], err = d.cfg.States.Put(ctx, data)
		}
		if err != nil {
			return err
		}
	}
	if err := f.Apply(e); err != nil {
		return err
	}
	if err := d.append(ctx, e); err != nil {
		return err
	}
	d.cfg.States.Drop(files...)
	d.cfg.Log.Info("state was cut into another number of partitions", "operator", op.UID, "from", len(old), "to", parts)
	return nil
}
