package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemill/tidemill/driver"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/wal"
)

func newSkip(f fsys.FS) *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use: "skip DIR TIME --reason TEXT", Short: "Give up a batch that fails at every start", Args: wants(2, 2, "DIR TIME"),
		Long: `Skip gives up the oldest pending batch of the job in DIR, which must not run. TIME
is the batch's, as the job and checkpoint show print it, or in milliseconds since
1970. Outputs of the batch that have not ended never run, state stays as it was
before the batch, and what later windows see of it is empty. The log keeps the
reason.`,
		Example: `  tidemill checkpoint skip data/wordcount 2026-03-01T12:00:05.000Z --reason "record 7 breaks the parser, ticket 12"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := parseTime(args[1])
			if err != nil {
				return usage(cmd, "%v", err)
			}
			if strings.TrimSpace(why) == "" {
				return usage(cmd, "--reason is empty: say why, the log keeps it")
			}
			log, err := driverLog(f, args[0])
			if err != nil {
				return err
			}
			s, err := driver.SkipBatch(cmd.Context(), driver.JournalConfig{
				FS: f, Dir: log, Level: wal.LevelSync,
				Alarm: func(a driver.Alarm) { fmt.Fprintln(cmd.ErrOrStderr(), "tidemill:", oneLine(a.Message)) },
			}, t, why)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "skipped batch %s: %s\n", t, inputsText(s.Batch))
			fmt.Fprintf(out, "outputs that will not run: %s\n", list(s.Outputs))
			_, err = fmt.Fprintf(out, "still pending: %s\n", timesText(s.Pending))
			return err
		},
	}
	cmd.Flags().StringVar(&why, "reason", "", "`text` for the log (required)")
	return cmd
}

// parseTime reads a batch time: RFC 3339 or milliseconds since 1970.
func parseTime(text string) (base.BatchTime, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return base.BatchTime(ms), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, fmt.Errorf("time %q: want it as in 2026-03-01T12:00:05.000Z, or milliseconds since 1970", text)
	}
	if at.Nanosecond()%int(time.Millisecond) != 0 {
		return 0, fmt.Errorf("time %q: batch times are whole milliseconds", text)
	}
	return base.TimeOf(at), nil
}
