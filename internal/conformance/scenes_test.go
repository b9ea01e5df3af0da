package conformance

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/tidetest"
)

// pass lets time pass in a bubble.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// scenes does what the cases of the errors family say they do.
func scenes() map[string]func(s *scene) {
	all := map[string]func(s *scene){
		"window(w, s) on a stream with slide 1000; then start and run 1 batch": func(s *scene) {
			s.says = notMultiple(millis(s.c.BatchMS), s.window(), s.slide())
			s.runs(1, func(ssc *tidemill.StreamingContext) error {
				print(tidemill.Window(s.in(ssc), s.window(), s.slide()))
				return nil
			})
		},
		"reduceByKeyAndWindow(sum, diff, w, s); then start and run 1 batch": func(s *scene) {
			s.says = notMultiple(millis(s.c.BatchMS), s.window(), s.slide())
			s.runs(1, func(ssc *tidemill.StreamingContext) error {
				print(tidemill.ReduceByKeyAndWindow(self(s.in(ssc)), "reduced", sum64, diff64, s.window(), s.slide()))
				return nil
			})
		},
		"mapWithState with this timeout, 2 batches":                                                                 timedOut,
		"window(w, s) with a zero or negative duration; input [1,2] [3] []; start; 3 batches; result = the outputs": degenerate,
		"window(4000,2000) then window(4000,1000)":                                                                  windowed(4, 2, 4, 1),
		"window(4000,2000) then window(3000,2000)":                                                                  windowed(4, 2, 3, 2),
		"window(2000,2000) then window(3000) with the default slide":                                                windowed(2, 2, 3, 0),
		"union of a stream with slide 1000 and one with slide 2000":                                                 slides(1, 2, func(a, b ints) { print(tidemill.Union(a, b)) }),
		"StreamingContext.union of slides 1000, 2000":                                                               slides(1, 2, func(a, b ints) { print(tidemill.Union(a, b)) }),
		"join of slides 1000 and 2000":                                                                              slides(1, 2, func(a, b ints) { print(tidemill.Join(self(a), self(b))) }),
		"cogroup of slides 2000 and 3000":                                                                           slides(2, 3, func(a, b ints) { print(tidemill.Cogroup(self(a), self(b))) }),
		"union of streams of two contexts":                                                                          foreign(func(a, b ints) { print(tidemill.Union(a, b)) }),
		"transformWith of streams of two contexts":                                                                  foreign(func(a, b ints) { print(tidemill.TransformWith(a, b, keepLeft)) }),
		"reduceByKey(sum, n partitions), 1 batch":                                                                   partitions(func(a ints, n int) { print(tidemill.ReduceByKey(self(a), sum64, tidemill.Partitions(n))) }),
		"updateStateByKey(sum, n partitions), 1 batch": partitions(func(a ints, n int) {
			print(tidemill.UpdateStateByKey(self(a), "state", sumState, tidemill.Partitions(n)))
		}),
		"repartition(n), 1 batch": partitions(func(a ints, n int) { print(tidemill.Repartition(a, n)) }),
		"map with RDD checkpoint interval ck (slide 1000; window2: slide 2000), start": func(s *scene) { s.runs(1, doubling(s)) },
		"window2 with RDD checkpoint interval ck (slide 1000; window2: slide 2000), start": func(s *scene) {
			s.runs(1, func(ssc *tidemill.StreamingContext) error {
				print(tidemill.Window(s.in(ssc), 2*time.Second, 2*time.Second))
				return nil
			})
		},
		"StreamingContext.union of no streams": func(s *scene) {
			// The first stream is a parameter of its own.
			if f := reflect.TypeOf(tidemill.Union[int64]); f.NumIn() == 2 && f.IsVariadic() {
				s.fail("build", errNotCompiled)
			}
		},
		"StreamingContext.transform of no streams": func(s *scene) {
			s.build(func(*tidemill.StreamingContext) error {
				print(tidemill.TransformAll(nil, func([]tidemill.RDD[int64], tidemill.BatchTime) (r tidemill.RDD[int64], err error) { return }))
				return nil
			})
		},
		"new context with this batch duration, an output, start": func(s *scene) {
			// A zero field of Config stands for the default; as a setting it is a value.
			d := millis(s.c.num("batch_ms", 0))
			s.says = []string{d.String(), "must be positive"}
			var cfg tidemill.Config
			if !s.fail("build", cfg.Set("batch-interval", d.String())) {
				s.runs(1, s.plain)
			}
		},
		"remember(5 s), remember(6 s) on the context": func(s *scene) {
			s.says = []string{"5s", "6s"}
			s.build(func(ssc *tidemill.StreamingContext) error {
				ssc.Remember(5 * time.Second)
				ssc.Remember(6 * time.Second)
				return s.plain(ssc)
			})
		},
		"a map function that captures an object that cannot be serialized; checkpoint directory set": notEncodable,
		"the same, no checkpoint directory, 1 batch":                                                 notEncodable,
		"foreachRDD function captures an object that cannot be serialized; checkpoint directory set": notEncodableOutput,
		"foreachRDD function captures an object that cannot be serialized; no checkpoint": func(s *scene) {
			notEncodableOutput(s)
			s.result = "ok"
		},
		"map_with_checkpoint_interval without a checkpoint directory, start": func(s *scene) { s.runs(1, doubling(s)) },
		"map_with_checkpoint_interval with a checkpoint directory, start":    func(s *scene) { s.runs(1, doubling(s)) },
		"transform function throws at 2000": func(s *scene) {
			s.says = []string{"boom"}
			s.runs(3, func(ssc *tidemill.StreamingContext) error {
				print(tidemill.Transform(s.in(ssc), func(x tidemill.RDD[int64], at tidemill.BatchTime) (tidemill.RDD[int64], error) {
					if caseTime(at) == 2000 {
						return x, errBoom
					}
					return x, nil
				}))
				return nil
			})
		},
		"map function throws": func(s *scene) {
			s.says = []string{"boom"}
			s.runs(1, func(ssc *tidemill.StreamingContext) error {
				print(tidemill.Map(s.in(ssc), func(int64) int64 { panic(errBoom) }))
				return nil
			})
		},
	}
	for name, stream := range streams {
		run := func(s *scene) {
			s.runs(3, func(ssc *tidemill.StreamingContext) error {
				stream(s.in(ssc))
				return nil
			})
		}
		all[name+" with a checkpoint directory, start"] = run
		all[name+" with RDD checkpoint interval ck (slide 1000; window2: slide 2000), start"] = run
		all[name+" without a checkpoint directory, start"] = func(s *scene) {
			s.options = append(s.options, tidemill.WithScratch("")) // a temporary one
			run(s)
		}
	}
	maps.Copy(all, lifecycle())
	maps.Copy(all, directories())
	return all
}

