package conformance

import (
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kind says why a case of the table is no plain pass.
type kind int

const (
	// onPurpose: the list of allowed differences has it.
	onPurpose kind = iota
	// notHere: what the case is about does not exist here, and the list says so.
	notHere
)

// difference is an entry of the table.
type difference struct {
	kind   kind
	family string
	// cases holds patterns of case names, as of path.Match.
	cases string
	// when narrows the patterns by what a case holds; nil is always.
	when func(c *golden) bool
	// ours says what we do instead.
	ours string
	// allowed is the line of the design, section 6, or the decision that allows it.
	allowed string
	// want is what we give. A test holds the engine to it.
	want func(c *golden) outcome
}

const (
	absentIsEmpty  = "a source without data set at T counts as empty in union, transform, joins, count"
	transformError = "an error in one `Transform` fails only what depends on it"
	noPoison       = "a failed batch does not poison later ones"
	refused        = "zero or negative windows, slides, timeouts, partition counts, intervals are refused at build"
	sliceLogged    = "`Slice` gives logged, remembered batches only (forgotten: an error; future: nothing)"
	noTicks        = "a graceful stop makes no extra ticks"
	fileNames      = "the file source skips names starting with `.` or `_` or ending in `.tmp` or `._COPYING_`, and knows a file by (name, size, mtime)"
	notApplied     = "closure serialization, one context per process, create-on-error do not apply"
	noInterval     = "no RDD checkpoint interval exists"
	noDirectory    = "state works without a configured directory (a temporary one)"
	everyBatch     = "timeouts are checked every batch (equal to Spark with a state checkpoint interval of one batch)"
	shortWindows   = "windows: shorter than the slide with an inverse is computed right"
	filterGates    = "an inverse window with a filter equals the non-inverse one with that filter (the filter gates emission; a key stays in state while values of it are in the window)"
	noParents      = "reducing windows hold no parent data sets (`remember_*`)"
	notAgain       = "a finished batch or an output recorded as done is not repeated at restart"
	initialGoesOn  = "initial state works with empty first batches and across recovery"
	ownFiles       = "names and number of checkpoint files are ours"
	ownLog         = "the WAL has its own format"
	damageStops    = ownLog + "; invariant 8: damage stops the job and never costs later segments"
	onceEach       = ownLog + "; invariant 14: replay takes each sequence once"
	allRecords     = "docs/adr/0003: a batch tells all records that it took"
)

// differences is the table of all cases in which we do not give what Spark
// gave. Each entry says what we do instead; check holds the engine to that and
// refuses entries whose case does not differ.
var differences = []*difference{
	{
		family: "stateless", cases: "count_null* transform_*_null*", when: failsWhereAbsent,
		ours: "the batch counts as empty and the run goes on", allowed: absentIsEmpty, want: absentAsEmpty,
	},
	{
		family: "multi_stream", cases: "*_null*", when: failsWhereAbsent,
		ours: "the batch counts as empty and the run goes on", allowed: absentIsEmpty, want: absentAsEmpty,
	},
	{
		family: "slice_remember", cases: "slice_slide*", when: asksForFuture,
		ours: "times after the last batch give nothing", allowed: sliceLogged, want: slicesOfBatches,
	},
	{
		family: "window", cases: "*_2_3_* window_then_reduceByKeyAndWindow_inverse_2_2_then_2_4", when: addsOthers,
		ours: "the reduction of the batches that are in the window", allowed: shortWindows, want: rightWindows,
	},
	{
		family: "window", cases: "reduceByKeyAndWindow_inverse_filter_*", when: losesKeys,
		ours: "a key that the filter hides stays in state while it has values in the window; the job goes on and the sums are right", allowed: filterGates, want: rightWindows,
	},
	{
		family: "map_with_state", cases: "mapWithState_timeout_*", when: expiresLater,
		ours: "a key times out in the first batch T with last update < T - timeout", allowed: everyBatch, want: checkedEveryBatch,
	},
	{
		kind: notHere, family: "map_with_state", cases: "default_checkpoint_*",
		ours: "no stream has an interval; state keeps nothing of its parents or of its own past data sets", allowed: noInterval, want: keptForABatch,
	},
	{
		family: "slice_remember", cases: "remember_updateState_checkpoint_*",
		ours: "state keeps nothing of the past data sets, of its parent or its own", allowed: noInterval, want: onlyTheLast,
	},
	{
		family: "slice_remember", cases: "remember_reduceByKeyAndWindow_inverse_*",
		ours: "nothing of the parent is kept but its last data set", allowed: noParents + "; " + noInterval, want: onlyTheLast,
	},
	{
		family: "failures", cases: "poison_updateStateByKey* poison_mapWithState poison_reduceByKeyAndWindow_inverse_2_1",
		ours: "state is as if the failed batch had not been, and the later batches run", allowed: noPoison, want: withoutFailed,
	},
	{
		family: "failures", cases: "generation_error_updateStateByKey generation_error_mapWithState generation_error_reduceByKeyAndWindow_inverse_2_1",
		ours:    "the batch is completed with failed outputs; state is as if it had not been, and the later batches run",
		allowed: transformError + "; " + noPoison, want: withoutFailed,
	},
	{
		family: "failures", cases: "null_batch_union_state",
		ours: "the batch counts as empty and the run goes on", allowed: absentIsEmpty, want: absentUnited,
	},
	{
		family: "errors", cases: "no_checkpoint_dir_updateStateByKey no_checkpoint_dir_mapWithState no_checkpoint_dir_reduce* no_checkpoint_dir_countBy*",
		ours: "the job runs, its files in a temporary directory", allowed: noDirectory, want: runsWell,
	},
	{
		family: "errors", cases: "start_failure_validation_state",
		ours: "the first start does not fail, so the second has nothing to do", allowed: noDirectory, want: runsOn,
	},
	{
		family: "errors", cases: "mapWithState_timeout_0 mapWithState_timeout_-1000",
		ours: "refused at build, naming the value", allowed: refused, want: refusedAtBuild,
	},
	{
		family: "errors", cases: "mapWithState_timeout_500",
		ours: "the key times out in the second batch", allowed: everyBatch, want: timedOutAtOnce,
	},
	{
		family: "failures", cases: "poison_window_3_1 poison_reduceByKeyAndWindow_2_1",
		ours: "windows that reach back to the failed data set take it as empty", allowed: noPoison, want: withoutFailed,
	},
	{
		family: "failures", cases: "generation_error generation_error_other_output",
		ours: "the batch runs, its other outputs too, and is completed with a failed output", allowed: transformError, want: withoutFailed,
	},
	{
		family: "failures", cases: "generation_error_window_3_1",
		ours:    "the batch is completed with a failed output; windows that reach back to it take its data set as empty",
		allowed: transformError + "; " + noPoison, want: withoutFailed,
	},
	{
		family: "failures", cases: "poison_window_2_2",
		ours:    "a batch in which no output has a data set tells how many records it took; Spark tells 0 and never tells those records at all",
		allowed: allRecords, want: withoutFailed,
	},
	{
		family: "errors", cases: "window_*_degenerate",
		ours: "refused at build, naming the value", allowed: refused, want: refusedAtBuild,
	},
	{
		family: "errors", cases: "batch_duration_*",
		ours: "refused at build, naming the value", allowed: refused, want: refusedAtBuild,
	},
	{
		family: "errors", cases: "reduceByKey_partitions_0 updateStateByKey_partitions_0 repartition_*",
		ours: "refused at build, naming the value", allowed: refused, want: refusedAtBuild,
	},
	{
		family: "errors", cases: "two_active_contexts",
		ours: "both contexts run", allowed: notApplied, want: bothActive,
	},
	{
		family: "errors", cases: "not_serializable_with* not_serializable_output_with_checkpoint",
		ours: "functions are not sent anywhere: they may hold anything", allowed: notApplied, want: runsWell,
	},
	{
		family: "errors", cases: "no_checkpoint_dir_map_with_checkpoint_interval",
		ours: "there is no interval that would need a directory; the job runs", allowed: noInterval, want: runsWell,
	},
	{
		kind: notHere, family: "errors", cases: "with_checkpoint_dir_map_with_checkpoint_interval checkpoint_interval_*",
		ours: "no operation takes an interval; the graph without it runs", allowed: noInterval, want: runsWell,
	},
	{
		kind: notHere, family: "errors", cases: "set_checkpoint_interval_after_*",
		ours: "no operation takes an interval, before or after the start", allowed: noInterval, want: asRecorded,
	},
	{
		kind: notHere, family: "errors", cases: "recover_missing_dir recover_empty_dir",
		ours: "a context is not read from a directory, it is made by Build; a directory that holds no job gets one", allowed: notApplied, want: runsWell,
	},
	{
		family: "errors", cases: "getOrCreate_corrupt_createOnError_true",
		ours: "an error, as without create-on-error", allowed: notApplied, want: refusedAtBuild,
	},
	{
		family: "errors", cases: "queue_stream_with_checkpoint",
		ours: "nothing of a queue has to be serialized but the records of planned batches: the job goes on", allowed: notApplied, want: runsWell,
	},
	{
		kind: notHere, family: "errors", cases: "context_checkpoint_dir_after_*",
		ours: "the directory is an option of New; no call sets it before or after the start", allowed: noDirectory, want: asRecorded,
	},
	{
		family: "file_input", cases: "files_*", when: takenDifferently,
		ours: "a touched or rewritten file is taken again; files with such names are left alone and break no batch", allowed: fileNames,
		want: func(c *golden) outcome { return filesBy(c, false) },
	},
	{
		family: "wal", cases: "wal_damage_*", when: readsOn,
		ours: "records have checksums: a read ends with an error at the damage, and gives the later files when it is told to pass over that", allowed: damageStops, want: stopsAtDamage,
	},
	{
		family: "wal", cases: "wal_rotation_exact_boundary",
		ours: "a segment is sealed as soon as it is as old as it may get", allowed: ownLog,
		want: lines("steps", `write "r1": file 1`, `write "r2": file 1`, `write "r3": file 2`, `write "r4": file 2`, `write "r5": file 3`, `write "r6": file 3`,
			"3 files", `read ["r1","r2","r3","r4","r5","r6"]`),
	},
	{
		family: "wal", cases: "wal_same_start_time_twice",
		ours: "a start writes into an epoch of its own, and nothing is read twice", allowed: onceEach,
		want: lines("steps", `write "a": file 1`, `write "b": file 2`, "2 files", `read ["a","b"]`, `read ["a","b"]`),
	},
	{
		family: "wal", cases: "wal_close_after_write",
		ours: "a sealed segment is never written to again, and nothing is read twice", allowed: onceEach,
		want: lines("steps", `write "r1": file 1`, `write "r2": file 2`, `write "r3": file 3`, `write "r4": file 4`,
			"4 files", `read ["r1","r2","r3","r4"]`, `read ["r1","r2","r3","r4"]`),
	},
	{
		family: "wal", cases: "wal_unrelated_files",
		ours: "only files whose whole name is that of a segment are read or removed", allowed: ownLog,
		want: lines("steps", `read ["hi"]`, "clean: 6 files left", "6 files", "clean: 5 files left", "5 files"),
	},
	{
		family: "wal", cases: "wal_write_after_close",
		ours: "a closed log takes nothing any more", allowed: ownLog,
		want: lines("steps", `write "a": file 1`, `write "b": error`, `write "c": error`, "1 files", `read ["a"]`),
	},
	{
		kind: notHere, family: "wal", cases: "wal_file_names",
		ours: "segments are numbered", allowed: ownLog, want: lines("names", "0000000000000001.wal", "0000000000000002.wal"),
	},
	{
		family: "time", cases: "timer_run_*_no_interrupt",
		ours: "a stop asks for no further batch", allowed: noTicks, want: noExtraTicks,
	},
	{
		family: "recovery", cases: "times_* recover_*", when: repeats,
		ours: "a batch that had ended, or an output that was recorded as done, is not run again", allowed: notAgain, want: notRepeated,
	},
	{
		family: "recovery", cases: "recover_updateStateByKey_initial_*", when: couldNotGoOn,
		ours: "the job goes on from the state that it had", allowed: initialGoesOn + "; " + notAgain, want: notRepeated,
	},
	{
		family: "recovery", cases: "checkpoint_files_*",
		ours: "the newest snapshots are kept, as many as the settings say", allowed: ownFiles, want: threeSnapshots,
	},
	{
		family: "graceful_stop", cases: "graceful_after_*",
		ours: "no batch but those that were due; the log ends with the last of them, nothing pending", allowed: noTicks, want: stoppedWithoutTicks,
	},
	{
		family: "time", cases: "duration_is_multiple_of",
		ours: "nothing is a multiple of zero, and no zero slide gets this far", allowed: refused, want: zeroHasNoMultiples,
	},
}

// failsWhereAbsent holds if Spark's run stopped at a batch for which a source
// had no data set.
func failsWhereAbsent(c *golden) bool {
	f := c.failed()
	return f != nil && f.Phase == "run" && c.absent(int(f.TimeMS/c.BatchMS))
}

// asksForFuture holds if a slice of the case ends after the last batch.
func asksForFuture(c *golden) bool {
	for _, s := range c.slices() {
		if s.ToMS > int64(c.Batches)*c.BatchMS {
			return true
		}
	}
	return false
}

// takenDifferently holds if the models of Spark's and of our file source do
// not agree on the case, which only the two rules of the entry can cause.
func takenDifferently(c *golden) bool {
	return !cmp.Equal(filesBy(c, true), filesBy(c, false))
}

// differs finds the entry of a case, nil if it has none.
func differs(t *testing.T, c *golden) *difference {
	t.Helper()
	var found *difference
	for _, d := range differences {
		if d.family != c.Family || !matches(t, d.cases, c.Name) || d.when != nil && !d.when(c) {
			continue
		}
		if found != nil {
			t.Fatalf("two entries of the table of differences match: %q and %q", found.cases, d.cases)
		}
		found = d
	}
	return found
}

func matches(t *testing.T, patterns, name string) bool {
	t.Helper()
	for pattern := range strings.FieldsSeq(patterns) {
		ok, err := path.Match(pattern, name)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return true
		}
	}
	return false
}

func TestDifferencesAreAllowed(t *testing.T) {
	for _, d := range differences {
		if d.allowed == "" || d.ours == "" {
			t.Errorf("%s %q: an entry says what we do, and what allows it", d.family, d.cases)
		}
	}
}
