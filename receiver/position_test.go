package receiver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/receiver"
)

// at is a position that says how many ints have been stored.
func at(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func from(b []byte) int {
	n, _ := binary.Uvarint(b)
	return int(n)
}

// positions lists the positions of the added blocks, -1 for none.
func (w *world) positions() (out []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.log {
		if b.Position == nil {
			out = append(out, -1)
		} else {
			out = append(out, from(b.Position))
		}
	}
	return out
}

func TestBlockCarriesTheLastPositionInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := runFunc(w, receiver.Config{}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			p := at(1)
			err := s.StoreAt(ctx, 0, p)
			p[0] = 99 // it was copied
			err = errors.Join(err, s.StoreAt(ctx, 1, at(2)), s.Store(ctx, 2))
			time.Sleep(time.Second)
			err = errors.Join(err, s.Store(ctx, 3), s.StoreMany(ctx, []int{4, 5}))
			p = at(8)
			err = errors.Join(err, s.StoreManyAt(ctx, []int{6, 7}, p))
			p[0] = 99
			return errors.Join(err, s.StoreAt(ctx, 8, at(9)), s.StoreManyAt(ctx, nil, at(50)))
		}))
		time.Sleep(10 * time.Second)
		mustEnd(t, j)
		if got := w.positions(); !slices.Equal(got, []int{2, -1, -1, 8, 9}) {
			t.Errorf("positions %v", got)
		}
		if got := records[int](w); !slices.Equal(got, ints(9)) {
			t.Errorf("records %v", got)
		}
	})
}

func TestFromIsThatOfTheRunAndThenOfTheNewestAddedBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var froms []int
		j := runIn(w, receiver.Env{From: at(40)}, func() receiver.Receiver[int] {
			return receiver.Func[int](func(ctx context.Context, s *receiver.Sink[int]) error {
				froms = append(froms, from(s.From()))
				switch len(froms) {
				case 2:
					return errors.Join(s.StoreAt(ctx, 1, at(41)), errFlaky) // in the open block
				case 3:
					return errors.Join(s.StoreManyAt(ctx, []int{2, 3}, at(43)), s.Store(ctx, 4), errFlaky)
				case 4:
					return receiver.ErrDone
				}
				return errFlaky
			})
		})
		if err := <-j.done; err != nil {
			t.Error(err)
		}
		if !slices.Equal(froms, []int{40, 40, 41, 43}) {
			t.Errorf("From was %v", froms)
		}
	})
}

// A start in the middle of what the driver does not have yet would give
// records twice.
func TestRestartWaitsUntilPositionsAreAdded(t *testing.T) {
	for _, seekable := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.hold = make(chan struct{})
			var froms []int
			j := runFunc(w, receiver.Config{PushTimeout: time.Hour}, func(ctx context.Context, s *receiver.Sink[int]) error {
				froms = append(froms, from(s.From()))
				if len(froms) > 1 {
					<-ctx.Done()
					return nil
				}
				if seekable {
					return errors.Join(s.StoreAt(ctx, 1, at(1)), errFlaky)
				}
				return errors.Join(s.Store(ctx, 1), errFlaky)
			})
			time.Sleep(time.Minute)
			synctest.Wait()
			if want := map[bool]int{true: 1, false: 2}[seekable]; len(froms) != want {
				t.Errorf("seekable %v: %d starts while the block waits, want %d", seekable, len(froms), want)
			}
			close(w.hold)
			time.Sleep(time.Minute)
			synctest.Wait()
			if want := map[bool]int{true: 1}[seekable]; len(froms) != 2 || froms[1] != want {
				t.Errorf("seekable %v: From was %v", seekable, froms)
			}
			mustEnd(t, j)
		})
	}
}

func TestStopEndsTheWaitForPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hold = make(chan struct{})
		j := runFunc(w, receiver.Config{PushTimeout: time.Hour, StopTimeout: 10 * time.Second}, func(ctx context.Context, s *receiver.Sink[int]) error {
			return errors.Join(s.StoreAt(ctx, 1, at(1)), errFlaky)
		})
		time.Sleep(time.Minute)
		close(j.stop)
		time.Sleep(time.Second)
		close(w.hold)
		if err := <-j.done; err != nil {
			t.Error(err)
		}
		if got := records[int](w); !slices.Equal(got, []int{1}) {
			t.Errorf("records %v", got)
		}
	})
}

func TestPositionThatIsTooLongIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := runFunc(w, receiver.Config{}, idle(func(ctx context.Context, s *receiver.Sink[int]) error {
			long := make([]byte, 1<<20+1)
			for _, err := range []error{s.StoreAt(ctx, 1, long), s.StoreManyAt(ctx, []int{1}, long)} {
				if err == nil || !strings.Contains(err.Error(), "1048577 bytes: the limit is 1048576") {
					t.Errorf("got %v", err)
				}
			}
			return nil
		}))
		time.Sleep(time.Second)
		mustEnd(t, j)
		if len(w.log) != 0 {
			t.Errorf("%d blocks", len(w.log))
		}
	})
}

// A source that can seek gives each record once, however often its receiver
// fails in the middle of a batch, the block store and the driver fail, and the
// receiver is placed anew.
func TestSeekableSourceIsReadExactlyOnce(t *testing.T) {
	const total = 400
	restarts, runs := 0, 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			rnd := newDice(seed)
			flaky := func(n int) error {
				if rnd.IntN(n) == 0 {
					return errFlaky
				}
				return nil
			}
			w := newWorld(t)
			if seed%2 == 0 {
				withDiary(w)
			}
			w.put = func(string) error { return flaky(5) }
			w.add = func(receiver.Block) (logged bool, err error) {
				if logged = rnd.IntN(3) > 0; !logged {
					return false, errFlaky
				}
				return true, flaky(2)
			}
			pull := func(ctx context.Context, s *receiver.Sink[int]) error {
				restarts++
				for n := from(s.From()); n < total; {
					size := min(1+rnd.IntN(20), total-n)
					broken := rnd.IntN(10) == 0
					if rnd.IntN(2) == 0 {
						short, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(150))*time.Millisecond)
						err := s.StoreManyAt(short, ints(n + size)[n:], at(n+size))
						cancel()
						if err != nil { // perhaps it is not known whether it was stored
							return err
						}
					} else {
						for i := n; i < n+size; i++ {
							if err := s.StoreAt(ctx, i, at(i+1)); err != nil {
								return err
							}
							if broken && i == n+size/2 {
								return errFlaky
							}
						}
					}
					n += size
					time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
				}
				<-ctx.Done()
				return nil
			}
			// Each Run is cut off after a while; what the log has by then counts.
			for epoch := 1; len(records[int](w)) < total && epoch < 50; epoch++ {
				runs++
				w.mu.Lock()
				var position []byte
				for _, b := range w.log {
					if b.Position != nil {
						position = b.Position
					}
				}
				w.high = 0
				w.mu.Unlock()
				if w.diary != nil {
					earlier := w.diary.records
					withDiary(w).records = earlier
					w.diary.epoch = base.Epoch(epoch)
				}
				j := runIn(w, receiver.Env{
					Epoch: base.Epoch(epoch), From: position,
					Config: receiver.Config{MaxBlockBytes: 30, QueueSize: 2, RestartDelayMax: time.Second, PushDelayMax: 100 * time.Millisecond, PushAttempts: 100},
				}, func() receiver.Receiver[int] { return receiver.Func[int](pull) })
				time.Sleep(time.Duration(200+rnd.IntN(4000)) * time.Millisecond)
				if epoch%2 == 0 {
					mustEnd(t, j)
				} else {
					j.cancel()
					<-j.done
				}
			}
			if got := records[int](w); !slices.Equal(got, ints(total)) {
				t.Errorf("seed %d: %d records: %v", seed, len(got), got)
			}
		})
	}
	if restarts < 500 || runs < 200 {
		t.Errorf("%d starts in %d runs: too few to show anything", restarts, runs)
	}
}
