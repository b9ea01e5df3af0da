package receiver_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/receiver"
)

// void takes blocks and forgets them.
type void struct{}

func (void) Put(context.Context, string, []byte, base.StorageLevel) error { return nil }
func (void) Drop(string)                                                  {}
func (void) AddBlock(context.Context, receiver.Block) error               { return nil }
func (void) ReceiverEvent(receiver.Event)                                 {}

func benchmark(b *testing.B, cfg receiver.Config, f receiver.Func[string]) {
	b.ReportAllocs()
	b.SetBytes(100)
	r := receiver.NewRunner("lines", func() receiver.Receiver[string] { return f }, codec.For[string](), receiver.Options{})
	if err := r.Run(b.Context(), receiver.Env{Stream: "lines", Blocks: void{}, Driver: void{}, Config: cfg}); err != nil {
		b.Fatal(err)
	}
}

func storeLoop(b *testing.B) receiver.Func[string] {
	return func(ctx context.Context, s *receiver.Sink[string]) error {
		for b.Loop() {
			if err := s.Store(ctx, line99); err != nil {
				return err
			}
		}
		return receiver.ErrDone
	}
}

func BenchmarkStore(b *testing.B) { benchmark(b, receiver.Config{}, storeLoop(b)) }

func BenchmarkStoreLimited(b *testing.B) {
	benchmark(b, receiver.Config{MaxRate: 1e12, MaxByteRate: 1e12}, storeLoop(b))
}

func BenchmarkStoreMany(b *testing.B) {
	benchmark(b, receiver.Config{}, func(ctx context.Context, s *receiver.Sink[string]) error {
		batch := make([]string, 1000)
		for i := range batch {
			batch[i] = line99
		}
		n := 0
		for b.Loop() {
			if n++; n%len(batch) == 0 {
				if err := s.StoreMany(ctx, batch); err != nil {
					return err
				}
			}
		}
		return receiver.ErrDone
	})
}

// BenchmarkSocketText is one 100-byte line through loopback TCP.
func BenchmarkSocketText(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	sent := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			sent <- err
			return
		}
		defer c.Close()
		text := bytes.Repeat([]byte(line99+"\n"), 1000)
		for n := b.N; n > 0 && err == nil; n -= 1000 {
			_, err = c.Write(text[:100*min(n, 1000)])
		}
		sent <- err
	}()
	b.ResetTimer()
	benchmark(b, receiver.Config{}, func(ctx context.Context, s *receiver.Sink[string]) error {
		if err := (&receiver.TextSocket{Addr: l.Addr().String()}).Receive(ctx, s); err != nil {
			return err
		}
		return receiver.ErrDone
	})
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHTTP is one request of one short line, of 64 clients at once on
// connections that are kept; clients and server share the machine.
func BenchmarkHTTP(b *testing.B) {
	const clients = 64
	w := newWorld(b)
	s := serve(w, receiver.Config{}, receiver.HTTP{})
	addr := strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/")
	request := []byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\none line\n")
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			in := bufio.NewReader(c)
			for left.Add(-1) >= 0 {
				if _, err := c.Write(request); err != nil {
					b.Error(err)
					return
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != 200 {
					b.Error(resp, err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	mustEnd(b, s.job)
	n := 0
	for _, size := range w.sizes() {
		n += size
	}
	if n != b.N {
		b.Errorf("%d records of %d requests", n, b.N)
	}
	b.ReportMetric(float64(n)/float64(len(w.log)), "requests/block")
}
