package receiver_test

import (
	"bytes"
	"context"
	"net"
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
