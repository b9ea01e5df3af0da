package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/graph"
	"github.com/tidemill/tidemill/internal/plan"
	"github.com/tidemill/tidemill/tidetest"
	"github.com/tidemill/tidemill/wal"
)

// jobDir is the directory of a job that goes on.
const jobDir = "/job"

// phase is what a job did between a start and the next crash.
type phase struct {
	Batches       int     `json:"batches"`
	InFlight      int     `json:"in_flight_at_stop"`
	RestartMS     int64   `json:"clock_at_restart_ms"`
	LastMS        int64   `json:"checkpoint_time_ms"`
	PendingMS     []int64 `json:"pending_times_ms"`
	RescheduledMS []int64 `json:"rescheduled_times_ms"`
	CompletedMS   []int64 `json:"completed_batch_times_ms"`
	Output        []entry `json:"output"`
	Output2       []entry `json:"output2"`
	Snapshots     []entry `json:"state_snapshots"`
	// Error holds the failure of a start that could not go on.
	Error json.RawMessage `json:"error"`
}

func (c *golden) phases() []phase {
	var ps []phase
	c.get("phases", &ps)
	return ps
}

// full is the time of the last batch of a phase that is run to its end.
func (p *phase) full(c *golden) int64 {
	return p.RestartMS/c.BatchMS*c.BatchMS + int64(p.Batches)*c.BatchMS
}

// outs are the recorded outputs of a phase, by name.
func (p *phase) outs() map[string]*[]entry {
	return map[string]*[]entry{"output": &p.Output, "output2": &p.Output2, snapshots: &p.Snapshots}
}

func (o outcome) phase(c *golden, i int, p *phase) {
	named := func(what string) string { return fmt.Sprintf("phase %d %s", i, what) }
	times := func(ms []int64) string { return text(append([]int64{}, ms...)) }
	if i > 0 {
		o.add(named("found"), "last %d, pending %s", p.LastMS, times(p.PendingMS))
	}
	if p.Error != nil {
		o.add(named("error"), "start")
		return
	}
	o.add(named("made up for"), "%s", times(p.RescheduledMS))
	o.add(named("completed"), "%s", times(p.CompletedMS))
	for name, es := range p.outs() {
		o.outputs(named(name), c, *es)
	}
}

func sparkRecovery(c *golden) outcome {
	o := outcome{}
	var files []string
	c.get("files", &files)
	for _, f := range files {
		o.add("files", "%s", f)
	}
	for i, p := range c.phases() {
		o.phase(c, i, &p)
	}
	return o
}

// runRecovery plays a case twice: with a crash at the end of each phase, and
// with a stop at once, as Spark's were recorded. Both must come to the same.
func runRecovery(t *testing.T, c *golden) outcome {
	if c.Op == "checkpoint_files" {
		return snapshotFiles(t, c)
	}
	crashed, stopped := playPhases(t, c, true), playPhases(t, c, false)
	if diff := cmp.Diff(crashed, stopped); diff != "" {
		t.Errorf("-after a crash +after a stop:\n%s", diff)
	}
	return crashed
}

func playPhases(t *testing.T, c *golden, crash bool) outcome {
	o := outcome{}
	tidetest.Run(t, func(t *testing.T) {
		fs, rng := fsys.NewMem(), rand.New(rand.NewPCG(1, 1))
		for i, p := range c.phases() {
			passUntil(p.RestartMS)
			r, l := newRecorder(c), &listener{}
			r.hold = heldAfter(p.full(c), c.str("in_flight_blocked_at"))
			run := tidetest.Start(t, tidetest.Job{
				FS:        fs,
				Config:    durably(c),
				Build:     func(ssc *tidemill.StreamingContext) error { return recoverable(ssc, r, c) },
				Listeners: []any{l},
				Options:   []tidemill.ContextOption{tidemill.WithDir(jobDir)},
			})
			passUntil(p.full(c) + int64(p.InFlight)*c.BatchMS)
			got := phase{RestartMS: p.RestartMS}
			if found := run.Context().Recovered(); found.Recovered {
				got.LastMS, got.PendingMS = caseTime(found.Last), caseTimes(found.Pending)
			}
			for _, b := range l.done() {
				if b.Err != nil {
					t.Errorf("phase %d: batch %d: %v", i, caseTime(b.Time), b.Err)
				}
				got.CompletedMS = append(got.CompletedMS, caseTime(b.Time))
			}
			for _, at := range got.CompletedMS {
				if i > 0 && at <= p.RestartMS {
					got.RescheduledMS = append(got.RescheduledMS, at)
				}
			}
			for name, es := range got.outs() {
				*es = r.of(name)
			}
			o.phase(c, i, &got)
			if err := run.Err(); err != nil {
				t.Errorf("phase %d: %v", i, err)
			}
			if crash {
				fs.Crash()
			}
			run.Stop(false)
			if crash {
				fs = fs.AfterKill(rng)
			}
		}
	})
	return o
}

