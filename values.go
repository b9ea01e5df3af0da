package tidemill

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/graph"
)

// Broadcast is a value that the driver makes anew for every batch. It is part
// of the batch's plan, so every task and every re-run of the batch sees the
// same one.
type Broadcast[T any] struct {
	mu     sync.Mutex
	values map[BatchTime]T
}

// BroadcastEach declares a value that f makes on the driver when a batch is
// planned. Inside Transform, At gives the batch's value. An error of f ends
// the job.
func BroadcastEach[T any](ssc *StreamingContext, name string, f func(ctx context.Context, t BatchTime) (T, error)) *Broadcast[T] {
	b := &Broadcast[T]{values: map[BatchTime]T{}}
	if !ssc.open(fmt.Sprintf("broadcast %q", name)) {
		return b
	}
	encodable[T](ssc, fmt.Sprintf("broadcast %q", name))
	c := codec.For[T]()
	ssc.g.Values = append(ssc.g.Values, &graph.Value{
		UID: ssc.g.Name("broadcast", name),
		Make: func(ctx context.Context, t base.BatchTime) ([]byte, error) {
			v, err := f(ctx, t)
			if err != nil {
				return nil, err
			}
			w := codec.NewFrameWriter(c)
			if err := w.Append(v); err != nil {
				return nil, err
			}
			return w.Finish(), nil
		},
		Set: func(t base.BatchTime, data []byte) error {
			got, err := records[T]([][]byte{data}, 1)
			if err != nil || len(got) != 1 {
				return fmt.Errorf("broadcast %q of batch %s: the plan holds no value: %w", name, t, err)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.values[t] = got[0]
			return nil
		},
		Release: func(t base.BatchTime) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for have := range b.values {
				if have <= t {
					delete(b.values, have)
				}
			}
		},
	})
	return b
}

// At returns the value of a batch, the zero value if the batch has none. It is
// read-only and shared by all tasks of an executor.
func (b *Broadcast[T]) At(t BatchTime) T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.values[t]
}

// Res is something that every executor opens for itself when a task first asks
// for it, such as a connection.
type Res[T any] struct {
	name  string
	open  func(ctx context.Context) (T, error)
	close func(T) error

	turn chan struct{} // holds one token: whoever has it may look and open
	over atomic.Bool   // its executor has ended: nothing is opened any more
	ok   bool
	v    T
}

// Resource declares something that tasks need and that can't be part of a
// plan. open is called at most once per executor at a time, and again if it
// failed; close, which may be nil, when the executor ends.
func Resource[T any](ssc *StreamingContext, name string, open func(ctx context.Context) (T, error), close func(T) error) *Res[T] {
	r := &Res[T]{name: name, open: open, close: close, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	if !ssc.open(fmt.Sprintf("resource %q", name)) {
		return r
	}
	if open == nil {
		ssc.g.Errorf("resource %q: open is nil", name)
	}
	ssc.g.Name("resource", name)
	ssc.g.Closers = append(ssc.g.Closers, r.end)
	return r
}

// Get returns the executor's instance, opening it if need be. Use the context
// of the task.
func (r *Res[T]) Get(ctx context.Context) (T, error) {
	var zero T
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		return zero, fmt.Errorf("resource %q: %w", r.name, context.Cause(ctx))
	}
	switch {
	case r.over.Load():
		return zero, fmt.Errorf("resource %q: %w", r.name, base.ErrStopped)
	case r.ok:
		return r.v, nil
	}
	v, err := r.open(ctx)
	if err != nil {
		return zero, fmt.Errorf("resource %q: open: %w", r.name, err)
	}
	r.v, r.ok = v, true
	return v, nil
}

// end closes the instance; it is idempotent. An open that does not return is
// not waited for.
func (r *Res[T]) end() error {
	if r.over.Swap(true) {
		return nil
	}
	limit := time.NewTimer(driver.Patience)
	defer limit.Stop()
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-limit.C:
		return fmt.Errorf("resource %q: it is still being opened %v after the end", r.name, driver.Patience)
	}
	if !r.ok || r.close == nil {
		return nil
	}
	if err := r.close(r.v); err != nil {
		return fmt.Errorf("resource %q: close: %w", r.name, err)
	}
	return nil
}
