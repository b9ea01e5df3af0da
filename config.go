package tidemill

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/receiver"
	"github.com/tidemill/tidemill/wal"
)

// Config holds the settings of a job. The zero value works: each zero field
// stands for its default. [Config.Validate] says what is wrong with a value.
type Config struct {
	BatchInterval time.Duration

	Executors   int
	TaskSlots   int
	Parallelism int

	MaxPendingBatches int
	MaxBatchRecords   int64
	MaxBatchBytes     int64
	MaxTaskFailures   int
	OnBatchFailure    string
	OnLostBlocks      string
	CatchUp           string
	StopTimeout       time.Duration

	MemoryLimit int64
	Checked     bool

	Durability    string
	ReceiverWAL   string
	SegmentBytes  int64
	SegmentAge    time.Duration
	SnapshotBytes int64
	SnapshotsKept int

	BlockInterval time.Duration
	MaxBlockBytes int64
	ReceiverRate  float64
	ReceiverBytes float64

	RateControl bool
	RateInitial float64
	// The weights may be Some(0), which is not their default.
	RateProportional Opt[float64]
	RateIntegral     Opt[float64]
	RateDerived      Opt[float64]
	RateMin          float64

	FileRemember time.Duration

	HDFSReplication int
	HDFSMinReplicas int
	HDFSCommit      string
	HDFSTimeout     time.Duration
	HDFSPatience    time.Duration
}

// setting is one row of the table of settings.
type setting struct {
	name  string
	def   string
	doc   string
	set   func(*Config, string) error
	get   func(*Config) string
	check func(*Config) error
}

