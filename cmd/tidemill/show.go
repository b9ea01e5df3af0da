package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemill/tidemill/internal/fsys"
)

func newShow(f fsys.FS) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show DIR", Short: "Show what a checkpoint holds", Args: wants(1, 1, "DIR"),
		Long: `Show adds up the driver's log of the job in DIR: the newest good snapshot and the
events after it. It prints the job, batches that have not ended or that windows
still need, received blocks, source positions, state, and the snapshots, damaged
ones included. A job that runs may be ahead of it.`,
		Example: `  tidemill checkpoint show data/wordcount
  tidemill checkpoint show data/wordcount --json | jq .pending`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd.Context(), f, args[0], asJSON, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func show(ctx context.Context, f fsys.FS, dir string, asJSON bool, w io.Writer) error {
	log, err := driverLog(f, dir)
	if err != nil {
		return err
	}
	snapshots, err := snapshotsOf(f, log)
	if err != nil {
		return err
	}
	facts, found, err := readFacts(ctx, f, dir)
	if err != nil {
		// Which snapshots are good is what helps then.
		if perr := (printer{w: w}).snapshots(snapshots); perr != nil {
			return perr
		}
		return fmt.Errorf("the checkpoint can't be used: %w; restore the file, or start the job with -fresh", err)
	}
	s := summaryOf(facts, found, snapshots)
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(s)
	}
	return printer{w: w}.summary(s)
}

// printer writes a summary for people.
type printer struct{ w io.Writer }

func (p printer) summary(s summary) error {
	for _, part := range []func(summary) error{p.head, p.pending, p.held, p.streams, p.sources, p.state} {
		if err := part(s); err != nil {
			return err
		}
	}
	if err := p.snapshots(s.Snapshots); err != nil {
		return err
	}
	for _, t := range s.Torn {
		fmt.Fprintf(p.w, "torn tail: %s at %d: %s that count for nothing\n", t.File, t.Offset, count(t.Bytes, "byte", "bytes"))
	}
	return nil
}

func (p printer) head(s summary) error {
	t := newTable(p.w)
	t.row("job", fmt.Sprintf("%s, a batch every %v, %s, outputs: %s", printable(s.Job.Name), time.Duration(s.Job.IntervalMs)*time.Millisecond,
		count(int64(s.Job.Operators), "operator", "operators"), list(s.Job.Outputs)))
	t.row("run", fmt.Sprintf("%s, started %s, now at epoch %d", printable(s.Run), s.Started, s.Epoch))
	t.row("program", fmt.Sprintf("sha256 %s, arguments %q", cmp.Or(s.Job.Binary, "not known"), s.Job.Args))
	last := "none planned"
	if s.Last != "" {
		last = fmt.Sprintf("%s to %s", s.First, s.Last)
	}
	t.row("batches", fmt.Sprintf("%s; %d ended, %d of them failed; %d pending", last, s.Ended, s.Failed, len(s.Pending)))
	if s.Lost > 0 {
		t.row("lost", count(s.Lost, "record", "records"))
	}
	t.row("log", fmt.Sprintf("event %d, %d after the newest good snapshot; %s", s.Seq, s.Events, count(int64(len(s.Torn)), "torn tail", "torn tails")))
	return t.end()
}

// section starts a part of the text.
func (p printer) section(title string, heads ...string) table {
	fmt.Fprintf(p.w, "\n%s\n", title)
	return newTable(p.w, append([]string{" "}, heads...)...)
}

func (p printer) pending(s summary) error {
	if len(s.Pending) == 0 {
		return nil
	}
	t := p.section("pending batches (planned, not ended)", "TIME", "RECORDS", "INPUTS", "OUTPUTS DONE")
	for _, b := range s.Pending {
		t.row("", b.Time, fmt.Sprint(b.Records), inputNames(b), list(b.OutputsDone))
	}
	return t.end()
}

func (p printer) held(s summary) error {
	if len(s.Held) == 0 {
		return nil
	}
	t := p.section("held batches (ended, later ones may read them)", "TIME", "RECORDS", "INPUTS")
	for _, b := range s.Held {
		t.row("", b.Time, fmt.Sprint(b.Records), inputNames(b))
	}
	return t.end()
}

// inputNames says what each source gives to a batch.
func inputNames(b batchSummary) string {
	var texts []string
	for _, in := range b.Inputs {
		text := in.Source
		switch {
		case in.Absent:
			text += " absent"
		case in.Records >= 0:
			text += fmt.Sprintf(" %d", in.Records)
		}
		if in.Blocks > 0 {
			text += " in " + count(int64(in.Blocks), "block", "blocks")
		}
		if in.Lost > 0 {
			text += fmt.Sprintf(" (%d lost)", in.Lost)
		}
		texts = append(texts, text)
	}
	return list(texts)
}

func (p printer) streams(s summary) error {
	if len(s.Streams) == 0 {
		return nil
	}
	t := p.section("receivers", "STREAM", "EPOCH", "BLOCKS ADDED", "WAITING", "RECORDS", "BYTES", "RATE", "POSITION")
	for _, x := range s.Streams {
		rate, at := "-", "-"
		if x.Rate > 0 {
			rate = fmt.Sprintf("%.6g/s", x.Rate)
		}
		if x.Position != nil {
			at = position(x.Position)
		}
		t.row("", printable(x.Name), x.Epoch.String(), fmt.Sprint(x.Counter), count(int64(x.Blocks), "block", "blocks"), fmt.Sprint(x.Records), size(x.Bytes), rate, at)
	}
	return t.end()
}

func (p printer) sources(s summary) error {
	if len(s.Sources) == 0 {
		return nil
	}
	t := p.section("other sources", "SOURCE", "LAST BATCH", "PLANS KEPT", "BYTES OF THE LAST")
	for _, x := range s.Sources {
		t.row("", printable(x.Name), x.Last, fmt.Sprint(x.Plans), size(int64(len(x.Data))))
	}
	return t.end()
}

func (p printer) state(s summary) error {
	if len(s.State) == 0 {
		return nil
	}
	t := p.section("state", "OPERATOR", "PARTITIONS", "FILES", "BYTES", "OF BATCH", "KEYS", "VALUES", "VERSION")
	for _, x := range s.State {
		t.row("", printable(x.Operator), fmt.Sprint(x.Parts), fmt.Sprint(x.Files), size(x.Bytes), x.Version, printable(cmp.Or(x.Keys, "-")), printable(cmp.Or(x.Values, "-")), fmt.Sprint(x.Schema))
	}
	return t.end()
}

func (p printer) snapshots(files []snapshotFile) error {
	if len(files) == 0 {
		_, err := fmt.Fprintln(p.w, "\nno snapshots")
		return err
	}
	t := p.section("snapshots", "EVENT", "EPOCH", "MADE", "BYTES", "GOOD", "FILE")
	for _, s := range files {
		good := "yes"
		if s.Damage != "" {
			good = "DAMAGED"
		}
		t.row("", fmt.Sprint(s.Seq), s.Epoch.String(), s.Made, size(s.Bytes), good, s.Path)
	}
	if err := t.end(); err != nil {
		return err
	}
	for _, s := range files {
		if s.Damage != "" {
			fmt.Fprintf(p.w, "damaged: %s: %s\n", s.Path, s.Damage)
		}
	}
	return nil
}
