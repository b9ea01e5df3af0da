package receiver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/tidemill/tidemill/internal/codec"
)

// ingest is one start of an [HTTP] receiver: handlers hand their requests to
// one goroutine, which stores those that wait in one block per round.
type ingest struct {
	sink       *Sink[string]
	cfg        HTTP // with defaults
	retryAfter string

	requests chan *request
	cut      chan struct{}  // closed when the stop does not wait any longer
	inHand   sync.WaitGroup // handlers that were let in

	mu       sync.Mutex
	stopping bool
	held     int64 // bytes of the requests that were let in
	fresh    map[net.Conn]struct{}
}

// request is a body that was read and checked.
type request struct {
	body    []byte
	whole   bool // one record
	records int
	done    chan error // has room for the outcome
}

const (
	// requestCost is what a request takes beside its body, roughly.
	requestCost = 4 << 10
	// roundBytes is when a round is large enough to go.
	roundBytes = 1 << 20
)

// Outcomes for which the whole of a request is certainly not stored.
var (
	errHeldBack = errors.New("held back: storing takes long; nothing is stored, send it again")
	errLetGo    = errors.New("the receiver is stopping; nothing is stored, send it again")
)

// ServeHTTP implements [http.Handler].
func (in *ingest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/":
		http.Error(w, "there is only /", http.StatusNotFound)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, httpHelp, in.sink.Stream(), in.cfg.MaxBody)
	case r.Method == http.MethodPost:
		in.post(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, r.Method+" is not allowed: POST records, or GET help", http.StatusMethodNotAllowed)
	}
}

const httpHelp = `This is the receiver of stream %q. Send records with POST /, at most %d bytes at once:

  curl --data-binary @FILE URL              each line is a record
  curl --data-binary @FILE 'URL?mode=body'  the body is one record, as application/json and application/octet-stream are

200: stored, the answer has their number. 429, 503: not stored, send it again later. 500: unknown, send it again.
`

func (in *ingest) post(w http.ResponseWriter, r *http.Request) {
	cost := r.ContentLength
	if cost > in.cfg.MaxBody {
		in.tooLarge(w)
		return
	}
	if cost < 0 { // it does not say
		cost = in.cfg.MaxBody
	}
	cost += requestCost
	if err := in.enter(cost); err != nil {
		in.later(w, err)
		return
	}
	defer in.leave(cost)
	req, err := in.read(w, r)
	if errors.As(err, new(*http.MaxBytesError)) {
		in.tooLarge(w)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	err = in.store(r.Context(), req)
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "{\"records\":%d}\n", req.records)
	case errors.Is(err, errHeldBack), errors.Is(err, errLetGo):
		in.later(w, err)
	default:
		http.Error(w, fmt.Sprintf("unknown: send again; it may be stored or not: %v", err), http.StatusInternalServerError)
	}
}

func (in *ingest) tooLarge(w http.ResponseWriter) {
	http.Error(w, fmt.Sprintf("the body is larger than %d bytes: send less at once", in.cfg.MaxBody), http.StatusRequestEntityTooLarge)
}

// later answers a request of which nothing is stored.
func (in *ingest) later(w http.ResponseWriter, err error) {
	code := http.StatusTooManyRequests
	if errors.Is(err, errLetGo) {
		code = http.StatusServiceUnavailable
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Retry-After", in.retryAfter)
	http.Error(w, err.Error(), code)
}

// enter lets a request in, if there is room for it (Invariant 9).
func (in *ingest) enter(cost int64) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.stopping:
		return errLetGo
	case in.held+cost > in.cfg.MaxHeld:
		return fmt.Errorf("%w (%d bytes of requests in hand, the limit is %d)", errHeldBack, in.held, in.cfg.MaxHeld)
	}
	in.held += cost
	in.inHand.Add(1)
	return nil
}

func (in *ingest) leave(cost int64) {
	in.mu.Lock()
	in.held -= cost
	in.mu.Unlock()
	in.inHand.Done()
}