type ints = tidemill.DStream[int64]

// self makes pairs of a record with itself.
func self(d ints) tidemill.DStream[tidemill.Pair[int64, int64]] {
	return tidemill.KeyBy(d, func(v int64) int64 { return v })
}

func keepLeft(a, _ tidemill.RDD[int64], _ tidemill.BatchTime) (tidemill.RDD[int64], error) {
	return a, nil
}

// notMultiple names the first of a window and a slide that is no multiple.
func notMultiple(own, window, slide time.Duration) []string {
	if window%own != 0 {
		return []string{window.String(), own.String()}
	}
	return []string{slide.String(), own.String()}
}

func degenerate(s *scene) {
	s.says = []string{"must be positive", min(s.window(), s.slide()).String()}
	if s.window() <= 0 {
		s.says[1] = s.window().String()
	}
	out := tidetest.NewCapture[int64]()
	s.runs(3, func(ssc *tidemill.StreamingContext) error {
		out.Of(tidemill.Window(s.in(ssc), s.window(), s.slide()), "out")
		return nil
	})
	if s.err == nil {
		s.result = outputsOf(entries(out, false))
	}
}

// outputsOf is the form of a result that lists outputs.
func outputsOf(es []entry) any {
	list := []any{}
	for _, e := range es {
		list = append(list, map[string]any{"time_ms": e.TimeMS, "records": e.Records})
	}
	return jsonOf(list)
}

// timedOut runs mapWithState(running_sum) on [(a,1)] [].
func timedOut(s *scene) {
	timeout := millis(s.c.num("timeout_ms", 0))
	s.says = []string{"must be positive", timeout.String()}
	out := tidetest.NewCapture[tree]()
	s.runs(2, func(ssc *tidemill.StreamingContext) error {
		in := tidetest.Script(ssc, "in", [][]pair{{tidemill.KV("a", int64(1))}})
		spec := tidemill.StateSpec[string, int64]{Timeout: tidemill.Some(timeout)}
		out.Of(tidemill.MapWithState(in, "state", spec, mapping(steps["running_sum"])).DStream, "out")
		return nil
	})
	if s.err == nil {
		s.result = outputsOf(entries(out, true))
	}
}

