package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table writes rows with aligned columns, and no spaces at the end of a line.
type table struct {
	to  io.Writer
	buf *bytes.Buffer
	w   *tabwriter.Writer
}

func newTable(to io.Writer, heads ...string) table {
	var b bytes.Buffer
	t := table{to, &b, tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)}
	if len(heads) > 0 {
		t.row(heads...)
	}
	return t
}

func (t table) row(cells ...string) {
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t table) end() error {
	if err := t.w.Flush(); err != nil {
		return err
	}
	var out bytes.Buffer
	for line := range bytes.Lines(t.buf.Bytes()) {
		out.Write(append(bytes.TrimRight(line, " \n"), '\n'))
	}
	_, err := t.to.Write(out.Bytes())
	return err
}

// size gives bytes as people read them.
func size(n int64) string {
	const k = 1 << 10
	if n < k {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/k, 0
	for v >= k && unit < 4 {
		v, unit = v/k, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[unit])
}

// count gives a number of things.
func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// list joins names, or says that there are none.
func list[S ~string](names []S) string {
	if len(names) == 0 {
		return "-"
	}
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(printable(string(n)))
	}
	return b.String()
}

// printable quotes a text from a file if it could disturb a terminal or a table.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' || r >= 0x80 && r < 0xa0 }) < 0 {
		return s
	}
	return fmt.Sprintf("%q", s)
}