// durably has the settings of a job that goes on as Spark does.
func durably(c *golden) tidemill.Config {
	return tidemill.Config{BatchInterval: millis(c.BatchMS), MaxTaskFailures: 1, CatchUp: "all", MaxPendingBatches: 10}
}

// passUntil lets time pass until a time of the case.
func passUntil(at int64) {
	time.Sleep(time.Until((epoch + tidemill.BatchTime(at)).Time()))
	synctest.Wait()
}

// heldAfter holds an output of batches after a time until the job ends.
func heldAfter(at int64, output string) func(context.Context, string, int64) error {
	if output == "" {
		output = "output"
	}
	return func(ctx context.Context, name string, t int64) error {
		if name != output || t <= at {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

func caseTimes(ts []tidemill.BatchTime) []int64 {
	var out []int64
	for _, t := range ts {
		out = append(out, caseTime(t))
	}
	return out
}

// done returns the batches that ended.
func (l *listener) done() []tidemill.BatchInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.completed)
}

// replay is a source that has the same records at a time whenever it is asked,
// as a log that is kept elsewhere.
type replay[T any] struct {
	c       *golden
	batches [][]T
	codec   *codec.Codec[T]
}

func replayed[T any](ssc *tidemill.StreamingContext, c *golden) tidemill.DStream[T] {
	return tidemill.FromSource(ssc, "in", "replay", tidemill.Source[T](&replay[T]{c, batchesOf[T](c, 0), codec.For[T]()}))
}

func (*replay[T]) Open(context.Context, tidemill.BatchTime) error { return nil }
func (*replay[T]) Planned(tidemill.BatchTime, plan.Input)         {}
func (*replay[T]) Close() error                                   { return nil }

func (s *replay[T]) Plan(_ context.Context, t tidemill.BatchTime, _ graph.Limit) (plan.Input, error) {
	var records []T
	if i := caseTime(t) / s.c.BatchMS; i <= int64(len(s.batches)) {
		records = s.batches[i-1]
	}
	return tidemill.PlannedRecords(s.codec, records, 2)
}

func (s *replay[T]) Data(b *plan.Builder, in plan.Input) (tidemill.RDD[T], error) {
	return tidemill.RecordsOf(b, s.codec, in)
}

// recoveryOp takes the name of an operation apart: its window and slide, and the
// interval of RDD checkpoints, in batches, which is nothing to us.
var recoveryOp = regexp.MustCompile(`^([a-zA-Z_,]+?)(?:_(\d+)_(\d+))?(?:_timeout(\d))?(?:_checkpoint\d+)?$`)

// recoverable is the graph of a case.
func recoverable(ssc *tidemill.StreamingContext, r *recorder, c *golden) error {
	m := recoveryOp.FindStringSubmatch(c.Op)
	if m == nil {
		return fmt.Errorf("operation %q is not known", c.Op)
	}
	seconds := func(s string) time.Duration {
		n, _ := strconv.Atoi(s) // digits, or none
		return time.Duration(n) * time.Second
	}
	window, slide := seconds(m[2]), seconds(m[3])
	switch op := m[1]; op {
	case "transform":
		transform(r, c, replayed[int64](ssc, c))
	case "count":
		watch(r, tidemill.Count(replayed[int64](ssc, c)), "output")
	case "window":
		watch(r, tidemill.Window(replayed[int64](ssc, c), window, slide), "output")
	case "countByWindow":
		watch(r, tidemill.CountByWindow(replayed[int64](ssc, c), "counted", window, slide), "output")
	case "map,filter":
		in := replayed[int64](ssc, c)
		watch(r, tidemill.Map(in, double), "output")
		watch(r, tidemill.Filter(in, even), "output2")
	default:
		return recoverableByKey(op, window, slide, seconds(m[4]), r, c, replayed[pair](ssc, c))
	}
	return nil
}

func recoverableByKey(op string, window, slide, timeout time.Duration, r *recorder, c *golden, in tidemill.DStream[pair]) error {
	switch op {
	case "reduceByKey":
		watch(r, tidemill.ReduceByKey(in, sum64), "output")
	case "updateStateByKey":
		watch(r, tidemill.UpdateStateByKey(in, "state", sumState), "output")
	case "updateStateByKey_initial":
		watch(r, tidemill.UpdateStateByKey(in, "state", sumState, tidemill.InitialState(initialSums()...)), "output")
	case "updateStateByKey,filter":
		watch(r, tidemill.UpdateStateByKey(in, "state", sumState), "output")
		watch(r, in, "output2")
	case "reduceByKeyAndWindow":
		watch(r, tidemill.ReduceByKeyAndWindow(in, "reduced", sum64, nil, window, slide), "output")
	case "reduceByKeyAndWindow_inverse":
		watch(r, tidemill.ReduceByKeyAndWindow(in, "reduced", sum64, diff64, window, slide), "output")
	case "reduceByKeyAndWindow_inverse_filter":
		keep := tidemill.WithFilter(func(_ string, v int64) bool { return v != 0 })
		watch(r, tidemill.ReduceByKeyAndWindow(in, "reduced", sum64, diff64, window, slide, keep), "output")
	case "mapWithState":
		f, spec := steps["running_sum"], tidemill.StateSpec[string, int64]{}
		if timeout > 0 {
			f, spec.Timeout = steps["running_sum_time"], tidemill.Some(timeout)
		}
		st := tidemill.MapWithState(in, "state", spec, mapping(f))
		watch(r, st.DStream, "output")
		if c.phases()[0].Snapshots != nil {
			watch(r, tidemill.StateSnapshots(st, "snapshots"), snapshots)
		}
	default:
		return fmt.Errorf("operation %q is not known", c.Op)
	}
	return nil
}

// initialSums is the initial state of the cases that have one.
func initialSums() []pair { return []pair{tidemill.KV("a", int64(100)), tidemill.KV("z", int64(7))} }

// notRepeated is what we give: what Spark gave, but for batches that had ended
// and outputs that were recorded as done before the crash, which Spark runs
// again. Where Spark could not go on, the sums of the model are what it owed.
func notRepeated(c *golden) outcome {
	o := outcome{}
	ended, given := map[int64]bool{}, map[string]map[int64]bool{"output": {}, "output2": {}, snapshots: {}}
	fresh := func(at int64) bool { return !ended[at] }
	for i, p := range c.phases() {
		if p.Error != nil {
			p.Error = nil
			owed(c, &p)
			for _, at := range p.CompletedMS {
				p.Output = append(p.Output, entry{TimeMS: at, Records: sumsWithInitial(c, at)})
			}
		}
		p.RescheduledMS, p.CompletedMS = keepOnly(p.RescheduledMS, fresh), keepOnly(p.CompletedMS, fresh)
		for name, es := range p.outs() {
			*es = keepOnly(*es, func(e entry) bool { return !given[name][e.TimeMS] })
			for _, e := range *es {
				given[name][e.TimeMS] = true
			}
		}
		for _, at := range p.CompletedMS {
			ended[at] = true
		}
		o.phase(c, i, &p)
	}
	return o
}

func keepOnly[T any](all []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !keep(v) })
}