// settings is the table behind --set, Validate and docs/configuration.md.
func settings() []setting {
	return []setting{
		duration("batch-interval", "1s", "Time between batches. Batch times are multiples of it since the Unix epoch.", func(c *Config) *time.Duration { return &c.BatchInterval }),
		integer("executors", "1", "Executors in this process.", 1, func(c *Config) *int { return &c.Executors }),
		integer("task-slots", "CPUs / executors, at least 1", "Tasks that one executor runs at a time.", 1, func(c *Config) *int { return &c.TaskSlots }),
		integer("parallelism", "executors * task-slots", "Partitions of shuffles that name no number.", 1, func(c *Config) *int { return &c.Parallelism }),
		integer("max-pending-batches", "2", "Planned batches that may wait behind the one that runs. When they do, ticks are skipped and sources wait.", 1, func(c *Config) *int { return &c.MaxPendingBatches }),
		integer64("max-batch-records", "0 (no limit)", "Records that all sources together may put into one batch.", 0, func(c *Config) *int64 { return &c.MaxBatchRecords }),
		size("max-batch-bytes", "memory-limit / 2", "Bytes that all sources together may put into one batch.", func(c *Config) *int64 { return &c.MaxBatchBytes }),
		integer("max-task-failures", "4", "Failures of one task after which its job fails.", 1, func(c *Config) *int { return &c.MaxTaskFailures }),
		choice("on-batch-failure", "What a failed batch does: stop the job, or continue with the next batch.", []string{"stop", "continue"}, func(c *Config) *string { return &c.OnBatchFailure }),
		choice("on-lost-blocks", "What a batch does whose received blocks died with an executor: fail, or skip them, which is counted and shown.", []string{"fail", "skip"}, func(c *Config) *string { return &c.OnLostBlocks }),
		choice("catch-up", "What becomes of missed ticks: merged into the next batches, or all made into batches.", []string{"merged", "all"}, func(c *Config) *string { return &c.CatchUp }),
		duration("stop-timeout", "10 * batch-interval, at least 30s", "How long a graceful stop may take before it becomes an immediate one.", func(c *Config) *time.Duration { return &c.StopTimeout }),
		size("memory-limit", "512MiB", "Memory of one executor for received blocks, kept data sets and shuffles; beyond it they go to disk.", func(c *Config) *int64 { return &c.MemoryLimit }),
		boolean("checked", "Checked mode: everything between driver and executors is encoded, blocks are verified after each task, attempts are compared. For tests; slower.", func(c *Config) *bool { return &c.Checked }),
		choice("durability", "What the logs of a job with a directory survive once they have acknowledged something: the end of the process (flush), also of the machine (sync), or neither (memory: written in the background).", []string{"flush", "sync", "memory"}, func(c *Config) *string { return &c.Durability }),
		choice("receiver-wal", "Whether a job with a directory logs received blocks, so that they survive an executor: on or off.", []string{"on", "off"}, func(c *Config) *string { return &c.ReceiverWAL }),
		size("segment-bytes", "64MiB", "Size at which a log of received blocks or of state begins a new file. A file goes when nothing in it is needed.", func(c *Config) *int64 { return &c.SegmentBytes }),
		duration("segment-age", "1h0m0s", "Age at which such a log begins a new file though the old one is small.", func(c *Config) *time.Duration { return &c.SegmentAge }),
		size("snapshot-bytes", "1MiB", "Size of the driver's log after which a snapshot replaces it.", func(c *Config) *int64 { return &c.SnapshotBytes }),
		integer("snapshots-kept", "3", "Snapshots of the driver's log that are kept, in case the newest is damaged.", 1, func(c *Config) *int { return &c.SnapshotsKept }),
		duration("block-interval", "200ms", "A receiver cuts a block at least this often.", func(c *Config) *time.Duration { return &c.BlockInterval }),
		size("max-block-bytes", "1MiB", "A receiver cuts a block at this size.", func(c *Config) *int64 { return &c.MaxBlockBytes }),
		float("receiver-rate", "0 (no limit)", "Records per second that one receiver may take in.", func(c *Config) *float64 { return &c.ReceiverRate }),
		float("receiver-byte-rate", "0 (no limit)", "Bytes per second that one receiver may take in.", func(c *Config) *float64 { return &c.ReceiverBytes }),
		boolean("rate-control", "Whether the rate of each receiver follows what the job can do: after every batch it is estimated again, as Spark's backpressure does. receiver-rate stays the upper bound.", func(c *Config) *bool { return &c.RateControl }),
		float("rate-initial", "0 (none)", "With rate-control, records per second of each receiver until the first estimate.", func(c *Config) *float64 { return &c.RateInitial }),
		weight("rate-proportional", "1", "Weight in an estimate of how far the rate was from the speed of the last batch.", func(c *Config) *Opt[float64] { return &c.RateProportional }),
		weight("rate-integral", "0.2", "Weight in an estimate of what piled up while the last batch waited to start.", func(c *Config) *Opt[float64] { return &c.RateIntegral }),
		weight("rate-derived", "0", "Weight in an estimate of how fast the distance of rate and speed changes.", func(c *Config) *Opt[float64] { return &c.RateDerived }),
		positive("rate-min", "100", "Records per second below which no estimate goes.", func(c *Config) *float64 { return &c.RateMin }),
		duration("file-remember", "1m0s", "How old a file may be when a file stream first sees it, and how long it is known.", func(c *Config) *time.Duration { return &c.FileRemember }),
		integer("hdfs-replication", "0 (the cluster's)", "Replicas of the files that are written to HDFS.", 0, func(c *Config) *int { return &c.HDFSReplication }),
		integer("hdfs-min-replicas", "2, or hdfs-replication if less", "Datanodes that must have acknowledged what a file on HDFS has committed.", 0, func(c *Config) *int { return &c.HDFSMinReplicas }),
		choice("hdfs-commit", "How a file on HDFS commits: when the datanodes have acknowledged (acks), or by closing it at every commit (close), which is slow and the only way where datanodes are spoken to under SASL.", []string{"acks", "close"}, func(c *Config) *string { return &c.HDFSCommit }),
		duration("hdfs-timeout", "10s", "How long one call of a namenode, or one step of writing or reading on HDFS, may take.", func(c *Config) *time.Duration { return &c.HDFSTimeout }),
		duration("hdfs-patience", "5m0s", "How long work on HDFS waits for a namenode that is away, standby or in safe mode, for datanodes that take a new block, and for leases to recover, before it fails.", func(c *Config) *time.Duration { return &c.HDFSPatience }),
	}
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	setDefault(&c.BatchInterval, time.Second)
	setDefault(&c.Executors, 1)
	setDefault(&c.TaskSlots, max(1, runtime.GOMAXPROCS(0)/max(1, c.Executors)))
	setDefault(&c.Parallelism, c.Executors*c.TaskSlots)
	setDefault(&c.MaxPendingBatches, 2)
	setDefault(&c.MaxTaskFailures, 4)
	setDefault(&c.OnBatchFailure, "stop")
	setDefault(&c.OnLostBlocks, "fail")
	setDefault(&c.CatchUp, "merged")
	setDefault(&c.StopTimeout, max(30*time.Second, 10*c.BatchInterval))
	setDefault(&c.MemoryLimit, 512<<20)
	setDefault(&c.MaxBatchBytes, c.MemoryLimit/2)
	setDefault(&c.Durability, "flush")
	setDefault(&c.ReceiverWAL, "on")
	setDefault(&c.SegmentBytes, 64<<20)
	setDefault(&c.SegmentAge, time.Hour)
	setDefault(&c.SnapshotBytes, 1<<20)
	setDefault(&c.SnapshotsKept, 3)
	setDefault(&c.BlockInterval, 200*time.Millisecond)
	setDefault(&c.MaxBlockBytes, 1<<20)
	setDefault(&c.RateMin, 100)
	setMissing(&c.RateProportional, 1)
	setMissing(&c.RateIntegral, 0.2)
	setMissing(&c.RateDerived, 0)
	setDefault(&c.FileRemember, time.Minute)
	setDefault(&c.HDFSCommit, "acks")
	setDefault(&c.HDFSTimeout, 10*time.Second)
	setDefault(&c.HDFSPatience, 5*time.Minute)
	return c
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func setMissing[T any](v *Opt[T], def T) {
	if !v.OK {
		*v = Some(def)
	}
}

// Validate returns an error that names the first setting whose value breaks
// its rule.
func (c Config) Validate() error {
	c = c.withDefaults()
	for _, s := range settings() {
		if err := s.check(&c); err != nil {
			return err
		}
	}
	if err := base.CheckInterval("setting batch-interval", c.BatchInterval); err != nil {
		return err
	}
	if err := c.rates().Validate(); err != nil {
		return err
	}
	return c.receiver().Validate()
}

// Set changes one setting by its name, as --set name=value does.
func (c *Config) Set(name, value string) error {
	for _, s := range settings() {
		if s.name == name {
			if err := s.set(c, value); err != nil {
				return fmt.Errorf("setting %s: %w", name, err)
			}
			return nil
		}
	}
	return fmt.Errorf("there is no setting %q; the settings are %s", name, strings.Join(settingNames(), ", "))
}

func settingNames() []string {
	var names []string
	for _, s := range settings() {
		names = append(names, s.name)
	}
	return names
}

// String lists the settings with their values in effect, one per line.
func (c Config) String() string {
	c = c.withDefaults()
	var b strings.Builder
	for _, s := range settings() {
		fmt.Fprintf(&b, "%s=%s\n", s.name, s.get(&c))
	}
	return b.String()
}

func (c Config) receiver() receiver.Config {
	return receiver.Config{
		BlockInterval: c.BlockInterval, MaxBlockBytes: c.MaxBlockBytes,
		MaxRate: c.ReceiverRate, MaxByteRate: c.ReceiverBytes, StopTimeout: c.StopTimeout,
	}
}

func (c Config) driver() driver.Config {
	return driver.Config{
		MaxPending: c.MaxPendingBatches, MaxBatchRecords: c.MaxBatchRecords, MaxBatchBytes: c.MaxBatchBytes,
		MaxTaskFailures: c.MaxTaskFailures, MaxBlockParts: max(16, 4*c.Parallelism), OnBatchFailure: driver.Policy(c.OnBatchFailure),
		OnLostBlocks: driver.Policy(c.OnLostBlocks), CatchUp: driver.CatchUp(c.CatchUp), StopTimeout: c.StopTimeout, Rates: c.rates(),
	}
}

// level returns what an acknowledged record survives.
func (c Config) level() wal.Level {
	l, _ := wal.ParseLevel(c.Durability) // Validate has checked it
	return l
}

// rates returns the settings of rate control.
func (c Config) rates() driver.RateConfig {
	return driver.RateConfig{
		On: c.RateControl, Initial: c.RateInitial, Max: c.ReceiverRate,
		Proportional: c.RateProportional.Value, Integral: c.RateIntegral.Value, Derivative: c.RateDerived.Value,
		Min: c.RateMin,
	}
}

// field makes the row of a setting from how its type is read, printed and checked.
func field[T any](name, def, doc string, at func(*Config) *T, parse func(string) (T, error), check func(T) string) setting {
	return setting{
		name: name, def: def, doc: doc,
		set: func(c *Config, text string) error {
			v, err := parse(text)
			if err != nil {
				return err
			}
			if rule := check(v); rule != "" {
				return fmt.Errorf("%s: %s", text, rule)
			}
			*at(c) = v
			return nil
		},
		get: func(c *Config) string { return fmt.Sprint(*at(c)) },
		check: func(c *Config) error {
			if rule := check(*at(c)); rule != "" {
				return fmt.Errorf("setting %s is %v: %s", name, *at(c), rule)
			}
			return nil
		},
	}
}

func atLeast[T cmp.Ordered](low T) func(T) string {
	return func(v T) string {
		if v < low {
			return fmt.Sprintf("must be at least %v", low)
		}
		return ""
	}
}

func duration(name, def, doc string, at func(*Config) *time.Duration) setting {
	return field(name, def, doc, at, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, fmt.Errorf("%q is no duration such as 500ms or 2m", s)
		}
		return d, nil
	}, func(d time.Duration) string {
		switch {
		case d < 0 || d == 0 && name == "batch-interval":
			return "must be positive"
		case d%time.Millisecond != 0:
			return "must be a whole number of milliseconds"
		}
		return ""
	})
}

