package conformance

import (
	"regexp"
	"strings"
)

// laterFamilies are the families that wait as a whole for a part of the engine.
var laterFamilies = map[string]string{
	"recovery":      "durable",
	"wal":           "durable",
	"graceful_stop": "durable",
	"rate":          "durable",
	"kafka_rate":    "kafka",
}

// laterWords find the cases of other families that wait, by what they say they
// do: what a directory that is kept is needed for.
var laterWords = []struct {
	part  string
	words *regexp.Regexp
}{
	{"durable", regexp.MustCompile(`\brecover|getOrCreate|checkpoint\(dir\)`)},
}

// later returns the part of the engine that a case waits for, "" if none.
func later(c *golden) string {
	if part, ok := laterFamilies[c.Family]; ok {
		return part
	}
	var what string
	c.get("what", &what)
	says := strings.Join([]string{c.Name, c.Op, what, c.str("what"), c.str("graph")}, "\n")
	for _, l := range laterWords {
		if l.words.MatchString(says) {
			return l.part
		}
	}
	return ""
}
