package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemill/tidemill/internal/fsys"
)

const (
	filePermission = 0o644
	dirPermission  = 0o755
)

// FS is an HDFS. Names are absolute paths, or hdfs://authority/path whatever the
// authority. Its methods may be called concurrently.
type FS struct {
	cfg    Config
	log    notices
	away   atomic.Bool
	first  atomic.Int64 // which address is tried first
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup // recoveries in the background

	mu         sync.Mutex
	closed     bool
	shared     *client          // for everything but writing
	spare      []*writer        // of files that ended well
	open       map[string]*File // by path, being written
	recovering map[string]chan struct{}
	stats      Stats
	creates    hourly
	told       time.Time // when the number of files was told last
	defaults   *defaults
}

// defaults are what the cluster does if it is not told otherwise.
type defaults struct {
	blockSize   int64
	replication int
	encrypted   bool
}

// Stats counts what an FS has done.
type Stats struct {
	Creates   int64 // files made on the namenode
	LastHour  int64 // of those, in the last hour
	Abandoned int64 // files whose stream failed
	Recovered int64 // leases of files that were left open
}

// New returns the file system. It connects at the first call.
func New(cfg Config) (*FS, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &FS{cfg: cfg, log: notices{log: cfg.Log}, open: map[string]*File{}, recovering: map[string]chan struct{}{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

var (
	_ fsys.FS         = (*FS)(nil)
	_ fsys.Recoverer  = (*FS)(nil)
	_ fsys.Placed     = (*FS)(nil)
	_ fsys.Unfinished = (*FS)(nil)
	_ fsys.Remote     = (*FS)(nil)
	_ fsys.Promiser   = (*FS)(nil)
)

// pathOf strips what names the cluster. An empty name stays one: there is nothing
// of that name.
func pathOf(name string) string {
	if name == "" {
		return ""
	}
	if rest, ok := strings.CutPrefix(name, "hdfs://"); ok {
		_, rest, _ = strings.Cut(rest, "/")
		name = rest
	}
	return path.Clean("/" + name)
}

// Stats returns the counts so far.
func (f *FS) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.LastHour = f.creates.sum(time.Now())
	return s
}

// Away reports whether the namenode did not answer when it was last asked. While
// files are open it is asked every second.
func (f *FS) Away(string) bool { return f.away.Load() }

// Close ends the calls that wait for the namenode, gives up the files that are
// open for writing, and waits.
func (f *FS) Close() error {
	f.mu.Lock()
	if !f.closed && f.stats.Creates > 0 {
		f.cfg.Log.Info("files made on HDFS", "last hour", f.creates.sum(time.Now()), "in all", f.stats.Creates)
	}
	f.closed = true
	shared, spare := f.shared, f.spare
	f.shared, f.spare = nil, nil
	var open []*File
	for _, w := range f.open {
		open = append(open, w)
	}
	f.mu.Unlock()
	f.cancel()
	if shared != nil {
		shared.close()
	}
	for _, w := range spare {
		w.close()
	}
	for _, w := range open {
		w.fail(fs.ErrClosed)
	}
	f.tasks.Wait()
	return nil
}

// client returns the one that is shared.
func (f *FS) client() (*client, error) {
	f.mu.Lock()
	c, closed := f.shared, f.closed
	f.mu.Unlock()
	if closed {
		return nil, fs.ErrClosed
	}
	if c != nil {
		return c, nil
	}
	c, err := f.connect(nil)
	if err != nil {
		return nil, err
	}
	// The library caches these without a lock.
	if _, err := c.ServerDefaults(); err != nil {
		c.close()
		f.first.Add(1)
		return nil, err
	}
	f.mu.Lock()
	other, closed := f.shared, f.closed
	if other == nil && !closed {
		f.shared = c
	}
	f.mu.Unlock()
	if closed {
		c.close()
		return nil, fs.ErrClosed
	}
	if other != nil {
		c.close()
		return other, nil
	}
	return c, nil
}

// connect makes a client. The namenode that answered last is asked first.
func (f *FS) connect(s *stream) (*client, error) {
	return newClient(f.cfg, int(f.first.Load())%len(f.cfg.Addresses), &f.away, s)
}

// drop ends a client whose namenode did not answer. The next is made with the
// next address in front.
func (f *FS) drop(c *client) {
	f.mu.Lock()
	if f.shared == c {
		f.shared = nil
	}
	f.mu.Unlock()
	f.first.Add(1)
	c.close()
}

// do calls the namenode, again and again while it is away, in safe mode or
// standby. Again says that an earlier attempt may have been executed, though its
// answer never came.
func (f *FS) do(what, name string, call func(c *client, again bool) error) error {
	if name == "" {
		return fs.ErrNotExist
	}
	began, delay, again := time.Now(), 20*time.Millisecond, false
	done := f.log.begin(what + " " + name)
	defer done()
	for {
		c, err := f.client()
		if err == nil {
			if err = interpret(call(c, again)); err == nil || answered(err) && !notActive(err) {
				return err
			}
			if !answered(err) {
				again = true
				f.drop(c)
			}
		} else if err = interpret(err); errors.Is(err, fs.ErrPermission) {
			return err
		}
		if f.ctx.Err() != nil {
			return fs.ErrClosed
		}
		if waited := time.Since(began); waited >= f.cfg.Patience {
			return unavailable(waited.Round(time.Second).String(), err)
		}
		f.log.waiting(what+" "+name, err)
		if !f.pause(delay) {
			return fs.ErrClosed
		}
		delay = min(2*delay, time.Second)
	}
}

// pause is false if the file system was closed meanwhile.
func (f *FS) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// clusterDefaults asks the cluster once.
func (f *FS) clusterDefaults() (defaults, error) {
	f.mu.Lock()
	d := f.defaults
	f.mu.Unlock()
	if d != nil {
		return *d, nil
	}
	d = &defaults{}
	err := f.do("defaults of", "the cluster", func(c *client, _ bool) error {
		s, err := c.ServerDefaults()
		*d = defaults{blockSize: s.BlockSize, replication: s.Replication, encrypted: s.EncryptDataTransfer}
		return err
	})
	if err != nil {
		return defaults{}, err
	}
	f.mu.Lock()
	f.defaults = d
	f.mu.Unlock()
	return *d, nil
}

// layout says how new files are written.
type layout struct {
	replication, least int
	blockSize          int64
	closing            bool
}

func (f *FS) layout() (layout, error) {
	d, err := f.clusterDefaults()
	if err != nil {
		return layout{}, err
	}
	l := layout{replication: f.cfg.Replication, least: f.cfg.MinReplicas, blockSize: f.cfg.BlockSize}
	if l.replication == 0 {
		l.replication = d.replication
	}
	if l.least == 0 {
		l.least = min(2, l.replication)
	}
	if l.blockSize == 0 {
		l.blockSize = d.blockSize
	}
	l.closing = f.cfg.CloseToCommit || d.encrypted || f.cfg.options.DataTransferProtection != ""
	return l, nil
}

// Promise implements fsys.Promiser.
func (f *FS) Promise(sync bool) (string, error) {
	l, err := f.layout()
	switch {
	case err != nil:
		return "", fmt.Errorf("hdfs://%s: %w", strings.Join(f.cfg.Addresses, ","), err)
	case l.closing && sync:
		return "", errors.New("files on HDFS are committed by closing them here, which brings nothing to disk: durability=sync is not possible, flush is")
	case l.closing:
		return fmt.Sprintf("what is acknowledged is in a file that was closed, with replication %d", l.replication), nil
	case sync:
		return fmt.Sprintf("what is acknowledged is on the disks of at least %d datanodes (of %d)", l.least, l.replication), nil
	}
	return fmt.Sprintf("what is acknowledged is with at least %d datanodes (of %d), not necessarily on their disks", l.least, l.replication), nil
}

// Mkdir implements fsys.FS. HDFS has no exclusive mkdir: of several who make the
// same directory at once, the one has made it who can set an attribute.
func (f *FS) Mkdir(name string) error {
	p := pathOf(name)
	err := f.mkdir(p)
	return pathError("mkdir", name, err)
}

func (f *FS) mkdir(p string) error {
	if p == "" {
		return fs.ErrNotExist
	}
	switch _, err := f.status(p); {
	case err == nil:
		return fs.ErrExist
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := f.mkdirs(p, false); err != nil {
		return err
	}
	return f.mark(p)
}

const (
	// maker is the extended attribute of a directory that says who made it.
	maker = "tidemill.maker"
	// onlyCreate has setXAttr refuse an attribute that exists.
	onlyCreate = 1
)

// mark sets a directory's maker, which one of several who made it at once can.
// Where HDFS has extended attributes switched off, all of them can.
func (f *FS) mark(p string) error {
	me := token()
	return f.do("mark", p, func(c *client, again bool) error {
		attr, err := newMessage("hadoop.hdfs.XAttrProto")
		if err != nil {
			return err
		}
		fields := attr.Descriptor().Fields()
		attr.Set(fields.ByName("namespace"), protoreflect.ValueOfEnum(0)) // USER
		attr.Set(fields.ByName("name"), protoreflect.ValueOfString(maker))
		attr.Set(fields.ByName("value"), protoreflect.ValueOfBytes([]byte(me)))
		_, err = c.call("setXAttr", arg{"src", p}, arg{"xAttr", attr}, arg{"flag", uint32(onlyCreate)})
		var remote *remoteError
		if !errors.As(interpret(err), &remote) {
			return err
		}
		switch {
		case strings.Contains(remote.message, "already exists"):
			if again {
				// An attempt whose answer was lost may have set it.
				if set, err := c.GetXAttrs(p, "user."+maker); err == nil && set["user."+maker] == me {
					return nil
				}
			}
			return fs.ErrExist
		case strings.Contains(remote.message, "xattr") && strings.Contains(remote.message, "disabled"):
			return nil
		}
		return err
	})
}

// MkdirAll implements fsys.FS.
func (f *FS) MkdirAll(name string) error {
	return pathError("mkdirall", name, f.mkdirs(pathOf(name), true))
}

func (f *FS) mkdirs(p string, parents bool) error {
	mode, err := permission(dirPermission)
	if err != nil {
		return err
	}
	err = f.do("mkdir", p, func(c *client, _ bool) error {
		_, err := c.call("mkdirs", arg{"src", p}, arg{"masked", mode}, arg{"createParent", parents})
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return syscall.ENOTDIR // a directory that exists is fine
	}
	return err
}

// Rename implements fsys.FS.
func (f *FS) Rename(oldName, newName string) error {
	from, to := pathOf(oldName), pathOf(newName)
	err := fs.ErrNotExist
	if to != "" {
		err = f.rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
	}
	f.moved(from, to)
	return nil
}

// moved follows a rename with the paths of the files that are being written here.
func (f *FS) moved(from, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var files []*File
	for p, file := range f.open {
		if p == from || strings.HasPrefix(p, from+"/") {
			files = append(files, file)
			delete(f.open, p)
		}
	}
	for _, file := range files {
		file.path.set(to + strings.TrimPrefix(file.path.get(), from))
		f.open[file.path.get()] = file
	}
}

func (f *FS) rename(from, to string) error {
	return f.do("rename", from, func(c *client, again bool) error {
		_, err := c.call("rename2", arg{"src", from}, arg{"dst", to}, arg{"overwriteDest", false})
		if !again || err == nil {
			return err
		}
		// An attempt whose answer was lost may have done it.
		if _, gone := c.Stat(from); !errors.Is(gone, fs.ErrNotExist) {
			return err
		}
		if _, there := c.Stat(to); there != nil {
			return err
		}
		return nil
	})
}

// Remove implements fsys.FS.
func (f *FS) Remove(name string) error {
	return pathError("remove", name, f.delete(pathOf(name), false))
}

// RemoveAll implements fsys.FS.
func (f *FS) RemoveAll(name string) error {
	return pathError("removeall", name, ignore(f.delete(pathOf(name), true), fs.ErrNotExist))
}

func (f *FS) delete(p string, all bool) error {
	return f.do("remove", p, func(c *client, again bool) error {
		resp, err := c.call("delete", arg{"src", p}, arg{"recursive", all})
		if err == nil && !get(resp, "result").Bool() && !again {
			return fs.ErrNotExist
		}
		return err
	})
}

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

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}
