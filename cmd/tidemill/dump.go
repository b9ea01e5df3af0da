package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/codec"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

func newDump(f fsys.FS) *cobra.Command {
	var from uint64
	var limit int64
	cmd := &cobra.Command{
		Use: "dump DIR", Short: "Print the records of a log, one a line", Args: wants(1, 1, "DIR"),
		Long: `Dump prints the records of a log: sequence number, place, and what it is. DIR is
the directory of a log or of one epoch, or that of a job for the driver's log.

Events of the driver's log are said in words. Of blocks of records the codec and
the number of records are printed, of all else the first bytes. Damage is passed
over and said where it is; the exit code is 1 then.`,
		Example: `  tidemill wal dump data/wordcount --from 1200 --limit 50
  tidemill wal dump data/wordcount/blocks/lines`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usage(cmd, "--limit %d: must not be negative", limit)
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			d := dumper{fs: f, out: out, left: limit, limited: limit > 0}
			return errors.Join(d.run(cmd.Context(), args[0], from), out.Flush())
		},
	}
	cmd.Flags().Uint64Var(&from, "from", 0, "first sequence `number` to print")
	cmd.Flags().Int64Var(&limit, "limit", 0, "print at most so many `records` (0: all)")
	return cmd
}

// dumper prints the records of a log.
type dumper struct {
	fs      fsys.FS
	out     io.Writer
	left    int64
	limited bool
	damaged int
}

// errEnough ends a dump at its limit.
var errEnough = errors.New("enough")

func (d *dumper) run(ctx context.Context, dir string, from uint64) error {
	logs, err := findLogs(d.fs, dir)
	if err != nil {
		return err
	}
	if len(logs) > 1 && logs[0].name != logDir {
		return fmt.Errorf("%s holds %d logs: give the directory of one, such as %s", dir, len(logs), fsys.Dir(logs[0].epochs[0].Dir))
	}
	for _, e := range logs[0].epochs {
		if err := d.epoch(ctx, e, from); errors.Is(err, errEnough) {
			break
		} else if err != nil {
			return err
		}
	}
	if d.damaged > 0 {
		return fmt.Errorf("%s: tidemill wal verify %s tells more", count(int64(d.damaged), "damaged place", "damaged places"), dir)
	}
	return nil
}

func (d *dumper) epoch(ctx context.Context, e wal.EpochDir, from uint64) error {
	report, err := wal.Scan(ctx, &countingFS{FS: d.fs}, e.Dir, wal.ScanOptions{From: from, SkipDamaged: true}, func(seq uint64, h base.Handle, rec []byte) error {
		if d.limited && d.left == 0 {
			return errEnough
		}
		d.left--
		_, err := fmt.Fprintf(d.out, "%8d  e-%d/%d@%d+%d  %s\n", seq, h.Epoch, h.Segment, h.Offset, h.Length, recordText(h.Log, rec))
		return err
	})
	if err != nil {
		return err
	}
	for _, t := range report.Torn {
		fmt.Fprintf(d.out, "torn: %s at %d: %s that count for nothing\n", t.File, t.Offset, count(t.Bytes, "byte", "bytes"))
	}
	if len(report.Damaged) == 0 {
		return nil
	}
	// Segments that were released leave gaps, which are no damage.
	if report, err = verifyEpoch(ctx, d.fs, e.Dir); err != nil {
		return err
	}
	for _, x := range report.Damaged {
		d.damaged++
		fmt.Fprintf(d.out, "damage: %s\n", damageText(x))
	}
	return nil
}

// driverName is what the driver's log calls itself. A stream may have that name too.
const driverName = "driver"

// previewBytes is how much of an unknown record is shown.
const previewBytes = 32

// recordText says what a record of a log is.
func recordText(log string, rec []byte) string {
	frame, err := codec.OpenFrame(rec)
	if err == nil {
		return fmt.Sprintf("frame of codec %s: %s, %s", printable(frame.ID), count(int64(frame.Count), "record", "records"), size(int64(len(frame.Body))))
	}
	if log == driverName {
		e, err := driver.DecodeEvent(rec)
		if err != nil {
			return printable(err.Error())
		}
		return eventText(e)
	}
	if len(rec) <= previewBytes {
		return fmt.Sprintf("bytes %x", rec)
	}
	return fmt.Sprintf("bytes %x...", rec[:previewBytes])
}