func integer(name, def, doc string, low int, at func(*Config) *int) setting {
	return field(name, def, doc, at, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, fmt.Errorf("%q is no whole number", s)
		}
		return n, nil
	}, atLeast(low))
}

func integer64(name, def, doc string, low int64, at func(*Config) *int64) setting {
	return field(name, def, doc, at, func(s string) (int64, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no whole number", s)
		}
		return n, nil
	}, atLeast(low))
}

func float(name, def, doc string, at func(*Config) *float64) setting {
	return field(name, def, doc, at, parseFloat, notNegative)
}

func positive(name, def, doc string, at func(*Config) *float64) setting {
	return field(name, def, doc, at, parseFloat, func(f float64) string {
		if f == 0 {
			return "must be more than 0"
		}
		return notNegative(f)
	})
}

// weight is a number of which 0 is not the default.
func weight(name, def, doc string, at func(*Config) *Opt[float64]) setting {
	value := func(c *Config) *float64 { return &at(c).Value }
	s := field(name, def, doc, value, parseFloat, notNegative)
	set := s.set
	s.set = func(c *Config, text string) error {
		if err := set(c, text); err != nil {
			return err
		}
		at(c).OK = true
		return nil
	}
	return s
}

func parseFloat(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != f {
		return 0, fmt.Errorf("%q is no number", s)
	}
	return f, nil
}

