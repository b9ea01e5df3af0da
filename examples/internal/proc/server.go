package proc

import (
	"net"
	"sync"
	"testing"
)

// Server sends one text over TCP, once.
type Server struct {
	Addr string
	// Read is closed when a client has read all of the text: it connects
	// again only after it has seen the end.
	Read <-chan struct{}
}

// Serve starts a server that sends text to its first client and then closes
// the connection. Later clients get nothing. It ends with the test.
func Serve(t testing.TB, text []byte) Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	var clients []net.Conn
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return // closed below
			}
			clients = append(clients, c)
			switch n {
			case 1:
				wg.Go(func() {
					defer c.Close()
					_, _ = c.Write(text) // the client may be stopped before the end
				})
			case 2:
				close(read)
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
		for _, c := range clients {
			c.Close()
		}
	})
	return Server{Addr: l.Addr().String(), Read: read}
}

// UntilRead waits until the process has read all that s sends.
func (p *Process) UntilRead(s Server) {
	p.t.Helper()
	p.Until("all text read", func() bool {
		select {
		case <-s.Read:
			return true
		default:
			return false
		}
	})
}
