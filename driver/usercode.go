package driver

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tidemill/tidemill/internal/base"
)

// Patience is how long user code, on the driver or in a task, may go on after
// the job was told to end. What has not returned by then is left behind.
const Patience = 10 * time.Second

// userCode runs f, which calls user code, on a goroutine of its own: a panic or
// runtime.Goexit costs only this call (Invariant 10), and code that does not
// return when the job ends is left behind, counted and named. The errors for
// that are at with a message.
func (d *Driver) userCode(at base.TaskError, f func() error) error {
	at.Partition = -1
	done := make(chan error, 1)
	go func() {
		exit := at
		exit.Message = "user code ended the goroutine that called it"
		err := error(&exit)
		defer func() {
			if r := recover(); r != nil {
				at.Panic, at.Message, at.Stack = true, fmt.Sprint(r), string(debug.Stack())
				err = &at
			}
			done <- err
		}()
		err = f()
	}()
	select {
	case err := <-done:
		return err
	case <-d.hard.Done():
	}
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
	}
	d.mu.Lock()
	d.report.Running++
	d.mu.Unlock()
	stuck := fmt.Errorf("%s: it still runs %v after it was told to end", at.Operator, Patience)
	d.cfg.Log.Error("user code does not end", "what", at.Operator, "batch", at.Set.Time)
	return stuck
}