// read takes in a body. Every error is one of the request.
func (in *ingest) read(w http.ResponseWriter, r *http.Request) (*request, error) {
	req := &request{done: make(chan error, 1)}
	switch mode := r.URL.Query().Get("mode"); mode {
	case "body":
		req.whole = true
	case "lines":
	case "":
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // one that is malformed is no JSON
		req.whole = kind == "application/json" || kind == "application/octet-stream"
	default:
		return nil, fmt.Errorf("mode is %q: must be lines or body", mode)
	}
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 {
		body.Grow(int(n) + bytes.MinRead)
	}
	if _, err := io.Copy(&body, http.MaxBytesReader(w, r.Body, in.cfg.MaxBody)); err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	req.body = body.Bytes()
	if len(req.body) == 0 {
		return nil, errors.New("the body is empty: send records")
	}
	if req.whole {
		req.records = 1
		return req, nil
	}
	for line := range bytes.Lines(req.body) {
		if req.records++; !utf8.Valid(line) {
			return nil, fmt.Errorf("line %d is not UTF-8: send text, or bytes with mode=body", req.records)
		}
	}
	return req, nil
}

// store brings a request into a block. Errors other than errHeldBack and
// errLetGo mean that the outcome is not known.
func (in *ingest) store(client context.Context, req *request) error {
	ctx, cancel := context.WithTimeout(client, in.cfg.MaxWait)
	defer cancel()
	if limit := in.sink.run.limit; limit.on.Load() {
		err := limit.wait(ctx, in.sink.ctx, int64(req.records), int64(len(req.body)))
		switch {
		case errors.Is(err, ErrStopped):
			return errLetGo
		case err != nil:
			return fmt.Errorf("%w (the rate limit leaves no room for %d records within %v)", errHeldBack, req.records, in.cfg.MaxWait)
		}
	}
	select {
	case in.requests <- req:
	case <-ctx.Done():
		return errHeldBack
	}
	unknown := time.NewTimer(2 * in.cfg.MaxWait) // the round may be held back for half of it
	defer unknown.Stop()
	select {
	case err := <-req.done:
		return err
	case <-unknown.C:
		return fmt.Errorf("no answer from the driver for %v", in.cfg.MaxWait)
	case <-client.Done():
		return context.Cause(client)
	}
}

// collect stores requests until over is closed, a round after the other: those
// that come during one share the next.
func (in *ingest) collect(over <-chan struct{}) {
	w := codec.NewFrameWriter(in.sink.run.codec)
	var round []*request
	next := time.NewTimer(0) // when a round may begin
	defer next.Stop()
	for {
		select {
		case first := <-in.requests:
			round = in.gather(append(round[:0], first), next.C)
		case <-over:
			return
		}
		next.Reset(in.cfg.Gather)
		err := in.round(w, round)
		if err != nil {
			w = codec.NewFrameWriter(in.sink.run.codec) // it may hold a part
		}
		for _, req := range round {
			req.done <- err
		}
		clear(round)
	}
}

// gather adds requests until the round may begin, then those that wait, and
// no more once it is large enough.
func (in *ingest) gather(round []*request, begin <-chan time.Time) []*request {
	size := len(round[0].body)
	add := func(req *request) {
		round = append(round, req)
		size += len(req.body)
	}
	for waiting := true; waiting && size < roundBytes; {
		select {
		case req := <-in.requests:
			add(req)
		case <-begin:
			waiting = false
		}
	}
	for size < roundBytes {
		select {
		case req := <-in.requests:
			add(req)
		default:
			return round
		}
	}
	return round
}

// round stores a block. It does not end with the start: what is in hand then
// is stored yet.
func (in *ingest) round(w *codec.FrameWriter[string], round []*request) error {
	for _, req := range round {
		if err := req.encode(w); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), in.cfg.MaxWait)
	defer cancel()
	done, err := in.sink.enqueue(ctx, w, nil)
	switch {
	case errors.Is(err, ErrStopped):
		return errLetGo
	case err != nil:
		return errHeldBack
	}
	select {
	case err := <-done:
		return err
	case <-in.cut:
		return ErrStopped
	}
}

// encode adds the records to w. They are views of the body, which is not used
// afterwards.
func (req *request) encode(w *codec.FrameWriter[string]) error {
	if req.whole {
		return w.Append(view(req.body))
	}
	for line := range bytes.Lines(req.body) {
		if n := len(line); line[n-1] == '\n' {
			line = bytes.TrimSuffix(line[:n-1], []byte{'\r'})
		}
		if err := w.Append(view(line)); err != nil {
			return err
		}
	}
	return nil
}

func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
