package receiver_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemill/tidemill/receiver"
)

// site is a running HTTP receiver and a client of it.
type site struct {
	*job
	url    string
	client *http.Client
}

func serve(w *world, cfg receiver.Config, h receiver.HTTP) *site {
	w.t.Helper()
	h.Addr = "127.0.0.1:0"
	// Connections of the client are closed before goroutines are counted.
	tr := &http.Transport{MaxIdleConnsPerHost: 100}
	w.t.Cleanup(tr.CloseIdleConnections)
	s := &site{
		job:    run(w, cfg, func() receiver.Receiver[string] { return &h }),
		client: &http.Client{Transport: tr, Timeout: 10 * time.Second},
	}
	w.untilEvent(receiver.Started, "listening on ")
	s.url = strings.TrimPrefix(w.last(receiver.Started).Message, "listening on ")
	return s
}

// answer is a response.
type answer struct {
	code  int
	body  string
	head  http.Header
	error error
}

func (s *site) do(method, query, kind string, body io.Reader) answer {
	req, err := http.NewRequest(method, s.url+query, body)
	if err != nil {
		return answer{error: err}
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{error: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{code: resp.StatusCode, body: string(text), head: resp.Header, error: err}
}

func (s *site) post(text string) answer { return s.do("POST", "", "", strings.NewReader(text)) }

// later posts in the background.
func (s *site) later(text string) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- s.post(text) }()
	return c
}

func TestHTTPBodyIsLinesOrOneRecord(t *testing.T) {
	w := newWorld(t)
	s := serve(w, soon, receiver.HTTP{})
	var want []string
	for _, test := range []struct {
		query, kind, body string
		records           []string
	}{
		{"", "", "a\nb\r\n\nc", []string{"a", "b", "", "c"}},
		{"", "application/x-www-form-urlencoded", "a=b\n", []string{"a=b"}}, // what curl says
		{"?mode=lines", "application/json", "{\n}\n", []string{"{", "}"}},
		{"", "application/json; charset=utf-8", "{\n}\n", []string{"{\n}\n"}},
		{"", "application/octet-stream", "\xff\n", []string{"\xff\n"}},
		{"?mode=body", "text/plain", "x\ny\n", []string{"x\ny\n"}},
		{"", "grün", "r\rs\r\n", []string{"r\rs"}},
	} {
		got := s.do("POST", test.query, test.kind, strings.NewReader(test.body))
		if got.code != 200 || got.body != fmt.Sprintf("{\"records\":%d}\n", len(test.records)) || got.head.Get("Content-Type") != "application/json" {
			t.Errorf("%q: %+v", test.body, got)
		}
		want = append(want, test.records...)
	}
	if got := records[string](w); !slices.Equal(got, want) {
		t.Errorf("records %q", got)
	}
	mustEnd(t, s.job)
}

func TestHTTPRefusesWhatCannotBeStored(t *testing.T) {
	w := newWorld(t)
	s := serve(w, soon, receiver.HTTP{MaxBody: 10})
	for _, test := range []struct {
		method, query, kind string
		body                io.Reader
		code                int
		text                string
	}{
		{"POST", "", "", strings.NewReader(""), 400, "the body is empty"},
		{"POST", "", "", strings.NewReader("a\n\xff\n"), 400, "line 2 is not UTF-8"},
		{"POST", "?mode=rows", "", strings.NewReader("a"), 400, `mode is "rows": must be lines or body`},
		{"POST", "", "", strings.NewReader("12345678901"), 413, "larger than 10 bytes"},
		{"POST", "", "", io.MultiReader(strings.NewReader("12345678901")), 413, "larger than 10 bytes"}, // no length given
		{"POST", "x", "", strings.NewReader("a"), 404, "only /"},
		{"PUT", "", "", strings.NewReader("a"), 405, "PUT is not allowed"},
		{"GET", "", "", nil, 200, `This is the receiver of stream "lines". Send records with POST /, at most 10 bytes`},
		{"HEAD", "", "", nil, 200, ""},
	} {
		got := s.do(test.method, test.query, test.kind, test.body)
		if got.error != nil || got.code != test.code || !strings.Contains(got.body, test.text) {
			t.Errorf("%s %s: %+v, want %d %s", test.method, test.query, got, test.code, test.text)
		}
		if allow := got.head.Get("Allow"); (allow == "GET, HEAD, POST") != (got.code == 405) {
			t.Errorf("%s: Allow is %q", test.method, allow)
		}
	}
	if got := s.post("1234567890"); got.code != 200 {
		t.Errorf("a body of the limit: %+v", got)
	}
	// A body that its client cuts off.
	c := s.dial()
	s.send(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf\n")
	_ = c.CloseWrite()
	if code, text := s.response(c); code != 400 || !strings.Contains(text, "unexpected EOF") {
		t.Errorf("%d %s", code, text)
	}
	mustEnd(t, s.job)
	if got := records[string](w); !slices.Equal(got, []string{"1234567890"}) {
		t.Errorf("records %q", got)
	}
}

// dial opens a connection of the test's own.
func (s *site) dial() *net.TCPConn {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c.(*net.TCPConn)
}

func (s *site) send(c net.Conn, text string) {
	s.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) response(c net.Conn) (int, string) {
	s.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// begin posts text and returns when the receiver has the request in hand: it
// has asked for the body.
func (s *site) begin(text string) net.Conn {
	s.t.Helper()
	c := s.dial()
	s.send(c, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(text)))
	want := "HTTP/1.1 100 Continue\r\n\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		s.t.Fatalf("%q, %v", got, err)
	}
	s.send(c, text)
	return c
}

