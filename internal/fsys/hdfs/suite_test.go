package hdfs_test

import (
	"testing"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/fsystest"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// TestConformance runs what every file system must do, with both ways to commit.
// The same suite runs on a real cluster in test/hdfs.
func TestConformance(t *testing.T) {
	for _, way := range []struct {
		name string
		cfg  hdfs.Config
	}{{"Acks", hdfs.Config{}}, {"Close", hdfs.Config{CloseToCommit: true}}} {
		t.Run(way.name, func(t *testing.T) {
			fsystest.Run(t, func(t *testing.T) (fsys.FS, string) {
				c := hdfstest.Start(hdfstest.Options{})
				t.Cleanup(c.Close)
				cfg := way.cfg
				cfg.Addresses, cfg.User, cfg.Dial = c.Namenodes(), "tester", c.Dial
				f, err := hdfs.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { f.Close() })
				if err := f.Mkdir("/suite"); err != nil {
					t.Fatal(err)
				}
				return f, "hdfs://fake:8020/suite"
			})
		})
	}
}
