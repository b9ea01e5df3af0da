package driver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

// zeroFields names the fields of a struct that are not set.
func zeroFields(v any) []string {
	var out []string
	r := reflect.ValueOf(v)
	for i := range r.NumField() {
		if r.Field(i).IsZero() {
			out = append(out, r.Type().Field(i).Name)
		}
	}
	return out
}

func seedFixtures(f *testing.F, pattern string) {
	files, err := filepath.Glob(filepath.Join(fixtureDir, pattern))
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
}

// FuzzDecodeEvent: no panic on any bytes, and what is read is written and read
// again as the same event.
func FuzzDecodeEvent(f *testing.F) {
	seedFixtures(f, "event-*.bin")
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := driver.DecodeEvent(b)
		if err != nil {
			return
		}
		rec, err := driver.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := driver.DecodeEvent(rec)
		if err != nil {
			t.Fatalf("%v of %x, which was written of %#v", err, rec, e)
		}
		if rec2, err := driver.EncodeEvent(again); err != nil || !bytes.Equal(rec, rec2) {
			t.Errorf("%x, then %x, %v", rec, rec2, err)
		}
	})
}

// FuzzDecodeFacts is the same for the body of a snapshot. What can be read can be
// gone on from: no event panics on it.
func FuzzDecodeFacts(f *testing.F) {
	seedFixtures(f, "facts*.bin")
	f.Fuzz(func(t *testing.T, b []byte) {
		facts, err := driver.DecodeFacts(b)
		if err != nil {
			return
		}
		body, err := facts.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := driver.DecodeFacts(body)
		if err != nil {
			t.Fatalf("%v of %x", err, body)
		}
		if body2, err := again.Encode(); err != nil || !bytes.Equal(body, body2) {
			t.Errorf("%x, then %x, %v", body, body2, err)
		}
		facts.Handles()
		for _, e := range fixtureEvents() {
			if facts.Apply(e) == nil {
				if _, err := facts.Encode(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// records cuts fuzzed bytes into records, each after its length in two bytes.
func records(b []byte) [][]byte {
	var out [][]byte
	for len(b) >= 2 {
		n := min(int(binary.LittleEndian.Uint16(b)), len(b)-2)
		out, b = append(out, b[2:2+n]), b[2+n:]
	}
	return out
}

// FuzzReplay puts hostile records, and perhaps a snapshot, into a log and reads it:
// no panic; an answer that is that of the events one by one; and if there is one,
// the next driver goes on from it.
func FuzzReplay(f *testing.F) {
	var log []byte
	add := func(events ...driver.Event) {
		for _, e := range events {
			rec, err := driver.EncodeEvent(e)
			if err != nil {
				f.Fatal(err)
			}
			log = append(binary.LittleEndian.AppendUint16(log, uint16(len(rec))), rec...)
		}
	}
	facts, err := fixtureFacts().Encode()
	if err != nil {
		f.Fatal(err)
	}
	add(driver.DriverStarted{Epoch: 1, Run: "run", At: 5})
	add(history(4)...)
	f.Add(log, []byte{}, uint8(0))
	log = nil
	add(fixtureEvents()...)
	f.Add(log, []byte{}, uint8(0))
	f.Add(log, facts, uint8(3))
	f.Fuzz(func(t *testing.T, log, snapshot []byte, snapshotAt uint8) {
		disk, ctx := fsys.NewMem(), context.Background()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(disk.Mkdir("/log"))
		c, err := wal.Claim(ctx, disk, "/log", wal.ClaimOptions{})
		must(err)
		w, err := wal.Create(wal.Config{FS: disk}, c.Dir, "driver", c.Epoch, 1)
		must(err)
		recs := records(log)
		for _, rec := range recs {
			_, err := w.Append(ctx, rec)
			must(err)
		}
		must(w.Close())
		if len(snapshot) > 0 {
			_, err := checkpoint.Write(disk, c.Dir, checkpoint.Snapshot{Epoch: c.Epoch, Seq: uint64(snapshotAt), Body: snapshot})
			must(err)
		}
		must(c.Close())
		got, found, err := driver.ReadFacts(ctx, disk, "/log")
		want, wantErr := oneByOne(recs, snapshot, uint64(snapshotAt))
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("replay: %v, one by one: %v", err, wantErr)
		}
		if err != nil {
			if j, err := journal(disk); err == nil {
				_ = j.Close(false)
				t.Error("a driver goes on from a log that can't be read")
			}
			return
		}
		a, err := got.Encode()
		must(err)
		b, err := want.Encode()
		must(err)
		if !bytes.Equal(a, b) {
			t.Errorf("replay of %d events gives other facts than the events one by one", found.Events)
		}
		j, err := journal(disk)
		must(err)
		next, err := j.Facts()
		must(err)
		if c, err := next.Encode(); err != nil || !bytes.Equal(a, c) {
			t.Errorf("the next driver has other facts: %v", err)
		}
		must(j.Close(false))
	})
}

// oneByOne adds up the facts without a log.
func oneByOne(recs [][]byte, snapshot []byte, at uint64) (*driver.Facts, error) {
	facts := &driver.Facts{}
	if len(snapshot) > 0 {
		var err error
		if facts, err = driver.DecodeFacts(snapshot); err != nil {
			return nil, err
		}
		recs = recs[min(at, uint64(len(recs))):]
		if err := olderOnly(facts.Accepted); err != nil {
			return nil, err
		}
	}
	for i, rec := range recs {
		e, err := driver.DecodeEvent(rec)
		if s, ok := e.(driver.DriverStarted); ok && i == 0 && len(snapshot) == 0 {
			err = olderOnly(s.Accepted)
		}
		if err == nil {
			err = facts.Apply(e)
		}
		if err != nil {
			return nil, err
		}
	}
	return facts, nil
}

// olderOnly checks what epoch 1 may say of the logs before it: nothing.
func olderOnly(accepted []driver.Accepted) error {
	for _, a := range accepted {
		if a.Epoch >= 1 {
			return base.ErrCorrupt
		}
	}
	return nil
}
