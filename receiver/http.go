package receiver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// HTTP receives records as bodies of HTTP requests. It listens; whoever has
// records sends them with POST / and is answered when they are safe:
//
//	200  {"records":n}: they are stored and in the driver's log (Invariant 1)
//	400  the body is empty, cut off, or not UTF-8: the same request fails again
//	413  the body is larger than MaxBody
//	429  held back, by the rate limit or since storing takes long: nothing is
//	     stored, send it again after Retry-After seconds
//	503  the receiver is stopping: nothing is stored, send it again later
//	500  unknown, perhaps stored and perhaps not: send it again, and a record
//	     may come twice
//
// Each line of the body is a record without its end, LF or CRLF; the last one
// needs none; empty lines are records. With the query mode=body, or without a
// mode if Content-Type is application/json or application/octet-stream, the
// whole body is one record, and bytes that are not UTF-8 pass as they are.
// GET / explains this in a few lines of text; other paths are 404, other
// methods 405.
//
// All records of a request are in one block. Requests that arrive together
// share a block, so that many small ones cost little: each block is a task of
// its batch. The first request after a pause does not wait for others. A graceful stop takes no
// new requests and answers those in hand.
//
// There is no encryption and no authentication: listen on loopback, or behind
// something that has them.
type HTTP struct {
	Addr    string        // host:port to listen on; with port 0 the system picks one, which the log and the driver show
	MaxBody int64         // bytes of a body; 0 means 8 MiB
	MaxHeld int64         // bytes of all requests in hand, beyond which requests get 429; 0 means 64 MiB, at least MaxBody
	Gather  time.Duration // between the begins of two blocks at least, unless there is 1 MiB; 0 means 5ms
	MaxWait time.Duration // that a request is held back before 429, and then waits for its block before 500; 0 means 10s
}

// HTTPIngest returns the opener of an [HTTP] receiver with default limits.
func HTTPIngest(addr string) func() Receiver[string] {
	return func() Receiver[string] { return &HTTP{Addr: addr} }
}

// Receive serves requests until ctx ends or the listener fails.
func (h *HTTP) Receive(ctx context.Context, s *Sink[string]) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", h.Addr)
	if err != nil {
		return fmt.Errorf("http ingest: %w", err)
	}
	in := &ingest{
		sink: s, cfg: *h, retryAfter: "1",
		requests: make(chan *request), cut: make(chan struct{}), fresh: map[net.Conn]struct{}{},
	}
	orDefault(&in.cfg.MaxBody, 8<<20)
	orDefault(&in.cfg.MaxHeld, 64<<20)
	orDefault(&in.cfg.MaxWait, 10*time.Second)
	orDefault(&in.cfg.Gather, 5*time.Millisecond)
	in.cfg.MaxHeld = max(in.cfg.MaxHeld, in.cfg.MaxBody+requestCost)
	server := &http.Server{
		Handler:           in,
		ConnState:         in.connState,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          s.run.env.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var rounds sync.WaitGroup
	over := make(chan struct{})
	rounds.Go(func() { in.collect(over) })
	s.ReadyAt("http://" + l.Addr().String() + "/")

	ended := false
	select {
	case err = <-served:
		ended = true
	case <-ctx.Done():
		err = ErrStopped
	}
	in.refuse()
	patience, cancel := context.WithTimeout(context.Background(), s.run.env.Config.StopTimeout/3) // Receive has half of it
	defer cancel()
	if server.Shutdown(patience) != nil {
		close(in.cut)
		_ = server.Close() // it only closes connections, and they are lost anyway
	}
	if !ended {
		<-served
	}
	in.inHand.Wait()
	close(over)
	rounds.Wait()
	if errors.Is(err, ErrStopped) {
		return err
	}
	return fmt.Errorf("http ingest on %s: %w", l.Addr(), err)
}

// connState keeps track of connections that have not sent anything: a stop
// must not wait for a request on them.
func (in *ingest) connState(c net.Conn, state http.ConnState) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if state != http.StateNew {
		delete(in.fresh, c)
		return
	}
	in.fresh[c] = struct{}{}
}

// refuse ends the taking of requests.
func (in *ingest) refuse() {
	in.mu.Lock()
	in.stopping = true
	var fresh []net.Conn
	for c := range in.fresh {
		fresh = append(fresh, c)
	}
	in.mu.Unlock()
	for _, c := range fresh {
		_ = c.Close() // nobody has said anything on it
	}
}
