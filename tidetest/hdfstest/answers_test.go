package hdfstest_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidemill/tidemill/tidetest/hdfstest"
)

// A step is a call and what a namenode says to it: "ok", a result, or the name
// of an exception. Paths begin with the root of the run, written ~.
type step struct {
	method string
	fields hdfstest.Fields
	want   string
}

func mkdirs(src string, parents bool) step {
	return step{method: "mkdirs", fields: hdfstest.Fields{"src": src, "createParent": parents, "masked": hdfstest.Fields{"perm": 0o755}}}
}

func create(src, client string, more ...hdfstest.Fields) step {
	f := hdfstest.Fields{
		"src": src, "clientName": client, "createFlag": 1, "createParent": false, "replication": 1, "blockSize": 1 << 20,
		"masked": hdfstest.Fields{"perm": 0o644},
	}
	for _, m := range more {
		for k, v := range m {
			f[k] = v
		}
	}
	return step{method: "create", fields: f}
}

func rename(src, dst string, overwrite bool) step {
	return step{method: "rename2", fields: hdfstest.Fields{"src": src, "dst": dst, "overwriteDest": overwrite}}
}

func remove(src string, recursive bool) step {
	return step{method: "delete", fields: hdfstest.Fields{"src": src, "recursive": recursive}}
}

func complete(src, client string) step {
	return step{method: "complete", fields: hdfstest.Fields{"src": src, "clientName": client}}
}

func on(method, src string) step {
	return step{method: method, fields: hdfstest.Fields{"src": src}}
}

func by(method, src, client string) step {
	return step{method: method, fields: hdfstest.Fields{"src": src, "clientName": client}}
}

func list(src string) step {
	return step{method: "getListing", fields: hdfstest.Fields{"src": src, "startAfter": []byte{}, "needLocation": false}}
}

func (s step) gives(want string) step {
	s.want = want
	return s
}