// untilRefused waits until the receiver listens no longer.
func (s *site) untilRefused() {
	for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); {
		c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/"))
		if err != nil {
			return
		}
		c.Close()
	}
	s.t.Error("still listening")
}

// putting returns a channel that tells of each Put that has begun.
func putting(w *world) <-chan string {
	began := make(chan string, 100)
	w.began = func(key string) { began <- key }
	return began
}

// Invariant 1, and many small requests cost few blocks.
func TestHTTPAnswersWhenTheBlockIsAddedAndRequestsShareIt(t *testing.T) {
	w := newWorld(t)
	w.hold = make(chan struct{})
	began := putting(w)
	s := serve(w, soon, receiver.HTTP{})
	first := s.later("first")
	<-began
	var all []net.Conn
	for i := range 63 {
		all = append(all, s.begin(fmt.Sprintf("line %d\nsecond", i)))
	}
	select {
	case a := <-first:
		t.Errorf("answered before the block is added: %+v", a)
	default:
	}
	close(w.hold)
	if a := <-first; a.code != 200 {
		t.Errorf("%+v", a)
	}
	for _, c := range all {
		if code, text := s.response(c); code != 200 || text != "{\"records\":2}\n" {
			t.Errorf("%d %s", code, text)
		}
	}
	mustEnd(t, s.job)
	if n := len(w.log); n < 2 || n > 20 || len(records[string](w)) != 127 { // most are in the second
		t.Errorf("block sizes %v", w.sizes())
	}
}

func TestHTTPGracefulStopFinishesWhatIsInHand(t *testing.T) {
	w := newWorld(t)
	w.hold = make(chan struct{})
	began := putting(w)
	s := serve(w, soon, receiver.HTTP{})
	silent := s.dial()
	first := s.later("first")
	<-began
	second := s.begin("second")
	close(s.stop)
	s.untilRefused()
	close(w.hold)
	if a := <-first; a.code != 200 {
		t.Errorf("%+v", a)
	}
	if code, text := s.response(second); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	ended := time.Now()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	if d := time.Since(ended); d > 4*time.Second { // net/http would wait 5s for a connection without a request
		t.Errorf("the stop took %v", d)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection without a request: %v", err)
	}
	if got := records[string](w); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("records %q", got)
	}
}

