package proc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemill/tidemill/driver"
)

// Saved reads what SaveAsTextFiles left under dir: the sum of all lines
// "word count". It checks that nothing else is there, and every directory
// against its manifest.
func Saved(t testing.TB, dir, name string) map[string]int {
	t.Helper()
	sum := map[string]int{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		ms, ok := strings.CutPrefix(e.Name(), name+"-")
		if _, err := strconv.ParseInt(ms, 10, 64); !ok || err != nil || !e.IsDir() {
			t.Errorf("%s was left in the output directory", e.Name())
			continue
		}
		if err := addBatch(sum, filepath.Join(dir, e.Name()), ms); err != nil {
			t.Errorf("%s: %v", e.Name(), err)
		}
	}
	return sum
}

// Add adds what is committed under dir so far to sums. It is for use while the
// job runs, so it leaves alone what has no manifest.
func Add(dir, name string, sum map[string]int) error {
	done, err := filepath.Glob(filepath.Join(dir, name+"-*", "_SUCCESS"))
	for _, f := range done {
		if err == nil {
			batch := filepath.Dir(f)
			err = addBatch(sum, batch, strings.TrimPrefix(filepath.Base(batch), name+"-"))
		}
	}
	return err
}

func addBatch(sum map[string]int, dir, ms string) error {
	text, err := os.ReadFile(filepath.Join(dir, "_SUCCESS"))
	if err != nil {
		return err
	}
	var m driver.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("_SUCCESS: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) != len(m.Parts)+1 || fmt.Sprint(m.TimeMS) != ms {
		return fmt.Errorf("%d files, and a manifest of %d for time %d", len(entries), len(m.Parts), m.TimeMS)
	}
	var records int64
	for _, part := range m.Parts {
		data, err := os.ReadFile(filepath.Join(dir, part.Name))
		if err != nil {
			return err
		}
		n := int64(bytes.Count(data, []byte("\n")))
		crc := fmt.Sprintf("%08x", crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
		if n != part.Records || int64(len(data)) != part.Bytes || crc != part.CRC32C || n == 0 {
			return fmt.Errorf("%s has %d lines, %d bytes, CRC32C %s; the manifest says %+v", part.Name, n, len(data), crc, part)
		}
		records += n
		for line := range strings.Lines(string(data)) {
			word, count, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			c, err := strconv.Atoi(count)
			if err != nil {
				return fmt.Errorf("%s: line %q", part.Name, line)
			}
			sum[word] += c
		}
	}
	if records != m.Records {
		return fmt.Errorf("%d lines, the manifest says %d", records, m.Records)
	}
	return nil
}