func notNegative(f float64) string {
	switch {
	case !(f >= 0): // not a number, too
		return "must be at least 0"
	case math.IsInf(f, 1):
		return "must be finite"
	}
	return ""
}

func boolean(name, doc string, at func(*Config) *bool) setting {
	return field(name, "false", doc, at, func(s string) (bool, error) {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return false, fmt.Errorf("%q is neither true nor false", s)
		}
		return b, nil
	}, func(bool) string { return "" })
}

func choice(name, doc string, of []string, at func(*Config) *string) setting {
	s := field(name, of[0], doc, at, func(s string) (string, error) { return s, nil }, func(v string) string {
		if !slices.Contains(of, v) {
			return "must be one of " + strings.Join(of, ", ")
		}
		return ""
	})
	return s
}

var units = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}}

func size(name, def, doc string, at func(*Config) *int64) setting {
	s := field(name, def, doc, at, func(s string) (int64, error) {
		num, unit := s, int64(1)
		for _, u := range units {
			if rest, ok := strings.CutSuffix(s, u.suffix); ok {
				num, unit = rest, u.bytes
				break
			}
		}
		n, err := strconv.ParseInt(num, 10, 64)
		if err != nil || n > (1<<62)/unit || n < -(1<<62)/unit {
			return 0, fmt.Errorf("%q is no size such as 64MiB or 1GiB", s)
		}
		return n * unit, nil
	}, atLeast(int64(0)))
	return s
}
