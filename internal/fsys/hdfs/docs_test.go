package hdfs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Every row of docs/hdfs.md says which tests it is of, by the name that begins
// it: they have a comment with that row.
func TestEveryFailureOfTheDocsHasATest(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/hdfs.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	row := regexp.MustCompile(`(?m)^// Row "([^"]+)"`)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range row.FindAllSubmatch(text, -1) {
			tested[string(m[1])] = true
		}
	}
	rows := regexp.MustCompile(`(?m)^\| \*\*([^*]+)\*\*`).FindAllSubmatch(docs, -1)
	if len(rows) < 20 {
		t.Errorf("%d rows in docs/hdfs.md: want those of all failures", len(rows))
	}
	for _, m := range rows {
		if !tested[string(m[1])] {
			t.Errorf("no test has a comment `// Row %q`", m[1])
		}
	}
}
