package state_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tidemill/tidemill/internal/state"
)

func TestMemStorage(t *testing.T) {
	s := state.NewMemStorage()
	a, errA := s.Put(t.Context(), []byte("tide"))
	b, errB := s.Put(t.Context(), []byte("mill!"))
	if errA != nil || errB != nil || a.Segment == b.Segment || a.Length != 4 || b.Length != 5 {
		t.Fatalf("Put: %v, %v, %v, %v", a, errA, b, errB)
	}
	if got, err := s.Get(t.Context(), b); err != nil || string(got) != "mill!" {
		t.Errorf("Get: %q, %v", got, err)
	}
	s.Drop(a, a)
	s.Drop(a)
	if n, bytes := s.Size(); n != 1 || bytes != 5 {
		t.Errorf("%d files, %d bytes, want 1 and 5", n, bytes)
	}
	if _, err := s.Get(t.Context(), a); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("Get of a dropped file: %v", err)
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := s.Put(ctx, nil); !errors.Is(err, why) {
		t.Errorf("Put: %v, want the cause", err)
	}
	if n, _ := s.Size(); n != 1 {
		t.Errorf("%d files after a Put that failed", n)
	}
}