func steps() []step {
	return []step{
		on("getFileInfo", "~").gives("ok fs"),
		on("getFileInfo", "~/none").gives("ok"),
		on("getFileInfo", "~/none/below").gives("ok"),
		mkdirs("~/d", false).gives("true"),
		mkdirs("~/d", false).gives("true"),
		mkdirs("~/d", true).gives("true"),
		mkdirs("~/x/y", false).gives("FileNotFoundException"),
		mkdirs("~/x/y", true).gives("true"),
		create("~/f", "A").gives("ok fs"),
		create("~/f", "A").gives("AlreadyBeingCreatedException"),
		create("~/f", "B").gives("AlreadyBeingCreatedException"),
		by("append", "~/f", "A").gives("AlreadyBeingCreatedException"),
		on("isFileClosed", "~/f").gives("false"),
		complete("~/f", "B").gives("LeaseExpiredException"),
		complete("~/f", "A").gives("true"),
		complete("~/f", "A").gives("true"),
		on("isFileClosed", "~/f").gives("true"),
		on("isFileClosed", "~/none").gives("FileNotFoundException"),
		on("isFileClosed", "~/d").gives("FileNotFoundException"),
		create("~/f", "A").gives("FileAlreadyExistsException"),
		create("~/d", "A").gives("FileAlreadyExistsException"),
		create("~/none/f", "A").gives("FileNotFoundException"),
		create("~/f/g", "A").gives("ParentNotDirectoryException"),
		create("~/made/for/it", "A", hdfstest.Fields{"createParent": true}).gives("ok fs"),
		create("~/made/for/it", "B", hdfstest.Fields{"createFlag": 3}).gives("ok fs"),
		complete("~/made/for/it", "A").gives("LeaseExpiredException"),
		create("~/zero", "A", hdfstest.Fields{"replication": 0}).gives("IOException"),
		on("getFileInfo", "~/f/g").gives("AccessControlException"),
		list("~/f/g").gives("AccessControlException"),
		mkdirs("~/f", true).gives("FileAlreadyExistsException"),
		mkdirs("~/f/g", true).gives("ParentNotDirectoryException"),
		remove("~/f/g", true).gives("AccessControlException"),
		create("~/a:b", "A").gives("InvalidPathException"),
		mkdirs("~/a:b", true).gives("InvalidPathException"),
		on("getFileInfo", "~/a:b").gives("ok"),
		on("getFileInfo", "relative").gives("AssertionError"),
		on("getFileInfo", "~/../up").gives("ok"),
		on("getFileInfo", "~//d").gives("ok fs"),
		on("getFileInfo", "~/d/").gives("ok fs"),
		mkdirs("~//d", true).gives("InvalidPathException"),
		create("~/"+strings.Repeat("n", 256), "A").gives("FSLimitException$PathComponentTooLongException"),
		mkdirs("~/"+strings.Repeat("n", 256), true).gives("FSLimitException$PathComponentTooLongException"),
		rename("~/none", "~/g", false).gives("FileNotFoundException"),
		rename("~/f", "~/f", false).gives("FileAlreadyExistsException"),
		rename("~/f", "~/f", true).gives("FileAlreadyExistsException"),
		rename("~/f", "~/none/g", true).gives("FileNotFoundException"),
		rename("~/f", "~/d", false).gives("IOException"),
		rename("~/f", "~/d", true).gives("IOException"),
		rename("~/d", "~/f", true).gives("IOException"),
		rename("~/d", "~/f", false).gives("IOException"),
		rename("~/d", "~/d/below", true).gives("IOException"),
		rename("~/x", "~/d", false).gives("FileAlreadyExistsException"),
		rename("~/d", "~/x", true).gives("IOException"),
		rename("~/d", "~/x", false).gives("FileAlreadyExistsException"),
		rename("~/f", "~/made/for/it/g", true).gives("ParentNotDirectoryException"),
		rename("~/f", "~/a:b", true).gives("InvalidPathException"),
		rename("~/f", "/", true).gives("IOException"),
		rename("/", "~/root", true).gives("IOException"),
		rename("~/x", "~/d", true).gives("ok"),
		on("getFileInfo", "~/x").gives("ok"),
		on("getFileInfo", "~/d/y").gives("ok fs"),
		rename("~/d", "~/e", false).gives("ok"),
		create("~/g", "A").gives("ok fs"),
		rename("~/g", "~/f", false).gives("FileAlreadyExistsException"),
		rename("~/g", "~/f", true).gives("ok"),
		on("isFileClosed", "~/f").gives("false"),
		complete("~/g", "A").gives("FileNotFoundException"),
		complete("~/f", "A").gives("true"),
		remove("~/none", true).gives("false"),
		remove("~/e", false).gives("PathIsNotEmptyDirectoryException"),
		remove("~/e/y", false).gives("true"),
		remove("~/e", false).gives("true"),
		create("~/open", "A").gives("ok fs"),
		remove("~/open", false).gives("true"),
		complete("~/open", "A").gives("FileNotFoundException"),
		create("~/open", "A").gives("ok fs"),
		by("recoverLease", "~/open", "B").gives("true"),
		by("recoverLease", "~/open", "B").gives("true"),
		complete("~/open", "A").gives("true"),
		by("recoverLease", "~/none", "B").gives("FileNotFoundException"),
		by("recoverLease", "~", "B").gives("FileNotFoundException"),
		by("append", "~/none", "A").gives("FileNotFoundException"),
		by("append", "~", "A").gives("FileAlreadyExistsException"),
		by("append", "~/open", "A").gives("ok stat"),
		complete("~/open", "B").gives("LeaseExpiredException"),
		by("addBlock", "~/none", "A").gives("FileNotFoundException"),
		by("addBlock", "~/f", "A").gives("LeaseExpiredException"),
		by("addBlock", "~/open", "B").gives("LeaseExpiredException"),
		by("addBlock", "~/open", "A").gives("ok block"),
		by("addBlock", "~/open", "A").gives("ok block"),
		complete("~/open", "A").gives("false"),
		list("~/none").gives("ok"),
		list("~").gives("ok dirList"),
		list("~/f").gives("ok dirList"),
		{"getBlockLocations", hdfstest.Fields{"src": "~/none", "offset": 0, "length": 1}, "FileNotFoundException"},
		{"getBlockLocations", hdfstest.Fields{"src": "~", "offset": 0, "length": 1}, "FileNotFoundException"},
		{"getBlockLocations", hdfstest.Fields{"src": "~/open", "offset": 0, "length": 1}, "ok locations"},
		{"setTimes", hdfstest.Fields{"src": "~/f", "mtime": 1234, "atime": 5678}, "ok"},
		{"setTimes", hdfstest.Fields{"src": "~/none", "mtime": 1234, "atime": 5678}, "FileNotFoundException"},
		{"fsync", hdfstest.Fields{"src": "~/f", "client": "A"}, "LeaseExpiredException"},
	}
}

// TestNamenodeAnswersAsHadoop holds for Hadoop 3.5.0 too: with
// TIDEMILL_HDFS_NAMENODE=host:port the same calls go to that namenode.
func TestNamenodeAnswersAsHadoop(t *testing.T) {
	c := hdfstest.Start(hdfstest.Options{})
	t.Cleanup(c.Close)
	raw := rawClient(t, c)
	if address := os.Getenv("TIDEMILL_HDFS_NAMENODE"); address != "" {
		conn, err := net.Dial("tcp", address)
		must(t, err)
		raw = rawOver(t, conn)
	}
	root := fmt.Sprintf("/hdfstest-%d", time.Now().UnixNano())
	mkdirs("~", true).do(t, raw, root)
	for i, s := range steps() {
		if got := s.do(t, raw, root); got != s.want {
			t.Errorf("step %d: %s %v: %s, want %s", i, s.method, s.fields, got, s.want)
		}
	}
	remove("~", true).do(t, raw, root)
}

// do calls raw with ~ as root and returns what it said.
func (s step) do(t *testing.T, raw *hdfstest.RawClient, root string) string {
	t.Helper()
	fields := hdfstest.Fields{}
	for k, v := range s.fields {
		if text, ok := v.(string); ok {
			v = strings.Replace(text, "~", root, 1)
		}
		fields[k] = v
	}
	a, err := raw.Call(s.method, fields)
	if class := exception(err); class != "" {
		return class[strings.LastIndex(class, ".")+1:]
	}
	must(t, err)
	return a.Summary()
}

// doWithout leaves out a field that the method does not have.
func (s step) doWithout(t *testing.T, raw *hdfstest.RawClient, field string) string {
	t.Helper()
	delete(s.fields, field)
	return s.do(t, raw, "")
}
