// Package receiver takes records from outside sources, packs them into blocks
// and hands the blocks to an executor's block store and the driver's log.
//
// A user writes a [Receiver]. [NewRunner] makes it a [Runner], the erased form
// that the graph keeps; [Runner.Run] is the supervisor that opens a fresh
// Receiver for every start, contains its panics, restarts it with a growing
// delay, and ends the job when the source was never reached. Records go
//
//	Sink.Store -> rate limiter -> generator (frame) -> queue -> pusher -> handler -> Driver.AddBlock
//
// The generator encodes on arrival and cuts a block every block interval or at
// a byte limit. [Sink.StoreMany] and [Sink.StoreSeq] make blocks of their own,
// which pass through the same limiter, queue and pusher, in order. The handler
// is one of two: with [Env.OpenLog] a block goes to the write-ahead log and to
// the block store at once, the same bytes, and the log alone is enough; without
// it the block store must take it.
//
// A source that can seek gives the position after its records with them
// ([Sink.StoreAt], [Sink.StoreManyAt]) and reads on at [Sink.From] in its next
// start: the position of the newest added block. Between starts of one Run all
// that was accepted is added first, and a new Run begins at what the driver's
// log has, so each record is in exactly one added block.
//
// Built-in receivers: [TextSocket], [FrameSocket], [HTTP], [DirTail].
//
// # Invariants
//
//   - 1: StoreMany and StoreSeq return nil only after the write-ahead log has the
//     blocks, or without one the block store at their level, and the driver's log
//     has them too.
//   - 2: a block's counter is given when its store has succeeded, just before
//     AddBlock; an AddBlock with an unknown outcome is sent again with the same
//     id, for as long as the receiver runs. Counters have no gaps.
//   - 7: ErrFenced from the driver ends the receiver.
//   - 9: the queue is bounded and a full one makes the store calls wait. A push
//     that fails is tried again, then the receiver fails and counts what is lost.
//     Whatever Store accepted before a graceful stop is in an added block.
//   - 8, 12: lengths that a peer sends are bounded before anything is made of
//     that size; positions of a DirTail have a version.
//   - 14: an append to the write-ahead log is waited for, and its error is final.
//     Records that no AddBlock names are released.
//   - 15: a finished frame is never written again.
//
// # Threading
//
// A Runner may be run many times, one Run per (stream, epoch). A [Sink] may be
// used by many goroutines. Run owns three goroutines: the one that calls
// Receive, the clock (block interval, rate updates, stop) and the pusher; it
// returns when all have ended, and leaves behind only a Receive that ignores
// its context past the stop timeout, which it reports. The log is closed after
// the last block is stored. A panic in a goroutine
// that user code starts itself is out of reach and costs the process.
//
// Locks: generator.mu (open frame and queue), held while a record is encoded,
// and limiter.mu (rates). They are never held together, nor across a blocking
// channel operation, IO or a wait.
//
// # Example
//
// A receiver that acknowledges to its source after the records are safe:
//
//	func pull(ctx context.Context, s *receiver.Sink[Order]) error {
//		c, err := queue.Dial(ctx, addr)
//		if err != nil {
//			return err // back-off, then a new start
//		}
//		defer c.Close()
//		s.Ready()
//		for {
//			batch, err := c.Take(ctx, 1000)
//			if err != nil {
//				return err
//			}
//			if err := s.StoreMany(ctx, batch.Orders); err != nil {
//				return err // not acknowledged: the source delivers it again
//			}
//			if err := batch.Ack(ctx); err != nil {
//				return err
//			}
//		}
//	}
//
//	r := receiver.NewRunner("orders", func() receiver.Receiver[Order] { return receiver.Func[Order](pull) },
//		codec.For[Order](), receiver.Options{})
package receiver