// windowed is a window on a window, in seconds.
func windowed(w1, s1, w2, s2 int) func(s *scene) {
	sec := func(n int) time.Duration { return time.Duration(n) * time.Second }
	return func(s *scene) {
		s.says = notMultiple(sec(s1), sec(w2), sec(s2))
		s.build(func(ssc *tidemill.StreamingContext) error {
			print(tidemill.Window(tidemill.Window(s.in(ssc), sec(w1), sec(s1)), sec(w2), sec(s2)))
			return nil
		})
	}
}

// slides puts streams of two slides, in seconds, together.
func slides(a, b int, f func(a, b ints)) func(s *scene) {
	return func(s *scene) {
		x, y := time.Duration(a)*time.Second, time.Duration(b)*time.Second
		s.says = []string{x.String(), y.String()}
		s.build(func(ssc *tidemill.StreamingContext) error {
			f(tidemill.Window(s.in(ssc), x, x), tidemill.Window(s.in2(ssc), y, y))
			return nil
		})
	}
}

func (s *scene) in2(ssc *tidemill.StreamingContext) ints {
	return tidetest.Script(ssc, "in2", [][]int64{{4}})
}

// foreign puts streams of two contexts together.
func foreign(f func(a, b ints)) func(s *scene) {
	return func(s *scene) {
		s.make(s.plain)
		other := *s.first
		s.build(func(ssc *tidemill.StreamingContext) error {
			f(s.in(ssc), other)
			return nil
		})
	}
}

func partitions(f func(a ints, n int)) func(s *scene) {
	return func(s *scene) {
		n := s.c.num("num_partitions", 0)
		s.says = []string{num(n).String(), "must be positive"}
		s.runs(1, func(ssc *tidemill.StreamingContext) error {
			f(s.in(ssc), int(n))
			return nil
		})
	}
}

func doubling(s *scene) func(ssc *tidemill.StreamingContext) error {
	return func(ssc *tidemill.StreamingContext) error {
		print(tidemill.Map(s.in(ssc), double))
		return nil
	}
}

// notEncodable uses a channel in a function that tasks run.
func notEncodable(s *scene) {
	seen := make(chan int64, 10)
	out := tidetest.NewCapture[int64]()
	s.runs(1, func(ssc *tidemill.StreamingContext) error {
		out.Of(tidemill.Map(s.in(ssc), func(v int64) int64 { seen <- v; return v }), "out")
		return nil
	})
	if len(seen) != 2 || text(out.Records()) != "[[1,2]]" {
		s.t.Errorf("the function saw %d records, the output %v", len(seen), out.Records())
	}
}

// notEncodableOutput uses a channel in an output's function.
func notEncodableOutput(s *scene) {
	seen := make(chan int64, 10)
	s.runs(1, func(ssc *tidemill.StreamingContext) error {
		tidemill.ForeachBatch(s.in(ssc), "out", func(ctx context.Context, b *tidemill.Batch[int64]) error {
			n, err := b.Count(ctx)
			seen <- n
			return err
		})
		return nil
	})
	if len(seen) != 1 {
		s.t.Errorf("the output ran %d times", len(seen))
	}
}

