package wal

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemill/tidemill/internal/base"
	"github.com/tidemill/tidemill/internal/fsys"
)

const (
	segmentSuffix = ".wal"
	sealedSuffix  = ".sealed"
	claimFile     = "CLAIM"
	lockFile      = "LOCK"
	// longestFile bounds the name of one file or directory.
	longestFile = 255
)

func segmentFile(number uint64) string { return fmt.Sprintf("%016d%s", number, segmentSuffix) }

// parseSegmentFile accepts only what segmentFile gives.
func parseSegmentFile(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && segmentFile(n) == name
}

func epochDir(e base.Epoch) string { return fmt.Sprintf("e-%06d", uint64(e)) }

// parseEpochDir accepts only what epochDir gives, sealed or not.
func parseEpochDir(name string) (e base.Epoch, sealed, ok bool) {
	bare, sealed := strings.CutSuffix(name, sealedSuffix)
	digits, ok := strings.CutPrefix(bare, "e-")
	if !ok {
		return 0, false, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	e = base.Epoch(n)
	return e, sealed, err == nil && epochDir(e) == bare
}

// escape makes one file name of a log's name: everything but letters, digits,
// '.', '_' and '-' is percent-encoded, and so is a leading dot.
func escape(log string) (string, error) {
	if err := checkLog(log); err != nil {
		return "", err
	}
	var b strings.Builder
	for i := range len(log) {
		c := log[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() > longestFile {
		return "", fmt.Errorf("wal: name of log %q: %d bytes as a directory, at most %d", log, b.Len(), longestFile)
	}
	return b.String(), nil
}

// unescape is false for a name that escape does not give.
func unescape(dir string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(dir); i++ {
		if dir[i] != '%' {
			b.WriteByte(dir[i])
			continue
		}
		if i+2 >= len(dir) {
			return "", false
		}
		c, err := strconv.ParseUint(dir[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	again, err := escape(b.String())
	return b.String(), err == nil && again == dir
}

func checkLog(log string) error {
	if log == "" || len(log) > maxName {
		return fmt.Errorf("wal: name of log %q: %d bytes, must be 1 to %d", log, len(log), maxName)
	}
	return nil
}

func join(dir, name string) string { return fsys.Join(dir, name) }