// owed fills in which batches a phase has to run: all from the first that had
// not ended.
func owed(c *golden, p *phase) {
	first := p.LastMS + c.BatchMS
	if len(p.PendingMS) > 0 {
		first = p.PendingMS[0]
	}
	for at := first; at <= p.full(c); at += c.BatchMS {
		if at <= p.RestartMS {
			p.RescheduledMS = append(p.RescheduledMS, at)
		}
		p.CompletedMS = append(p.CompletedMS, at)
	}
}

// checkOwed holds the model of what a phase owes against the phases that Spark
// went on with, and the sums against those before.
func checkOwed(t *testing.T, c *golden) {
	t.Helper()
	ended := map[int64]bool{}
	for i, p := range c.phases() {
		if i > 0 && p.Error == nil {
			q := phase{Batches: p.Batches, RestartMS: p.RestartMS, LastMS: p.LastMS, PendingMS: p.PendingMS}
			owed(c, &q)
			fresh := func(at int64) bool { return !ended[at] } // Spark runs again what had ended
			for what, times := range map[string][2][]int64{
				"made up for": {keepOnly(p.RescheduledMS, fresh), q.RescheduledMS},
				"completed":   {keepOnly(p.CompletedMS, fresh), q.CompletedMS},
			} {
				if !slices.Equal(times[0], times[1]) {
					t.Errorf("%s: phase %d %s: Spark %v, the model %v", c.Name, i, what, times[0], times[1])
				}
			}
		}
		for _, at := range p.CompletedMS {
			ended[at] = true
		}
		if !couldNotGoOn(c) {
			continue
		}
		for _, e := range p.Output {
			if spark, ours := text(ordered(c, e.Records)), text(ordered(c, sumsWithInitial(c, e.TimeMS))); spark != ours {
				t.Errorf("%s: at %d: Spark gave %s, the model %s", c.Name, e.TimeMS, spark, ours)
			}
		}
	}
}

