package driver

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/tidemill/tidemill/internal/base"
)

// An event in the log is its format version, its kind and its fields, a msgpack
// map by their names. Length and checksum are the log's (Invariant 12).
const eventVersion = 1

// eventKinds lists the kinds in the order of their numbers, which never change.
var eventKinds = [...]Event{
	1: DriverStarted{}, 2: StateRepacked{}, 3: ReceiverRegistered{}, 4: BlockAdded{}, 5: BlocksLost{},
	6: RateUpdated{}, 7: BatchPlanned{}, 8: OutputDone{}, 9: BatchDone{}, 10: BatchFailed{},
	11: Released{}, 12: StateMerged{}, 13: SnapshotDone{},
}

// EncodeEvent makes a record of the log. Equal events have equal bytes.
func EncodeEvent(e Event) ([]byte, error) {
	kind := 0
	for i, k := range eventKinds {
		if k != nil && reflect.TypeOf(k) == reflect.TypeOf(e) {
			kind = i
		}
	}
	if kind == 0 {
		return nil, fmt.Errorf("driver: %T is no event of the log", e)
	}
	var b bytes.Buffer
	b.Write([]byte{eventVersion, byte(kind)})
	if err := encodeSorted(&b, e); err != nil {
		return nil, fmt.Errorf("driver: encode %T: %w", e, err)
	}
	return b.Bytes(), nil
}

func encodeSorted(b *bytes.Buffer, v any) error {
	enc := msgpack.NewEncoder(b)
	enc.SetSortMapKeys(true)
	enc.UseCompactInts(true)
	enc.SetOmitEmpty(true)
	return enc.Encode(v)
}

// DecodeEvent reads a record of the log.
func DecodeEvent(rec []byte) (e Event, err error) {
	switch {
	case len(rec) < 2:
		return nil, fmt.Errorf("driver: an event of %d bytes: %w", len(rec), base.ErrCorrupt)
	case rec[0] != eventVersion:
		return nil, fmt.Errorf("driver: an event of format version %d: this program reads version %d", rec[0], eventVersion)
	case int(rec[1]) >= len(eventKinds) || eventKinds[rec[1]] == nil:
		return nil, fmt.Errorf("driver: an event of kind %d: this program knows 1 to %d: %w", rec[1], len(eventKinds)-1, base.ErrCorrupt)
	}
	t := reflect.TypeOf(eventKinds[rec[1]])
	out := reflect.New(t)
	if err := decode(rec[2:], out.Interface()); err != nil {
		return nil, fmt.Errorf("driver: decode %s: %w", t.Name(), err)
	}
	return out.Elem().Interface().(Event), nil
}

// decode reads all of b. Its error is a corruption, also where the decoder
// panics on bytes that nobody wrote (Invariant 8).
func decode(b []byte, v any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v: %w", r, base.ErrCorrupt)
		}
	}()
	r := bytes.NewReader(b)
	if err := msgpack.NewDecoder(r).Decode(v); err != nil {
		return fmt.Errorf("%w: %w", err, base.ErrCorrupt)
	}
	if r.Len() > 0 {
		return fmt.Errorf("%d bytes after its end: %w", r.Len(), base.ErrCorrupt)
	}
	return nil
}
