package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemill/tidemill/checkpoint"
	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

func newGraph(f fsys.FS) *cobra.Command {
	format := "text"
	cmd := &cobra.Command{
		Use: "graph [flags] DIR|PROGRAM [ARGS...]", Short: "Draw the operators of a job", Args: wants(1, -1, "DIR or PROGRAM [ARGS...]"),
		Long: `Graph prints the operators of a job, from the checkpoint in DIR or from PROGRAM,
which it runs as PROGRAM -describe ARGS... . Flags come before PROGRAM.`,
		Example: `  tidemill graph data/wordcount
  tidemill graph --format dot ./wordcount | dot -Tsvg > wordcount.svg`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := f.Stat(args[0])
			fromDir := err == nil && in.Dir
			if fromDir { // what follows a directory is nobody else's
				if err := cmd.ParseFlags(args[1:]); err != nil {
					return usage(cmd, "%v", err)
				}
				if rest := cmd.Flags().Args(); len(rest) > 0 {
					return usage(cmd, "unexpected argument %q after the directory", rest[0])
				}
			}
			draw := map[string]func(io.Writer, checkpoint.Job) error{"text": drawText, "dot": drawDot, "mermaid": drawMermaid}[format]
			if draw == nil {
				return usage(cmd, "--format %q: must be text, dot or mermaid", format)
			}
			var job checkpoint.Job
			if fromDir {
				facts, _, err := readFacts(cmd.Context(), f, args[0])
				if err != nil {
					return err
				}
				job = facts.Job
			} else if job, err = describeProgram(cmd.Context(), args[0], args[1:]); err != nil {
				return err
			}
			return draw(cmd.OutOrStdout(), job)
		},
	}
	cmd.Flags().SetInterspersed(false) // the program has flags of its own
	cmd.Flags().StringVar(&format, "format", format, "text, dot or mermaid")
	return cmd
}

// roleOf says what an operator is for.
func roleOf(op checkpoint.Op) string {
	switch {
	case op.Receiver:
		return "receiver"
	case op.Source:
		return "source"
	case op.State != nil:
		return "state"
	}
	return "operator"
}

// noteOf says what is special about an operator.
func noteOf(op checkpoint.Op, interval time.Duration) string {
	var notes []string
	if op.Window > 0 {
		notes = append(notes, fmt.Sprintf("window %v", op.Window))
	}
	if op.Slide != interval {
		notes = append(notes, fmt.Sprintf("slide %v", op.Slide))
	}
	if op.State != nil {
		notes = append(notes, count(int64(op.State.Parts), "partition", "partitions"))
		notes = append(notes, op.State.Schema.String())
	}
	return strings.Join(notes, ", ")
}

func drawText(w io.Writer, j checkpoint.Job) error {
	fmt.Fprintf(w, "job %s, a batch every %v\n\n", printable(j.Name), j.Interval)
	t := newTable(w, "ROLE", "NAME", "KIND", "FROM", "NOTES")
	for _, op := range j.Ops {
		t.row(roleOf(op), printable(string(op.UID)), printable(op.Kind), list(op.Parents), printable(noteOf(op, j.Interval)))
	}
	for _, o := range j.Outputs {
		t.row("output", printable(string(o.UID)), printable(o.Kind), printable(string(o.Input)), "")
	}
	return t.end()
}

// drawDot writes a graph for Graphviz.
func drawDot(w io.Writer, j checkpoint.Job) error {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ")
	quote := func(lines ...string) string { return `"` + strings.Join(replaced(escape, lines), `\n`) + `"` }
	shapes := map[string]string{"receiver": "cds", "source": "cds", "state": "cylinder", "operator": "box", "output": "note"}
	g := nodesOf(j)
	fmt.Fprintf(w, "digraph %s {\n  rankdir=LR;\n", quote(j.Name))
	for _, n := range g.nodes {
		fmt.Fprintf(w, "  %s [shape=%s, label=%s];\n", n.id, shapes[n.role], quote(n.lines...))
	}
	for _, e := range g.edges {
		fmt.Fprintf(w, "  %s -> %s;\n", e[0], e[1])
	}
	_, err := fmt.Fprintln(w, "}")
	return err
}

// drawMermaid writes a flowchart for Markdown.
func drawMermaid(w io.Writer, j checkpoint.Job) error {
	escape := strings.NewReplacer("&", "&amp;", `"`, "&quot;", "<", "&lt;", ">", "&gt;", "\n", " ")
	shapes := map[string][2]string{"receiver": {"([", "])"}, "source": {"([", "])"}, "state": {"[(", ")]"}, "operator": {"[", "]"}, "output": {"[/", "/]"}}
	g := nodesOf(j)
	fmt.Fprintln(w, "flowchart LR")
	for _, n := range g.nodes {
		fmt.Fprintf(w, "  %s%s\"%s\"%s\n", n.id, shapes[n.role][0], strings.Join(replaced(escape, n.lines), "<br/>"), shapes[n.role][1])
	}
	for _, e := range g.edges {
		if _, err := fmt.Fprintf(w, "  %s --> %s\n", e[0], e[1]); err != nil {
			return err
		}
	}
	return nil
}

func replaced(r *strings.Replacer, lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = r.Replace(l)
	}
	return out
}

// nodes are operators and outputs with ids that need no quotes.
type nodes struct {
	nodes []node
	edges [][2]string
}

type node struct {
	id, role string
	lines    []string
}

func nodesOf(j checkpoint.Job) nodes {
	var g nodes
	ids := map[base.UID]string{}
	for i, op := range j.Ops {
		n := node{id: fmt.Sprintf("n%d", i), role: roleOf(op), lines: []string{string(op.UID), op.Kind}}
		if note := noteOf(op, j.Interval); note != "" {
			n.lines = append(n.lines, note)
		}
		ids[op.UID] = n.id
		g.nodes = append(g.nodes, n)
		for _, p := range op.Parents {
			g.edges = append(g.edges, [2]string{ids[p], n.id})
		}
	}
	for i, o := range j.Outputs {
		n := node{id: fmt.Sprintf("o%d", i), role: "output", lines: []string{string(o.UID), o.Kind}}
		g.nodes = append(g.nodes, n)
		g.edges = append(g.edges, [2]string{ids[o.Input], n.id})
	}
	return g
}
