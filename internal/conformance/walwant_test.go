package conformance

import (
	"slices"

	"github.com/google/go-cmp/cmp"
)

// damageOf returns the step that damages acknowledged records of a file that is
// not lost as a whole, and how many records of that file come before them. A
// file that is cut short is told from a write that was only if another follows.
func damageOf(c *golden) (s walStep, before int, ok bool) {
	steps := c.walSteps()
	i := slices.IndexFunc(steps, func(s walStep) bool { return slices.Contains([]string{"cut", "truncate", "append", "flip"}, s.Op) })
	if i < 0 {
		return s, 0, false
	}
	s = steps[i]
	var size int64
	var ends []int64 // of the records in the file
	var last string  // file that was written to
	for _, w := range steps[:i] {
		if w.Op != "write" {
			continue
		}
		if last = w.File; w.File == s.File {
			size = w.Offset + sparkLength + int64(len(w.Data))
			ends = append(ends, size)
		}
	}
	intact := map[string]int64{"cut": size - s.CutBytes, "truncate": s.ToBytes, "append": size, "flip": s.Offset}[s.Op]
	for before < len(ends) && ends[before] <= intact {
		before++
	}
	return s, before, intact > 0 && last != s.File
}

// readsOn holds if Spark reads on where we meet damage, or gives other records.
func readsOn(c *golden) bool {
	_, _, ok := damageOf(c)
	return ok && !cmp.Equal(sparkWAL(c), stopsAtDamage(c))
}

// stopsAtDamage is what we do: a read gives what is before the damage, and then
// an error.
func stopsAtDamage(c *golden) outcome {
	o := outcome{}
	bad, before, _ := damageOf(c)
	var intact []string
	for _, s := range c.walSteps() {
		if s.Op == "write" && s.File == bad.File && len(intact) < before {
			intact = append(intact, s.Data)
		}
	}
	var files []string
	for _, s := range c.walSteps() {
		switch s.Op {
		case "write":
			if !slices.Contains(files, s.File) {
				files = append(files, s.File)
			}
			o.wrote(s.Data, slices.Index(files, s.File)+1, false)
		case "read":
			o.read(intact, true)
		case "list":
			o.listed(len(s.Files))
		}
	}
	return o
}

// lines is what we give in one case.
func lines(name string, all ...string) func(*golden) outcome {
	return func(*golden) outcome { return outcome{name: all} }
}
