package realcluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWithoutJavaNothingIsLeftAndTheErrorSaysWhatIsMissing(t *testing.T) {
	t.Setenv("JAVA_HOME", filepath.Join(t.TempDir(), "none"))
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	_, err := LaunchHDFS(HDFSOptions{})
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "install a JDK or JRE 17") {
		t.Errorf("%v, want %v and what to install", err, ErrMissing)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAWrongCommandIsNoMissingProgram(t *testing.T) {
	l, err := newLauncher("hdfs")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.remove(); err != nil {
			t.Error(err)
		}
	}()
	_, err = l.run("kill", "--namenode")
	if err == nil || errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "no cluster in") {
		t.Errorf("%v, want that there is no cluster", err)
	}
}

func TestNodesAreNamedAsTheLauncherKnowsThem(t *testing.T) {
	for node, want := range map[Node]string{Namenode: "namenode --namenode", Datanode(2): "datanode-2 --datanode 2"} {
		if got := node.String() + " " + strings.Join(node.args(), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
