package feed

import (
	"fmt"
	"net"
	"time"
)

// Verses are lines to send.
func Verses() []string {
	return []string{
		"the tide comes in the mill wheel stands",
		"the gate falls shut behind the tide",
		"the tide goes out the water waits",
		"the gate lifts and the wheel goes round",
		"the mill grinds what the tide brought in",
	}
}

// Serve starts a server on a free port of this machine and returns its
// address. Whoever connects gets the lines, one every so often, over and over.
// The server ends with the process.
func Serve(every time.Duration, lines []string) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("embedded feed: %w", err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go speak(c, every, lines)
		}
	}()
	return l.Addr().String(), nil
}

func speak(c net.Conn, every time.Duration, lines []string) {
	defer c.Close()
	for i := 0; ; i++ {
		if _, err := fmt.Fprintln(c, lines[i%len(lines)]); err != nil {
			return // the listener has gone
		}
		time.Sleep(every)
	}
}
