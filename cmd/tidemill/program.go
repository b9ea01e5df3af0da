package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/tidemill/tidemill/checkpoint"
)

const (
	// describeTime is how long a program may take to describe itself.
	describeTime = time.Minute
	// describeBytes bounds what it may print.
	describeBytes = 64 << 20
)

// describeProgram runs a program with -describe and returns what it says of its
// job.
func describeProgram(ctx context.Context, program string, args []string) (checkpoint.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, describeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"-describe"}, args...)...)
	cmd.WaitDelay = time.Second
	stdout, stderr := &bounded{}, &bounded{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return checkpoint.Job{}, fmt.Errorf("%s -describe has not ended: %w: is it a Tidemill job?", program, ctx.Err())
	case stdout.full || stderr.full:
		return checkpoint.Job{}, fmt.Errorf("%s -describe prints more than %s: is it a Tidemill job?", program, size(describeBytes))
	case errors.As(err, &exit):
		return checkpoint.Job{}, fmt.Errorf("%s -describe failed (%w): %s", program, err, lastLine(stderr.b.String()))
	case err != nil:
		return checkpoint.Job{}, fmt.Errorf("%w: give a program built from a Tidemill job, with its path", err)
	}
	job, err := parseJob(lastLine(stdout.b.String()))
	if err != nil {
		return checkpoint.Job{}, fmt.Errorf("%s -describe: %w", program, err)
	}
	return job, nil
}

// parseJob reads what -describe prints. What it does not know it refuses: a
// verdict that ignores part of the job could be wrong.
func parseJob(line string) (job checkpoint.Job, err error) {
	dec := json.NewDecoder(strings.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&job); err != nil {
		return job, fmt.Errorf("its last line is no description of a job: build it and this command with the same version of Tidemill: %w", err)
	}
	if job.Name == "" || job.Interval <= 0 {
		return job, errors.New("its last line is no description of a job: it has no name or no batch interval")
	}
	return job, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// bounded keeps what is written until it is too much.
type bounded struct {
	b    bytes.Buffer
	full bool
}

func (w *bounded) Write(p []byte) (int, error) {
	if w.b.Len()+len(p) > describeBytes {
		w.full = true
		return 0, errors.New("too much output")
	}
	return w.b.Write(p)
}
