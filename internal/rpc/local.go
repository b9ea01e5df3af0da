package rpc

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/tidemill/tidemill/internal/base"
)

// Hub connects the executors of one process.
type Hub struct {
	mu    sync.Mutex
	peers map[base.ExecutorID]Peer
}

// NewHub returns a hub without executors.
func NewHub() *Hub { return &Hub{peers: map[base.ExecutorID]Peer{}} }

// Join makes an executor's data reachable.
func (h *Hub) Join(id base.ExecutorID, p Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.peers[id] = p
}

// Leave makes it unreachable.
func (h *Hub) Leave(id base.ExecutorID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.peers, id)
}

// Peer implements [Peers].
func (h *Hub) Peer(id base.ExecutorID) (Peer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.peers[id]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("executor %q is gone", id)
}

// Copy sends a message through its encoding, as a network would. It is what
// checked mode does to every message between driver and executors.
func Copy[T any](m T) (T, error) {
	t := reflect.TypeOf(m)
	b, err := msgpack.Marshal(m)
	if err != nil {
		return m, fmt.Errorf("rpc: encode a %s: %w", t, err)
	}
	out := reflect.New(t)
	if err := msgpack.Unmarshal(b, out.Interface()); err != nil {
		return m, fmt.Errorf("rpc: decode a %s: %w", t, err)
	}
	return out.Elem().Interface().(T), nil
}

// CheckedDriver wraps a driver so that every message goes through its encoding.
func CheckedDriver(d Driver) Driver { return checkedDriver{d} }

type checkedDriver struct{ Driver }

func (c checkedDriver) TaskDone(m TaskDone) {
	out, err := Copy(m)
	if err != nil {
		out = TaskDone{Executor: m.Executor, Job: m.Job, Stage: m.Stage, Task: m.Task, Failure: &Failure{Kind: FinalFailure, Message: err.Error()}}
	}
	c.Driver.TaskDone(out)
}

func (c checkedDriver) ReceiverEvent(m ReceiverEvent) {
	out, err := Copy(m)
	if err != nil {
		out = m
		out.Message, out.Fatal = err.Error(), true
	}
	c.Driver.ReceiverEvent(out)
}

func (c checkedDriver) AddBlock(ctx context.Context, m AddBlock) error {
	out, err := Copy(m)
	if err != nil {
		return err
	}
	return c.Driver.AddBlock(ctx, out)
}
