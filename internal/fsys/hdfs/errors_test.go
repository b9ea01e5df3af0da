package hdfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// said is what a namenode answers.
type said struct{ class, message string }

func (s said) Method() string    { return "create" }
func (s said) Desc() string      { return "ERROR_APPLICATION" }
func (s said) Exception() string { return s.class }
func (s said) Message() string   { return s.message }
func (s said) Error() string     { return "create call failed with ERROR_APPLICATION (" + s.class + ")" }

func TestInterpret(t *testing.T) {
	const hadoop = "org.apache.hadoop."
	for _, c := range []struct {
		class, message string
		is             error  // nil for none of the names
		text           string // what is left of the words
		later          bool   // to be asked again
	}{
		{"java.io.FileNotFoundException", "File does not exist: /f\n\tat x.y", fs.ErrNotExist, "file does not exist", false},
		{hadoop + "fs.FileAlreadyExistsException", "/f exists", fs.ErrExist, "file already exists", false},
		{hadoop + "hdfs.protocol.AlreadyBeingCreatedException", "held by x", fs.ErrExist, "file already exists", false},
		{hadoop + "security.AccessControlException", "Permission denied: user=u\n\tat", fs.ErrPermission, "permission denied: Permission denied: user=u", false},
		{hadoop + "security.AccessControlException", "/f (is not a directory)", syscall.ENOTDIR, "not a directory: /f (is not a directory)", false},
		{hadoop + "fs.PathIsNotEmptyDirectoryException", "`/d is non empty'", syscall.ENOTEMPTY, "directory not empty: `/d is non empty'", false},
		{hadoop + "fs.ParentNotDirectoryException", "/f", syscall.ENOTDIR, "not a directory: /f", false},
		{hadoop + "hdfs.protocol.NSQuotaExceededException", "quota=2", ErrQuota, "quota exceeded: quota=2", false},
		{hadoop + "hdfs.protocol.DSQuotaExceededException", "quota=2", ErrQuota, "quota exceeded: quota=2", false},
		{hadoop + "hdfs.server.namenode.LeaseExpiredException", "No lease on /f", ErrLease, "another has ended the writing of this file: No lease on /f", false},
		{hadoop + "hdfs.server.namenode.SafeModeException", "Name node is in safe mode.", ErrUnavailable, "namenode not available: Name node is in safe mode.", true},
		{hadoop + "ipc.RemoteException", "SafeModeException: in safe mode", ErrUnavailable, "SafeModeException", true},
		{hadoop + "ipc.RetriableException", "later", ErrUnavailable, "later", true},
		{hadoop + "ipc.StandbyException", "standby", ErrUnavailable, "standby", true},
		{"java.io.IOException", "File /f could only be written to 0 of the 1 minReplication nodes.\n\tat", ErrNoDatanode, "could only be written to 0 of the 1 minReplication nodes.", false},
		{"java.io.IOException", "File /f could only be replicated to 0 nodes", ErrNoDatanode, "could only be replicated to 0", false},
		{"java.io.IOException", "Source /a and destination /b must both be directories", fs.ErrExist, "file already exists", false},
		{"java.io.IOException", "something else\n\tat", nil, "namenode: something else", false},
		{"java.io.IOException", "", nil, "namenode: IOException", false},
		{hadoop + "a.B$Inner", "", nil, "namenode: Inner", false},
	} {
		for _, wrapped := range []error{said{c.class, c.message}, &os.PathError{Op: "create", Path: "/f", Err: said{c.class, c.message}}} {
			err := interpret(wrapped)
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: %v, want one that is %v", c.class, err, c.is)
			}
			if !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\tat") {
				t.Errorf("%s: %q, want %q", c.class, err, c.text)
			}
			if !answered(err) || notActive(err) != c.later {
				t.Errorf("%s: answered %v, ask again %v, want true and %v", c.class, answered(err), notActive(err), c.later)
			}
		}
	}
	for _, err := range []error{io.EOF, syscall.ECONNREFUSED, os.ErrDeadlineExceeded, fmt.Errorf("no available namenodes: x"), errShut} {
		if got := interpret(err); got != err || answered(got) {
			t.Errorf("%v: %v, answered %v: it is no answer", err, got, answered(got))
		}
	}
	if interpret(nil) != nil || !answered(nil) || pathError("op", "/f", nil) != nil {
		t.Error("nil is not nil")
	}
	err := unavailable("5s", io.EOF)
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "waited 5s") {
		t.Errorf("%v", err)
	}
}

func TestHourlyCountsTheLastHour(t *testing.T) {
	var h hourly
	now := time.Date(2030, 1, 1, 12, 0, 30, 0, time.UTC)
	want := func(at time.Time, n int64) {
		t.Helper()
		if got := h.sum(at); got != n {
			t.Errorf("at %s: %d, want %d", at.Format(time.TimeOnly), got, n)
		}
	}
	want(now, 0)
	for i := range 90 {
		h.add(now.Add(time.Duration(i) * time.Minute))
	}
	last := now.Add(89 * time.Minute)
	want(last, 60)
	h.add(last)
	want(last, 61)
	want(last.Add(30*time.Minute), 31)
	want(last.Add(59*time.Minute), 2)
	want(last.Add(60*time.Minute), 0)
	h.add(last.Add(time.Hour))
	want(last.Add(time.Hour), 1)
}

// block is a block of a file as the namenode tells of it.
func block(t *testing.T, offset, length int64, hosts ...string) protoreflect.Message {
	t.Helper()
	message := func(name string) protoreflect.Message {
		m, err := newMessage(name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	set := func(m protoreflect.Message, name protoreflect.Name, v any) {
		m.Set(m.Descriptor().Fields().ByName(name), protoreflect.ValueOf(v))
	}
	b, at := message("hadoop.hdfs.LocatedBlockProto"), message("hadoop.hdfs.ExtendedBlockProto")
	set(at, "numBytes", uint64(length))
	set(b, "b", at)
	set(b, "offset", uint64(offset))
	list := b.Mutable(b.Descriptor().Fields().ByName("locs")).List()
	for _, host := range hosts {
		d, id := message("hadoop.hdfs.DatanodeInfoProto"), message("hadoop.hdfs.DatanodeIDProto")
		set(id, "hostName", host)
		set(d, "id", id)
		list.Append(protoreflect.ValueOfMessage(d))
	}
	return b
}

// Hosts with most of the range come first, those with as much in the order of the
// namenode.
func TestHostsOf(t *testing.T) {
	located, err := newMessage("hadoop.hdfs.LocatedBlocksProto")
	if err != nil {
		t.Fatal(err)
	}
	list := located.Mutable(located.Descriptor().Fields().ByName("blocks")).List()
	for _, b := range []protoreflect.Message{block(t, 0, 100, "a", "b"), block(t, 100, 100, "b", "c"), block(t, 200, 50, "c", "d")} {
		list.Append(protoreflect.ValueOfMessage(b))
	}
	for _, c := range []struct {
		offset, length int64
		want           []string
	}{
		{0, 100, []string{"a", "b"}},
		{0, 10, []string{"a", "b"}},
		{100, 1, []string{"b", "c"}},
		{0, 250, []string{"b", "c", "a", "d"}},
		{150, 1000, []string{"c", "b", "d"}},
		{90, 20, []string{"b", "a", "c"}},
		{250, 10, nil},
		{10, 0, nil},
	} {
		if diff := cmp.Diff(c.want, hostsOf(located, c.offset, c.length)); diff != "" {
			t.Errorf("%d bytes at %d (-want +got):\n%s", c.length, c.offset, diff)
		}
	}
}
