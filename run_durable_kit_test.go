package tidemill_test

import (
	"context"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/receiver"
	"github.com/tidemill/tidemill/tidetest"
)

// millDir is the directory of a mill's job.
const millDir = "/job"

// mill is a job whose directory outlives it: every start is a new process.
type mill struct {
	t       *testing.T
	disk    *fsys.Mem
	rng     *rand.Rand
	cfg     tidemill.Config
	build   func(ssc *tidemill.StreamingContext) error
	restart tidemill.Restart
	options []tidemill.ContextOption

	// Of the newest process.
	run    *tidetest.Running
	alarms *alarms
	done   *batches
}

func newMill(t *testing.T, cfg tidemill.Config, build func(ssc *tidemill.StreamingContext) error) *mill {
	return &mill{t: t, disk: fsys.NewMem(), rng: rand.New(rand.NewPCG(1, 2)), cfg: cfg, build: build}
}

func (m *mill) job() tidetest.Job {
	m.alarms, m.done = &alarms{}, &batches{}
	return tidetest.Job{
		FS: m.disk, Config: m.cfg, Build: m.build, Listeners: []any{m.alarms, m.done},
		Options: append([]tidemill.ContextOption{tidemill.WithDir(millDir), tidemill.WithRestart(m.restart)}, m.options...),
	}
}

// start begins the next process, which must not be refused.
func (m *mill) start() *tidetest.Running {
	m.t.Helper()
	m.run = tidetest.Start(m.t, m.job())
	return m.run
}

// refused begins a process that must not start, and returns why it does not.
func (m *mill) refused() error {
	m.t.Helper()
	ssc, err := tidetest.New(m.t, m.job())
	if err == nil {
		err = ssc.Start(m.t.Context())
	}
	if err == nil {
		_, _ = ssc.Stop(context.Background(), false)
		m.t.Error("the job has started")
	}
	return err
}

// kill ends the process as kill -9 does.
func (m *mill) kill() {
	m.t.Helper()
	m.disk.Crash()
	m.run.Stop(false)
	m.disk = m.disk.AfterKill(m.rng)
}

// facts reads what the next start would find.
func (m *mill) facts() *driver.Facts {
	m.t.Helper()
	f, _, err := driver.ReadFacts(context.Background(), m.disk, path.Join(millDir, "log"))
	if err != nil {
		m.t.Fatal(err)
	}
	return f
}

// files returns the files under a directory with their contents.
func (m *mill) files(dir string) map[string]string {
	m.t.Helper()
	out := map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		infos, err := m.disk.List(dir)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, i := range infos {
			name := path.Join(dir, i.Name)
			if i.Dir {
				walk(name)
				continue
			}
			data, err := fsys.ReadFile(m.disk, name)
			if err != nil {
				m.t.Fatal(err)
			}
			out[name] = string(data)
		}
	}
	walk(dir)
	return out
}

// fault makes the operations on files below a prefix fail while it is set.
type fault struct {
	on     atomic.Bool
	prefix string
	ops    []string
	err    error
}

func (m *mill) fault(prefix string, err error, ops ...string) *fault {
	f := &fault{prefix: prefix, ops: ops, err: err}
	m.disk.FailWith(f.hook)
	return f
}

func (f *fault) hook(op, name string) error {
	if f.on.Load() && strings.HasPrefix(name, f.prefix) && slices.Contains(f.ops, op) {
		return f.err
	}
	return nil
}

var noSpace = syscall.ENOSPC

// placesOf says in which batches each record came. A batch that ran more than
// once counts once, and must have had the same records each time (Invariant 3).
func placesOf(t *testing.T, out *tidetest.Capture[string]) map[string][]tidemill.BatchTime {
	t.Helper()
	seen := map[tidemill.BatchTime][]string{}
	places := map[string][]tidemill.BatchTime{}
	for _, b := range out.Batches() {
		records := b.Records()
		if before, again := seen[b.Time]; again {
			if !slices.Equal(before, records) {
				t.Errorf("batch %s had the records %q, and %q when it ran again", b.Time, before, records)
			}
			continue
		}
		seen[b.Time] = records
		for _, r := range records {
			places[r] = append(places[r], b.Time)
		}
	}
	return places
}

// eachOnce checks that every one of the records came in exactly one batch, and
// nothing else did (Invariants 2 and 9).
func eachOnce(t *testing.T, out *tidetest.Capture[string], want ...string) map[string][]tidemill.BatchTime {
	t.Helper()
	places := placesOf(t, out)
	for _, r := range want {
		if len(places[r]) != 1 {
			t.Errorf("record %q came in the batches %v, want it in one", r, places[r])
		}
	}
	for r := range places {
		if !slices.Contains(want, r) {
			t.Errorf("record %q came, which nobody sent", r)
		}
	}
	return places
}

// totalsOf returns the newest value of every key.
func totalsOf(out *tidetest.Capture[kv]) map[string]int {
	totals := map[string]int{}
	for _, b := range out.Batches() {
		for _, p := range b.Records() {
			totals[p.Key] = p.Value
		}
	}
	return totals
}

// received is a job that only shows what a receiver brings.
func received(f *feed, out *tidetest.Capture[string]) func(ssc *tidemill.StreamingContext) error {
	return func(ssc *tidemill.StreamingContext) error {
		out.Of(tidemill.ReceiverStream(ssc, "in", f.open), "out")
		return nil
	}
}

var errPermission = syscall.EACCES

// holdsText checks that a text says all of the words.
func holdsText(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

// endless stores records as fast as it is let, and tells of each.
func endless(stored chan<- string) tidemill.Receiver[string] {
	return receiver.Func[string](func(ctx context.Context, s *receiver.Sink[string]) error {
		s.Ready()
		for i := 0; ; i++ {
			r := strconv.Itoa(i)
			if err := s.Store(ctx, r); err != nil {
				return err
			}
			stored <- r
			if i%10 == 9 { // without a limit time must pass all the same
				sleep(time.Millisecond)
			}
		}
	})
}