// sumsWithInitial is the model of updateStateByKey(sum) with an initial state.
func sumsWithInitial(c *golden, at int64) []any {
	var records []any
	for _, p := range initialSums() {
		records = append(records, []any{p.Key, num(p.Value)})
	}
	for t := c.BatchMS; t <= at; t += c.BatchMS {
		records = append(records, c.records(t)...)
	}
	return sumsOf(records)
}

// repeats holds if Spark runs again what was done, and goes on at all.
func repeats(c *golden) bool {
	return !couldNotGoOn(c) && !cmp.Equal(sparkRecovery(c).clean(), notRepeated(c).clean())
}

func couldNotGoOn(c *golden) bool {
	return slices.ContainsFunc(c.phases(), func(p phase) bool { return p.Error != nil })
}

// snapshotFiles lists what a job keeps of its log when it has been stopped.
func snapshotFiles(t *testing.T, c *golden) outcome {
	o := outcome{}
	tidetest.Run(t, func(t *testing.T) {
		fs := fsys.NewMem()
		cfg := durably(&golden{BatchMS: c.num("batch_ms", 0)})
		cfg.SnapshotBytes = 100 // less than the plan of a batch
		run := tidetest.Start(t, tidetest.Job{
			FS: fs, Config: cfg,
			Build: func(ssc *tidemill.StreamingContext) error {
				tidemill.Print(tidetest.Script(ssc, "in", [][]int64{{1}}), "print", 1)
				return nil
			},
			Options: []tidemill.ContextOption{tidemill.WithDir(jobDir)},
		})
		run.Advance(int(c.num("batches", 0)))
		run.Stop(false)
		epochs, err := wal.Epochs(fs, path.Join(jobDir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		var dirs []string
		for _, e := range epochs {
			dirs = append(dirs, e.Dir)
		}
		kept, err := checkpoint.List(fs, dirs)
		if err != nil {
			t.Fatal(err)
		}
		facts := factsOf(t, fs)
		o.add("files", "%d snapshots; last batch %d, pending %d", len(kept), caseTime(facts.Last), len(facts.Pending))
	})
	return o
}

// factsOf reads what a start would find.
func factsOf(t *testing.T, fs fsys.FS) *driver.Facts {
	t.Helper()
	facts, _, err := driver.ReadFacts(t.Context(), fs, path.Join(jobDir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// threeSnapshots is what we keep: as many as the settings say, whatever the
// number of batches.
func threeSnapshots(c *golden) outcome {
	return outcome{"files": {fmt.Sprintf("3 snapshots; last batch %d, pending 0", c.num("batches", 0)*c.num("batch_ms", 0))}}
}

// change replaces the bytes of a file.
func change(t *testing.T, fs fsys.FS, name string, f func([]byte) []byte) {
	t.Helper()
	b, err := fsys.ReadFile(fs, name)
	if err == nil {
		err = fs.Remove(name)
	}
	if err == nil {
		err = fsys.WriteFile(fs, name, f(b))
	}
	if err != nil {
		t.Fatal(err)
	}
}