// lifecycle has the scenes about starting and stopping.
func lifecycle() map[string]func(s *scene) {
	all := map[string]func(s *scene){
		"start a context with an input but no output": func(s *scene) {
			if s.build(func(ssc *tidemill.StreamingContext) error { s.in(ssc); return nil }) {
				s.start("start")
			}
		},
		"start an empty context": func(s *scene) {
			if s.build(func(*tidemill.StreamingContext) error { return nil }) {
				s.start("start")
			}
		},
		"start fails (no output): state afterwards, second start": func(s *scene) {
			if !s.build(func(ssc *tidemill.StreamingContext) error { s.in(ssc); return nil }) {
				return
			}
			if s.ssc.Start(s.t.Context()) == nil {
				s.t.Error("a context without output started")
			}
			s.result = map[string]string{"state_after_failed_start": s.state()}
			s.start("second start")
		},
		"start fails (no checkpoint dir): state afterwards": func(s *scene) {
			s.options = append(s.options, tidemill.WithScratch(""))
			s.runs(1, func(ssc *tidemill.StreamingContext) error {
				streams["updateStateByKey"](s.in(ssc))
				return nil
			})
			s.result = map[string]string{"state_after_failed_start": s.state()}
			s.start("second start")
		},
		"start(), start()": func(s *scene) {
			s.runs(1, s.plain)
			s.start("second start")
			s.result = s.state()
		},
		"start(), stop(), start()": func(s *scene) {
			s.runs(1, s.plain)
			s.stop()
			s.start("second start")
		},
		"stop() on a new context, start()": func(s *scene) {
			s.build(s.plain)
			s.stop()
			s.result = s.state()
			s.start("start")
		},
		"start(), stop(), stop()": func(s *scene) {
			s.runs(1, s.plain)
			s.stop()
			s.stop()
			s.result = s.state()
		},
		"stop()": func(s *scene) {
			s.build(s.plain)
			s.stop()
			s.result = s.state()
		},
		"state of a new context": func(s *scene) {
			s.build(s.plain)
			s.result = s.state()
		},
		"awaitTermination after stop returns at once": func(s *scene) {
			s.runs(1, s.plain)
			s.stop()
			if err := s.ssc.AwaitTermination(s.t.Context()); !s.fail("run", err) {
				s.result = "returned"
			}
		},
		"awaitTerminationOrTimeout(50): false while running, true after stop": func(s *scene) {
			s.runs(1, s.plain)
			ended := func() bool {
				ctx, cancel := context.WithTimeout(s.t.Context(), 50*time.Millisecond)
				defer cancel()
				return !errors.Is(s.ssc.AwaitTermination(ctx), context.DeadlineExceeded)
			}
			before := ended()
			s.stop()
			s.result = []bool{before, ended()}
		},
		"a second context is started while the first runs": func(s *scene) {
			first := s.two()
			s.start("second start")
			s.result = map[string]string{"first": first.State().String(), "second": s.state()}
		},
		"two contexts built, one started": func(s *scene) {
			first := s.two()
			s.result = map[string]string{"first": first.State().String(), "second": s.state()}
			s.ssc = first
		},
		"first context stopped, second started": func(s *scene) {
			s.runs(1, s.plain)
			s.stop()
			s.runs(1, s.plain)
			s.result = s.state()
		},
		"slice before start": func(s *scene) {
			s.build(s.plain)
			_, err := tidemill.Slice(*s.first, epoch, epoch+1000)
			s.fail("build", err)
		},
		"slice after stop": func(s *scene) {
			s.runs(1, s.plain)
			s.stop()
			sets, err := tidemill.Slice(*s.first, epoch, epoch+1000)
			s.fail("run", err)
			s.result = len(sets)
			for _, set := range sets {
				if _, err := set.Collect(s.t.Context()); !errors.Is(err, base.ErrStopped) {
					s.t.Errorf("collecting after the stop: %v", err)
				}
			}
		},
		"stop() called inside a listener callback": func(s *scene) {
			if !s.build(s.plain) {
				return
			}
			stopped := make(chan error, 10)
			s.ssc.AddListener(stopper(func() {
				_, err := s.ssc.Stop(context.Background(), false)
				stopped <- err
			}))
			s.start("start")
			s.batches(1)
			s.fail("run", <-stopped)
		},
	}
	for what, f := range map[string]func(s *scene){
		"new input stream":                 func(s *scene) { s.in2(s.ssc) },
		"map on an existing stream":        func(s *scene) { tidemill.Map(*s.first, double) },
		"window on an existing stream":     func(s *scene) { tidemill.Window(*s.first, 2*time.Second, time.Second) },
		"foreachRDD on an existing stream": func(s *scene) { tidemill.Print(*s.first, "another", 1) },
		"persist on an existing stream":    func(s *scene) { tidemill.Persist(*s.first, tidemill.MemoryOnly) },
		"remember(20 s) on the context": func(s *scene) {
			s.ssc.Remember(20 * time.Second)
			s.result = s.ssc.Remembered()[0].Remember.Milliseconds()
		},
		"checkpoint(interval) on an existing stream": func(*scene) {},
		"checkpoint(dir) on the context":             func(*scene) {},
	} {
		all[what] = func(s *scene) {
			s.runs(1, s.plain)
			if s.c.stopped() {
				s.stop()
			}
			f(s)
			s.fail("run", s.ssc.Err())
		}
	}
	return all
}

// stopped reports whether the context of a case is stopped at the end.
func (c *golden) stopped() bool { return sparkError(c)["state"][0] == "STOPPED" }

// two makes two contexts and starts the first; the second is the case's own.
func (s *scene) two() *tidemill.StreamingContext {
	first := s.make(s.plain)
	if err := first.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.build(s.plain)
	return first
}

// stopper calls itself when a batch is done.
type stopper func()

func (f stopper) OnBatchCompleted(tidemill.BatchInfo) { f() }