func TestHTTPStopLetsGoOfWhatIsHeldBack(t *testing.T) {
	w := newWorld(t)
	cfg := soon
	cfg.MaxRate = 0.001
	s := serve(w, cfg, receiver.HTTP{})
	if a := s.post("first"); a.code != 200 {
		t.Errorf("%+v", a)
	}
	second := s.begin("second")
	close(s.stop)
	resp, err := http.ReadResponse(bufio.NewReader(second), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || !strings.Contains(string(text), "stopping; nothing is stored") {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	if got := records[string](w); !slices.Equal(got, []string{"first"}) {
		t.Errorf("records %q", got)
	}
}

func held(t *testing.T, a answer, text string) {
	t.Helper()
	if a.code != 429 || a.head.Get("Retry-After") != "1" || !strings.Contains(a.body, text) || !strings.Contains(a.body, "nothing is stored") {
		t.Errorf("%+v, want 429 with %s", a, text)
	}
}

func TestHTTPHoldsRequestsBack(t *testing.T) {
	wait := 300 * time.Millisecond
	t.Run("by the rate limit", func(t *testing.T) {
		for _, cfg := range []receiver.Config{{MaxRate: 0.001}, {MaxByteRate: 0.001}} {
			w := newWorld(t)
			s := serve(w, cfg, receiver.HTTP{MaxWait: wait})
			if a := s.post("a"); a.code != 200 {
				t.Errorf("%+v", a)
			}
			held(t, s.post("b\nc"), "no room for 2 records within 300ms")
			mustEnd(t, s.job)
			if got := records[string](w); !slices.Equal(got, []string{"a"}) {
				t.Errorf("records %q", got)
			}
		}
	})
	t.Run("while storing takes long", func(t *testing.T) {
		w := newWorld(t)
		w.hold = make(chan struct{})
		began := putting(w)
		s := serve(w, soon, receiver.HTTP{MaxWait: wait})
		first := s.later("first")
		<-began
		held(t, s.post("second"), "storing takes long")
		if a := <-first; a.code != 500 || !strings.Contains(a.body, "unknown: send again") {
			t.Errorf("%+v", a)
		}
		close(w.hold)
		got(w, 1)
		mustEnd(t, s.job)
		if got := records[string](w); !slices.Equal(got, []string{"first"}) {
			t.Errorf("records %q", got)
		}
	})
	t.Run("by the bytes in hand", func(t *testing.T) {
		w := newWorld(t)
		w.hold = make(chan struct{})
		began := putting(w)
		s := serve(w, soon, receiver.HTTP{MaxBody: 10_000, MaxHeld: 20_000})
		first := s.later(strings.Repeat("x", 10_000))
		<-began
		held(t, s.post(strings.Repeat("x", 6000)), "14096 bytes of requests in hand, the limit is 20000")
		close(w.hold)
		if a := <-first; a.code != 200 {
			t.Errorf("%+v", a)
		}
		if a := s.post(strings.Repeat("x", 6000)); a.code != 200 {
			t.Errorf("%+v", a)
		}
		mustEnd(t, s.job)
	})
}

func TestHTTPOutcomeThatIsNotKnownIsSaid(t *testing.T) {
	t.Run("the block can't be stored", func(t *testing.T) {
		w := newWorld(t)
		w.put = func(string) error { return errFlaky }
		s := serve(w, receiver.Config{PushAttempts: 1}, receiver.HTTP{})
		if a := s.post("x"); a.code != 500 || !strings.Contains(a.body, "unknown: send again") || !strings.Contains(a.body, "flaky") {
			t.Errorf("%+v", a)
		}
		if err := <-s.done; err == nil {
			t.Error("Run returned nil")
		}
	})
	t.Run("cut off", func(t *testing.T) {
		w := newWorld(t)
		w.hold = make(chan struct{})
		began := putting(w)
		s := serve(w, soon, receiver.HTTP{})
		first := s.later("first")
		<-began
		s.cancel()
		if a := <-first; a.code != 500 && a.error == nil {
			t.Errorf("%+v", a)
		}
		if err := <-s.done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestHTTPStopThatIsNotWaitedForEnds(t *testing.T) {
	w := newWorld(t)
	w.hold = make(chan struct{})
	began := putting(w)
	s := serve(w, receiver.Config{StopTimeout: 1200 * time.Millisecond}, receiver.HTTP{})
	first := s.later("first")
	<-began
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "not added within the stop timeout") {
		t.Errorf("Run returned %v", err)
	}
	if a := <-first; a.code == 200 {
		t.Errorf("%+v", a)
	}
}

func TestHTTPAddressInUseEndsTheJob(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := newWorld(t)
	j := run(w, receiver.Config{RestartDelay: time.Millisecond}, receiver.HTTPIngest(l.Addr().String()))
	if err := <-j.done; err == nil || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("Run returned %v", err)
	}
}

// Everything that was answered with 200 is in a block once, whatever the rest.
func TestHTTPManyClients(t *testing.T) {
	w := newWorld(t)
	s := serve(w, soon, receiver.HTTP{})
	var mu sync.Mutex
	var want []string
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			for i := range 50 {
				text := fmt.Sprintf("%d/%d", c, i)
				a := s.do("POST", "", "", bytes.NewReader([]byte(text)))
				if a.code != 200 {
					t.Errorf("%+v", a)
					return
				}
				mu.Lock()
				want = append(want, text)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	mustEnd(t, s.job)
	got := records[string](w)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) != 800 {
		t.Errorf("%d records, %d answered", len(got), len(want))
	}
}
