package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/tidetest"
)

const third = "2000-01-01T00:00:03.000Z"

// TestSkipIsTheWayPastAPoisonBatch starts a job again and again: the batch
// fails each time until it is skipped.
func TestSkipIsTheWayPastAPoisonBatch(t *testing.T) {
	f := fsys.NewMem()
	poisoned(t, f)
	again := func() (last string, failure error) {
		tidetest.Run(t, func(t *testing.T) {
			j := tidetest.Start(t, job(f, make(chan string)))
			j.Advance(5)
			failure = j.Err()
			j.Stop(false)
		})
		r := tidemillCmd(t, f, "checkpoint", "show", "/job")
		expect(t, r, 0, nil, nil)
		return r.out, failure
	}
	if _, failure := again(); failure == nil || !strings.Contains(failure.Error(), third) {
		t.Fatalf("the batch is run again, and ends with %v", failure)
	}
	r := tidemillCmd(t, f, "checkpoint", "skip", "/job", third, "--reason", "record 1 is poison")
	expect(t, r, 0, []string{
		"skipped batch " + third + ": lines 1 record in 1 block; more absent\n",
		"outputs that will not run: check\n", "still pending: -\n",
	}, nil)
	expect(t, tidemillCmd(t, f, "wal", "dump", "/job"), 0, []string{"BatchFailed " + third + ": outputs check; ", "reason: skipped: record 1 is poison\n"}, nil)
	show, failure := again()
	if failure != nil {
		t.Errorf("the job ends with %v", failure)
	}
	if !strings.Contains(show, "1 of them failed; 0 pending") {
		t.Errorf("after the skip:\n%s", show)
	}
}

func TestSkipTakesMilliseconds(t *testing.T) {
	f := fsys.NewMem()
	poisoned(t, f)
	at, err := parseTime(third)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, tidemillCmd(t, f, "checkpoint", "skip", "/job", fmt.Sprint(int64(at)), "--reason", "r"), 0, []string{"skipped batch " + third}, nil)
}

func TestSkipRefuses(t *testing.T) {
	f := fsys.NewMem()
	poisoned(t, f)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"/job", third}, 2, "--reason is empty"},
		{[]string{"/job", third, "--reason", " "}, 2, "--reason is empty"},
		{[]string{"/job", "yesterday", "--reason", "r"}, 2, `time "yesterday": want it as in`},
		{[]string{"/job", "2000-01-01T00:00:03.0001Z", "--reason", "r"}, 2, "whole milliseconds"},
		{[]string{"/job", "--reason", "r"}, 2, "1 arguments: want DIR TIME"},
		{[]string{"/job", "2000-01-01T00:00:02.000Z", "--reason", "r"}, 1, "it is not pending; the oldest one that is: " + third},
		{[]string{"/gone", third, "--reason", "r"}, 1, "directory /gone does not exist"},
	} {
		r := tidemillCmd(t, f, append([]string{"checkpoint", "skip"}, c.args...)...)
		t.Run(strings.Join(c.args, " "), func(t *testing.T) { expect(t, r, c.code, nil, []string{c.says}) })
	}
	tidetest.Run(t, func(t *testing.T) {
		lock, err := f.Lock("/job/log/LOCK")
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		expect(t, tidemillCmd(t, f, "checkpoint", "skip", "/job", third, "--reason", "r"), 1, nil, []string{"in use by another process"})
	})
	expect(t, tidemillCmd(t, f, "checkpoint", "show", "/job"), 0, []string{"now at epoch 1\n", "1 pending"}, nil)
}

func TestTimesAreReadAsTheyArePrinted(t *testing.T) {
	for _, at := range []base.BatchTime{0, 1, 1500, 946684803000} {
		if got, err := parseTime(at.String()); got != at || err != nil {
			t.Errorf("%s is read as %d, %v", at, got, err)
		}
	}
}
