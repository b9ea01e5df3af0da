package driver_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/wal"
)

// poisoned is the log of a job that ended with two pending batches: of the
// older, one output had ended, and one is not due.
func poisoned(t *testing.T, f fsys.FS) driver.JournalConfig {
	t.Helper()
	cfg := driver.JournalConfig{FS: f, Dir: "/job/log", Level: wal.LevelSync}
	j, err := driver.OpenJournal(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	job := checkpoint.Job{
		Name: "poisoned", Interval: time.Second,
		Ops: []checkpoint.Op{
			{UID: "a", Kind: "script", Source: true, Slide: time.Second},
			{UID: "b", Kind: "script", Source: true, Slide: time.Second},
			{UID: "u", Kind: "union", Parents: []base.UID{"a", "b"}, Slide: time.Second},
			{UID: "w", Kind: "window", Parents: []base.UID{"u"}, Slide: 2 * time.Second, Window: 4 * time.Second},
		},
		Outputs: []checkpoint.Output{{UID: "saved", Input: "u"}, {UID: "printed", Input: "u"}, {UID: "windows", Input: "w"}},
	}
	if err := j.Begin(t.Context(), "run1", 500, job); err != nil {
		t.Fatal(err)
	}
	for _, e := range []driver.Event{
		planned(1000), planned(2000),
		driver.OutputDone{Time: 1000, Output: "saved"},
	} {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(false); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func planned(t base.BatchTime) driver.Event {
	return driver.BatchPlanned{Batch: plan.Batch{Time: t, Inputs: []plan.Input{
		{UID: "a", Records: 3, Bytes: 30, Parts: 1, Data: []byte("plan")}, {UID: "b", Absent: true},
	}}}
}

func TestASkippedBatchIsNotRunAgain(t *testing.T) {
	f := fsys.NewMem()
	cfg := poisoned(t, f)
	s, err := driver.SkipBatch(t.Context(), cfg, 1000, " it breaks ")
	if err != nil {
		t.Fatal(err)
	}
	if s.Batch.Time != 1000 || !cmp.Equal(s.Outputs, []base.UID{"printed"}) || !cmp.Equal(s.Pending, []base.BatchTime{2000}) {
		t.Errorf("skipped %+v", s)
	}
	j, err := driver.OpenJournal(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close(false)
	facts, err := j.Facts()
	if err != nil {
		t.Fatal(err)
	}
	if len(facts.Pending) != 1 || facts.Pending[0].Batch.Time != 2000 {
		t.Errorf("pending %+v, want only the batch at 2000", facts.Pending)
	}
	want := []base.DataSet{{UID: "a", Time: 1000}, {UID: "b", Time: 1000}}
	if d := cmp.Diff(want, facts.FailedIn); d != "" {
		t.Errorf("data sets that later windows take as empty (-want +got):\n%s", d)
	}
	if facts.Run != "run1" || facts.Epoch != 2 || facts.Job.Name != "poisoned" || facts.Done != 1 || facts.Failed != 1 {
		t.Errorf("run %q, epoch %d, job %q, %d ended, %d failed", facts.Run, facts.Epoch, facts.Job.Name, facts.Done, facts.Failed)
	}
}

func TestTheLogKeepsWhyABatchWasSkipped(t *testing.T) {
	f := fsys.NewMem()
	cfg := poisoned(t, f)
	if _, err := driver.SkipBatch(t.Context(), cfg, 1000, " it breaks "); err != nil {
		t.Fatal(err)
	}
	epochs, err := wal.Epochs(f, cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var failed []driver.BatchFailed
	for _, e := range epochs {
		_, err := wal.Scan(t.Context(), f, e.Dir, wal.ScanOptions{}, func(_ uint64, _ base.Handle, rec []byte) error {
			ev, err := driver.DecodeEvent(rec)
			if e, ok := ev.(driver.BatchFailed); ok {
				failed = append(failed, e)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []driver.BatchFailed{{
		Time: 1000, Sets: []base.DataSet{{UID: "a", Time: 1000}, {UID: "b", Time: 1000}},
		Outputs: []base.UID{"printed"}, Reason: "skipped: it breaks",
	}}
	if d := cmp.Diff(want, failed); d != "" {
		t.Errorf("failed batches (-want +got):\n%s", d)
	}
}

func TestASkipThatIsRefusedChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		at     base.BatchTime
		reason string
		fresh  bool // no job ever ran
		says   string
	}{
		"no reason":      {1000, " \n", false, "the reason is empty"},
		"not the oldest": {2000, "r", false, "only the oldest pending batch can be skipped: 1970-01-01T00:00:01.000Z"},
		"not pending":    {500, "r", false, "it is not pending; the oldest one that is: 1970-01-01T00:00:01.000Z"},
		"no log":         {1000, "r", true, "the log is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fsys.NewMem()
			cfg := driver.JournalConfig{FS: f, Dir: "/job/log"}
			if !c.fresh {
				cfg = poisoned(t, f)
			}
			before := f.String()
			_, err := driver.SkipBatch(t.Context(), cfg, c.at, c.reason)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
			if d := cmp.Diff(before, f.String()); d != "" {
				t.Errorf("files have changed (-before +after):\n%s", d)
			}
		})
	}
}

func TestNoBatchOfARunningJobIsSkipped(t *testing.T) {
	f := fsys.NewMem()
	cfg := poisoned(t, f)
	running, err := driver.OpenJournal(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close(false)
	before := f.String()
	if _, err := driver.SkipBatch(t.Context(), cfg, 1000, "r"); !errors.Is(err, fsys.ErrLocked) {
		t.Errorf("error %v, want %v", err, fsys.ErrLocked)
	}
	if d := cmp.Diff(before, f.String()); d != "" {
		t.Errorf("files have changed (-before +after):\n%s", d)
	}
	facts, err := running.Facts()
	if err == nil {
		err = running.Begin(t.Context(), facts.Run, 3000, facts.Job)
	}
	if err != nil {
		t.Errorf("the job can't go on: %v", err)
	}
}

func TestASkipWithoutPendingBatchesIsRefused(t *testing.T) {
	f := fsys.NewMem()
	cfg := poisoned(t, f)
	for _, at := range []base.BatchTime{1000, 2000} {
		if _, err := driver.SkipBatch(t.Context(), cfg, at, "r"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := driver.SkipBatch(context.Background(), cfg, 2000, "r")
	if err == nil || !strings.Contains(err.Error(), "no batch is pending, the last one planned was 1970-01-01T00:00:02.000Z") {
		t.Errorf("error %v", err)
	}
}
