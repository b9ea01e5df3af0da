package hdfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemill/tidemill/internal/fsys"
)

// Stat implements fsys.FS. A file that this FS is writing has what was flushed;
// one that another is writing has what the namenode knows, which may be 0.
func (f *FS) Stat(name string) (fsys.Info, error) {
	in, err := f.status(pathOf(name))
	return in, pathError("stat", name, err)
}

func (f *FS) status(p string) (in fsys.Info, err error) {
	err = f.do("stat", p, func(c *client, _ bool) error {
		st, err := c.Stat(p)
		if err != nil {
			return c.why(p, err)
		}
		in = infoOf(path.Base(p), st)
		return nil
	})
	f.visible(p, &in)
	return in, err
}

// why asks again in other words: the library drops what the namenode says of a
// refusal, which may only mean that a parent is a file.
func (c *client) why(p string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		if _, said := c.call("getFileInfo", arg{"src", p}); said != nil {
			return said
		}
	}
	return err
}

// visible corrects the size of a file that is being written here.
func (f *FS) visible(p string, in *fsys.Info) {
	f.mu.Lock()
	w := f.open[p]
	f.mu.Unlock()
	if w != nil && !in.Dir {
		in.Size = w.flushed.Load()
	}
}

func infoOf(name string, st os.FileInfo) fsys.Info {
	in := fsys.Info{Name: name, Size: st.Size(), ModTime: st.ModTime(), Dir: st.IsDir()}
	if in.Dir {
		in.Size = 0
	}
	return in
}

// List implements fsys.FS.
func (f *FS) List(dir string) ([]fsys.Info, error) {
	p := pathOf(dir)
	var infos []fsys.Info
	err := f.do("list", p, func(c *client, _ bool) error {
		d, err := c.Open(p)
		if err != nil {
			return c.why(p, err)
		}
		if !d.Stat().IsDir() {
			return syscall.ENOTDIR
		}
		found, err := d.Readdir(0)
		infos = make([]fsys.Info, 0, len(found))
		for _, st := range found {
			infos = append(infos, infoOf(st.Name(), st))
		}
		return err
	})
	if err != nil {
		return nil, pathError("list", dir, err)
	}
	slices.SortFunc(infos, func(a, b fsys.Info) int { return strings.Compare(a.Name, b.Name) })
	for i := range infos {
		f.visible(path.Join(p, infos[i].Name), &infos[i])
	}
	return infos, nil
}

// SyncDir implements fsys.FS. The namenode answers only when its log is on disk,
// so there is nothing to do but to look whether the directory is there.
func (f *FS) SyncDir(name string) error {
	in, err := f.status(pathOf(name))
	if err == nil && !in.Dir {
		err = syscall.ENOTDIR
	}
	return pathError("syncdir", name, err)
}

// SetModTime sets the modification time of a file, in milliseconds.
func (f *FS) SetModTime(name string, t time.Time) error {
	p := pathOf(name)
	return pathError("setmodtime", name, f.do("setmodtime", p, func(c *client, _ bool) error {
		_, err := c.call("setTimes", arg{"src", p}, arg{"mtime", uint64(t.UnixMilli())}, arg{"atime", uint64(t.UnixMilli())})
		return err
	}))
}

// Writing implements fsys.Unfinished.
func (f *FS) Writing(name string) (bool, error) {
	closed, err := f.isClosed(pathOf(name))
	return !closed, pathError("writing", name, err)
}

func (f *FS) isClosed(p string) (closed bool, err error) {
	err = f.do("look at", p, func(c *client, _ bool) error {
		resp, err := c.call("isFileClosed", arg{"src", p})
		closed = err == nil && get(resp, "result").Bool()
		return err
	})
	return closed, err
}

// Hosts implements fsys.Placed.
func (f *FS) Hosts(name string, offset, length int64) ([]string, error) {
	var hosts []string
	p := pathOf(name)
	err := f.do("locate", p, func(c *client, _ bool) error {
		located, err := c.locate(p, offset, length)
		if err != nil {
			return err
		}
		hosts = hostsOf(located, offset, length)
		return nil
	})
	return hosts, pathError("locate", name, err)
}

// locate asks where the blocks of a range are. The answer is invalid for what is
// no file.
func (c *client) locate(p string, offset, length int64) (protoreflect.Message, error) {
	resp, err := c.call("getBlockLocations", arg{"src", p}, arg{"offset", uint64(offset)}, arg{"length", uint64(length)})
	if err != nil {
		return nil, err
	}
	if !has(resp, "locations") {
		return nil, fs.ErrNotExist
	}
	return get(resp, "locations").Message(), nil
}

// hostsOf returns the names of the hosts, those with most of the bytes first.
func hostsOf(located protoreflect.Message, offset, length int64) []string {
	bytes := map[string]int64{}
	var hosts []string
	blocks := get(located, "blocks").List()
	for i := range blocks.Len() {
		b := blocks.Get(i).Message()
		from := int64(get(b, "offset").Uint())
		to := from + int64(get(get(b, "b").Message(), "numBytes").Uint())
		overlap := min(to, offset+length) - max(from, offset)
		if overlap <= 0 {
			continue
		}
		locs := get(b, "locs").List()
		for j := range locs.Len() {
			host := get(get(locs.Get(j).Message(), "id").Message(), "hostName").String()
			if _, ok := bytes[host]; !ok {
				hosts = append(hosts, host)
			}
			bytes[host] += overlap
		}
	}
	slices.SortStableFunc(hosts, func(a, b string) int { return int(bytes[b] - bytes[a]) })
	return hosts
}
