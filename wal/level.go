package wal

import (
	"fmt"
	"strconv"
)

// Level says what an acknowledged record survives.
type Level uint8

const (
	// LevelFlush acknowledges after File.Flush: the record survives kill -9.
	LevelFlush Level = iota
	// LevelSync acknowledges after File.Sync, and SyncDir of a new segment's
	// directory: the record survives a loss of power.
	LevelSync
	// LevelMemory acknowledges a queued record, which is written in the
	// background and dies with the process until then. When too much is
	// queued, records are acknowledged once written.
	LevelMemory
)

// levelNames is indexed by Level.
var levelNames = [...]string{"flush", "sync", "memory"}

// String is the name that ParseLevel reads.
func (l Level) String() string {
	if l.valid() {
		return levelNames[l]
	}
	return "level-" + strconv.Itoa(int(l))
}

func (l Level) valid() bool { return int(l) < len(levelNames) }

// ParseLevel reads "memory", "flush" or "sync".
func ParseLevel(s string) (Level, error) {
	for l, name := range levelNames {
		if s == name {
			return Level(l), nil
		}
	}
	return 0, fmt.Errorf("wal: level %q: must be memory, flush or sync", s)
}
