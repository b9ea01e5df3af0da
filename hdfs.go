package tidemill

import (
	"github.com/hashicorp/go-hclog"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
)

// schemes are the file systems that names such as hdfs://host:port/path lead to.
func (c Config) schemes(log hclog.Logger) map[string]func(authority string) (fsys.FS, error) {
	c = c.withDefaults()
	return map[string]func(string) (fsys.FS, error){
		"hdfs": hdfs.Opener(hdfs.Config{
			Replication: c.HDFSReplication, MinReplicas: c.HDFSMinReplicas, CloseToCommit: c.HDFSCommit == "close",
			Timeout: c.HDFSTimeout, Patience: c.HDFSPatience, Log: log.Named("hdfs"),
		}),
	}
}
