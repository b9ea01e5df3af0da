package receiver

import (
	"fmt"
	"math"
	"time"

	"github.com/tidemill/tidemill/internal/codec"
)

// Config are the settings of all receivers of a job. The zero value works:
// each zero field stands for its default.
type Config struct {
	BlockInterval time.Duration // a block is cut at least this often if there are records; 200ms
	MaxBlockBytes int64         // and when it holds this many bytes of records; 1 MiB
	QueueSize     int           // cut blocks that wait for the pusher; 10

	MaxRate     float64 // records per second; 0 is no limit
	MaxByteRate float64 // encoded bytes per second; 0 is no limit

	StartAttempts   int           // failures in a row of a source never reached before, after which the job ends; 7, which takes 6 s at least
	RestartDelay    time.Duration // before the first restart, then doubled; 100ms
	RestartDelayMax time.Duration // 30s

	PushAttempts int           // tries to store one block; 10
	PushDelay    time.Duration // after the first failure to store or add a block, then doubled; 100ms
	PushDelayMax time.Duration // 5s
	PushTimeout  time.Duration // of one try to store or add a block; 30s

	StopTimeout time.Duration // of a graceful stop; 30s
}

// Validate returns an error that names the first field whose value breaks its rule.
func (c Config) Validate() error {
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"BlockInterval", c.BlockInterval},
		{"RestartDelay", c.RestartDelay},
		{"RestartDelayMax", c.RestartDelayMax},
		{"PushDelay", c.PushDelay},
		{"PushDelayMax", c.PushDelayMax},
		{"PushTimeout", c.PushTimeout},
		{"StopTimeout", c.StopTimeout},
	} {
		if d.v < 0 || d.v > 0 && d.v < time.Millisecond {
			return fmt.Errorf("receiver: %s is %v: must be 0 (default) or at least 1ms", d.name, d.v)
		}
	}
	for _, n := range []struct {
		name string
		v    int
	}{
		{"QueueSize", c.QueueSize},
		{"StartAttempts", c.StartAttempts},
		{"PushAttempts", c.PushAttempts},
	} {
		if n.v < 0 {
			return fmt.Errorf("receiver: %s is %d: must not be negative", n.name, n.v)
		}
	}
	if c.MaxBlockBytes < 0 || c.MaxBlockBytes > codec.MaxFrame/2 {
		return fmt.Errorf("receiver: MaxBlockBytes is %d: must be between 0 and %d", c.MaxBlockBytes, codec.MaxFrame/2)
	}
	for _, r := range []struct {
		name string
		v    float64
	}{
		{"MaxRate", c.MaxRate},
		{"MaxByteRate", c.MaxByteRate},
	} {
		if !(r.v >= 0) || math.IsInf(r.v, 1) {
			return fmt.Errorf("receiver: %s is %v: must be 0 (no limit) or a positive number", r.name, r.v)
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	orDefault(&c.BlockInterval, 200*time.Millisecond)
	orDefault(&c.MaxBlockBytes, 1<<20)
	orDefault(&c.QueueSize, 10)
	orDefault(&c.StartAttempts, 7)
	orDefault(&c.RestartDelay, 100*time.Millisecond)
	orDefault(&c.RestartDelayMax, 30*time.Second)
	orDefault(&c.PushAttempts, 10)
	orDefault(&c.PushDelay, 100*time.Millisecond)
	orDefault(&c.PushDelayMax, 5*time.Second)
	orDefault(&c.PushTimeout, 30*time.Second)
	orDefault(&c.StopTimeout, 30*time.Second)
	return c
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
