package receiver

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
)

// Receiver is what users write to bring records of type T in. One value serves
// one start; the next start opens a new one.
type Receiver[T any] interface {
	// Receive takes records from the source and stores them until ctx ends or
	// the source does. Whether it returns nil or an error, it is restarted after
	// a back-off unless the stream is being stopped; ErrDone says that the source
	// has ended for good. A panic counts as an error.
	//
	// When ctx ends Receive should store what it already holds and return; it
	// gets half of Config.StopTimeout for that.
	Receive(ctx context.Context, s *Sink[T]) error
}

// Func is a Receiver made of a function.
type Func[T any] func(ctx context.Context, s *Sink[T]) error

// Receive calls f.
func (f Func[T]) Receive(ctx context.Context, s *Sink[T]) error { return f(ctx, s) }

// Options are the fixed properties of a receiver stream.
type Options struct {
	// Level says where blocks are kept. The zero value means memory and disk.
	Level base.StorageLevel
	// PreferredHost is where the driver places the receiver if it can.
	PreferredHost string
}

// Runner is a receiver without its record type, as the graph keeps it.
type Runner interface {
	// Run supervises the receiver until one of these:
	//   - env.Stop is closed: Receive's context ends, the open block is cut, the
	//     queue is drained, all within Config.StopTimeout. Returns nil if every
	//     accepted record is in an added block.
	//   - the source ends for good (ErrDone): the same without a time limit, nil.
	//   - ctx ends: everything ends at once; returns the cause of ctx.
	//   - a failure that restarts can't mend: returns a *FailedError.
	// The last event is Stopped or Failed.
	Run(ctx context.Context, env Env) error
	// Name is the stream's name.
	Name() string
	// Level is where blocks of this stream are kept.
	Level() base.StorageLevel
	// PreferredHost is where the driver places the receiver if it can; may be empty.
	PreferredHost() string
}

// NewRunner erases a receiver: open is called once per start, c encodes its
// records. The codec must not keep the value it is given past Append.
func NewRunner[T any](name string, open func() Receiver[T], c *codec.Codec[T], opts Options) Runner {
	if opts.Level == base.StorageNone {
		opts.Level = base.MemoryAndDisk
	}
	return &runner[T]{name: name, open: open, codec: c, opts: opts}
}

// BlockStore keeps blocks on this executor. All methods are safe for concurrent use.
type BlockStore interface {
	// Put keeps frame under key as level asks; putting a key again replaces it.
	// It returns soon after ctx has ended. The frame is not changed afterwards.
	Put(ctx context.Context, key string, frame []byte, level base.StorageLevel) error
	// Drop forgets a key, which may be unknown.
	Drop(key string)
}

// Log is the write-ahead log of one run. All methods are safe for concurrent use.
type Log interface {
	// Append writes rec as one record and returns its handle when it is as
	// durable as the log promises. An append does not fail for a while: every
	// error is final (Invariant 14), one of a fenced log is ErrFenced. rec is not
	// changed meanwhile, nor afterwards.
	Append(ctx context.Context, rec []byte) (base.Handle, error)
	// Release gives records back that no block names, so that they don't keep
	// their segment alive. It may be called after Close.
	Release(hs ...base.Handle)
	// Close ends the log: appends that wait get their answer.
	Close() error
}

// Driver is the way to the job driver. All methods are safe for concurrent use.
type Driver interface {
	// AddBlock returns nil when the driver's log has the block. It is idempotent
	// by id. ErrFenced and ErrStopped are final answers; after any other error
	// the outcome is unknown and the block is sent again.
	AddBlock(ctx context.Context, b Block) error
	// ReceiverEvent tells the driver; it must not wait for the network.
	ReceiverEvent(e Event)
}

// Env is what one run of a receiver needs of its executor.
type Env struct {
	Stream   base.UID
	Epoch    base.Epoch
	Executor base.ExecutorID
	Blocks   BlockStore
	Driver   Driver
	Config   Config
	// OpenLog opens the write-ahead log of this epoch. It is called once, and the
	// log is closed at the end of Run. Nil means that there is none and that
	// blocks are as durable as the block store makes them.
	OpenLog func(ctx context.Context) (Log, error)
	// From is the position of the contiguous prefix of added blocks of all
	// epochs before, for [Sink.From]; nil if there is none.
	From []byte
	// Stop asks for the graceful end by being closed; nil means never.
	Stop <-chan struct{}
	// Rate brings new limits in records per second; the lower of it and
	// Config.MaxRate holds. Values that are not positive are ignored. May be nil.
	Rate <-chan float64
	// Log may be nil.
	Log hclog.Logger
}

func (e Env) validate() error {
	if e.Blocks == nil || e.Driver == nil {
		return errors.New("receiver: Env.Blocks and Env.Driver must be set")
	}
	return e.Config.Validate()
}

// Block tells the driver of one stored block.
type Block struct {
	ID       base.BlockID
	Key      string // in the executor's block store
	Records  int
	Bytes    int64 // of the whole frame
	Executor base.ExecutorID
	Level    base.StorageLevel
	// Handle says where the frame lies in the write-ahead log; zero without one.
	// Then the block store may lack the block.
	Handle base.Handle
	// Position is the source's position after this block; empty if no record of
	// it came with one, and then the position of the block before still holds.
	Position []byte
}

// EventKind says what happened to a receiver.
type EventKind uint8

// Kinds of events.
const (
	// Started: a start has reached its source; the message may say where that is.
	Started EventKind = iota + 1
	// Error: something went wrong, receiving goes on.
	Error
	// Restarting: a start has ended and the next one follows after a delay.
	Restarting
	// Stopped: the receiver has ended as it was asked to, or its source has ended for good.
	Stopped
	// Failed: the receiver has ended and needs the driver to decide.
	Failed
)

var kindNames = [...]string{"unknown", "started", "error", "restarting", "stopped", "failed"}

// String gives the kind in one word.
func (k EventKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[0]
}

// Event tells the driver how a receiver is.
type Event struct {
	Stream   base.UID
	Epoch    base.Epoch
	Executor base.ExecutorID
	Kind     EventKind
	Message  string
	Starts   int   // starts of this run so far
	Lost     int64 // with Stopped and Failed: accepted records that may be in no added block
	Fatal    bool  // with Failed: another start of the stream would fail too, the job should end
}
