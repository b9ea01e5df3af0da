package checkpoint

import (
	"fmt"
	"slices"
	"strings"
)

// String is the verdict for people: one line for each change, and what helps
// against those that are refused.
func (v Verdict) String() string {
	var b strings.Builder
	refused := 0
	for _, c := range v.Changes {
		if !c.OK {
			refused++
		}
	}
	switch v.Kind {
	case Identical:
		fmt.Fprintf(&b, "identical: this program has written the checkpoint of job %q\n", v.Job)
	case Compatible:
		fmt.Fprintf(&b, "compatible: this program can go on from the checkpoint of job %q\n", v.Job)
	default:
		fmt.Fprintf(&b, "incompatible: this program can't go on from the checkpoint of job %q, %d of %d changes are refused\n", v.Job, refused, len(v.Changes))
	}
	for _, c := range v.Changes {
		word := ""
		if !c.OK {
			word = "refused: "
		}
		fmt.Fprintf(&b, "%s %s: %s%s\n", c.Mark, c.What, word, c.Effect)
	}
	if help := v.help(); len(help) > 0 {
		b.WriteString("what helps:\n")
		for _, h := range help {
			fmt.Fprintf(&b, "  %s\n", h)
		}
	}
	return b.String()
}

// help lists what makes refused changes OK, each once. A fresh start helps
// against all but a wrong directory.
func (v Verdict) help() []string {
	var out []string
	fresh := false
	for _, c := range v.Changes {
		if c.OK {
			continue
		}
		fresh = fresh || len(c.Help) > 0 && c.Help[0] != otherDir
		for _, h := range c.Help {
			if !slices.Contains(out, h) {
				out = append(out, h)
			}
		}
	}
	if fresh {
		out = append(out, "--fresh: a new start, which gives up all that the checkpoint keeps")
	}
	return out
}
