package hdfstest

import "time"

// A Fault is what happens to a call that [Cluster.FailNext] waits for.
type Fault struct {
	kind        faultKind
	class, text string
	wait        time.Duration
}

type faultKind int

const (
	noFault faultKind = iota
	dropBefore
	dropAfter
	throw
	answerFalse
	delay
	hang
)

// DropBefore closes the connection, and the call has no effect.
func DropBefore() Fault { return Fault{kind: dropBefore} }

// DropAfter closes the connection when the call has had its effect, before the answer.
func DropAfter() Fault { return Fault{kind: dropAfter} }

// Exception refuses the call with an exception of that Java class.
func Exception(class, text string) Fault { return Fault{kind: throw, class: class, text: text} }

// CompleteFalse makes complete say "not yet": the file stays open, the length
// of its last block is taken.
func CompleteFalse() Fault { return Fault{kind: answerFalse} }

// Delay holds the answer back; the call has its effect at once.
func Delay(d time.Duration) Fault { return Fault{kind: delay, wait: d} }

// Hang never answers, and the call has no effect.
func Hang() Fault { return Fault{kind: hang} }

type pending struct {
	left  int
	fault Fault
}

// FailNext does fault to the next n calls of a method of ClientProtocol, such
// as "addBlock", or of ClientDatanodeProtocol, whichever datanode they reach.
// Several wait for each other.
func (c *Cluster) FailNext(method string, n int, fault Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[method] = append(c.faults[method], &pending{n, fault})
}

// arrived counts a call and returns its fault.
func (c *Cluster) arrived(method string) Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[method]++
	for len(c.faults[method]) > 0 {
		p := c.faults[method][0]
		if p.left > 0 {
			p.left--
			return p.fault
		}
		c.faults[method] = c.faults[method][1:]
	}
	return Fault{}
}
