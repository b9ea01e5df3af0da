package receiver

import (
	"errors"
	"fmt"

	"github.com/tidemill/tidemill/internal/base"
)

// ErrDone is returned by Receive when the source has ended for good.
var ErrDone = errors.New("the source has ended")

// ErrStopped is returned by store calls when the stop of the stream has ended
// their wait, and after the start that the Sink belongs to is over.
var ErrStopped = base.ErrStopped

// ErrFenced is the driver's answer to a receiver of an old epoch (Invariant 7).
var ErrFenced = errors.New("fenced: a newer epoch of this receiver exists")

// FailedError ends a run that restarts can't mend.
type FailedError struct {
	Stream base.UID
	Err    error
	Lost   int64 // accepted records that may be in no added block
	Fatal  bool  // another start of the stream would fail too
}

// Error names the stream, the reason and what may be lost.
func (e *FailedError) Error() string {
	if e.Lost > 0 {
		return fmt.Sprintf("receiver %q: %v; up to %d accepted records are lost", e.Stream, e.Err, e.Lost)
	}
	return fmt.Sprintf("receiver %q: %v", e.Stream, e.Err)
}

// Unwrap returns the reason.
func (e *FailedError) Unwrap() error { return e.Err }

// panicError is a contained panic of user code.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// unreachedError gives up on a source that no start has reached.
type unreachedError struct {
	attempts int
	last     error
}

func (e *unreachedError) Error() string {
	return fmt.Sprintf("source not reached in %d attempts: %v", e.attempts, e.last)
}

func (e *unreachedError) Unwrap() error { return e.last }
