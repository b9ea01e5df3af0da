package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

func newDiff(f fsys.FS) *cobra.Command {
	var drop []string
	var rerun bool
	cmd := &cobra.Command{
		Use: "diff [flags] DIR PROGRAM [ARGS...]", Short: "Say whether a program can go on from a checkpoint", Args: wants(2, -1, "DIR PROGRAM [ARGS...]"),
		Long: `Diff compares the program that wrote the checkpoint in DIR with PROGRAM, which it
runs as PROGRAM -describe ARGS... : that prints the job and does not start it. It
says what differs, what that does to what is stored, and what helps against what
is refused, as a start of PROGRAM would. Flags come before DIR.

The exit code is 0 if PROGRAM can go on, 3 if it can't.`,
		Example: `  tidemill checkpoint diff data/wordcount ./wordcount -addr host:9999
  tidemill checkpoint diff --drop-state counts data/wordcount ./wordcount`,
		RunE: func(cmd *cobra.Command, args []string) error {
			facts, _, err := readFacts(cmd.Context(), f, args[0])
			if err != nil {
				return err
			}
			job, err := describeProgram(cmd.Context(), args[1], args[2:])
			if err != nil {
				return err
			}
			o := checkpoint.Options{RerunPending: rerun}
			for _, name := range drop {
				o.Drop = append(o.Drop, base.UID(name))
			}
			for _, p := range facts.Pending {
				o.Pending = append(o.Pending, p.Batch.Time)
			}
			v := checkpoint.Classify(facts.Job, job, o)
			if _, err := fmt.Fprint(cmd.OutOrStdout(), v); err != nil {
				return err
			}
			if v.Kind == checkpoint.Incompatible {
				return &exitError{code: exitIncompatible}
			}
			return nil
		},
	}
	cmd.Flags().SetInterspersed(false) // the program has flags of its own
	cmd.Flags().StringArrayVar(&drop, "drop-state", nil, "as if the program were started with this flag: forget what the operator with this `name` keeps; may be repeated")
	cmd.Flags().BoolVar(&rerun, "rerun-pending", false, "as if the program were started with this flag")
	return cmd
}
