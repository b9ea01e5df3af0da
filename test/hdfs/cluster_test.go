package hdfs

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemill/tidemill/internal/fsys"
	"github.com/tidemill/tidemill/internal/fsys/hdfs"
	"github.com/tidemill/tidemill/test/internal/crashjob"
	"github.com/tidemill/tidemill/test/realcluster"
)

// shared is the cluster of all tests, if they are to run.
var shared struct {
	cluster *realcluster.HDFS
	err     error
}

func TestMain(m *testing.M) {
	crashjob.MainIfJob()
	mainIfWriter()
	if os.Getenv("TIDEMILL_HDFS") != "" {
		began := time.Now()
		shared.cluster, shared.err = realcluster.LaunchHDFS(realcluster.HDFSOptions{Datanodes: 3})
		if shared.err == nil {
			fmt.Printf("summary: HDFS with 3 datanodes is up after %v\n", time.Since(began).Round(time.Second))
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if shared.cluster != nil {
			if err := shared.cluster.Close(); err != nil {
				fmt.Println(err)
				code = max(code, 1)
			}
		}
		os.Exit(code)
	}))
}

// cluster returns the cluster with all its nodes up.
func cluster(t *testing.T) *realcluster.HDFS {
	t.Helper()
	if shared.err != nil {
		realcluster.Unavailable(t, shared.err)
	}
	if shared.cluster == nil {
		t.Skip("needs a real HDFS: make e2e-hdfs")
	}
	must(t, shared.cluster.Wait())
	return shared.cluster
}

// files is the file system of the cluster.
func files(t *testing.T, h *realcluster.HDFS) *hdfs.FS {
	t.Helper()
	f, err := open(h.URL("/"))
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

// open opens the file system that serves a name.
func open(name string) (*hdfs.FS, error) {
	_, authority, _ := fsys.SplitURL(name)
	cfg, err := hdfs.Config{}.FromEnvironment(authority)
	if err != nil {
		return nil, err
	}
	return hdfs.New(cfg)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// spread sums times up.
func spread(took []time.Duration) string {
	if len(took) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(took))
	return fmt.Sprintf("p50 %v, max %v", sorted[len(sorted)/2].Round(10*time.Millisecond), sorted[len(sorted)-1].Round(10*time.Millisecond))
}
