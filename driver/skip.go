package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/plan"
)

// Skipped says what SkipBatch gave up.
type Skipped struct {
	Batch   plan.Batch
	Outputs []base.UID       // that had not ended, and now never run
	Pending []base.BatchTime // that are left, in order
}

// SkipBatch gives up the oldest pending batch of a job that does not run: the
// way past a batch that fails at every start. The log says who did what as it
// does of any failed batch: no output runs again, state stays as it was, and
// what later windows see of the batch is empty. An error before the log is
// claimed changes nothing.
//
// On a file system with locks a job that runs is left alone; elsewhere its
// driver is fenced and ends (Invariant 7).
func SkipBatch(ctx context.Context, cfg JournalConfig, t base.BatchTime, reason string) (s Skipped, err error) {
	if reason = strings.TrimSpace(reason); reason == "" {
		return s, errors.New("driver: skip a batch: the reason is empty: the log keeps it")
	}
	f, _, err := ReadFacts(ctx, cfg.FS, cfg.Dir)
	if err != nil {
		return s, fmt.Errorf("driver: skip batch %s: %w", t, err)
	}
	if _, _, err := skip(f, t, reason); err != nil {
		return s, err
	}
	cfg.Fresh = false
	j, err := OpenJournal(ctx, cfg)
	if err != nil {
		return s, fmt.Errorf("driver: skip batch %s: %w", t, err)
	}
	defer func() {
		// A snapshot would let go of the events before it, and of the reason.
		if cerr := j.Close(false); cerr != nil {
			err = errors.Join(err, fmt.Errorf("driver: skip batch %s: close the log: %w", t, cerr))
		}
	}()
	if f, err = j.Facts(); err != nil {
		return s, err
	}
	s, failed, err := skip(f, t, reason) // a driver may have ended in between
	if err != nil {
		return s, err
	}
	if err := j.Begin(ctx, f.Run, base.TimeOf(time.Now()), f.Job); err != nil {
		return s, err
	}
	return s, j.Append(ctx, failed)
}

// skip works out the event that ends the oldest pending batch, which must be t.
func skip(f *Facts, t base.BatchTime, reason string) (Skipped, BatchFailed, error) {
	refuse := func(format string, args ...any) (Skipped, BatchFailed, error) {
		return Skipped{}, BatchFailed{}, fmt.Errorf("driver: skip batch %s: %s", t, fmt.Sprintf(format, args...))
	}
	switch {
	case f.Epoch == 0:
		return refuse("the log is empty")
	case len(f.Pending) == 0:
		return refuse("no batch is pending, the last one planned was %s", f.Last)
	}
	oldest := f.Pending[0]
	if _, found := f.pending(t); !found {
		return refuse("it is not pending; the oldest one that is: %s", oldest.Batch.Time)
	}
	if oldest.Batch.Time != t {
		return refuse("only the oldest pending batch can be skipped: %s", oldest.Batch.Time)
	}
	s := Skipped{Batch: oldest.Batch}
	for _, p := range f.Pending[1:] {
		s.Pending = append(s.Pending, p.Batch.Time)
	}
	e := BatchFailed{Time: t, Reason: "skipped: " + reason}
	slides := map[base.UID]time.Duration{}
	for _, op := range f.Job.Ops {
		slides[op.UID] = op.Slide
		if op.Source {
			e.Sets = append(e.Sets, base.DataSet{UID: op.UID, Time: t})
		}
	}
	for _, o := range f.Job.Outputs {
		if t.IsMultipleOf(slides[o.Input]) && !slices.Contains(oldest.Outputs, o.UID) {
			e.Outputs = append(e.Outputs, o.UID)
		}
	}
	s.Outputs = e.Outputs
	return s, e, nil
}
