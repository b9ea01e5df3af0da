package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/receiver"
	"github.com/tidemill/tidemill/tidetest"
)

// asProgram makes the test's own executable a job, of the version that its
// value says.
const asProgram = "TIDEMILL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if version := os.Getenv(asProgram); version != "" {
		tidemill.Main(tidemill.App{Name: "words", Build: func(ssc *tidemill.StreamingContext) error { return program(ssc, version) }})
	}
	goleak.VerifyTestMain(m)
}

// program is a job whose state another version does not have.
func program(ssc *tidemill.StreamingContext, version string) error {
	if version == "broken" {
		return errors.New("does not build")
	}
	lines := tidemill.QueueStream(ssc, "queue", &tidemill.Queue[string]{})
	if version != "stateless" {
		tidemill.Print(counts(lines), "print", 10)
	}
	tidemill.Print(lines, "lines", 10)
	return nil
}

func counts(lines tidemill.DStream[string]) tidemill.DStream[tidemill.Pair[string, int]] {
	ones := tidemill.Map(lines, func(w string) tidemill.Pair[string, int] { return tidemill.KV(w, 1) })
	return tidemill.UpdateStateByKey(ones, "counts", func(ones []int, old tidemill.Opt[int]) tidemill.Opt[int] {
		return tidemill.Some(old.Value + len(ones))
	})
}

// result is what a command did.
type result struct {
	code     int
	out, err string
}

// tidemillCmd runs a command line.
func tidemillCmd(t *testing.T, f fsys.FS, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), f, args, &out, &errs)
	return result{code, out.String(), errs.String()}
}

// job is one with a receiver, a script, state, a window and two outputs. It
// fails at the record "poison".
func job(f *fsys.Mem, feed chan string) tidetest.Job {
	return tidetest.Job{
		Name: "words", FS: f, Config: tidemill.Config{Parallelism: 2},
		Options: []tidemill.ContextOption{tidemill.WithDir("/job"), tidemill.WithArgs("-addr", "host:1")},
		Build: func(ssc *tidemill.StreamingContext) error {
			received := tidemill.ReceiverStream(ssc, "lines", func() tidemill.Receiver[string] { return fed(feed) })
			more := tidetest.Script(ssc, "more", [][]string{{"x"}, {"x", "y"}, nil})
			lines := tidemill.Union(received, more)
			tidemill.Print(counts(lines), "print", 10)
			tidemill.ForeachBatch(lines, "check", func(ctx context.Context, b *tidemill.Batch[string]) error {
				records, err := b.Collect(ctx)
				for _, r := range records {
					if r == "poison" {
						err = errors.New("record is poison")
					}
				}
				return err
			})
			return nil
		},
	}
}

func fed(feed chan string) tidemill.Receiver[string] {
	return receiver.Func[string](func(ctx context.Context, s *receiver.Sink[string]) error {
		s.Ready()
		for {
			select {
			case r := <-feed:
				if err := s.Store(ctx, r); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
}
